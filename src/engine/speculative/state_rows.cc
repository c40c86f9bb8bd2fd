#include "engine/speculative/state_rows.h"

#include <algorithm>

namespace tw {

void StateRows::put(int32_t position, Matrix<const float> rows) {
  if (position < begin_ || position > end()) {
    begin_ = position;
    count_ = 0;
  }
  columns_ = rows.cols;
  count_ = position - begin_;
  values_.resize(static_cast<size_t>(count_ * columns_));
  for (int64_t row = 0; row < rows.rows; ++row) {
    values_.insert(values_.end(), rows.row(row), rows.row(row) + columns_);
  }
  count_ += static_cast<int32_t>(rows.rows);
}

const float* StateRows::find(int32_t position) const {
  if (position < begin_ || position >= end()) return nullptr;
  return values_.data() + (position - begin_) * columns_;
}

void StateRows::drop_before(int32_t position) {
  const int32_t count = std::clamp(position - begin_, 0, count_);
  values_.erase(values_.begin(), values_.begin() + count * columns_);
  begin_ += count;
  count_ -= count;
}

}  // namespace tw
