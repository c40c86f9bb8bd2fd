// Which files of a repository make up a model.
#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "hub/model_id.h"

namespace tw {

struct FileSelection {
  std::vector<std::string> files;  // in the repository
  std::string entry;               // the file to open; empty: their folder
};

// With a tag, the GGUF file (with its other parts, if it is split) whose name ends in the tag;
// without one, the safetensors with configuration and tokenizer, or the GGUF file if there is but
// one. Fails with what there is to choose from.
Expected<FileSelection> select_files(const ModelId& id, const std::vector<std::string>& files);

}  // namespace tw
