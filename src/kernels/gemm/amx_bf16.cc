// C[M, N] = A[M, K] * W[N, K]^T for bf16 weights and bf16 activations, AMX-BF16.
//
// Blocks of 2 x 2 C tiles: 32 rows of A and 2 panels (32 channels). A step of 32 k loads two A
// tiles (16 rows x 32 k) and two B tiles (16 pairs of k x 16 channels, the packed order itself)
// for four TDPBF16PS: one tile load per multiply. C stays in tiles over a block of K; between
// blocks its fp32 sums wait in memory, which changes nothing about their order. That costs more
// than reading weights from L2 does, so a block of K of two panels (2 x 32 KiB) may be larger than
// L1 while all rows pass (5% faster than half of it); a block of rows (1 MiB) stays in L2 while all
// panels pass.
//
// Up to 16 rows, bound by memory, take 1 x 4 tiles instead: four panels stream side by side, each
// asked for early (19 GB/s a core, against 15 with one stream).
//
// Every row count takes TDPBF16PS, also one row (tiles of one row): the instruction adds a row's
// products in an order of its own, and so a row's result never depends on its company. It treats
// denormal inputs as zero and rounds to nearest even.
#include <immintrin.h>

#include "kernels/gemm/amx.h"
#include "kernels/gemm/amx_inline.h"

