// What a kernel of one instruction set is handed: plain pointers and numbers.
//
// Files compiled with an instruction set's flags must not emit inline functions of shared headers:
// the linker keeps one copy of those for the whole program, and if it is the AVX-512 one, older
// processors crash. So such files see only these structs, no member functions, and gemm.cc
// translates (tests/kernels checks the objects for weak symbols).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/packed_weight.h"

namespace tw::kernels {

struct GemmTask {
  // W: panel p starts at panels + p * panel_size.
  const std::byte* panels;
  int64_t panel_size;
  PanelLayout layout;
  int64_t n;
  int64_t padded_k;
  // A
  int64_t m;
  const std::byte* a;
  int64_t a_stride;  // elements
  const ActivationGroup* groups;
  int64_t groups_stride;
  // C
  float* c;
  int64_t c_stride;
  const float* output_scales;  // [panels * 16] or null
  const float* bias;           // [n] or null
  bool accumulate;
  // The part to compute.
  int64_t panel_begin;
  int64_t panel_end;
};

struct PrepareTask {
  const float* a;
  int64_t a_stride;
  int64_t row_begin;
  int64_t row_end;
  int64_t k;
  std::byte* values;
  int64_t stride;  // elements between rows of `values`; what lies behind k becomes zero
  ActivationGroup* groups;
  int64_t groups_per_row;
  int64_t groups_stride;  // groups between rows; those behind groups_per_row become zero
};

}  // namespace tw::kernels
