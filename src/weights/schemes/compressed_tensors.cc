#include "weights/schemes/compressed_tensors.h"

#include <fmt/ranges.h>

#include "weights/config_fields.h"
#include "weights/schemes/fp4.h"
#include "weights/schemes/pack_quantized.h"
#include "weights/schemes/scaled_bytes.h"

namespace tw {
namespace {

using SchemeResult = Expected<std::unique_ptr<const Scheme>>;

struct Format {
  const char* name;
  // `weights`: the "weights" object that all config groups share.
  SchemeResult (*make)(const Json& weights, const std::string& source);
};

// One byte for each weight: e4m3 or int8, per tensor, channel or block.
SchemeResult make_quantized_bytes(const Json& weights, const std::string& source) {
  ConfigFields fields(weights, source);
  fields.integer("num_bits", 8, 8);
  const std::string type = fields.string("type", "int");
  if (type != "int" && type != "float") fields.fail("type", fields.find("type"), "int or float");
  if (!fields.boolean("symmetric", true)) {
    fields.fail("symmetric", fields.find("symmetric"), "true");
  }
  const std::string strategy = fields.string("strategy", "tensor");
  ScaledBytes layout{type == "float" ? kernels::WeightFormat::fp8 : kernels::WeightFormat::int8};
  if (strategy == "block" && type == "float") {
    if (!fields.has("block_structure")) {
      fields.fail("block_structure", nullptr, "the extents of a block, such as [128, 128]");
    } else if (Status status = read_block_size(fields, "block_structure", layout); !status) {
      return forward_error(status);
    }
  } else if (strategy != "tensor" && strategy != "channel") {
    fields.fail("strategy", fields.find("strategy"),
                type == "float" ? "tensor, channel or block" : "tensor or channel");
  }
  if (!fields.status()) return tl::unexpected(fields.status().error());
  return make_scaled_bytes_scheme(layout);
}

constexpr Format kFormats[] = {
    {"float-quantized", make_quantized_bytes},
    {"int-quantized", make_quantized_bytes},
    {"naive-quantized", make_quantized_bytes},
    {"pack-quantized", make_pack_quantized_scheme},
    {"nvfp4-pack-quantized",
     [](const Json&, const std::string&) -> SchemeResult { return make_nvfp4_scheme(); }},
    {"mxfp4-pack-quantized",
     [](const Json&, const std::string&) -> SchemeResult { return make_mxfp4_scheme(); }},
};

// What the config groups say of weights, which must be the same in all of them.
struct Weights {
  Json weights;
  std::string format;
};

Expected<Weights> shared_weights(const Json& quantization_config, const std::string& source) {
  ConfigFields fields(quantization_config, source);
  const std::string format = fields.string("format", "");
  const Json* groups = fields.find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->empty()) {
    fields.fail("config_groups", groups, "an object of groups");
  }
  if (!fields.status()) return tl::unexpected(fields.status().error());
  std::optional<Weights> shared;
  for (const auto& [name, group] : groups->items()) {
    if (!group.is_object() || !group.contains("weights") || !group["weights"].is_object()) {
      return error(ErrorCode::corrupt_data, "{}: config group {} has no object \"weights\"", source,
                   name);
    }
    ConfigFields group_fields(group, source + ": " + name);
    Weights weights{group["weights"], group_fields.string("format", format)};
    if (!group_fields.status()) return tl::unexpected(group_fields.status().error());
    // How the values were found does not matter once they are there.
    for (const char* field : {"observer", "observer_kwargs", "dynamic"}) {
      weights.weights.erase(field);
    }
    if (shared && (shared->weights != weights.weights || shared->format != weights.format)) {
      return error(ErrorCode::unsupported,
                   "{}: config group {} stores its weights in another way than the groups before "
                   "it; only one way for all layers is supported",
                   source, name);
    }
    shared = std::move(weights);
  }
  return *shared;
}

}  // namespace

Expected<std::unique_ptr<const Scheme>> make_compressed_tensors_scheme(
    const Json& quantization_config, const std::string& source) {
  const std::string where = source + ": quantization_config";
  auto weights = shared_weights(quantization_config, where);
  if (!weights) return forward_error(weights);
  std::vector<const char*> known;
  for (const Format& format : kFormats) {
    if (weights->format == format.name) return format.make(weights->weights, where + ": weights");
    known.push_back(format.name);
  }
  return error(ErrorCode::unsupported,
               "{}: compressed-tensors' format {} is not supported; known are {}", source,
               weights->format.empty() ? "(none)" : weights->format, fmt::join(known, ", "));
}

}  // namespace tw
