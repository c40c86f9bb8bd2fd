#include "apps/model_folder.h"

#include <fstream>

#include "core/progress.h"

namespace tw {
namespace {

namespace fs = std::filesystem;

// A reader would prefer an old index to a new single file, and an old template to the new one.
Status remove_stale_files(const fs::path& folder) {
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    const std::string name = entry->path().filename().string();
    const bool is_stale = entry->path().extension() == ".safetensors" ||
                          name == "model.safetensors.index.json" || name == "chat_template.jinja";
    if (is_stale && !fs::remove(entry->path(), failure)) break;
  }
  if (!failure) return {};
  return error(ErrorCode::internal, "{}: cannot remove old files: {}", folder.string(),
               failure.message());
}

}  // namespace

Status make_model_folder(const fs::path& input, const fs::path& output, bool force) {
  std::error_code failure;
  if (fs::equivalent(input, output, failure)) {
    return error(ErrorCode::invalid_argument, "{}: input and output are the same folder",
                 output.string());
  }
  failure.clear();
  fs::create_directories(output, failure);
  if (failure) {
    return error(ErrorCode::invalid_argument, "{}: cannot make the folder: {}", output.string(),
                 failure.message());
  }
  if (!fs::is_empty(output, failure) && !force) {
    return error(ErrorCode::invalid_argument,
                 "{}: the folder is not empty; choose another or overwrite with --force",
                 output.string());
  }
  return remove_stale_files(output);
}

Status write_text(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) return error(ErrorCode::internal, "{}: cannot write", path.string());
  return {};
}

Status write_json(const fs::path& path, const Json& value) {
  return write_text(path, dump_json(value, 2) + "\n");
}

Status write_weights(const fs::path& folder, const SafetensorsParts& parts, double max_shard_gib,
                     const char* label) {
  uint64_t total = 0;
  for (const auto& part : parts) total += part->bytes();
  ProgressBar progress(label, static_cast<int64_t>(total >> 20), "MiB");
  SafetensorsWriteOptions options;
  options.max_shard_bytes = static_cast<uint64_t>(max_shard_gib * (1 << 30));
  int64_t written = 0;
  options.on_progress = [&](int64_t bytes) {
    const int64_t before = written >> 20;
    written += bytes;
    progress.advance((written >> 20) - before);
  };
  return write_safetensors(folder, parts, options);
}

}  // namespace tw