namespace tw::kernels::amx {
namespace {

constexpr int64_t kStep = 32;  // k of one tile
constexpr int64_t kBlockK = 1024;
constexpr int kBlockM = 2 * kBlockRows;
constexpr int kBlockPanels = 2;
constexpr int64_t kPrefetchBytes = 4096;
constexpr int64_t kMaxRows = 512;
constexpr int64_t kActivationBytes = 1 << 20;

// Tiles 0 to 3 hold C (2 * row tile + panel), 4 and 5 hold A, 6 and 7 hold B.
void configure_tiles(int64_t rows) {
  TileConfig config;
  const auto set = [&config](int tile, int64_t tile_rows) {
    config.rows[tile] = static_cast<uint8_t>(tile_rows);
    config.bytes_per_row[tile] = 64;
  };
  const int64_t first = rows < kBlockRows ? rows : kBlockRows;
  const int64_t second = rows - first;
  for (int panel = 0; panel < kBlockPanels; ++panel) {
    set(panel, first);
    if (second > 0) set(2 + panel, second);
    set(6 + panel, kStep / 2);
  }
  set(4, first);
  if (second > 0) set(5, second);
  load_config(config);
}

struct Operands {
  const std::byte* a;   // first row of the block, at the first k
  int64_t a_stride;     // bytes
  const std::byte* b0;  // first panel, at the first k
  const std::byte* b1;  // second panel
  float* sums;          // [rows][kBlockPanels * kTileN]
  int64_t steps;        // of 32 k
};

constexpr int64_t kSumStride = kBlockPanels * kTileN * sizeof(float);

// sums += A * B over a block of K, or = for the first. row_tiles: 2 for more than 16 rows; panels:
// 1 at an odd end.
template <int row_tiles, int panels>
void multiply_block(const Operands& o, bool is_first) {
  float* lower = o.sums + kBlockRows * kBlockPanels * kTileN;
  if (is_first) {
    _tile_zero(0);
    if constexpr (panels == 2) _tile_zero(1);
    if constexpr (row_tiles == 2) {
      _tile_zero(2);
      if constexpr (panels == 2) _tile_zero(3);
    }
  } else {
    _tile_loadd(0, o.sums, kSumStride);
    if constexpr (panels == 2) _tile_loadd(1, o.sums + kTileN, kSumStride);
    if constexpr (row_tiles == 2) {
      _tile_loadd(2, lower, kSumStride);
      if constexpr (panels == 2) _tile_loadd(3, lower + kTileN, kSumStride);
    }
  }
  for (int64_t step = 0; step < o.steps; ++step) {
    _tile_loadd(4, o.a + step * 64, o.a_stride);
    _tile_loadd(6, o.b0 + step * 1024, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (row_tiles == 2) {
      _tile_loadd(5, o.a + kBlockRows * o.a_stride + step * 64, o.a_stride);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (panels == 2) {
      _tile_loadd(7, o.b1 + step * 1024, 64);
      _tile_dpbf16ps(1, 4, 7);
      if constexpr (row_tiles == 2) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, o.sums, kSumStride);
  if constexpr (panels == 2) _tile_stored(1, o.sums + kTileN, kSumStride);
  if constexpr (row_tiles == 2) {
    _tile_stored(2, lower, kSumStride);
    if constexpr (panels == 2) _tile_stored(3, lower + kTileN, kSumStride);
  }
}

// Remembers which shape the tiles have, so that only the last, shorter block changes it.
class Tiles {
 public:
  void set_rows(int64_t rows) {
    if (rows == rows_) return;
    configure_tiles(rows);
    rows_ = rows;
  }

 private:
  int64_t rows_ = 0;
};

// Rows [begin, end) of one or two panels.
template <int panels>
void multiply_panels(const GemmTask& task, int64_t panel, int64_t begin, int64_t end, float* sums,
                     Tiles& tiles) {
  const std::byte* b = task.panels + panel * task.panel_size;
  for (int64_t k = 0; k < task.padded_k; k += kBlockK) {
    const int64_t depth = task.padded_k - k < kBlockK ? task.padded_k - k : kBlockK;
    for (int64_t m = begin; m < end; m += kBlockM) {
      const int64_t rows = end - m < kBlockM ? end - m : kBlockM;
      tiles.set_rows(rows);
      const Operands operands = {task.a + 2 * (m * task.a_stride + k),
                                 2 * task.a_stride,
                                 b + k * 32,
                                 b + task.panel_size + k * 32,
                                 sums + (m - begin) * kBlockPanels * kTileN,
                                 depth / kStep};
      if (rows > kBlockRows) {
        multiply_block<2, panels>(operands, k == 0);
      } else {
        multiply_block<1, panels>(operands, k == 0);
      }
    }
  }
  for (int64_t m = begin; m < end; ++m) {
    for (int p = 0; p < panels; ++p) {
      finish_row(task, m, panel + p,
                 _mm512_load_ps(sums + ((m - begin) * kBlockPanels + p) * kTileN));
    }
  }
}

// Panels [panel, panel + panels) for all rows, of which there are at most 16.
template <int panels>
void multiply_few_rows(const GemmTask& task, int64_t panel) {
  constexpr int64_t stride = panels * kTileN * sizeof(float);
  alignas(64) float sums[kBlockRows * panels * kTileN];
  const std::byte* b = task.panels + panel * task.panel_size;
  const auto load_ahead = [&](const std::byte* at) {
    for (int64_t line = 0; line < 1024; line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(at + kPrefetchBytes + line), _MM_HINT_T0);
    }
    return at;
  };
  _tile_zero(0);
  if constexpr (panels > 1) {
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t k = 0; k < task.padded_k; k += kStep) {
    const std::byte* at = b + k * 32;
    _tile_loadd(4, task.a + 2 * k, 2 * task.a_stride);
    _tile_loadd(5, load_ahead(at), 64);
    _tile_dpbf16ps(0, 4, 5);
    if constexpr (panels > 1) {
      static_assert(panels == 4);
      _tile_loadd(6, load_ahead(at + task.panel_size), 64);
      _tile_dpbf16ps(1, 4, 6);
      _tile_loadd(7, load_ahead(at + 2 * task.panel_size), 64);
      _tile_dpbf16ps(2, 4, 7);
      _tile_loadd(5, load_ahead(at + 3 * task.panel_size), 64);
      _tile_dpbf16ps(3, 4, 5);
    }
  }
  _tile_stored(0, sums, stride);
  if constexpr (panels > 1) {
    _tile_stored(1, sums + kTileN, stride);
    _tile_stored(2, sums + 2 * kTileN, stride);
    _tile_stored(3, sums + 3 * kTileN, stride);
  }
  for (int64_t m = 0; m < task.m; ++m) {
    for (int p = 0; p < panels; ++p) {
      finish_row(task, m, panel + p, _mm512_load_ps(sums + (m * panels + p) * kTileN));
    }
  }
}

void few_rows(const GemmTask& task) {
  constexpr int panels = 4;
  TileConfig config;
  for (int tile = 0; tile < 5; ++tile) {  // C and A
    config.rows[tile] = static_cast<uint8_t>(task.m);
    config.bytes_per_row[tile] = 64;
  }
  for (int tile = 5; tile < 8; ++tile) {  // B
    config.rows[tile] = kStep / 2;
    config.bytes_per_row[tile] = 64;
  }
  load_config(config);
  int64_t panel = task.panel_begin;
  for (; panel + panels <= task.panel_end; panel += panels) multiply_few_rows<panels>(task, panel);
  for (; panel < task.panel_end; ++panel) multiply_few_rows<1>(task, panel);
}

// Round to nearest even; NaN stays NaN (quiet), as to_bf16 does.
inline __m256i round_to_bf16(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
  const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, nan, quiet));
}

}  // namespace

void gemm_bf16(const GemmTask& task) {
  if (task.m == 0) return;
  if (task.m <= kBlockRows) {
    few_rows(task);
    _tile_release();
    return;
  }
  alignas(64) float sums[kMaxRows * kBlockPanels * kTileN];
  int64_t rows_per_block = kActivationBytes / (2 * task.padded_k) / kBlockM * kBlockM;
  if (rows_per_block < kBlockM) rows_per_block = kBlockM;
  if (rows_per_block > kMaxRows) rows_per_block = kMaxRows;
  Tiles tiles;
  for (int64_t begin = 0; begin < task.m; begin += rows_per_block) {
    const int64_t end = begin + rows_per_block < task.m ? begin + rows_per_block : task.m;
    int64_t panel = task.panel_begin;
    for (; panel + 2 <= task.panel_end; panel += 2) {
      multiply_panels<2>(task, panel, begin, end, sums, tiles);
    }
    if (panel < task.panel_end) multiply_panels<1>(task, panel, begin, end, sums, tiles);
  }
  _tile_release();
}

void prepare_bf16(const PrepareTask& task) {
  for (int64_t m = task.row_begin; m < task.row_end; ++m) {
    const float* x = task.a + m * task.a_stride;
    auto* out = reinterpret_cast<uint16_t*>(task.values) + m * task.stride;
    for (int64_t k = 0; k < task.stride; k += 16) {
      const int64_t left = task.k - k;
      const auto read = static_cast<__mmask16>(left >= 16  ? 0xffff
                                               : left <= 0 ? 0
                                                           : (1 << left) - 1);
      const int64_t room = task.stride - k;
      const auto write = static_cast<__mmask16>(room >= 16 ? 0xffff : (1 << room) - 1);
      _mm256_mask_storeu_epi16(out + k, write, round_to_bf16(_mm512_maskz_loadu_ps(read, x + k)));
    }
  }
}

}  // namespace tw::kernels::amx
