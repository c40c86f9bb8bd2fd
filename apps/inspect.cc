// `tilewright inspect`: what a checkpoint holds, without loading it.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "apps/commands.h"
#include "core/log.h"
#include "hub/model_fetch.h"
#include "weights/checkpoint.h"
#include "weights/schemes/scheme.h"
#include "weights/tokenizer_source.h"

namespace tw {
namespace {

struct InspectOptions {
  std::string path;  // or a hub's name
  std::string revision = "main";
  bool tensors = true;
};

double mib(uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

void print_tensors(const Checkpoint& checkpoint) {
  size_t width = 4;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    width = std::max(width, tensor.name.size());
  }
  fmt::print("tensors\n  {:<{}}  {:<5} {:<20} {:>12}\n", "name", width, "type", "shape", "bytes");
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    fmt::print("  {:<{}}  {:<5} {:<20} {:>12}\n", tensor.name, width, traits(tensor.type).name,
               fmt::format("[{}]", fmt::join(tensor.shape, ", ")), tensor.data.size());
  }
}

void print_totals(const Checkpoint& checkpoint) {
  struct Total {
    int64_t tensors = 0;
    uint64_t elements = 0;
    uint64_t bytes = 0;
  };
  std::map<std::string, Total> totals;
  Total all;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    uint64_t elements = 1;
    for (int64_t dimension : tensor.shape) elements *= static_cast<uint64_t>(dimension);
    for (Total* total : {&totals[traits(tensor.type).name], &all}) {
      ++total->tensors;
      total->elements += elements;
      total->bytes += tensor.data.size();
    }
  }
  fmt::print("totals\n");
  for (const auto& [type, total] : totals) {
    fmt::print("  {:<5} {:>5} tensors {:>14} elements {:>10.1f} MiB\n", type, total.tensors,
               total.elements, mib(total.bytes));
  }
  fmt::print("  {:<5} {:>5} tensors {:>14} elements {:>10.1f} MiB\n", "all", all.tensors,
             all.elements, mib(all.bytes));
}

void print_tokenizer(const Checkpoint& checkpoint) {
  fmt::print("tokenizer\n");
  auto source = checkpoint.tokenizer_source();
  if (!source) {
    fmt::print("  none: {}\n", source.error().message);
  } else if (source->gguf) {
    fmt::print("  GGUF model {} pre {}, {} tokens, {} merges\n", source->gguf->model,
               source->gguf->pre.empty() ? "(none)" : source->gguf->pre,
               source->gguf->tokens.size(), source->gguf->merges.size());
  } else {
    fmt::print("  tokenizer.json, {} bytes\n", source->tokenizer_json.size());
  }
  fmt::print("  {}\n", dump_json(checkpoint.tokenizer_config()));
  const auto chat_template = checkpoint.chat_template();
  fmt::print("chat template\n{}\n", chat_template ? *chat_template : "  none");
}

// What quantization_config says of itself: the method, and which of its formats.
std::string quantization_of(const Checkpoint& checkpoint) {
  const auto found = checkpoint.config().find("quantization_config");
  if (found == checkpoint.config().end() || !found->is_object()) {
    return "none but what the types of the tensors say";
  }
  std::string text;
  for (const char* field : {"quant_method", "quant_algo", "format", "fmt"}) {
    const auto value = found->find(field);
    if (value == found->end() || !value->is_string()) continue;
    text += (text.empty() ? "" : ", ") + value->get<std::string>();
  }
  const auto scheme = make_scheme(checkpoint.config(), checkpoint.path().string());
  return scheme ? text : fmt::format("{} (not supported: {})", text, scheme.error().message);
}

Status inspect(const InspectOptions& options) {
  const auto path = fetch_model(options.path, options.revision, HubSettings::from_environment());
  if (!path) return tl::unexpected(path.error());
  auto checkpoint = Checkpoint::open(*path);
  if (!checkpoint) return forward_error(checkpoint);
  fmt::print("{} ({})\n", options.path, (*checkpoint)->container());
  fmt::print("config\n{}\n", dump_json((*checkpoint)->config(), 2));
  fmt::print("generation config\n  {}\n", dump_json((*checkpoint)->generation_config()));
  fmt::print("quantization\n  {}\n", quantization_of(**checkpoint));
  if (options.tensors) print_tensors(**checkpoint);
  print_totals(**checkpoint);
  print_tokenizer(**checkpoint);
  return {};
}

}  // namespace

void add_inspect_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "inspect", "Print a checkpoint's configuration, tensors, tokenizer and chat template");
  auto options = std::make_shared<InspectOptions>();
  command
      ->add_option("path", options->path,
                   "GGUF file, folder with safetensors, or a model of the Hugging Face hub")
      ->required();
  command
      ->add_option("--revision", options->revision, "Branch, tag or commit of a model of the hub")
      ->capture_default_str();
  command->add_flag("!--no-tensors", options->tensors, "Leave out the list of tensors");
  command->callback([options, &exit_code] {
    Status status = configure_log({});
    if (status) status = inspect(*options);
    if (!status) exit_code = report(status.error());
  });
}

}  // namespace tw
