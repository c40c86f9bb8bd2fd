#include "weights/quantize/quantized_module.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "weights/quantize/rounding.h"
#include "weights/quantize/selection.h"
#include "weights/tokenizer_source.h"

namespace tw {
namespace {

// Reads rows in Hugging Face's order.
class RowReader {
 public:
  explicit RowReader(const StoredTensor& matrix)
      : matrix_(matrix), values_(static_cast<size_t>(matrix.shape[1])) {}

  std::span<const float> read(int64_t row) {
    const int64_t stored = matrix_.row_order.stored_row(row, matrix_.shape[0]);
    const StorageTypeTraits& t = traits(matrix_.type);
    dequantize(matrix_.type, matrix_.data.data() + stored * matrix_.shape[1] * t.block_bytes,
               matrix_.shape[1], values_.data());
    return values_;
  }

 private:
  const StoredTensor& matrix_;
  std::vector<float> values_;
};

bool all_finite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

// The largest magnitude of a matrix of floats; infinite or NaN if one of them is.
float largest_weight(const StoredTensor& matrix, ThreadTeam& team) {
  std::vector<float> largest(static_cast<size_t>(team.size()));
  team.run([&](const TeamMember& member) {
    RowReader reader(matrix);
    const Range rows = member.share(matrix.shape[0]);
    float& mine = largest[static_cast<size_t>(member.rank())];
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const auto weights = reader.read(row);
      mine = all_finite(weights) ? std::max(mine, largest_magnitude(weights)) : INFINITY;
    }
  });
  return *std::ranges::max_element(largest);
}

float largest_weight(const Checkpoint& original, std::string_view module,
                     const StoredTensor& matrix, ThreadTeam& team) {
  float largest = largest_weight(matrix, team);
  for (const std::string& other : fused_modules(module)) {
    const StoredTensor* found = original.find(other + ".weight");
    if (found == nullptr || !is_float_matrix(*found)) continue;
    largest = greater(largest_weight(*found, team), largest);
  }
  return largest;
}

}  // namespace

bool is_float_matrix(const StoredTensor& tensor) {
  return tensor.shape.size() == 2 &&
         (tensor.type == StorageType::f32 || tensor.type == StorageType::f16 ||
          tensor.type == StorageType::bf16);
}

Status check_columns(const Checkpoint& original, const StoredTensor& matrix,
                     const Quantizer& quantizer) {
  if (matrix.shape[1] % quantizer.column_multiple() == 0) return {};
  return error(ErrorCode::unsupported,
               "{}: tensor {} has {} columns, which groups of {} do not divide",
               original.path().string(), matrix.name, matrix.shape[1], quantizer.column_multiple());
}

Expected<TokenizerSource> QuantizedModule::tokenizer_source() const {
  return original_.tokenizer_source();
}

Expected<std::unique_ptr<QuantizedModule>> QuantizedModule::make(const Checkpoint& original,
                                                                 const std::string& module,
                                                                 const StoredTensor& matrix,
                                                                 const Quantizer& quantizer,
                                                                 ThreadTeam& team) {
  TW_CHECK(is_float_matrix(matrix));
  const int64_t rows = matrix.shape[0], columns = matrix.shape[1];
  if (Status status = check_columns(original, matrix, quantizer); !status) {
    return forward_error(status);
  }
  const float largest =
      quantizer.needs_largest_magnitude() ? largest_weight(original, module, matrix, team) : 0;

  auto result = std::unique_ptr<QuantizedModule>(new QuantizedModule(original));
  auto planned = quantizer.tensors(rows, columns, largest);
  for (QuantizedTensor& tensor : planned) {
    std::vector<std::byte>& content = result->contents_.emplace_back(std::move(tensor.content));
    if (content.empty()) {
      const int64_t elements = tensor.shape[0] * tensor.shape[1];
      content.resize(static_cast<size_t>(elements * traits(tensor.type).block_bytes));
    }
    result->tensors_.push_back(
        {module + "." + tensor.name, tensor.type, tensor.shape, content, RowOrder{}});
  }
  const int64_t quant_bytes = static_cast<int64_t>(result->contents_[0].size()) / rows;
  const int64_t scale_bytes = static_cast<int64_t>(result->contents_[1].size()) / rows;
  std::vector<int64_t> broken(static_cast<size_t>(team.size()), -1);
  team.run([&](const TeamMember& member) {
    RowReader reader(matrix);
    const Range share = member.share(rows);
    for (int64_t row = share.begin; row < share.end; ++row) {
      const auto weights = reader.read(row);
      if (!all_finite(weights)) {
        broken[static_cast<size_t>(member.rank())] = row;
        return;
      }
      quantizer.quantize_row(weights, largest, result->contents_[0].data() + row * quant_bytes,
                             result->contents_[1].data() + row * scale_bytes);
    }
  });
  for (const int64_t row : broken) {
    if (row < 0) continue;
    return error(ErrorCode::corrupt_data,
                 "{}: tensor {} has a weight in row {} that is infinite or no number; it cannot be "
                 "quantized",
                 original.path().string(), matrix.name, row);
  }
  if (Status status = result->index_tensors(); !status) return forward_error(status);
  return result;
}

}  // namespace tw
