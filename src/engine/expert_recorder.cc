#include "engine/expert_recorder.h"

#include "nn/expert_layer.h"

namespace tw {

Status ExpertRecorder::start() {
  if (!begin_.empty() && !end_) {
    return error(ErrorCode::invalid_argument,
                 "the expert distribution is being recorded; stop it first");
  }
  if (model_.expert_layers().empty()) {
    return error(ErrorCode::invalid_argument, "the model has no experts to record");
  }
  begin_ = count_choices(model_);
  end_.reset();
  return {};
}

Status ExpertRecorder::stop() {
  if (begin_.empty() || end_) {
    return error(ErrorCode::invalid_argument, "the expert distribution is not being recorded");
  }
  end_ = count_choices(model_);
  return {};
}

Expected<ExpertDistribution> ExpertRecorder::dump() const {
  if (begin_.empty()) {
    return error(ErrorCode::invalid_argument,
                 "no expert distribution was recorded; POST /start_expert_distribution_record, and "
                 "requests, first");
  }
  ExpertCounts choices = counts_since(begin_, end_ ? *end_ : count_choices(model_));
  const auto layers = model_.expert_layers();
  ExpertDistribution distribution;
  for (size_t i = 0; i < layers.size(); ++i) {
    distribution.layers.push_back(
        {layers[i]->name(), std::move(choices[i]), layers[i]->placement()});
  }
  return distribution;
}

}  // namespace tw
