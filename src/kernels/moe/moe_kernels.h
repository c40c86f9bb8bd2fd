// The row-wise parts of a mixture of experts, for each instruction set. What lies between them,
// the experts' products, is expert_products.h.
#pragma once

#include <span>

#include "core/thread_team.h"
#include "kernels/kernel_table.h"
#include "kernels/moe/combine.h"
#include "kernels/moe/router.h"

namespace tw::kernels {

// Each function computes tokens [tokens.begin, tokens.end).
struct MoeKernels {
  void (*route)(const RouterArguments& arguments, Range tokens);
  void (*combine)(const CombineArguments& arguments, Range tokens);
};

std::span<const KernelRow<MoeKernels>> moe_kernels();
const MoeKernels& select_moe(const CpuFeatures& features);

namespace scalar {
extern const MoeKernels kMoeKernels;
}
namespace avx2 {
extern const MoeKernels kMoeKernels;
}
namespace avx512 {
extern const MoeKernels kMoeKernels;
}

}  // namespace tw::kernels
