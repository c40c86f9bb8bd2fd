// `tilewright quantize`: a model's folder with its linear layers in a quantized format.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "apps/commands.h"
#include "apps/model_folder.h"
#include "core/cpu.h"
#include "hub/model_fetch.h"
#include "weights/checkpoint.h"
#include "weights/quantize/quantized_model.h"

namespace tw {
namespace {

namespace fs = std::filesystem;

struct QuantizeOptions {
  std::string input;
  std::string revision = "main";
  std::string output;
  QuantizationOptions quantization;
  bool force = false;
  double max_shard_gib = 5;
  int threads = 0;
};

// Tokenizers, templates, code and settings lie beside the weights in many files, whose names differ
// from model to model.
bool is_companion(const fs::path& file) {
  constexpr std::string_view kExtensions[] = {".json",  ".jinja",    ".txt",
                                              ".model", ".tiktoken", ".py"};
  const std::string name = file.filename().string();
  return std::ranges::find(kExtensions, file.extension().string()) != std::end(kExtensions) &&
         name != "config.json" && !name.ends_with(".index.json");
}

Status copy_companions(const fs::path& from, const fs::path& to) {
  std::error_code failure;
  for (fs::directory_iterator entry(from, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    if (!entry->is_regular_file(failure) || !is_companion(entry->path())) continue;
    if (!fs::copy_file(entry->path(), to / entry->path().filename(),
                       fs::copy_options::overwrite_existing, failure)) {
      break;
    }
  }
  if (!failure) return {};
  return error(ErrorCode::internal, "{}: cannot copy to {}: {}", from.string(), to.string(),
               failure.message());
}

Status quantize(const QuantizeOptions& options) {
  const auto input = fetch_model(options.input, options.revision, HubSettings::from_environment());
  if (!input) return tl::unexpected(input.error());
  auto checkpoint = Checkpoint::open(*input);
  if (!checkpoint) return forward_error(checkpoint);
  ThreadTeam team(options.threads > 0 ? options.threads : usable_cpu_count());
  auto model = plan_quantized_model(**checkpoint, options.quantization, team);
  if (!model) return forward_error(model);
  if (Status status = make_model_folder(input->string(), options.output, options.force); !status) {
    return status;
  }
  const fs::path folder = options.output;
  if (Status status = copy_companions(*input, folder); !status) return status;
  if (Status status = write_weights(folder, model->parts, options.max_shard_gib, "quantizing");
      !status) {
    return status;
  }
  // Last, so that a folder that was left half done is no model.
  if (Status status = write_json(folder / "config.json", model->config); !status) return status;
  fmt::print("wrote {}, {} linear layers in {}: serve it with tilewright serve --model-path {}\n",
             options.output, model->num_modules, options.quantization.name, options.output);
  return {};
}

}  // namespace

void add_quantize_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "quantize", "Write a model's folder with its linear layers quantized (compressed-tensors)");
  auto options = std::make_shared<QuantizeOptions>();
  command
      ->add_option(
          "model,--model-path,--model,-m", options->input,
          "Folder with config.json and safetensors in bf16, f16 or f32, or such a model of "
          "the Hugging Face hub")
      ->required();
  command
      ->add_option("--revision", options->revision, "Branch, tag or commit of a model of the hub")
      ->capture_default_str();
  command->add_option("--quantization,-q", options->quantization.name, quantization_names())
      ->required();
  command->add_option("--output,-o", options->output, "Folder to write")->required();
  command->add_option(
      "--group-size", options->quantization.group_size,
      fmt::format("Weights that share a scale, for int4 (0: {})", kDefaultGroupSize));
  command->add_option("--max-shard-size", options->max_shard_gib, "Largest file, in GiB")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Threads (0: one per CPU that may be used)")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_flag("--force", options->force, "Write into a folder that is not empty");
  command->callback([options, &exit_code] {
    if (Status status = quantize(*options); !status) exit_code = report(status.error());
  });
}

}  // namespace tw
