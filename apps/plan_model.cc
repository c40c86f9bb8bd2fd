#include "apps/plan_model.h"

#include <algorithm>
#include <cmath>

#include "engine/engine.h"
#include "parallel/host_traffic.h"

namespace tw {
namespace {

// Shares of the machine's limits that were measured (docs/performance.md): decoding read 81 and 85%
// of the bandwidth, prompts ran at 53% of the integer rate on AVX2.
constexpr double kDecodeShare = 0.8;
constexpr double kPrefillShare = 0.5;
constexpr int64_t kAround = int64_t{1} << 30;  // activations, tokenizer, buffers
constexpr int64_t kChunk = 512;                // prompt tokens of a step

double positive(const Json& json, const char* name) {
  const Json value = json.value(name, Json());
  return value.is_number() ? value.get<double>() : 0;
}

// The entry with the most threads: "16 threads".
const Json* largest_team(const Json& json) {
  const Json* best = nullptr;
  int most = 0;
  for (const auto& [name, value] : json.items()) {
    const int threads = name.ends_with(" threads") ? std::atoi(name.c_str()) : 0;
    if (threads > most && value.is_object()) {
      most = threads;
      best = &value;
    }
  }
  return best;
}

// Weights that a stored element stands for: quantized checkpoints put several into an integer.
int64_t weights_per_element(const StoredTensor& tensor) {
  const std::string& name = tensor.name;
  if (name.ends_with("scales") || name.ends_with("scale") || name.ends_with("zeros") ||
      name.ends_with("zero_point") || name.ends_with("g_idx")) {
    return 0;
  }
  if (tensor.type == StorageType::i32) return 8;
  return tensor.type == StorageType::u8 ? 2 : 1;
}

bool is_plain_float(StorageType type) {
  return type == StorageType::f32 || type == StorageType::f16 || type == StorageType::bf16;
}

// Of a matrix of floats after --quantization; scales included.
double bytes_per_weight(const std::string& quantization) {
  if (quantization.empty()) return 2;
  if (quantization == "int4" || quantization == "w4a16") return 0.5 + 2.0 / 32;
  if (quantization.starts_with("mxfp4") || quantization.starts_with("nvfp4")) return 0.5 + 2.0 / 16;
  return 1.0;
}

}  // namespace

Expected<MachineDescription> MachineDescription::parse(const Json& json,
                                                       const std::string& source) {
  const Json* rates = json.is_object() ? largest_team(json) : nullptr;
  if (rates == nullptr) {
    return error(ErrorCode::invalid_argument,
                 "{}: no member \"N threads\" with a machine's limits; tilewright bench machine "
                 "--json writes such a file",
                 source);
  }
  MachineDescription machine;
  machine.read_bandwidth = positive(*rates, "read bandwidth");
  const double amx_bf16 = positive(*rates, "AMX bf16");
  const double fma =
      std::max(positive(*rates, "AVX2 fp32 FMA"), positive(*rates, "AVX-512 fp32 FMA"));
  machine.float_rate =
      amx_bf16 > 0 ? amx_bf16 : std::max(fma, positive(*rates, "AVX-512 bf16 dpbf16ps"));
  machine.integer_rate = std::max(
      {amx_bf16, positive(*rates, "AVX-512 int8 dpbusd"), positive(*rates, "AVX2 int8 maddubs")});
  machine.memory_bytes = static_cast<int64_t>(positive(json, "memory bytes"));
  machine.num_nodes = std::max(1, static_cast<int>(positive(json, "memory nodes")));
  if (machine.read_bandwidth > 0 && machine.float_rate > 0 && machine.integer_rate > 0 &&
      machine.memory_bytes > 0) {
    return machine;
  }
  return error(ErrorCode::invalid_argument,
               "{}: read bandwidth, rates of instructions and \"memory bytes\" must be above 0",
               source);
}

ModelCosts ModelCosts::of(const Checkpoint& checkpoint, const std::string& quantization) {
  ModelCosts costs;
  const Json& config = checkpoint.config();
  const auto text = config.find("text_config");
  const Json& fields = text != config.end() && text->is_object() ? *text : config;
  for (const char* name : {"num_local_experts", "n_routed_experts", "num_experts"}) {
    const Json value = fields.value(name, Json());
    if (value.is_number_integer()) costs.num_experts = value.get<int64_t>();
  }
  for (const char* name : {"num_experts_per_tok", "experts_per_token"}) {
    const Json value = fields.value(name, Json());
    if (value.is_number_integer()) costs.experts_per_token = value.get<int64_t>();
  }
  const auto number = [&fields](const char* name) {
    const Json value = fields.value(name, Json());
    return value.is_number_integer() ? value.get<int64_t>() : 0;
  };
  costs.num_layers = number("num_hidden_layers");
  costs.hidden_size = number("hidden_size");
  const bool tied = fields.value("tie_word_embeddings", Json(false)) == true;
  costs.is_quantized = !quantization.empty() && quantization != "fp8";
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    int64_t elements = 1;
    for (const int64_t size : tensor.shape) elements *= size;
    const bool is_embedding = tensor.name.find("embed_tokens") != std::string::npos;
    const bool is_matrix = tensor.shape.size() >= 2;
    const bool is_head = is_embedding || tensor.name.find("lm_head") != std::string::npos;
    auto bytes = static_cast<int64_t>(tensor.data.size());
    if (is_plain_float(tensor.type)) {
      const double each = is_matrix && !is_head ? bytes_per_weight(quantization) : 2;
      bytes = static_cast<int64_t>(std::ceil(static_cast<double>(elements) * each));
    } else if (is_matrix && tensor.type != StorageType::f8_e4m3) {
      costs.is_quantized = true;
    }
    costs.weight_bytes += bytes;
    if (is_embedding && !tied) continue;
    const int64_t weights = is_matrix ? elements * weights_per_element(tensor) : 0;
    if (tensor.name.find(".experts.") != std::string::npos) {
      costs.expert_bytes += bytes;
      costs.expert_weights += weights;
    } else {
      costs.dense_bytes += bytes;
      costs.dense_weights += weights;
    }
  }
  return costs;
}

