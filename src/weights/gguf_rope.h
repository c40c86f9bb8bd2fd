// The scaling of rotary positions in GGUF: some of it is metadata, some is tensors that hold its
// results.
#pragma once

#include "core/json.h"
#include "weights/gguf_architectures.h"

namespace tw {

// rope_scaling of config.json, or null. `head_dim` is that of the configuration.
Expected<Json> gguf_rope_scaling(const GgufModel& model, double theta, int64_t head_dim);

}  // namespace tw
