#include "weights/schemes/gguf_mxfp4.h"

#include "core/dtype.h"
#include "weights/schemes/grouped_row.h"

namespace tw {
namespace {

constexpr int64_t kGroup = 32;

class GgufMxfp4Matrix final : public StoredMatrix {
 public:
  explicit GgufMxfp4Matrix(const StoredTensor& tensor)
      : StoredMatrix({&tensor}, kernels::WeightFormat::fp4, tensor.shape[0], tensor.shape[1]),
        tensor_(tensor) {
    for (int64_t block = 0; block < rows() * num_groups(); ++block) {
      const float scale = mxfp4_scale(block_at(block));
      has_output_scales_ = has_output_scales_ || to_float(to_f16(scale)) != scale;
    }
  }

  bool has_output_scales() const override { return has_output_scales_; }

  void pack_row(int64_t row, const ChannelWriter& channel) const override {
    const int64_t stored = tensor_.row_order.stored_row(row, rows());
    GroupedRow packed;
    for (int64_t group = 0; group < num_groups(); ++group) {
      const std::byte* block = block_at(stored * num_groups() + group);
      packed.scales.push_back(mxfp4_scale(block));
      for (int i = 0; i < kGroup; ++i) {
        packed.quants.push_back(static_cast<uint8_t>(mxfp4_code(block, i)));
      }
    }
    if (channel.output_scale != nullptr) *channel.output_scale = 1.0f;
    write_row(packed, format(), channel);
  }

 private:
  int64_t num_groups() const { return columns() / kGroup; }
  const std::byte* block_at(int64_t index) const {
    return tensor_.data.data() + index * traits(StorageType::mxfp4).block_bytes;
  }

  const StoredTensor& tensor_;
  bool has_output_scales_ = false;
};

}  // namespace

std::unique_ptr<StoredMatrix> make_gguf_mxfp4_matrix(const StoredTensor& tensor) {
  return std::make_unique<GgufMxfp4Matrix>(tensor);
}

}  // namespace tw
