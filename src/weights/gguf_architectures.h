// The model architectures as GGUF has them: the names of their tensors, and what their metadata
// says beyond the fields that all have. One row each; the conversion scripts of llama.cpp are the
// specification.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/json.h"
#include "core/status.h"
#include "weights/gguf_file.h"

namespace tw {

struct GgufName {
  std::string_view gguf;          // without the last part: ".weight", ".bias"
  std::string_view hugging_face;  // behind "model.layers.<i>."
  bool is_parameter = false;      // no module: the name has no last part
};

// What a row's function reads from.
struct GgufModel {
  const GgufFile& gguf;
  std::span<const StoredTensor> tensors;  // under Hugging Face's names
  std::string prefix;                     // of its keys: "gemma2."
};

struct GgufArchitecture {
  std::string_view name;          // general.architecture
  std::string_view hugging_face;  // in "architectures" of config.json
  std::string_view model_type;
  // Tensors of a layer whose names are not the common ones of gguf_names.cc.
  std::span<const GgufName> layer_names = {};
  // Whether query and key rows were permuted for a rotation of neighbouring pairs (RowOrder).
  bool interleaved_heads = false;
  // Adds to a configuration that has the common fields.
  void (*complete)(const GgufModel& model, Json& config) = nullptr;
};

// Null for an unknown one.
const GgufArchitecture* find_gguf_architecture(std::string_view name);

}  // namespace tw
