// Choosing one instruction set's functions for an operation.
//
// Each operation lists its implementations in a constexpr table, best first; the functions of one
// instruction set form a struct (NormKernels, AttentionKernels ...) defined in that set's file.
#pragma once

#include <span>

#include "core/check.h"
#include "core/cpu.h"

namespace tw::kernels {

template <typename Functions>
struct KernelRow {
  const char* name;
  Isa isa;                                // level whose baseline it needs
  bool (*supported)(const CpuFeatures&);  // that baseline, and whatever it needs beyond it
  const Functions* functions;
};

constexpr bool supports_scalar(const CpuFeatures&) {
  return true;
}
constexpr bool supports_avx2(const CpuFeatures& features) {
  return features.avx2;
}
constexpr bool supports_avx512(const CpuFeatures& features) {
  return features.avx512;
}

// The first row that `features` support. Tables end with the scalar row, which all support.
template <typename Functions>
const KernelRow<Functions>& select_row(std::span<const KernelRow<Functions>> table,
                                       const CpuFeatures& features) {
  for (const KernelRow<Functions>& row : table) {
    if (row.supported(features)) return row;
  }
  TW_CHECK(!"a kernel table without a scalar row");
  return table.back();
}

}  // namespace tw::kernels
