// GEMM kernels on several threads at once. AMX tiles are per thread: each thread must give itself
// the shape that its kernel needs, also right after another kernel used another shape, and leave no
// tiles behind, which the operating system would carry through every context switch.
#include <cpuid.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/thread_team.h"
#include "kernels/gemm_fixture.h"

namespace tw::kernels {
namespace {

// Whether this thread has tiles in use, as the processor tracks it for XSAVE (XINUSE).
bool has_tiles_in_use() {
  constexpr uint32_t kTileData = 1u << 18;
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  return (low & kTileData) != 0;
}

bool can_read_state_in_use() {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(0xd, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & 4) != 0;
}

// A product whose panels a team shares, beside what one thread computes.
struct SharedProduct {
  const GemmKernel* kernel;
  GemmProblem problem;
  Prepared prepared;
  std::vector<float> expected;
  std::vector<float> c;

  SharedProduct(const GemmKernel& of, int64_t m, int64_t n, int64_t k)
      : kernel(&of),
        problem(random_problem(of.format, m, n, k, 61)),
        prepared(prepare(of, problem)),
        expected(compute(of, problem)),
        c(expected.size()) {}

  GemmArguments arguments() {
    GemmArguments a;
    a.weight = &problem.weight;
    a.a = prepared.view;
    a.c = dense_matrix(c.data(), problem.m, problem.n);
    return a;
  }
};

TEST(GemmThreads, AlternatingTileShapesOnEveryTeamSize) {
  const auto features = usable_cpu_features();
  ASSERT_TRUE(features.has_value());
  std::vector<SharedProduct> products;
  // One row, a last block of 3 rows, and full blocks: three shapes of tiles.
  for (WeightFormat format : {WeightFormat::bf16, WeightFormat::q4_0, WeightFormat::fp8,
                              WeightFormat::int8, WeightFormat::q8_k16}) {
    for (int64_t m : {1, 19, 32}) {
      products.emplace_back(select_gemm(format, ActivationPrecision::bf16, *features), m, 150, 256);
      products.emplace_back(select_prefill_gemm(format, ActivationPrecision::bf16, *features), m,
                            150, 256);
    }
  }
  const bool can_read = can_read_state_in_use();
  for (int size : {1, 2, 3, 5, 7}) {
    ThreadTeam team(size);
    std::vector<int> tiles_left(static_cast<size_t>(size));
    for (SharedProduct& product : products) {
      std::fill(product.c.begin(), product.c.end(), -1.0f);
    }
    team.run([&](const TeamMember& member) {
      for (size_t i = 0; i < products.size(); ++i) {
        // Each member begins elsewhere, so that different shapes meet on one processor.
        SharedProduct& product =
            products[(i + static_cast<size_t>(member.rank())) % products.size()];
        product.kernel->run(product.arguments(), member.share(product.problem.weight.num_panels()));
        if (can_read && has_tiles_in_use()) ++tiles_left[static_cast<size_t>(member.rank())];
      }
    });
    for (const SharedProduct& product : products) {
      ASSERT_EQ(product.c, product.expected) << product.kernel->name << ", " << size << " threads";
    }
    for (int left : tiles_left) EXPECT_EQ(left, 0) << "of " << size << " threads";
  }
}

}  // namespace
}  // namespace tw::kernels
