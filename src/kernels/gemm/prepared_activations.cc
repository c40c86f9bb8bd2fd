// The memory of prepared activations: values first, then the groups of q8 and int8.
#include "core/check.h"
#include "kernels/gemm/gemm.h"

namespace tw::kernels {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Rows of values and of groups are one cache line longer than they need be: rows at a stride of a
// power of two would all fall into the same few sets of the cache, where a block of rows evicts
// itself.
int64_t row_bytes(ActivationFormat format, int64_t k) {
  return round_up(k, kSuperGroup) * element_size(format) + 64;
}

int64_t groups_per_row(ActivationFormat format, int64_t k) {
  if (format == ActivationFormat::int8) return 1;
  return format == ActivationFormat::q8 ? round_up(k, kSuperGroup) / 32 : 0;
}

int64_t group_stride(ActivationFormat format, int64_t k) {
  constexpr int64_t kGroupsPerLine = 64 / sizeof(ActivationGroup);
  if (format == ActivationFormat::int8) return kGroupsPerLine;
  return format == ActivationFormat::q8 ? groups_per_row(format, k) + kGroupsPerLine : 0;
}

}  // namespace

int64_t element_size(ActivationFormat format) {
  switch (format) {
    case ActivationFormat::f32:
      return 4;
    case ActivationFormat::bf16:
      return 2;
    case ActivationFormat::q8:
    case ActivationFormat::int8:
      return 1;
  }
  return 0;
}

size_t prepared_activations_size(ActivationFormat format, int64_t max_m, int64_t k) {
  const int64_t group_bytes =
      group_stride(format, k) * static_cast<int64_t>(sizeof(ActivationGroup));
  return static_cast<size_t>(round_up(max_m * (row_bytes(format, k) + group_bytes), 64));
}

PreparedActivations layout_prepared_activations(ActivationFormat format, int64_t m, int64_t k,
                                                std::byte* memory) {
  TW_CHECK(reinterpret_cast<uintptr_t>(memory) % 64 == 0);
  PreparedActivations a;
  a.format = format;
  a.m = m;
  a.k = k;
  a.row_stride = row_bytes(format, k) / element_size(format);
  a.values = memory;
  a.groups_per_row = groups_per_row(format, k);
  a.group_stride = group_stride(format, k);
  if (a.groups_per_row > 0) {
    a.groups = reinterpret_cast<ActivationGroup*>(memory + m * row_bytes(format, k));
  }
  return a;
}

}  // namespace tw::kernels
