// A low-rank adapter (LoRA) on disk, in PEFT's layout: adapter_config.json and
// adapter_model.safetensors. An adapted linear layer computes
//   y = W x + scale * B (A x),   scale = lora_alpha / rank  (rsLoRA: lora_alpha / sqrt(rank))
// Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models" (2021).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "core/json.h"
#include "core/status.h"
#include "weights/safetensors_file.h"

namespace tw {

// What an adapter adds to one linear layer.
struct LoraModule {
  const StoredTensor* a = nullptr;  // [rank, K]
  const StoredTensor* b = nullptr;  // [N, rank]
  int64_t rank = 0;
  float scale = 1.0f;
};

class LoraCheckpoint {
 public:
  // Reads headers only. What this engine does not compute (DoRA, biases, adapted embeddings,
  // modules saved whole) is unsupported; pairs that are incomplete or do not fit are corrupt_data.
  static Expected<LoraCheckpoint> open(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return folder_; }
  // By the layer's name in the model: "model.layers.0.self_attn.q_proj".
  const std::map<std::string, LoraModule>& modules() const { return modules_; }
  int64_t max_rank() const;

 private:
  LoraCheckpoint(std::filesystem::path folder, SafetensorsFile file)
      : folder_(std::move(folder)), file_(std::move(file)) {}
  Status read_tensors(const std::filesystem::path& weights);
  Status read_scales(const Json& config, const std::string& source);

  std::filesystem::path folder_;
  SafetensorsFile file_;
  std::map<std::string, LoraModule> modules_;
};

}  // namespace tw
