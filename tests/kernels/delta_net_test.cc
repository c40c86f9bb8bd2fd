#include "kernels/delta_net/delta_net.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/vector_rows.h"

namespace tw::kernels {
namespace {

class DeltaNetTest : public testing::TestWithParam<const KernelRow<DeltaNetKernels>*> {
 protected:
  const DeltaNetKernels& kernels() const { return *GetParam()->functions; }
};

INSTANTIATE_TEST_SUITE_P(Table, DeltaNetTest, testing::ValuesIn(machine_rows(delta_net_kernels())),
                         row_name<DeltaNetKernels>);

// Sequences of these lengths, computed at most `chunk` tokens of each at a time. States lie in
// slots in reverse order; unused slots and what a new sequence finds in its own are NaN.
struct Steps {
  std::vector<int32_t> lengths;
  int32_t chunk = 1 << 20;

  int32_t num_slots() const { return static_cast<int32_t>(lengths.size()) + 1; }
  int64_t num_tokens() const {
    int64_t sum = 0;
    for (const int32_t length : lengths) sum += length;
    return sum;
  }

  // Calls run(batch, rows) with the indices of the batch's tokens among all.
  template <typename Run>
  void for_each(Run run) const {
    int32_t longest = 0;
    for (const int32_t length : lengths) longest = std::max(longest, length);
    for (int32_t begin = 0; begin < longest; begin += chunk) {
      std::vector<int32_t> positions, starts = {0}, slots;
      std::vector<int64_t> rows;
      int64_t first = 0;
      for (size_t seq = 0; seq < lengths.size(); first += lengths[seq++]) {
        const int32_t end = std::min(begin + chunk, lengths[seq]);
        if (end <= begin) continue;
        for (int32_t position = begin; position < end; ++position) {
          positions.push_back(position);
          rows.push_back(first + position);
        }
        starts.push_back(static_cast<int32_t>(positions.size()));
        slots.push_back(num_slots() - 1 - static_cast<int32_t>(seq));
      }
      run(StateBatch{positions, starts, slots}, rows);
    }
  }
};

// Rows of a matrix, with a stride larger than they are long, and back.
struct Rows {
  int64_t columns, stride;
  std::vector<float> values;

