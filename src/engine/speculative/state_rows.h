// Final hidden states of a sequence's last tokens, kept for the layer that guesses from them.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace tw {

class StateRows {
 public:
  // States of the tokens from `position` on. What is there from that position on goes, and all if
  // a gap would be left.
  void put(int32_t position, Matrix<const float> rows);
  // Null if there is none.
  const float* find(int32_t position) const;
  void drop_before(int32_t position);

 private:
  int32_t end() const { return begin_ + count_; }

  int32_t begin_ = 0;  // position of the first row
  int32_t count_ = 0;
  int64_t columns_ = 0;
  std::vector<float> values_;
};

}  // namespace tw
