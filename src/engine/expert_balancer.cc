#include "engine/expert_balancer.h"

#include <algorithm>
#include <utility>

#include "core/log.h"
#include "nn/expert_layer.h"

namespace tw {

ExpertBalancer::ExpertBalancer(Model& model, int32_t interval)
    : model_(model),
      moves_(interval > 0),
      interval_(moves_ ? interval : kObservedSteps),
      seen_(count_choices(model)) {}

void ExpertBalancer::after_step() {
  if (seen_.empty()) return;
  if (!pending_.empty()) return move_next_layer();
  if (++steps_ < interval_) return;
  steps_ = 0;
  observe();
}

void ExpertBalancer::observe() {
  const auto layers = model_.expert_layers();
  ExpertCounts now = count_choices(model_);
  const ExpertCounts work = counts_since(seen_, now);
  seen_ = std::move(now);
  double sum = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const double imbalance = layers[i]->placement().imbalance(work[i]);
    sum += imbalance;
    if (!moves_ || layers[i]->placement().num_groups() == 1) continue;
    ExpertPlacement better = move_experts(layers[i]->placement(), layers[i]->slots(), work[i]);
    if (better.imbalance(work[i]) <= imbalance * (1 - kWorthwhile)) {
      pending_.emplace_back(i, std::move(better));
    }
  }
  imbalance_ = sum / static_cast<double>(layers.size());
  if (!pending_.empty()) {
    log::info("experts: the busiest rank has {:.2f} times the mean work; moving those of {} layers",
              imbalance_, pending_.size());
  }
}

void ExpertBalancer::move_next_layer() {
  const auto [layer, placement] = std::move(pending_.back());
  pending_.pop_back();
  if (Status status = model_.place_experts(layer, placement); !status) {
    log::warn("experts stay where they are: {}", status.error().message);
    pending_.clear();
    moves_ = false;
    return;
  }
  ++num_moves_;
}

}  // namespace tw
