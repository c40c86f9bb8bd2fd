#include "apps/model_options.h"

#include "hub/model_fetch.h"
#include "parallel/communicator.h"

namespace tw {
namespace {

constexpr const char* kScheduling = "Scheduling and memory";

}  // namespace

Expected<std::vector<std::pair<std::string, std::string>>> adapter_paths(
    const ModelOptions& options) {
  std::vector<std::pair<std::string, std::string>> paths;
  for (const std::string& text : options.lora_paths) {
    const size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == text.size()) {
      return error(ErrorCode::invalid_argument, "--lora-paths {}: must be NAME=FOLDER", text);
    }
    paths.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return paths;
}

void ModelOptions::add_to(CLI::App& command) {
  command
      .add_option(
          "model,--model-path,--model,-m", model_path,
          "GGUF file, folder with config.json and safetensors, or a model of the Hugging Face "
          "hub, which is downloaded once: ORGANIZATION/NAME, with :TAG for one GGUF file "
          "(:Q4_K_M)")
      ->required();
  command.add_option("--revision", revision, "Branch, tag or commit of a model of the hub")
      ->capture_default_str();
  command
      .add_option("--dtype", dtype,
                  "Precision of activations before bf16 weights: auto, bfloat16, float32")
      ->capture_default_str();
  command
      .add_option("--kv-cache-dtype", kv_cache_dtype,
                  "How keys and values are kept: auto or bf16, or fp8_e4m3 for half the memory, "
                  "with the checkpoint's scales where it has them")
      ->capture_default_str();
  command.add_option(
      "--quantization", quantization.name,
      "Quantize a bf16, f16 or f32 checkpoint while it is loaded: " + quantization_names());
  command.add_option("--chat-template", chat_template_path,
                     "File with a Jinja chat template that replaces the checkpoint's");
  command
      .add_option("--threads", threads,
                  "Compute threads (0: one per physical core that the process may use)")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command
      .add_option(
          "--tensor-parallel-size,--tp-size,--tp", tensor_parallel_size,
          "Ranks that compute each layer together, with a team of threads and a part of the "
          "weights each: one per memory node is best")
      ->check(CLI::Range(1, CommunicatorGroup::kMaxRanks))
      ->capture_default_str();
  command
      .add_option("--numa", numa,
                  "Memory nodes that threads and weights are placed by: auto (the machine's), off, "
                  "or NxC for N logical nodes of C cores")
      ->capture_default_str();
  command.add_option(
      "--cpu-bind", cpu_bind,
      "CPUs of each rank's threads, such as \"0-42|43-85\", instead of one per core");
  command.add_flag("!--no-pin-threads", pin_threads, "Let the system place the compute threads");
  command
      .add_option("--context-length", context_length,
                  "Longest prompt plus output, in tokens (0: the model's own)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  command.add_option("--log-level", log.level, "debug, info, warning or error")
      ->capture_default_str();
  command.add_option("--log-format", log.format, "Lines for people (text) or JSON objects (json)")
      ->capture_default_str();

  experts.add_to(command, engine);
  add_scheduling_to(command);
  add_speculation_to(command);
}

void ModelOptions::add_scheduling_to(CLI::App& command) {
  command
      .add_option("--mem-fraction-static", engine.mem_fraction_static,
                  "Share of the usable memory for weights and KV cache together")
      ->check(CLI::Range(0.01, 0.99))
      ->capture_default_str()
      ->group(kScheduling);
  command
      .add_option("--max-total-tokens", engine.max_total_tokens,
                  "Tokens that the KV cache holds (0: what memory allows)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str()
      ->group(kScheduling);
  command.add_option("--page-size", engine.page_size, "Tokens per page of the KV cache")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->group(kScheduling);
  command
      .add_option("--chunked-prefill-size", engine.chunked_prefill_size,
                  "Prompt tokens computed in one step, beside the running decodes")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str()
      ->group(kScheduling);
  command
      .add_option("--max-running-requests", engine.max_running_requests,
                  "Requests that decode together")
      ->check(CLI::Range(1, 1 << 14))
      ->capture_default_str()
      ->group(kScheduling);
  command
      .add_option("--max-queued-requests", engine.max_queued_requests,
                  "Requests that may wait; more are answered 429")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str()
      ->group(kScheduling);
  command
      .add_flag("--disable-radix-cache", engine.disable_radix_cache,
                "Do not keep the KV cache of finished requests for shared prefixes")
      ->group(kScheduling);
  command.add_option("--random-seed", engine.random_seed, "Seed for requests that bring none")
      ->capture_default_str()
      ->group(kScheduling);
}

void ModelOptions::add_speculation_to(CLI::App& command) {
  command
      .add_option(
          "--speculative-algorithm", engine.speculative_algorithm,
          "Verify several guessed tokens per step: NGRAM guesses what followed the last "
          "tokens before, in the request or in finished ones, STANDALONE what a smaller "
          "model says, NEXTN what the checkpoint's "
          "own layer for it says (DeepSeek-V3, GLM-4.5), EAGLE3 what a head trained for the model "
          "says. The output stays the same")
      ->group(kScheduling);
  command
      .add_option(
          "--speculative-draft-model-path", draft_model_path,
          "The smaller model of STANDALONE, with the same vocabulary, or the head of EAGLE3")
      ->group(kScheduling);
  command
      .add_option("--speculative-num-steps", engine.speculative_num_steps,
                  "Guessed tokens of a request in a step (0: as many as pay, by how often they are "
                  "right and what they cost)")
      ->check(CLI::Range(0, 64))
      ->capture_default_str()
      ->group(kScheduling);
  command
      .add_option("--speculative-eagle-topk", engine.speculative_eagle_topk,
                  "Guesses for one place, of STANDALONE, NEXTN and EAGLE3: above 1 they form a "
                  "tree, as deep as --speculative-num-steps")
      ->check(CLI::Range(1, 32))
      ->capture_default_str()
      ->group(kScheduling);
  command
      .add_option("--speculative-num-draft-tokens", engine.speculative_num_draft_tokens,
                  "Of these, at most; of a tree, all (up to 32)")
      ->check(CLI::Range(1, 64))
      ->capture_default_str()
      ->group(kScheduling);
}

void ModelOptions::add_adapter_to(CLI::App& command) {
  command
      .add_option("--lora-path", lora_path,
                  "Folder of an adapter (LoRA, in PEFT's layout) to generate with")
      ->group("Adapters");
}

void ModelOptions::add_adapters_to(CLI::App& command) {
  command
      .add_option("--lora-paths", lora_paths,
                  "Adapters (LoRA, in PEFT's layout) that requests can name: NAME=FOLDER ...")
      ->group("Adapters");
  command
      .add_flag("--enable-lora", enable_lora,
                "Take adapters although none is named yet: /load_lora_adapter loads them")
      ->group("Adapters");
  command
      .add_option("--max-lora-rank", max_lora_rank,
                  "Largest rank of adapters (0: of those in --lora-paths, else 64)")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str()
      ->group("Adapters");
}

EngineConfig ModelOptions::engine_config() const {
  EngineConfig config = engine;
  config.context_length = context_length;
  return config;
}

Expected<std::filesystem::path> ModelOptions::locate() const {
  return fetch_model(model_path, revision, HubSettings::from_environment());
}

}  // namespace tw
