#include "weights/schemes/awq.h"

#include "weights/config_fields.h"
#include "weights/schemes/grouped_row.h"
#include "weights/schemes/plain.h"

namespace tw {
namespace {

using kernels::WeightFormat;

// Where in its word a channel lies: the inverse of the order above.
constexpr int kNibbleOfChannel[8] = {0, 4, 1, 5, 2, 6, 3, 7};

class AwqMatrix final : public StoredMatrix {
 public:
  AwqMatrix(const StoredTensor& quants, const StoredTensor& zero_points, const ScaleTensor& scales,
            WeightFormat format, int64_t rows, int64_t columns)
      : StoredMatrix({&quants, &zero_points, &scales.tensor()}, format, rows, columns),
        quants_(quants),
        zero_points_(zero_points),
        scales_(scales),
        has_output_scales_(!scales.fits_f16()) {}

  bool has_output_scales() const override { return has_output_scales_; }

  void pack_row(int64_t row, const ChannelWriter& channel) const override {
    const int64_t words = rows() / 8;
    const int nibble = kNibbleOfChannel[row % 8];
    GroupedRow packed;
    packed.quants.resize(static_cast<size_t>(columns()));
    for (int64_t k = 0; k < columns(); ++k) {
      packed.quants[static_cast<size_t>(k)] =
          nibble_at(word_at(quants_, k * words + row / 8), nibble);
    }
    for (int64_t group = 0; group < scales_.tensor().shape[0]; ++group) {
      packed.scales.push_back(scales_.at(group * rows() + row));
      packed.zero_points.push_back(
          nibble_at(word_at(zero_points_, group * words + row / 8), nibble));
    }
    write_row(packed, format(), channel);
  }

 private:
  const StoredTensor& quants_;
  const StoredTensor& zero_points_;
  ScaleTensor scales_;
  bool has_output_scales_;
};

class AwqScheme final : public Scheme {
 public:
  explicit AwqScheme(int64_t group_size) : group_size_(group_size) {}

  Expected<std::unique_ptr<StoredMatrix>> open(const Checkpoint& checkpoint,
                                               const std::string& module, int64_t rows,
                                               int64_t columns) const override {
    if (is_left_plain(checkpoint, module, ".qweight")) {
      return open_plain_matrix(checkpoint, module, rows, columns);
    }
    const auto groups = count_groups(checkpoint, module, group_size_, columns, 32);
    if (!groups) return tl::unexpected(groups.error());
    const int64_t words = (rows + 7) / 8;
    auto quants =
        require_tensor(checkpoint, module + ".qweight", StorageType::i32, {columns, words});
    if (!quants) return forward_error(quants);
    auto zero_points =
        require_tensor(checkpoint, module + ".qzeros", StorageType::i32, {*groups, words});
    if (!zero_points) return forward_error(zero_points);
    auto scales =
        ScaleTensor::open(checkpoint, module + ".scales", {*groups, 8 * words}, kFloatScales);
    if (!scales) return forward_error(scales);
    if (rows % 8 != 0) {
      return error(ErrorCode::unsupported, "{}: {} has {} outputs, expected a multiple of 8",
                   checkpoint.path().string(), module, rows);
    }
    const bool is_even = all_words_are(**zero_points, 0x88888888u);
    return std::make_unique<AwqMatrix>(**quants, **zero_points, *scales,
                                       is_even ? WeightFormat::q4_0 : WeightFormat::q4_z, rows,
                                       columns);
  }

 private:
  int64_t group_size_;
};

}  // namespace

Expected<std::unique_ptr<const Scheme>> make_awq_scheme(const Json& quantization_config,
                                                        const std::string& source) {
  ConfigFields fields(quantization_config, source + ": quantization_config");
  fields.integer("bits", 4, 4, 4);
  const int64_t group_size = fields.integer("group_size", -1, int64_t{1} << 31, 128);
  const std::string version = fields.string("version", "gemm");
  if (!fields.status()) return tl::unexpected(fields.status().error());
  if (version != "gemm" && version != "GEMM") {
    return error(ErrorCode::unsupported,
                 "{}: AWQ's version {} is not supported; convert the checkpoint to gemm", source,
                 version);
  }
  return std::make_unique<AwqScheme>(group_size);
}

}  // namespace tw
