// config.json, generation_config.json and tokenizer_config.json as GGUF's metadata imply them.
#pragma once

#include "core/json.h"
#include "core/status.h"
#include "text/tokenizer.h"
#include "weights/gguf_file.h"

namespace tw {

// The fields of Hugging Face's config.json. An unknown architecture (gguf_architectures.cc) is
// passed on by its GGUF name, for the model registry to refuse.
Expected<Json> gguf_model_config(const GgufFile& gguf, std::span<const StoredTensor> tensors);
Json gguf_generation_config(const GgufFile& gguf);
Json gguf_tokenizer_config(const GgufFile& gguf);
Expected<GgufVocabulary> gguf_vocabulary(const GgufFile& gguf);

}  // namespace tw
