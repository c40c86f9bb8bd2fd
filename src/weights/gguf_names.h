// Hugging Face's names for GGUF's tensors.
#pragma once

#include <string>
#include <string_view>

#include "weights/gguf_architectures.h"

namespace tw {

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight". Names without a counterpart
// stay as they are. `layer_names` are the architecture's own and go first.
std::string hugging_face_name(std::string_view gguf_name, std::span<const GgufName> layer_names);

}  // namespace tw
