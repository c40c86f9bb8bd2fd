#include "nn/loader.h"

#include <fmt/ranges.h>

namespace tw {

Expected<std::vector<float>> WeightLoader::load_vector(std::string_view name, int64_t size) const {
  auto tensor = checkpoint.require(name);
  if (!tensor) return forward_error(tensor);
  const StoredTensor& stored = **tensor;
  if (stored.shape.size() != 1 || stored.shape[0] != size) {
    return error(ErrorCode::corrupt_data, "{}: tensor {} has shape [{}], expected [{}]",
                 checkpoint.path().string(), name, fmt::join(stored.shape, ", "), size);
  }
  std::vector<float> values(static_cast<size_t>(size));
  dequantize(stored.type, stored.data.data(), size, values.data());
  if (on_progress) on_progress(static_cast<int64_t>(stored.data.size()));
  return values;
}

}  // namespace tw
