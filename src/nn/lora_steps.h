// The steps of low-rank adapters behind a linear layer.
#pragma once

#include "nn/linear.h"
#include "nn/lora_adapter.h"
#include "nn/plan.h"

namespace tw {

// Records output += B (A input), by the adapter of each token's sequence. Both values have a row
// per token.
void record_lora(const LoraSite& site, PlanRecorder& recorder, PreparedInputs& prepared,
                 ValueId input, ValueId output);

}  // namespace tw
