// A stored matrix whose rows the model wants in another order than the checkpoint's.
#pragma once

#include <memory>

#include "weights/checkpoint.h"
#include "weights/schemes/scheme.h"

namespace tw {

// Row n of this matrix is row order.stored_row(n) of `matrix`.
class ReorderedMatrix final : public StoredMatrix {
 public:
  ReorderedMatrix(std::unique_ptr<StoredMatrix> matrix, const RowOrder& order)
      : StoredMatrix({matrix->tensors().begin(), matrix->tensors().end()}, matrix->format(),
                     matrix->rows(), matrix->columns()),
        matrix_(std::move(matrix)),
        order_(order) {}

  bool has_output_scales() const override { return matrix_->has_output_scales(); }
  std::span<const int32_t> input_order() const override { return matrix_->input_order(); }
  void pack_row(int64_t row, const ChannelWriter& channel) const override {
    matrix_->pack_row(order_.stored_row(row, rows()), channel);
  }

 private:
  std::unique_ptr<StoredMatrix> matrix_;
  RowOrder order_;
};

}  // namespace tw
