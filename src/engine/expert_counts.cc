#include "engine/expert_counts.h"

#include <algorithm>
#include <functional>

#include "nn/expert_layer.h"

namespace tw {

ExpertCounts count_choices(Model& model) {
  ExpertCounts counts;
  for (const ExpertLayer* layer : model.expert_layers()) counts.push_back(layer->choices());
  return counts;
}

ExpertCounts counts_since(const ExpertCounts& before, ExpertCounts now) {
  for (size_t layer = 0; layer < now.size(); ++layer) {
    std::ranges::transform(now[layer], before[layer], now[layer].begin(), std::minus());
  }
  return now;
}

}  // namespace tw
