#include "engine/expert_balancer.h"

#include <algorithm>
#include <utility>

#include "core/log.h"
#include "nn/expert_layer.h"

namespace tw {

ExpertBalancer::ExpertBalancer(Model& model, int32_t interval)
    : model_(model), moves_(interval > 0), interval_(moves_ ? interval : kObservedSteps) {
  for (const ExpertLayer* layer : model_.expert_layers()) seen_.push_back(layer->choices());
}

void ExpertBalancer::after_step() {
  if (seen_.empty()) return;
  if (!pending_.empty()) return move_next_layer();
  if (++steps_ < interval_) return;
  steps_ = 0;
  observe();
}

void ExpertBalancer::observe() {
  const auto layers = model_.expert_layers();
  double sum = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::vector<int64_t> now = layers[i]->choices();
    std::vector<int64_t> work = now;
    for (size_t expert = 0; expert < work.size(); ++expert) work[expert] -= seen_[i][expert];
    seen_[i] = now;
    const double imbalance = layers[i]->placement().imbalance(work);
    sum += imbalance;
    if (!moves_ || layers[i]->placement().num_groups() == 1) continue;
    ExpertPlacement better = move_experts(layers[i]->placement(), layers[i]->slots(), work);
    if (better.imbalance(work) <= imbalance * (1 - kWorthwhile)) {
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
