// `tilewright plan`: whether a model fits a machine, and how fast it will be there. Reads the
// checkpoint's configuration and headers, no weights.
#include <fmt/format.h>

#include <memory>

#include "apps/bench/machine_json.h"
#include "apps/commands.h"
#include "apps/plan_model.h"
#include "core/cpu.h"
#include "core/log.h"
#include "core/text_file.h"
#include "core/thread_team.h"
#include "hub/model_fetch.h"
#include "models/registry.h"
#include "weights/quantize/quantizer.h"

namespace tw {
namespace {

struct PlanOptions {
  std::string model_path;
  std::string revision = "main";
  std::string quantization;
  std::string kv_cache_dtype = "auto";
  std::string machine;  // file; empty: this machine, measured
  PlanQuestion question;
  double link_gigabits = 100;
  double link_microseconds = 10;
  bool json = false;
};

Expected<MachineDescription> machine_of(const PlanOptions& options) {
  if (options.machine.empty()) {
    auto measured = measure_machine_json(usable_cpu_count(), 0.2);
    if (!measured) return forward_error(measured);
    return MachineDescription::parse(*measured, "this machine");
  }
  const auto text = read_text_file(options.machine);
  if (!text) return error(ErrorCode::not_found, "--machine {}: cannot open", options.machine);
  const auto json = parse_json(*text, options.machine);
  if (!json) return tl::unexpected(json.error());
  return MachineDescription::parse(*json, "--machine " + options.machine);
}

// By the model's own layers, loaded without their weights.
Expected<int64_t> kv_bytes_per_token(const Checkpoint& checkpoint, const PlanOptions& options) {
  const auto features = usable_cpu_features();
  if (!features) return tl::unexpected(features.error());
  ThreadTeam team(1);
  WeightLoader loader(checkpoint, team, {*features, kernels::ActivationPrecision::bf16});
  loader.checks_only = true;
  if (options.kv_cache_dtype == "fp8_e4m3") loader.kv_type = kernels::KvType::fp8_e4m3;
  const auto model = load_model(loader);
  if (!model) return tl::unexpected(model.error());
  return (*model)->limits().kv_bytes_per_token;
}

constexpr double kGib = 1 << 30;

void print(const PlanOptions& options, const MachineDescription& machine, const ModelCosts& model,
           const PlanAnswer& answer) {
  const PlanQuestion& question = options.question;
  fmt::print(
      "machine   {:.1f} GB/s, {:.2f} TOP/s before quantized and {:.2f} before float weights, "
      "{:.1f} GiB, {} memory node{}\n",
      machine.read_bandwidth / 1e9, machine.integer_rate / 1e12, machine.float_rate / 1e12,
      static_cast<double>(machine.memory_bytes) / kGib, machine.num_nodes,
      machine.num_nodes == 1 ? "" : "s");
  fmt::print("weights   {:.2f} GiB, {:.2f} GiB of them read for one token\n",
             answer.weight_bytes / kGib, model.step_bytes(1) / kGib);
  fmt::print("KV cache  {} bytes a token; {:.2f} GiB for {} x {} tokens; {} tokens fit\n",
             model.kv_bytes_per_token, answer.kv_bytes / kGib, question.batch_size,
             question.prompt_tokens + question.output_tokens, answer.max_tokens);
  fmt::print("memory    {:.2f} GiB: {}\n", answer.memory_needed / kGib,
             answer.fits ? "fits" : "does not fit; quantize (--quantization), or shorten");
  fmt::print(
      "TTFT      {:.0f} ms for {} prompt tokens{}\n", answer.ttft * 1e3, question.prompt_tokens,
      question.batch_size == 1 ? "" : fmt::format(" of each of {} requests", question.batch_size));
  fmt::print("TPOT      {:.1f} ms, {:.1f} tokens/s in all\n", answer.tpot * 1e3,
             answer.output_rate);
  if (question.num_hosts > 1) {
    fmt::print(
        "network   {} messages of {:.0f} KB from a host to others for each step of decoding: "
        "{:.2f} ms\n",
        answer.decode.sent.messages,
        static_cast<double>(answer.decode.sent.bytes) /
            static_cast<double>(answer.decode.sent.messages) / 1e3,
        answer.decode.seconds * 1e3);
  }
  if (answer.tensor_parallel > 1) {
    fmt::print("layout    --tp {}{}: a rank per memory node, each with its part of the weights\n",
               answer.tensor_parallel,
               question.num_hosts > 1 ? fmt::format(" --nnodes {}", question.num_hosts) : "");
  }
}

Json to_json(const ModelCosts& model, const PlanAnswer& answer) {
  return {{"weight_bytes", answer.weight_bytes},
          {"active_weights", model.active_weights()},
          {"bytes_per_token", model.step_bytes(1)},
          {"kv_bytes_per_token", model.kv_bytes_per_token},
          {"kv_bytes", answer.kv_bytes},
          {"memory_needed", answer.memory_needed},
          {"fits", answer.fits},
          {"max_tokens", answer.max_tokens},
          {"ttft_seconds", answer.ttft},
          {"tpot_seconds", answer.tpot},
          {"output_tokens_per_second", answer.output_rate},
          {"tensor_parallel_size", answer.tensor_parallel},
          {"messages_per_step", answer.decode.sent.messages},
          {"message_bytes_per_step", answer.decode.sent.bytes},
          {"network_seconds_per_step", answer.decode.seconds}};
}

Status plan(const PlanOptions& options) {
  const auto path =
      fetch_model(options.model_path, options.revision, HubSettings::from_environment());
  if (!path) return tl::unexpected(path.error());
  const auto checkpoint = Checkpoint::open(*path);
  if (!checkpoint) return tl::unexpected(checkpoint.error());
  ModelCosts model = ModelCosts::of(**checkpoint, options.quantization);
  const auto kv_bytes = kv_bytes_per_token(**checkpoint, options);
  if (!kv_bytes) return tl::unexpected(kv_bytes.error());
  model.kv_bytes_per_token = *kv_bytes;
  auto machine = machine_of(options);
  if (!machine) return tl::unexpected(machine.error());
  machine->link_bandwidth = options.link_gigabits * 1e9 / 8;
  machine->link_latency = options.link_microseconds * 1e-6;
  const PlanAnswer answer = make_plan(*machine, model, options.question);
  if (options.json) {
    fmt::print("{}\n", dump_json(to_json(model, answer), 2));
  } else {
    print(options, *machine, model, answer);
  }
  return {};
}

}  // namespace

void add_plan_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "plan", "Predict memory, time to first token and time per token of a model on a machine");
  auto options = std::make_shared<PlanOptions>();
  const auto option = [&](const char* flags, auto& value, const std::string& help) {
    return command->add_option(flags, value, help)->capture_default_str();
  };
  constexpr int64_t kMost = int64_t{1} << 30;
  option("model,--model-path,--model,-m", options->model_path,
         "GGUF file, folder with safetensors, or a model of the Hugging Face hub")
      ->required();
  option("--revision", options->revision, "Branch, tag or commit of a model of the hub");
  option("--machine", options->machine,
         "File that tilewright bench machine --json wrote elsewhere (default: this machine)");
  option("--quantization", options->quantization,
         "As serve would quantize at load: " + quantization_names());
  option("--kv-cache-dtype", options->kv_cache_dtype, "auto (bf16) or fp8_e4m3")
      ->check(CLI::IsMember({"auto", "bf16", "bfloat16", "fp8_e4m3"}));
  option("--prompt-tokens", options->question.prompt_tokens, "Of each request")
      ->check(CLI::Range(int64_t{1}, kMost));
  option("--output-tokens", options->question.output_tokens, "Of each request")
      ->check(CLI::Range(int64_t{1}, kMost));
  option("--batch-size", options->question.batch_size, "Requests side by side")
      ->check(CLI::Range(int64_t{1}, kMost));
  option("--nnodes", options->question.num_hosts, "Such machines that compute together")
      ->check(CLI::Range(1, 64));
  option("--link-gbps", options->link_gigabits, "Gigabits/s of a machine's link to the others")
      ->check(CLI::Range(0.001, 1e6));
  option("--link-latency", options->link_microseconds,
         "Microseconds until a short message is there")
      ->check(CLI::Range(0.0, 1e6));
  command->add_flag("--json", options->json, "One JSON object instead of text");
  command->callback([options, &exit_code] {
    Status status = configure_log({});
    if (status) status = plan(*options);
    if (!status) exit_code = report(status.error());
  });
}

}  // namespace tw
