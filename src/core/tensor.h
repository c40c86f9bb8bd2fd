// A view of a dense, row-major tensor: pointer, element type, shape and row stride. Never owns.
#pragma once

#include <cstdint>
#include <span>

#include "core/dtype.h"

namespace tw {

// A matrix of `rows` x `cols` whose rows start `row_stride` elements apart.
template <typename T>
struct Matrix {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;

  T* row(int64_t index) const { return data + index * row_stride; }
};

template <typename T>
Matrix<const T> read_only(const Matrix<T>& matrix) {
  return {matrix.data, matrix.rows, matrix.cols, matrix.row_stride};
}

template <typename T>
Matrix<T> dense_matrix(T* data, int64_t rows, int64_t cols) {
  return {data, rows, cols, cols};
}

}  // namespace tw
