// The experts' products against the same GEMM kernels called for one row at a time: equal bit for
// bit, for every format, however the rows lie and however many threads share the work.
#include <gtest/gtest.h>

#include <bit>
#include <numeric>

#include "kernels/gemm/unpack.h"
#include "kernels/moe/expert_products.h"
#include "kernels/moe/work_split.h"
#include "kernels/vector_rows.h"

namespace tw::kernels {
namespace {

struct Sizes {
  int64_t hidden, intermediate;
};

ExpertMatrix random_matrix(WeightFormat format, int64_t n, int64_t k, uint32_t seed,
                           const CpuFeatures& features, bool bias) {
  ExpertMatrix matrix;
  auto weight = random_weight(format, n, k, seed);
  TW_CHECK(weight.has_value());
  matrix.weight = std::move(*weight);
  matrix.kernel = &select_gemm(format, ActivationPrecision::bf16, features);
  // Another one than for generated rows on every processor.
  matrix.prefill_kernel = features.isa() == Isa::amx
                              ? &select_prefill_gemm(format, ActivationPrecision::bf16, features)
                              : &select_gemm(format, ActivationPrecision::f32, features);
  if (bias) matrix.bias = random_floats(n, seed + 77);
  return matrix;
}

// A set of experts with random rows, and the memory that it works in.
struct Problem {
  std::vector<ExpertWeights> experts;
  std::vector<int32_t> starts;
  std::vector<float> input;  // [rows, hidden]
  std::vector<float> scales;
  Buffer prepared_input, prepared;
  std::vector<float> activated, up, output;
  ExpertSet set;

  // `first_row`: that of the set in a larger routing.
  Problem(WeightFormat format, const std::vector<int32_t>& rows, Sizes sizes, uint32_t seed,
          const CpuFeatures& features, bool bias = false, bool prompts = false,
          int32_t first_row = 0) {
    for (size_t e = 0; e < rows.size(); ++e) {
      const auto s = seed + 10 * static_cast<uint32_t>(e);
      experts.push_back(
          {random_matrix(format, sizes.intermediate, sizes.hidden, s, features, bias),
           random_matrix(format, sizes.intermediate, sizes.hidden, s + 1, features, bias),
           random_matrix(format, sizes.hidden, sizes.intermediate, s + 2, features, bias)});
    }
    starts = {first_row};
    for (const int32_t count : rows) starts.push_back(starts.back() + count);
    const int64_t total = starts.back() - first_row;
    input = random_floats(total * sizes.hidden, seed + 1000);
    const GemmKernel& kernel = experts[0].gate.kernel_of(prompts);
    const ActivationFormat inner = experts[0].down.kernel_of(prompts).activations;
    prepared_input = allocate(kernel.activations, total, sizes.hidden);
    prepared = allocate(inner, total, sizes.intermediate);
    // Far from what any row gives, to see what is left untouched.
    activated.assign(static_cast<size_t>(total * sizes.intermediate), 1e30f);
    up = activated;
    output.assign(static_cast<size_t>(total * sizes.hidden), 1e30f);
    set.experts = experts;
    set.prompts = prompts;
    set.starts = starts.data();
    set.input =
        layout_prepared_activations(kernel.activations, total, sizes.hidden, prepared_input.data());
    kernel.prepare({input.data(), total, sizes.hidden, sizes.hidden}, {0, total}, set.input);
    set.activated = dense_matrix(activated.data(), total, sizes.intermediate);
    set.up = dense_matrix(up.data(), total, sizes.intermediate);
    set.prepared = layout_prepared_activations(inner, total, sizes.intermediate, prepared.data());
    set.output = dense_matrix(output.data(), total, sizes.hidden);
  }

