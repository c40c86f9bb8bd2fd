// A GEMM problem with random operands, and the ways to compute it.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "core/buffer.h"
#include "core/check.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/unpack.h"

namespace tw::kernels {

struct GemmProblem {
  int64_t m, n, k;
  PackedWeight weight;
  std::vector<float> a;     // [m, k]
  std::vector<float> bias;  // [n]
};

inline GemmProblem random_problem(WeightFormat format, int64_t m, int64_t n, int64_t k,
                                  uint32_t seed) {
  GemmProblem problem{m, n, k, {}, {}, {}};
  auto weight = random_weight(format, n, k, seed);
  TW_CHECK(weight.has_value());
  problem.weight = std::move(*weight);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  problem.a.resize(static_cast<size_t>(m * k));
  for (float& x : problem.a) x = normal(random);
  problem.bias.resize(static_cast<size_t>(n));
  for (float& x : problem.bias) x = normal(random);
  return problem;
}

struct Prepared {
  Buffer memory;
  PreparedActivations view;
};

inline Prepared prepare(const GemmKernel& kernel, const GemmProblem& problem) {
  Prepared prepared;
  auto memory = Buffer::allocate(
      prepared_activations_size(kernel.activations, std::max<int64_t>(problem.m, 1), problem.k));
  TW_CHECK(memory.has_value());
  prepared.memory = std::move(*memory);
  prepared.view =
      layout_prepared_activations(kernel.activations, problem.m, problem.k, prepared.memory.data());
  kernel.prepare({problem.a.data(), problem.m, problem.k, problem.k}, {0, problem.m},
                 prepared.view);
  return prepared;
}

struct GemmOptions {
  bool bias = false;
  Epilogue epilogue = Epilogue::store;
  float initial_c = -77.0f;
  std::vector<int64_t> panel_splits;  // ascending, inside (0, num_panels)
};

// C [m, n] with rows 3 elements apart, which must stay untouched.
inline std::vector<float> compute(const GemmKernel& kernel, const GemmProblem& problem,
                                  const GemmOptions& options = {}) {
  const Prepared prepared = prepare(kernel, problem);
  const int64_t stride = problem.n + 3;
  std::vector<float> c(static_cast<size_t>(problem.m * stride) + 1, options.initial_c);
  GemmArguments arguments;
  arguments.weight = &problem.weight;
  arguments.a = prepared.view;
  arguments.c = {c.data(), problem.m, problem.n, stride};
  arguments.bias = options.bias ? problem.bias.data() : nullptr;
  arguments.epilogue = options.epilogue;
  const Status valid = validate(kernel, arguments);
  TW_CHECK(valid.has_value());
  int64_t begin = 0;
  std::vector<int64_t> ends = options.panel_splits;
  ends.push_back(problem.weight.num_panels());
  for (int64_t end : ends) {
    kernel.run(arguments, {begin, end});
    begin = end;
  }
  std::vector<float> dense(static_cast<size_t>(problem.m * problem.n));
  for (int64_t i = 0; i < problem.m; ++i) {
    for (int64_t j = 0; j < stride; ++j) {
      const float value = c[static_cast<size_t>(i * stride + j)];
      if (j < problem.n) {
        dense[static_cast<size_t>(i * problem.n + j)] = value;
      } else {
        TW_CHECK(value == options.initial_c);
      }
    }
  }
  return dense;
}

// The scalar kernel that reads the same activations as `kernel`.
inline const GemmKernel& scalar_counterpart(const GemmKernel& kernel) {
  const bool is_integer =
      kernel.activations == ActivationFormat::q8 || kernel.activations == ActivationFormat::int8;
  const ActivationPrecision precision =
      is_integer ? ActivationPrecision::bf16 : ActivationPrecision::f32;
  return select_gemm(kernel.format, precision, CpuFeatures{});
}

}  // namespace tw::kernels
