// A Hugging Face folder as a checkpoint: config.json, safetensors (one file, or shards with an
// index), tokenizer.json, tokenizer_config.json, chat_template.jinja, generation_config.json.
#pragma once

#include <memory>

#include "weights/checkpoint.h"

namespace tw {

Expected<std::unique_ptr<Checkpoint>> open_hugging_face_checkpoint(
    const std::filesystem::path& folder);

}  // namespace tw
