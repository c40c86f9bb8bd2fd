#include "weights/schemes/w8a8_int8.h"

#include "weights/schemes/scaled_bytes.h"

namespace tw {

Expected<std::unique_ptr<const Scheme>> make_w8a8_int8_scheme(const Json&, const std::string&) {
  return make_scaled_bytes_scheme({kernels::WeightFormat::int8});
}

}  // namespace tw