  Rows(int64_t count, int64_t num_columns, uint32_t seed)
      : columns(num_columns), stride(columns + 3), values(random_floats(count * stride, seed)) {}
  const float* row(int64_t i) const { return &values[static_cast<size_t>(i * stride)]; }
  float* row(int64_t i) { return &values[static_cast<size_t>(i * stride)]; }
  Matrix<float> matrix() {
    return {values.data(), static_cast<int64_t>(values.size()) / stride, columns, stride};
  }
  Rows gather(const std::vector<int64_t>& rows) const {
    Rows part(static_cast<int64_t>(rows.size()), columns, 99);
    for (size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(part.row(static_cast<int64_t>(i)), row(rows[i]),
                  static_cast<size_t>(stride) * sizeof(float));
    }
    return part;
  }
  void scatter(const Rows& part, const std::vector<int64_t>& rows) {
    for (size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(row(rows[i]), part.row(static_cast<int64_t>(i)),
                  static_cast<size_t>(stride) * sizeof(float));
    }
  }
};

std::vector<float> all_nan(int64_t count) {
  return std::vector<float>(static_cast<size_t>(count), NAN);
}

Rows convolved(const DeltaNetKernels& kernels, const Steps& steps, const Rows& x,
               const std::vector<float>& weight) {
  std::vector<float> states = all_nan(steps.num_slots() * (kConvolutionTaps - 1) * x.columns);
  Rows result = x;
  steps.for_each([&](const StateBatch& batch, const std::vector<int64_t>& rows) {
    Rows part = x.gather(rows);
    const ConvolutionArguments arguments{batch, part.matrix(), weight.data(), states.data()};
    const int64_t middle = x.columns / 2 / 16 * 16;
    kernels.convolve(arguments, {0, middle});
    kernels.convolve(arguments, {middle, x.columns});
    result.scatter(part, rows);
  });
  return result;
}

// Four roundings in the sum of terms of magnitude m, and silu's error of 4 units; its slope is
// below 1.1.
TEST_P(DeltaNetTest, ConvolutionMatchesDoublePrecision) {
  for (const int64_t channels : {1, 15, 16, 33, 80}) {
    const Steps steps{{1, 9, 3}};
    const Rows x(steps.num_tokens(), channels, 1);
    const std::vector<float> weight = random_floats(kConvolutionTaps * channels, 2);
    const Rows y = convolved(kernels(), steps, x, weight);
    int64_t first = 0;
    for (const int32_t length : steps.lengths) {
      for (int64_t t = 0; t < length; ++t) {
        for (int64_t c = 0; c < channels; ++c) {
          double sum = 0, magnitude = 0;
          for (int64_t tap = 0; tap < kConvolutionTaps; ++tap) {
            const int64_t from = t - (kConvolutionTaps - 1) + tap;
            if (from < 0) continue;
            const double term =
                double{weight[static_cast<size_t>(tap * channels + c)]} * x.row(first + from)[c];
            sum += term;
            magnitude += std::abs(term);
          }
          const double exact = sum / (1 + std::exp(-sum));
          ASSERT_NEAR(y.row(first + t)[c], exact,
                      (4 * 1.1 * magnitude + 8 * std::abs(exact)) * 0x1p-24 + 1e-30);
        }
        // What lies behind a row stays.
        ASSERT_EQ(y.row(first + t)[channels], x.row(first + t)[channels]);
      }
      first += length;
    }
  }
}

TEST_P(DeltaNetTest, ConvolutionInPiecesAndOnScalarIsTheSameBits) {
  const Steps steps{{30, 1, 17, 5}};
  const Rows x(steps.num_tokens(), 83, 3);
  const std::vector<float> weight = random_floats(kConvolutionTaps * 83, 4);
  const Rows whole = convolved(kernels(), steps, x, weight);
  EXPECT_EQ(convolved(scalar::kDeltaNetKernels, steps, x, weight).values, whole.values);
  for (const int32_t chunk : {1, 2, 7}) {
    EXPECT_EQ(convolved(kernels(), {steps.lengths, chunk}, x, weight).values, whole.values);
  }
}

struct DeltaProblem {
  DeltaRuleShape shape;
  Rows q, k, v, beta, decay;

  DeltaProblem(const DeltaRuleShape& delta_shape, int64_t tokens, uint32_t seed)
      : shape(delta_shape),
        q(tokens, shape.num_key_heads * shape.key_dim, seed),
        k(tokens, shape.num_key_heads * shape.key_dim, seed + 1),
        v(tokens, shape.num_heads * shape.value_dim, seed + 2),
        beta(tokens, shape.num_heads, seed + 3),
        decay(tokens, shape.num_heads, seed + 4) {
    // Keys of length 1, as the model has them; gates between 0 and 1.
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t head = 0; head < shape.num_key_heads; ++head) {
        float* key = k.row(t) + head * shape.key_dim;
        float squares = 0;
        for (int64_t d = 0; d < shape.key_dim; ++d) squares += key[d] * key[d];
        for (int64_t d = 0; d < shape.key_dim; ++d) key[d] /= std::sqrt(squares);
      }
      for (int64_t head = 0; head < shape.num_heads; ++head) {
        beta.row(t)[head] = 1 / (1 + std::exp(-beta.row(t)[head]));
        decay.row(t)[head] = 1 / (1 + std::exp(-3 * decay.row(t)[head]));
      }
    }
  }
};

Rows delta_rule(const DeltaNetKernels& kernels, const Steps& steps, const DeltaProblem& p) {
  std::vector<float> states = all_nan(steps.num_slots() * p.shape.state_size());
  Rows result(steps.num_tokens(), p.v.columns, 7);
  steps.for_each([&](const StateBatch& batch, const std::vector<int64_t>& rows) {
    Rows q = p.q.gather(rows), k = p.k.gather(rows), v = p.v.gather(rows);
    Rows beta = p.beta.gather(rows), decay = p.decay.gather(rows), out = result.gather(rows);
    const DeltaRuleArguments arguments{p.shape,
                                       batch,
                                       read_only(q.matrix()),
                                       read_only(k.matrix()),
                                       read_only(v.matrix()),
                                       read_only(beta.matrix()),
                                       read_only(decay.matrix()),
                                       out.matrix(),
                                       states.data()};
    const int64_t middle = p.shape.num_items() / 3;
    for (int32_t seq = 0; seq < batch.num_seqs(); ++seq) {
      kernels.apply_delta_rule(arguments, seq, {0, middle});
      kernels.apply_delta_rule(arguments, seq, {middle, p.shape.num_items()});
    }
    result.scatter(out, rows);
  });
  return result;
}

