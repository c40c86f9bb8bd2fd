// A constraint that a test can state in a line: at output position p, the tokens of one residue.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/token_constraint.h"

namespace tw::testing_support {

class FakeConstraint final : public TokenConstraint {
 public:
  // Ends after `length` tokens.
  FakeConstraint(int64_t vocab_size, int32_t modulus, int32_t length)
      : mask_(static_cast<size_t>((vocab_size + 31) / 32)),
        vocab_size_(vocab_size),
        modulus_(modulus),
        length_(length) {}

  bool allows(int32_t token, int32_t position) const {
    return token % modulus_ == position % modulus_;
  }

  Expected<std::span<const uint32_t>> allowed() override {
    std::fill(mask_.begin(), mask_.end(), 0);
    for (int32_t id = 0; id < vocab_size_; ++id) {
      if (allows(id, position_)) mask_[static_cast<size_t>(id / 32)] |= 1u << (id % 32);
    }
    return mask_;
  }

  Status accept(int32_t token) override {
    if (!allows(token, position_)) {
      return error(ErrorCode::internal, "token {} at position {}", token, position_);
    }
    ++position_;
    return {};
  }

  bool complete() const override { return position_ >= length_; }

 private:
  std::vector<uint32_t> mask_;
  const int64_t vocab_size_;
  const int32_t modulus_;
  const int32_t length_;
  int32_t position_ = 0;
};

}  // namespace tw::testing_support