double ModelCosts::active_weights() const {
  const double share =
      num_experts > 0 ? static_cast<double>(experts_per_token) / static_cast<double>(num_experts)
                      : 1.0;
  return static_cast<double>(dense_weights) + share * static_cast<double>(expert_weights);
}

double ModelCosts::step_bytes(int64_t batch) const {
  if (num_experts == 0) return static_cast<double>(dense_bytes + expert_bytes);
  const double missed =
      1.0 - static_cast<double>(experts_per_token) / static_cast<double>(num_experts);
  const double chosen = 1.0 - std::pow(missed, static_cast<double>(batch));
  return static_cast<double>(dense_bytes) + chosen * static_cast<double>(expert_bytes);
}

StepTraffic step_traffic(const MachineDescription& machine, const ModelCosts& model, int num_hosts,
                         int64_t num_tokens) {
  StepTraffic traffic;
  if (num_hosts == 1) return traffic;
  const int64_t num_sums = 2 * model.num_layers + 1;
  const HostTraffic each = all_reduce_traffic(num_hosts, 0, num_tokens * model.hidden_size);
  traffic.sent = {num_sums * each.messages, num_sums * each.bytes};
  // Messages to all others go at the same time, and share the link.
  const auto exchanges = static_cast<double>(each.messages / (num_hosts - 1));
  traffic.seconds =
      static_cast<double>(num_sums) *
      (exchanges * machine.link_latency + static_cast<double>(each.bytes) / machine.link_bandwidth);
  return traffic;
}

PlanAnswer make_plan(const MachineDescription& machine, const ModelCosts& model,
                     const PlanQuestion& question) {
  PlanAnswer answer;
  const auto batch = static_cast<double>(question.batch_size);
  const int64_t length = question.prompt_tokens + question.output_tokens;
  const auto hosts = static_cast<double>(question.num_hosts);
  answer.weight_bytes = static_cast<double>(model.weight_bytes) / hosts;
  answer.kv_bytes = batch * static_cast<double>(length * model.kv_bytes_per_token);
  answer.memory_needed = answer.weight_bytes + answer.kv_bytes + kAround;
  const double usable =
      EngineConfig().mem_fraction_static * static_cast<double>(machine.memory_bytes);
  answer.fits = answer.memory_needed <= usable;
  const double left = usable - answer.weight_bytes - kAround;
  answer.max_tokens =
      left > 0 && model.kv_bytes_per_token > 0
          ? static_cast<int64_t>(left / static_cast<double>(model.kv_bytes_per_token))
          : 0;

  const double bandwidth = kDecodeShare * machine.read_bandwidth;
  const double rate =
      kPrefillShare * (model.is_quantized ? machine.integer_rate : machine.float_rate);
  const double operations = 2 * model.active_weights();
  const double prompts = batch * static_cast<double>(question.prompt_tokens);
  // Even a short prompt reads all weights that it uses.
  answer.ttft = std::max(prompts * operations / rate,
                         model.step_bytes(static_cast<int64_t>(prompts)) / bandwidth) /
                hosts;
  const auto chunk = std::min(kChunk, static_cast<int64_t>(prompts));
  answer.ttft += prompts / static_cast<double>(chunk) *
                 step_traffic(machine, model, question.num_hosts, chunk).seconds;
  // In the middle of the generation.
  const double context = batch * static_cast<double>(question.prompt_tokens) +
                         batch * static_cast<double>(question.output_tokens) / 2;
  const double read = model.step_bytes(question.batch_size) +
                      context * static_cast<double>(model.kv_bytes_per_token);
  answer.decode = step_traffic(machine, model, question.num_hosts, question.batch_size);
  answer.tpot =
      std::max(read / bandwidth, batch * operations / rate) / hosts + answer.decode.seconds;
  answer.output_rate = batch / answer.tpot;
  answer.tensor_parallel = machine.num_nodes * question.num_hosts;
  return answer;
}

}  // namespace tw
