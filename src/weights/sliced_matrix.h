// Parts of a stored matrix, for ranks that hold a part of a layer: chosen rows, or a range of
// columns.
#pragma once

#include <memory>
#include <vector>

#include "core/check.h"
#include "core/thread_team.h"
#include "weights/schemes/scheme.h"

namespace tw {

// The rows of several ranges, below each other.
class SlicedRows final : public StoredMatrix {
 public:
  SlicedRows(std::unique_ptr<StoredMatrix> matrix, std::vector<Range> ranges)
      : StoredMatrix({matrix->tensors().begin(), matrix->tensors().end()}, matrix->format(),
                     count_rows(ranges), matrix->columns()),
        matrix_(std::move(matrix)),
        ranges_(std::move(ranges)) {
    for (const Range& range : ranges_) {
      TW_CHECK(range.begin >= 0 && range.begin <= range.end && range.end <= matrix_->rows());
    }
  }

  bool has_output_scales() const override { return matrix_->has_output_scales(); }
  std::span<const int32_t> input_order() const override { return matrix_->input_order(); }
  void pack_row(int64_t row, const ChannelWriter& channel) const override {
    for (const Range& range : ranges_) {
      if (row < range.size()) return matrix_->pack_row(range.begin + row, channel);
      row -= range.size();
    }
    TW_CHECK(!"a row of the slice");
  }

  static int64_t count_rows(const std::vector<Range>& ranges) {
    int64_t rows = 0;
    for (const Range& range : ranges) rows += range.size();
    return rows;
  }

 private:
  std::unique_ptr<StoredMatrix> matrix_;
  std::vector<Range> ranges_;
};

// Columns [begin, end): begin is a multiple of column_block(format), and so is end unless it is the
// matrix's own. They are packed in whole panels of the wider matrix (see StoredMatrix::wider).
class SlicedColumns final : public StoredMatrix {
 public:
  SlicedColumns(std::unique_ptr<StoredMatrix> matrix, Range columns)
      : StoredMatrix({matrix->tensors().begin(), matrix->tensors().end()}, matrix->format(),
                     matrix->rows(), columns.size()),
        matrix_(std::move(matrix)),
        first_column_(columns.begin) {
    const int64_t block = column_block(format());
    TW_CHECK(columns.begin >= 0 && columns.begin < columns.end);
    TW_CHECK(columns.end <= matrix_->columns() && columns.begin % block == 0);
    TW_CHECK(columns.end % block == 0 || columns.end == matrix_->columns());
    TW_CHECK(matrix_->input_order().empty());
  }

  bool has_output_scales() const override { return matrix_->has_output_scales(); }
  const StoredMatrix* wider() const override { return matrix_.get(); }
  int64_t first_column() const override { return first_column_; }
  void pack_row(int64_t, const ChannelWriter&) const override {
    TW_CHECK(!"columns are packed by way of the wider matrix");
  }

  // Columns that can't be divided: what shares a scale, or lies in one group of the packing.
  static constexpr int64_t column_block(kernels::WeightFormat format) {
    if (format == kernels::WeightFormat::bf16) return 2;
    return kernels::traits(format).k_alignment;
  }

 private:
  std::unique_ptr<StoredMatrix> matrix_;
  int64_t first_column_;
};

}  // namespace tw
