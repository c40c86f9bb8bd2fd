// What guesses a token further, against a golden file of its logits and states.
//
// Tolerance: the hidden states that it goes by differ from the reference's as logits do
// (golden_test.cc), and keys and values are rounded to bf16 also where activations are not.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "engine/batch_builder.h"
#include "models/golden_file.h"
#include "models/logit_error.h"
#include "models/model.h"

namespace tw::testing_support {

inline void expect_rows_close(Matrix<const float> computed, Matrix<const float> golden,
                              int64_t first_row, double tolerance) {
  ASSERT_EQ(computed.cols, golden.cols);
  for (int64_t row = 0; row < computed.rows; ++row) {
    const std::span<const float> expected(golden.row(first_row + row),
                                          static_cast<size_t>(golden.cols));
    const std::span<const float> own(computed.row(row), static_cast<size_t>(computed.cols));
    EXPECT_LT(logit_error(own, expected, largest_magnitude(expected)).relative, tolerance)
        << "token " << first_row + row;
  }
}

// The tokens of the golden file as one sequence in two chunks, all their logits and states.
inline void expect_equals_reference(Model& model, const GoldenFile& golden,
                                    kernels::ActivationPrecision precision) {
  constexpr int32_t kPageSize = 16, kMaxTokens = 64;
  const std::vector<PageId> pages = {PageId{2}, PageId{0}, PageId{3}};
  const std::span<const int32_t> tokens = golden.integers("token_ids");
  NextTokenModel* guesser = model.next_token_model();
  ASSERT_NE(guesser, nullptr);
  EXPECT_GT(guesser->kv_bytes_per_token(), 0);
  ASSERT_TRUE(model.prepare(4, kPageSize, kMaxTokens, 1));
  ASSERT_TRUE(guesser->prepare(4, kPageSize, kMaxTokens, 1));
  BatchBuilder builder(kPageSize, kMaxTokens, 1);
  const int64_t hidden_size = model.limits().hidden_size;
  std::vector<float> previous(static_cast<size_t>(hidden_size), 0.0f);
  const double tolerance = precision == kernels::ActivationPrecision::bf16 ? 3e-2 : 2e-2;
  for (const auto& [begin, end] : {std::pair<size_t, size_t>{0, 23}, {23, tokens.size()}}) {
    builder.clear();
    builder.begin_sequence(static_cast<int32_t>(begin), pages, false);
    for (size_t i = begin; i < end; ++i) builder.add_token(tokens[i], true, true);
    builder.end_sequence();
    const Batch batch = builder.batch();
    model.forward(batch);
    const Matrix<const float> states = model.next_token_states();
    ASSERT_EQ(states.cols, hidden_size);
    previous.insert(previous.end(), states.data, states.data + states.rows * hidden_size);
    const Matrix<const float> logits = guesser->forward(
        batch, read_only(dense_matrix(previous.data(), batch.num_tokens(), hidden_size)));
    expect_rows_close(logits, golden.matrix("logits"), static_cast<int64_t>(begin), tolerance);
    expect_rows_close(guesser->hidden_states(), golden.matrix("states"),
                      static_cast<int64_t>(begin), tolerance);
    previous.erase(previous.begin(), previous.end() - hidden_size);
  }
}

}  // namespace tw::testing_support
