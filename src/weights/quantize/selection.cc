#include "weights/quantize/selection.h"

#include <algorithm>

namespace tw {
namespace {

constexpr std::string_view kWeight = ".weight";

// Last parts of the names of modules.
constexpr std::string_view kLeftAlone[] = {
    "embed_tokens", "lm_head",   "gate",      "router", "shared_expert_gate",
    "in_proj_ba",   "in_proj_b", "in_proj_a", "conv1d"};
// Parts of names that belong to images and sound.
constexpr std::string_view kOtherModalities[] = {"vision", "visual", "audio",
                                                 "multi_modal_projector"};

// Last parts of the names of modules that are loaded as one.
const std::vector<std::string_view> kFused[] = {
    {"q_proj", "k_proj", "v_proj"},
    {"gate_proj", "up_proj"},
    {"w1", "w3"},
    {"q_a_proj", "kv_a_proj_with_mqa"},
};

}  // namespace

bool is_quantized_by_default(std::string_view module) {
  const std::string_view last = module.substr(module.rfind('.') + 1);
  if (std::ranges::find(kLeftAlone, last) != std::end(kLeftAlone)) return false;
  return std::ranges::none_of(kOtherModalities, [module](std::string_view part) {
    return module.find(part) != std::string_view::npos;
  });
}

std::vector<std::string> fused_modules(std::string_view module) {
  const size_t begin = module.rfind('.') + 1;
  const std::string_view last = module.substr(begin);
  std::vector<std::string> others;
  for (const auto& fused : kFused) {
    if (std::ranges::find(fused, last) == fused.end()) continue;
    for (const std::string_view other : fused) {
      if (other != last) others.push_back(std::string(module.substr(0, begin)).append(other));
    }
  }
  return others;
}

std::string_view module_of(std::string_view tensor) {
  if (!tensor.ends_with(kWeight)) return {};
  return tensor.substr(0, tensor.size() - kWeight.size());
}

Status require_unquantized(const Checkpoint& checkpoint) {
  constexpr const char* kAdvice =
      "start from the model's bf16 or f16 checkpoint, or use this one as it is, without "
      "--quantization";
  const Json& config = checkpoint.config();
  if (const auto found = config.find("quantization_config");
      found != config.end() && !found->is_null()) {
    const std::string method = found->is_object() && found->contains("quant_method")
                                   ? dump_json((*found)["quant_method"]).substr(0, 80)
                                   : "an unnamed method";
    return error(ErrorCode::invalid_argument,
                 "{}: already quantized, with {} (quantization_config); {}",
                 checkpoint.path().string(), method, kAdvice);
  }
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    if (!is_float(tensor.type) || traits(tensor.type).block_elements == 1) continue;
    return error(ErrorCode::invalid_argument, "{}: already quantized: tensor {} has type {}; {}",
                 checkpoint.path().string(), tensor.name, traits(tensor.type).name, kAdvice);
  }
  return {};
}

}  // namespace tw