constexpr DeltaRuleShape kShapes[] = {
    {1, 1, 2, 16}, {1, 3, 6, 48}, {2, 4, 24, 32}, {2, 2, 64, 80}, {3, 3, 128, 16}};

// Values have magnitude m. A token's error is that of two sums of key_dim terms, each half of it in
// a chain: (key_dim / 2 + 4) units of the terms' magnitudes; with keys of length 1 errors of the
// state do not grow, and add up over the tokens.
TEST_P(DeltaNetTest, DeltaRuleMatchesDoublePrecision) {
  for (const DeltaRuleShape& shape : kShapes) {
    const Steps steps{{12, 1, 5}};
    const DeltaProblem p(shape, steps.num_tokens(), 10);
    const Rows out = delta_rule(kernels(), steps, p);
    int64_t first = 0;
    for (const int32_t length : steps.lengths) {
      for (int64_t head = 0; head < shape.num_heads; ++head) {
        const int64_t key_head = head / (shape.num_heads / shape.num_key_heads);
        for (int64_t column = 0; column < shape.value_dim; ++column) {
          std::vector<double> state(static_cast<size_t>(shape.key_dim));
          for (int64_t t = first; t < first + length; ++t) {
            const float* q = p.q.row(t) + key_head * shape.key_dim;
            const float* k = p.k.row(t) + key_head * shape.key_dim;
            double recalled = 0;
            for (size_t d = 0; d < state.size(); ++d) {
              state[d] *= p.decay.row(t)[head];
              recalled += state[d] * k[d];
            }
            const double value = p.v.row(t)[head * shape.value_dim + column];
            const double change = (value - recalled) * p.beta.row(t)[head];
            double exact = 0, magnitude = 0;
            for (size_t d = 0; d < state.size(); ++d) {
              state[d] += k[d] * change;
              exact += state[d] * q[d];
              magnitude += std::abs(state[d] * q[d]) + std::abs(double{k[d]} * q[d]);
            }
            const double units = static_cast<double>(t - first + 1) * (shape.key_dim / 2.0 + 4);
            ASSERT_NEAR(out.row(t)[head * shape.value_dim + column], exact,
                        2 * units * magnitude * 0x1p-24 + 1e-6);
          }
        }
      }
      first += length;
    }
  }
}

TEST_P(DeltaNetTest, DeltaRuleInPiecesAndOnScalarIsTheSameBits) {
  for (const DeltaRuleShape& shape : kShapes) {
    const Steps steps{{20, 1, 9}};
    const DeltaProblem p(shape, steps.num_tokens(), 20);
    const Rows whole = delta_rule(kernels(), steps, p);
    EXPECT_EQ(delta_rule(scalar::kDeltaNetKernels, steps, p).values, whole.values);
    for (const int32_t chunk : {1, 2, 7}) {
      EXPECT_EQ(delta_rule(kernels(), {steps.lengths, chunk}, p).values, whole.values);
    }
  }
}

TEST(DeltaRuleShapeTest, RefusesWhatItCannotDo) {
  EXPECT_TRUE((DeltaRuleShape{16, 32, 128, 128}.validate()));
  for (const DeltaRuleShape& shape :
       {DeltaRuleShape{0, 2, 8, 16}, DeltaRuleShape{2, 3, 8, 16}, DeltaRuleShape{2, 0, 8, 16},
        DeltaRuleShape{1, 1, 7, 16}, DeltaRuleShape{1, 1, 0, 16}, DeltaRuleShape{1, 1, 8, 24},
        DeltaRuleShape{1, 1, 8, 0}}) {
    EXPECT_FALSE(shape.validate());
  }
}

}  // namespace
}  // namespace tw::kernels
