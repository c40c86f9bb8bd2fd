#include "weights/quantize/quantizer.h"

#include <fmt/ranges.h>

namespace tw {
namespace {

using QuantizerResult = Expected<std::unique_ptr<const Quantizer>>;

struct Method {
  const char* name;
  bool has_group_size;
  QuantizerResult (*make)(int64_t group_size);
};

constexpr Method kMethods[] = {
    {"fp8", false, [](int64_t) -> QuantizerResult { return make_fp8_quantizer(); }},
    {"int4", true, make_int4_quantizer},
    {"mxfp4", false, [](int64_t) -> QuantizerResult { return make_mxfp4_quantizer(); }},
    {"nvfp4", false, [](int64_t) -> QuantizerResult { return make_nvfp4_quantizer(); }},
    {"w8a8_int8", false, [](int64_t) -> QuantizerResult { return make_int8_quantizer(); }},
};

}  // namespace

std::string quantization_names() {
  std::vector<const char*> names;
  for (const Method& method : kMethods) names.push_back(method.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

QuantizerResult make_quantizer(const QuantizationOptions& options) {
  for (const Method& method : kMethods) {
    if (options.name != method.name) continue;
    if (options.group_size != 0 && !method.has_group_size) {
      return error(ErrorCode::invalid_argument,
                   "--group-size {}: only int4 has a choice; leave it out for {}",
                   options.group_size, method.name);
    }
    return method.make(options.group_size == 0 ? kDefaultGroupSize : options.group_size);
  }
  return error(ErrorCode::invalid_argument, "--quantization {}: unknown; use one of {}",
               options.name, quantization_names());
}

Json compressed_tensors_config(const char* format, Json weights, Json activations) {
  weights["dynamic"] = false;
  weights["symmetric"] = true;
  const Json group = {{"targets", {"Linear"}},
                      {"weights", std::move(weights)},
                      {"input_activations", std::move(activations)},
                      {"output_activations", nullptr},
                      {"format", format}};
  return {{"quant_method", "compressed-tensors"}, {"format", format},
          {"quantization_status", "compressed"},  {"ignore", Json::array()},
          {"kv_cache_scheme", nullptr},           {"config_groups", {{"group_0", group}}}};
}

}  // namespace tw