  static Buffer allocate(ActivationFormat format, int64_t m, int64_t k) {
    auto buffer = Buffer::allocate(prepared_activations_size(format, std::max<int64_t>(m, 1), k));
    TW_CHECK(buffer.has_value());
    return std::move(*buffer);
  }
};

void run(std::span<const ExpertSet> sets, int num_threads, const CpuFeatures& features) {
  const ActivationKernels& kernels = select_activation(features);
  for (int rank = 0; rank < num_threads; ++rank) gate_and_up(sets, kernels, rank, num_threads);
  for (int rank = 0; rank < num_threads; ++rank) prepare_activated(sets, rank, num_threads);
  for (int rank = 0; rank < num_threads; ++rank) down(sets, rank, num_threads);
}

// One row through one matrix.
std::vector<float> product(const ExpertMatrix& matrix, bool prompts,
                           const std::vector<float>& row) {
  const GemmKernel& kernel = matrix.kernel_of(prompts);
  const auto k = static_cast<int64_t>(row.size());
  const Buffer memory = Problem::allocate(kernel.activations, 1, k);
  GemmArguments arguments;
  arguments.weight = &matrix.weight;
  arguments.a = layout_prepared_activations(kernel.activations, 1, k, memory.data());
  kernel.prepare({row.data(), 1, k, k}, {0, 1}, arguments.a);
  std::vector<float> out(static_cast<size_t>(matrix.weight.n()));
  arguments.c = dense_matrix(out.data(), 1, matrix.weight.n());
  arguments.bias = matrix.bias.empty() ? nullptr : matrix.bias.data();
  kernel.run(arguments, {0, matrix.weight.num_panels()});
  return out;
}

std::vector<float> expected_row(const Problem& problem, size_t expert, int64_t row,
                                const CpuFeatures& features) {
  const ExpertWeights& weights = problem.experts[expert];
  const int64_t hidden = weights.gate.weight.k(), n = weights.gate.weight.n();
  const std::vector<float> x(problem.input.begin() + row * hidden,
                             problem.input.begin() + (row + 1) * hidden);
  const bool prompts = problem.set.prompts;
  const std::vector<float> gate = product(weights.gate, prompts, x);
  const std::vector<float> up = product(weights.up, prompts, x);
  std::vector<float> activated(static_cast<size_t>(n));
  const ActivationKernels& kernels = select_activation(features);
  const auto gates = dense_matrix(gate.data(), 1, n);
  const auto ups = dense_matrix(up.data(), 1, n);
  const auto out = dense_matrix(activated.data(), 1, n);
  if (problem.set.activation.clamped) {
    kernels.clamped_swiglu({*problem.set.activation.clamped, gates, ups, out}, {0, 1});
  } else {
    const float* scale = problem.scales.empty() ? nullptr : problem.scales.data() + row;
    kernels.gated({problem.set.activation.activation, gates, ups, out, scale}, {0, 1});
  }
  return product(weights.down, prompts, activated);
}

void expect_equal_rows(const Problem& problem, const CpuFeatures& features) {
  for (size_t e = 0; e < problem.experts.size(); ++e) {
    const int32_t first = problem.starts[0];
    for (int32_t row = problem.starts[e] - first; row < problem.starts[e + 1] - first; ++row) {
      const std::vector<float> expected = expected_row(problem, e, row, features);
      for (size_t i = 0; i < expected.size(); ++i) {
        const float actual = problem.output[static_cast<size_t>(row) * expected.size() + i];
        ASSERT_EQ(std::bit_cast<uint32_t>(actual), std::bit_cast<uint32_t>(expected[i]))
            << "expert " << e << " row " << row << " column " << i;
      }
    }
  }
}

TEST(ExpertProducts, EveryFormatEqualsRowsComputedAlone) {
  const CpuFeatures best = *usable_cpu_features();
  for (const Isa level : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::amx}) {
    if (level > best.isa()) continue;
    const CpuFeatures features = best.limited_to(level);
    for (const WeightFormat format : kAllWeightFormats) {
      SCOPED_TRACE(std::string(traits(format).name) + " " + to_string(level));
      Problem problem(format, {3, 0, 1, 21}, {72, 104}, 5, features);
      run({&problem.set, 1}, 2, features);
      expect_equal_rows(problem, features);
    }
  }
}

TEST(ExpertProducts, AnyNumberOfThreadsComputesTheSame) {
  const CpuFeatures features = *usable_cpu_features();
  for (const int num_threads : {1, 2, 3, 5, 7, 40}) {
    SCOPED_TRACE(num_threads);
    Problem problem(WeightFormat::q4_0, {0, 40, 1, 0, 2, 7}, {128, 96}, 9, features, true);
    run({&problem.set, 1}, num_threads, features);
    expect_equal_rows(problem, features);
  }
}

TEST(ExpertProducts, SeveralSetsShareTheWork) {
  const CpuFeatures features = *usable_cpu_features();
  Problem routed(WeightFormat::q8_0, {4, 9, 0}, {96, 64}, 1, features);
  Problem shared(WeightFormat::bf16, {6}, {96, 176}, 2, features);
  routed.scales = random_floats(13, 4);
  routed.set.input_scales = routed.scales.data();
  shared.set.activation.clamped = ClampedSwiGlu{1.5f, 0.5f};
  const ExpertSet sets[] = {routed.set, shared.set};
  run(sets, 3, features);
  expect_equal_rows(routed, features);
  expect_equal_rows(shared, features);
}

// What a step has that computes generated tokens beside prompts.
TEST(ExpertProducts, RowsOfPromptsHaveKernelsOfTheirOwn) {
  const CpuFeatures features = *usable_cpu_features();
  for (const WeightFormat format : {WeightFormat::q4_0, WeightFormat::fp8, WeightFormat::bf16}) {
    SCOPED_TRACE(traits(format).name);
    Problem generated(format, {2, 0, 5}, {96, 64}, 3, features);
    Problem prompts(format, {0, 33, 4}, {96, 64}, 3, features, true, true, 12);
    prompts.scales = random_floats(37, 6);
    prompts.set.input_scales = prompts.scales.data();
    const ExpertSet sets[] = {generated.set, prompts.set};
    run(sets, 3, features);
    expect_equal_rows(generated, features);
    expect_equal_rows(prompts, features);
  }
}

TEST(ExpertProducts, NoRowsAreNoWork) {
  const CpuFeatures features = *usable_cpu_features();
  Problem problem(WeightFormat::int8, {0, 0}, {64, 64}, 1, features);
  run({&problem.set, 1}, 2, features);
}

TEST(WorkSplit, EveryPanelOnceAndThreadsDifferByOnePanel) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const auto count = static_cast<int64_t>(1 + random() % 20);
    std::vector<int64_t> panels, costs;
    int64_t total = 0, largest = 0;
    for (int64_t i = 0; i < count; ++i) {
      panels.push_back(1 + static_cast<int64_t>(random() % 30));
      costs.push_back(random() % 3 == 0 ? 0 : 1 + static_cast<int64_t>(random() % 1000));
      total += panels.back() * costs.back();
      largest = std::max(largest, costs.back());
    }
    const int num_threads = 1 + static_cast<int>(random() % 12);
    std::vector<int64_t> next(static_cast<size_t>(count), 0);
    for (int rank = 0; rank < num_threads; ++rank) {
      int64_t cost = 0;
      for_each_share(
          count, rank, num_threads, [&](int64_t i) { return panels[static_cast<size_t>(i)]; },
          [&](int64_t i) { return costs[static_cast<size_t>(i)]; },
          [&](int64_t i, Range share) {
            const auto at = static_cast<size_t>(i);
            ASSERT_EQ(share.begin, next[at]);
            ASSERT_GT(share.end, share.begin);
            next[at] = share.end;
            cost += share.size() * costs[at];
          });
      EXPECT_LE(cost, total / num_threads + 1 + largest);
    }
    for (size_t i = 0; i < panels.size(); ++i) {
      EXPECT_EQ(next[i], costs[i] == 0 ? 0 : panels[i]);
    }
  }
}

}  // namespace
}  // namespace tw::kernels
