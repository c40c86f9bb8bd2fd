// What the sampler asks of a row of logits: its maximum, the sum of its exponentials, its softmax.
// A vocabulary has 30,000 to 260,000 entries, so these passes are worth vectorizing; everything
// after them works on few candidates and belongs to the engine.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kernel_table.h"

namespace tw::kernels {

struct LogitsKernels {
  // Index of the largest of n >= 1 logits; the first of equal ones. NaN counts as -infinity; 0 if
  // nothing is above that.
  int64_t (*argmax)(const float* logits, int64_t n);

  // log(sum(e^logits)) of n >= 1 logits; -infinity if all are -infinity (masked). Sums in a fixed
  // order.
  float (*log_sum_exp)(const float* logits, int64_t n);

  // out = softmax(scale * logits); out may be logits; scale > 0 (1 / temperature). -infinity gives
  // exactly 0. Returns the sum by which the exponentials were divided. All zeros and a sum of 0 if
  // all are -infinity.
  float (*softmax)(const float* logits, int64_t n, float scale, float* out);
};

std::span<const KernelRow<LogitsKernels>> logits_kernels();
const LogitsKernels& select_logits(const CpuFeatures& features);

namespace scalar {
extern const LogitsKernels kLogitsKernels;
}
namespace avx2 {
extern const LogitsKernels kLogitsKernels;
}
namespace avx512 {
extern const LogitsKernels kLogitsKernels;
}

}  // namespace tw::kernels
