#include "weights/schemes/scheme.h"

#include <fmt/ranges.h>

#include "weights/schemes/auto_round.h"
#include "weights/schemes/awq.h"
#include "weights/schemes/compressed_tensors.h"
#include "weights/schemes/fp8.h"
#include "weights/schemes/gptq.h"
#include "weights/schemes/modelopt.h"
#include "weights/schemes/plain.h"
#include "weights/schemes/w8a8_int8.h"

namespace tw {
namespace {

struct Method {
  const char* name;  // "quant_method"
  Expected<std::unique_ptr<const Scheme>> (*make)(const Json& quantization_config,
                                                  const std::string& source);
};

constexpr Method kMethods[] = {
    {"auto-round", make_auto_round_scheme},
    {"awq", make_awq_scheme},
    {"compressed-tensors", make_compressed_tensors_scheme},
    {"fbgemm_fp8", make_fp8_scheme},
    {"fp8", make_fp8_scheme},
    {"gptq", make_gptq_scheme},
    {"intel/auto-round", make_auto_round_scheme},
    {"modelopt", make_modelopt_scheme},
    {"modelopt_fp4", make_modelopt_scheme},
    // gpt-oss: only its experts are quantized, in tensors of their own (fp4.h).
    {"mxfp4",
     [](const Json&, const std::string&) -> Expected<std::unique_ptr<const Scheme>> {
       return make_plain_scheme();
     }},
    {"w8a8_int8", make_w8a8_int8_scheme},
};

const Json* find_object(const Json& config, const char* key) {
  const auto found = config.find(key);
  return found == config.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace

Expected<std::unique_ptr<const Scheme>> make_scheme(const Json& config, const std::string& source) {
  const Json* quantization = find_object(config, "quantization_config");
  if (quantization == nullptr) return make_plain_scheme();
  const bool has_method = quantization->is_object() && quantization->contains("quant_method");
  std::vector<std::string> known;
  for (const Method& method : kMethods) {
    if (has_method && (*quantization)["quant_method"] == method.name) {
      return method.make(*quantization, source);
    }
    known.emplace_back(method.name);
  }
  return error(ErrorCode::unsupported,
               "{}: quantization_config {} is not supported; known methods are {}; or use an "
               "unquantized checkpoint (bf16, f16, f32) or a GGUF file",
               source,
               has_method ? dump_json((*quantization)["quant_method"]).substr(0, 80)
                          : "without a quant_method",
               fmt::join(known, ", "));
}

Expected<const StoredTensor*> require_shape(const Checkpoint& checkpoint, const std::string& name,
                                            const std::vector<int64_t>& shape) {
  auto tensor = checkpoint.require(name);
  if (!tensor || (*tensor)->shape == shape) return tensor;
  return error(ErrorCode::corrupt_data, "{}: tensor {} has shape [{}], expected [{}]",
               checkpoint.path().string(), name, fmt::join((*tensor)->shape, ", "),
               fmt::join(shape, ", "));
}

}  // namespace tw
