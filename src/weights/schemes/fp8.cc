#include "weights/schemes/fp8.h"

#include "weights/schemes/scaled_bytes.h"

namespace tw {

Expected<std::unique_ptr<const Scheme>> make_fp8_scheme(const Json& quantization_config,
                                                        const std::string& source) {
  ConfigFields fields(quantization_config, source + ": quantization_config");
  ScaledBytes layout{kernels::WeightFormat::fp8};
  if (Status status = read_block_size(fields, "weight_block_size", layout); !status) {
    return forward_error(status);
  }
  if (layout.block_rows > 0) layout.scale_name = "weight_scale_inv";
  const std::string fmt = fields.string("fmt", "e4m3");
  if (fmt != "e4m3" && fmt != "float8_e4m3fn") {
    fields.fail("fmt", fields.find("fmt"), "e4m3");
  }
  if (!fields.status()) return tl::unexpected(fields.status().error());
  return make_scaled_bytes_scheme(layout);
}

}  // namespace tw
