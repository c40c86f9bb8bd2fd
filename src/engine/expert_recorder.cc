#include "engine/expert_recorder.h"

#include "nn/expert_layer.h"

namespace tw {

std::vector<std::vector<int64_t>> ExpertRecorder::count() const {
  std::vector<std::vector<int64_t>> counts;
  for (const ExpertLayer* layer : model_.expert_layers()) counts.push_back(layer->choices());
  return counts;
}

Status ExpertRecorder::start() {
  if (!begin_.empty() && !end_) {
    return error(ErrorCode::invalid_argument,
                 "the expert distribution is being recorded; stop it first");
  }
  if (model_.expert_layers().empty()) {
    return error(ErrorCode::invalid_argument, "the model has no experts to record");
  }
  begin_ = count();
  end_.reset();
  return {};
}

Status ExpertRecorder::stop() {
  if (begin_.empty() || end_) {
    return error(ErrorCode::invalid_argument, "the expert distribution is not being recorded");
  }
  end_ = count();
  return {};
}

Expected<ExpertDistribution> ExpertRecorder::dump() const {
  if (begin_.empty()) {
    return error(ErrorCode::invalid_argument,
                 "no expert distribution was recorded; POST /start_expert_distribution_record, and "
                 "requests, first");
  }
  const auto end = end_ ? *end_ : count();
  const auto layers = model_.expert_layers();
  ExpertDistribution distribution;
  for (size_t i = 0; i < layers.size(); ++i) {
    std::vector<int64_t> choices = end[i];
    for (size_t expert = 0; expert < choices.size(); ++expert) choices[expert] -= begin_[i][expert];
    distribution.layers.push_back({layers[i]->name(), std::move(choices), layers[i]->placement()});
  }
  return distribution;
}

}  // namespace tw
