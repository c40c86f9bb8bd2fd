// `tilewright convert`: a GGUF file (or any checkpoint) as a Hugging Face folder in bf16.
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "apps/commands.h"
#include "core/log.h"
#include "core/progress.h"
#include "text/tokenizer.h"
#include "weights/checkpoint.h"
#include "weights/safetensors_writer.h"
#include "weights/tokenizer_source.h"

namespace tw {
namespace {

namespace fs = std::filesystem;

struct ConvertOptions {
  std::string input;
  std::string output;
  bool force = false;
  double max_shard_gib = 5;
};

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

// What an earlier conversion left and this one may not overwrite: a reader would prefer an old
// index to a new single file, and an old template to the new one.
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

Status make_folder(const ConvertOptions& options) {
  std::error_code failure;
  if (fs::equivalent(options.input, options.output, failure)) {
    return error(ErrorCode::invalid_argument, "{}: input and output are the same folder",
                 options.output);
  }
  failure.clear();
  fs::create_directories(options.output, failure);
  if (failure) {
    return error(ErrorCode::invalid_argument, "{}: cannot make the folder: {}", options.output,
                 failure.message());
  }
  if (!fs::is_empty(options.output, failure) && !options.force) {
    return error(ErrorCode::invalid_argument,
                 "{}: the folder is not empty; choose another or overwrite with --force",
                 options.output);
  }
  return remove_stale_files(options.output);
}

Status write_tokenizer(const Checkpoint& checkpoint, const fs::path& folder) {
  auto source = checkpoint.tokenizer_source();
  if (!source) return forward_error(source);
  std::string json = std::move(source->tokenizer_json);
  if (source->gguf) {
    auto tokenizer = Tokenizer::from_gguf(*source->gguf);
    if (!tokenizer) return forward_error(tokenizer);
    json = tokenizer->to_json();
  }
  if (Status status = write_text(folder / "tokenizer.json", json); !status) return status;
  Json config = checkpoint.tokenizer_config();
  if (const auto chat_template = checkpoint.chat_template()) {
    config["chat_template"] = *chat_template;
  }
  return write_json(folder / "tokenizer_config.json", config);
}

Status write_weights(const Checkpoint& checkpoint, const ConvertOptions& options) {
  std::vector<const StoredTensor*> tensors;
  uint64_t total = 0;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    // GGUF's frequency divisors are in config.json as rope_scaling.
    if (tensor.name == "rope_freqs.weight") continue;
    tensors.push_back(&tensor);
    total += bf16_bytes(tensor);
  }
  ProgressBar progress("writing", static_cast<int64_t>(total >> 20), "MiB");
  SafetensorsWriteOptions write;
  write.max_shard_bytes = static_cast<uint64_t>(options.max_shard_gib * (1 << 30));
  int64_t written = 0;
  write.on_progress = [&](int64_t bytes) {
    const int64_t before = written >> 20;
    written += bytes;
    progress.advance((written >> 20) - before);
  };
  return write_safetensors(options.output, tensors, write);
}

Status convert(const ConvertOptions& options) {
  auto checkpoint = Checkpoint::open(options.input);
  if (!checkpoint) return forward_error(checkpoint);
  if (Status status = make_folder(options); !status) return status;
  const fs::path folder = options.output;
  if (Status status = write_json(folder / "config.json", (*checkpoint)->config()); !status) {
    return status;
  }
  if (Status status =
          write_json(folder / "generation_config.json", (*checkpoint)->generation_config());
      !status) {
    return status;
  }
  if (Status status = write_tokenizer(**checkpoint, folder); !status) return status;
  if (Status status = write_weights(**checkpoint, options); !status) return status;
  fmt::print("wrote {}: serve it with tilewright serve --model-path {}\n", options.output,
             options.output);
  return {};
}

}  // namespace

void add_convert_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "convert", "Write a GGUF file as a Hugging Face folder (safetensors, bf16)");
  auto options = std::make_shared<ConvertOptions>();
  command->add_option("input", options->input, "GGUF file")->required();
  command->add_option("output", options->output, "Folder to write")->required();
  command->add_flag("--force", options->force, "Write into a folder that is not empty");
  command->add_option("--max-shard-size", options->max_shard_gib, "Largest file, in GiB")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  command->callback([options, &exit_code] {
    if (Status status = convert(*options); !status) exit_code = report(status.error());
  });
}

}  // namespace tw
