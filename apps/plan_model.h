// What a model costs and how long it will take, from its configuration and the sizes of its tensors
// alone: the roofline of a machine whose limits were measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/json.h"
#include "core/status.h"
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
};

struct PlanAnswer {
  double weight_bytes = 0;
  double kv_bytes = 0;       // of all sequences, full
  double memory_needed = 0;  // with what is around them
  bool fits = false;
  int64_t max_tokens = 0;  // that the KV cache can hold
  double ttft = 0;         // seconds, of prompts that come together
  double tpot = 0;
  double output_rate = 0;  // tokens/s of all sequences while they decode
  int tensor_parallel = 1;
};

PlanAnswer make_plan(const MachineDescription& machine, const ModelCosts& model,
                     const PlanQuestion& question);

}  // namespace tw
