// Table lookups over Vec (math/vector_scalar.h).
#pragma once

#include "kernels/embedding/embedding.h"
#include "kernels/gemm/unpack.h"

namespace tw::kernels {

template <typename Vec>
inline Vec load_as_float(const float* data) {
  return Vec::load(data);
}
template <typename Vec>
inline Vec load_as_float(const f16_t* data) {
  return Vec::load_f16(data);
}
template <typename Vec>
inline Vec load_as_float(const bf16_t* data) {
  return Vec::load_bf16(data);
}

template <typename Vec, typename Element>
inline void copy_row(const Element* row, int64_t n, float scale, float* out) {
  const Vec scales = Vec::broadcast(scale);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) (load_as_float<Vec>(row + i) * scales).store(out + i);
  if (i == n) return;
  Element last[16] = {};
  for (int64_t j = i; j < n; ++j) last[j - i] = row[j];
  (load_as_float<Vec>(last) * scales).store_first(out + i, n - i);
}

template <typename Vec, typename Element>
inline void copy_rows(const EmbeddingArguments& a, const DenseTable& table, Range tokens) {
  const auto* data = static_cast<const Element*>(table.data);
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    const Element* row = data + a.token_ids[token] * table.row_stride;
    copy_row<Vec>(row, a.out.cols, a.scale, a.out.data + token * a.out.row_stride);
  }
}

template <typename Vec>
void dense_embedding(const EmbeddingArguments& a, const DenseTable& table, Range tokens) {
  switch (table.type) {
    case DType::f32:
      return copy_rows<Vec, float>(a, table, tokens);
    case DType::f16:
      return copy_rows<Vec, f16_t>(a, table, tokens);
    case DType::bf16:
      return copy_rows<Vec, bf16_t>(a, table, tokens);
    default:
      check_failed("an embedding table of f32, f16 or bf16", __FILE__, __LINE__);
  }
}

template <typename Vec>
void packed_embedding(const EmbeddingArguments& a, const PackedWeight& table, Range tokens) {
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    float* out = a.out.data + token * a.out.row_stride;
    unpack_row(table, a.token_ids[token], out);
    if (a.scale != 1.0f) copy_row<Vec>(out, a.out.cols, a.scale, out);
  }
}

}  // namespace tw::kernels
