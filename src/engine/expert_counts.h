// How often the experts of a model's layers were chosen, and since when.
#pragma once

#include <cstdint>
#include <vector>

#include "models/model.h"

namespace tw {

using ExpertCounts = std::vector<std::vector<int64_t>>;  // [layer][expert]

// Since the model was loaded. Between two steps, as all of ExpertLayer.
ExpertCounts count_choices(Model& model);

// What was counted after `before`.
ExpertCounts counts_since(const ExpertCounts& before, ExpertCounts now);

}  // namespace tw
