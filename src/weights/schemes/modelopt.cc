#include "weights/schemes/modelopt.h"

#include "weights/config_fields.h"
#include "weights/schemes/fp4.h"

namespace tw {

Expected<std::unique_ptr<const Scheme>> make_modelopt_scheme(const Json& quantization_config,
                                                             const std::string& source) {
  ConfigFields fields(quantization_config, source + ": quantization_config");
  const std::string algorithm = fields.string("quant_algo", "");
  if (algorithm == "NVFP4") fields.integer("group_size", 16, 16, 16);
  if (!fields.status()) return tl::unexpected(fields.status().error());
  if (algorithm == "NVFP4") return make_modelopt_nvfp4_scheme();
  return error(ErrorCode::unsupported,
               "{}: ModelOpt's quant_algo {} is not supported; known is NVFP4", source,
               algorithm.empty() ? "(none)" : algorithm);
}

}  // namespace tw
