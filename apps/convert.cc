// `tilewright convert`: a GGUF file (or any checkpoint) as a Hugging Face folder in bf16.
#include <filesystem>
#include <memory>
#include <string>

#include "apps/commands.h"
#include "apps/model_folder.h"
#include "hub/model_fetch.h"
#include "text/tokenizer.h"
#include "weights/checkpoint.h"
#include "weights/safetensors_writer.h"
#include "weights/tokenizer_source.h"

namespace tw {
namespace {

namespace fs = std::filesystem;

struct ConvertOptions {
  std::string input;
  std::string revision = "main";
  std::string output;
  bool force = false;
  double max_shard_gib = 5;
};

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

Expected<SafetensorsParts> weights_of(const Checkpoint& checkpoint) {
  SafetensorsParts parts;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    // GGUF's frequency divisors are in config.json as rope_scaling.
    if (tensor.name == "rope_freqs.weight") continue;
    if (tensor.shape.size() > 2) {
      return error(
          ErrorCode::unsupported,
          "{}: tensor {} holds all experts of a layer; mixtures cannot be converted, serve "
          "the file as it is",
          checkpoint.path().string(), tensor.name);
    }
    auto part = make_bf16_part(tensor);
    if (!part) return forward_error(part);
    parts.push_back(std::move(*part));
  }
  return parts;
}

Status convert(const ConvertOptions& options) {
  const auto input = fetch_model(options.input, options.revision, HubSettings::from_environment());
  if (!input) return tl::unexpected(input.error());
  auto checkpoint = Checkpoint::open(*input);
  if (!checkpoint) return forward_error(checkpoint);
  auto weights = weights_of(**checkpoint);
  if (!weights) return forward_error(weights);
  if (Status status = make_model_folder(input->string(), options.output, options.force); !status) {
    return status;
  }
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
  if (Status status = write_weights(folder, *weights, options.max_shard_gib, "writing"); !status) {
    return status;
  }
  fmt::print("wrote {}: serve it with tilewright serve --model-path {}\n", options.output,
             options.output);
  return {};
}

}  // namespace

void add_convert_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "convert", "Write a GGUF file as a Hugging Face folder (safetensors, bf16)");
  auto options = std::make_shared<ConvertOptions>();
  command
      ->add_option("input", options->input,
                   "GGUF file, or a model of the Hugging Face hub with its :TAG")
      ->required();
  command
      ->add_option("--revision", options->revision, "Branch, tag or commit of a model of the hub")
      ->capture_default_str();
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
