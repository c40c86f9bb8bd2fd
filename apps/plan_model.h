// What a model costs and how long it will take, from its configuration and the sizes of its tensors
// alone: the roofline of a machine whose limits were measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/json.h"
#include "core/status.h"
#include "parallel/host_link.h"
#include "weights/checkpoint.h"

namespace tw {

// Of a machine, with all of its cores: `tilewright bench machine --json`.
struct MachineDescription {
  double read_bandwidth = 0;  // bytes/s
  // Operations/s before quantized weights and before bf16 or fp8 ones.
  double integer_rate = 0;
  double float_rate = 0;
  int64_t memory_bytes = 0;
  int num_nodes = 1;
  // To other hosts like it: bytes/s of its link, and seconds until a short message is there.
  double link_bandwidth = 12.5e9;
  double link_latency = 10e-6;

  // `source` stands before messages.
  static Expected<MachineDescription> parse(const Json& json, const std::string& source);
};

// Bytes as they lie packed in memory, and weights as they take part in a token's products.
struct ModelCosts {
  int64_t weight_bytes = 0;  // all
  int64_t dense_bytes = 0;   // read by every step: not the embedding, not experts
  int64_t expert_bytes = 0;  // of all routed experts
  int64_t dense_weights = 0;
  int64_t expert_weights = 0;
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  int64_t kv_bytes_per_token = 0;
  bool is_quantized = false;
  int64_t num_layers = 0;
  int64_t hidden_size = 0;

  // `quantization`: empty, or a format that bf16 weights get at load. The KV cache is not looked
  // at.
  static ModelCosts of(const Checkpoint& checkpoint, const std::string& quantization);

  double active_weights() const;  // of a token
  // What a step of `batch` tokens of different sequences reads of the weights: each token chooses
  // its experts, and some choose the same.
  double step_bytes(int64_t batch) const;
};

struct PlanQuestion {
  int64_t prompt_tokens = 1024;
  int64_t output_tokens = 128;
  int64_t batch_size = 1;  // sequences
  int num_hosts = 1;
};

// What the first of several hosts sends in a step, and how long all wait for messages.
struct StepTraffic {
  HostTraffic sent;
  double seconds = 0;
};

// The sums behind the embedding and behind the two blocks of each layer. What the first host says
// of the batch and the logits that it gets are left out: kilobytes, and once for each step.
StepTraffic step_traffic(const MachineDescription& machine, const ModelCosts& model, int num_hosts,
                         int64_t num_tokens);

struct PlanAnswer {
  double weight_bytes = 0;
  double kv_bytes = 0;       // of all sequences, full
  double memory_needed = 0;  // with what is around them
  bool fits = false;
  int64_t max_tokens = 0;  // that the KV cache can hold
  double ttft = 0;         // seconds, of prompts that come together
  double tpot = 0;
  double output_rate = 0;   // tokens/s of all sequences while they decode
  int tensor_parallel = 1;  // ranks of all hosts
  StepTraffic decode;       // of a step in which each sequence has a token
};

// Weights and work are divided among hosts; keys and values are counted whole on each, as latent
// attention has them.
PlanAnswer make_plan(const MachineDescription& machine, const ModelCosts& model,
                     const PlanQuestion& question);

}  // namespace tw
