#include "weights/schemes/auto_round.h"

#include "weights/config_fields.h"
#include "weights/schemes/awq.h"
#include "weights/schemes/gptq.h"

namespace tw {

Expected<std::unique_ptr<const Scheme>> make_auto_round_scheme(const Json& quantization_config,
                                                               const std::string& source) {
  ConfigFields fields(quantization_config, source + ": quantization_config");
  const std::string data_type = fields.string("data_type", "int");
  const std::string packing = fields.string("packing_format", "auto_round:auto_gptq");
  if (!fields.status()) return tl::unexpected(fields.status().error());
  if (data_type == "int") {
    if (packing == "auto_round:auto_gptq") return make_gptq_scheme(quantization_config, source);
    if (packing == "auto_round:auto_awq") return make_awq_scheme(quantization_config, source);
  }
  return error(
      ErrorCode::unsupported,
      "{}: AutoRound's data type {} packed as {} is not supported; known are int packed as "
      "auto_round:auto_gptq or auto_round:auto_awq",
      source, data_type, packing);
}

}  // namespace tw
