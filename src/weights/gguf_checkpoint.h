// GGUF as a checkpoint: Hugging Face's tensor names, configuration and tokenizer from metadata.
#pragma once

#include <memory>

#include "weights/checkpoint.h"

namespace tw {

// `path` may be any part of a split file (NAME-00001-of-00003.gguf); all parts are opened.
Expected<std::unique_ptr<Checkpoint>> open_gguf_checkpoint(const std::filesystem::path& path);

}  // namespace tw
