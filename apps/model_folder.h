// What the commands that write a Hugging Face folder share.
#pragma once

#include <filesystem>
#include <string>

#include "core/json.h"
#include "core/status.h"
#include "weights/safetensors_writer.h"

namespace tw {

// Makes the folder, and with `force` takes away what an earlier model left there and a reader would
// prefer to the new one. Without it a folder that holds anything is an error, as is the input
// itself.
Status make_model_folder(const std::filesystem::path& input, const std::filesystem::path& output,
                         bool force);

Status write_text(const std::filesystem::path& path, const std::string& text);
Status write_json(const std::filesystem::path& path, const Json& value);

// write_safetensors() with a progress bar.
Status write_weights(const std::filesystem::path& folder, const SafetensorsParts& parts,
                     double max_shard_gib, const char* label);

}  // namespace tw
