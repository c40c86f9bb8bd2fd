// C[M, N] = A[M, K] * W[N, K]^T by tiles that need no scales along K: bf16 and int8.
//
// Blocks of 2 x 2 C tiles: 32 rows of A and 2 panels (32 channels). A step of 64 bytes of K loads
// two A tiles (16 rows) and two B tiles (16 channels, the packed order itself) for four
// multiplications: one tile load per multiply. C stays in tiles over a block of K; between blocks
// its sums wait in memory, which changes nothing about their order. That costs more than reading
// weights from L2 does, so a block of K of two panels (2 x 32 KiB) may be larger than L1 while all
// rows pass (5% faster than half of it); a block of rows (1 MiB) stays in L2 while all panels pass.
//
// Up to 16 rows, bound by memory, take 1 x 4 tiles instead: four panels stream side by side, each
// asked for early (19 GB/s a core, against 15 with one stream).
//
// An Operation is a type with
//   element_bytes              of A and W
//   multiply<c, a, b>()        tile c += tile a * tile b
//   finish(task, m, panel, sums)  16 sums (4 bytes each) of row m on their way out
//
// Everything here has internal linkage: see kernel_task.h.
#pragma once

#include <immintrin.h>

#include "kernels/gemm/amx.h"
#include "kernels/gemm/amx_inline.h"

namespace tw::kernels::amx {
namespace {

constexpr int64_t kTileBytes = 64;  // of K in one tile
constexpr int64_t kBlockBytes = 2048;
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
    set(6 + panel, kTileBytes / 4);
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
  float* sums;          // [rows][kBlockPanels * kTileN], fp32 or int32
  int64_t steps;        // of kTileBytes
};

constexpr int64_t kSumStride = kBlockPanels * kTileN * sizeof(float);

// sums += A * B over a block of K, or = for the first. row_tiles: 2 for more than 16 rows; panels:
// 1 at an odd end.
template <typename Operation, int row_tiles, int panels>
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
    Operation::template multiply<0, 4, 6>();
    if constexpr (row_tiles == 2) {
      _tile_loadd(5, o.a + kBlockRows * o.a_stride + step * 64, o.a_stride);
      Operation::template multiply<2, 5, 6>();
    }
    if constexpr (panels == 2) {
      _tile_loadd(7, o.b1 + step * 1024, 64);
      Operation::template multiply<1, 4, 7>();
      if constexpr (row_tiles == 2) Operation::template multiply<3, 5, 7>();
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
template <typename Operation, int panels>
void multiply_panels(const GemmTask& task, int64_t panel, int64_t begin, int64_t end, float* sums,
                     Tiles& tiles) {
  const std::byte* b = task.panels + panel * task.panel_size;
  const int64_t row_bytes = task.padded_k * Operation::element_bytes;
  const int64_t stride = task.a_stride * Operation::element_bytes;
  for (int64_t at = 0; at < row_bytes; at += kBlockBytes) {
    const int64_t depth = row_bytes - at < kBlockBytes ? row_bytes - at : kBlockBytes;
    for (int64_t m = begin; m < end; m += kBlockM) {
      const int64_t rows = end - m < kBlockM ? end - m : kBlockM;
      tiles.set_rows(rows);
      const Operands operands = {task.a + m * stride + at,
                                 stride,
                                 b + at * kTileN,
                                 b + task.panel_size + at * kTileN,
                                 sums + (m - begin) * kBlockPanels * kTileN,
                                 depth / kTileBytes};
      if (rows > kBlockRows) {
        multiply_block<Operation, 2, panels>(operands, at == 0);
      } else {
        multiply_block<Operation, 1, panels>(operands, at == 0);
      }
    }
  }
  for (int64_t m = begin; m < end; ++m) {
    for (int p = 0; p < panels; ++p) {
      Operation::finish(task, m, panel + p, sums + ((m - begin) * kBlockPanels + p) * kTileN);
    }
  }
}

// Panels [panel, panel + panels) for all rows, of which there are at most 16.
template <typename Operation, int panels>
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
  for (int64_t k = 0; k < task.padded_k * Operation::element_bytes; k += kTileBytes) {
    const std::byte* at = b + k * kTileN;
    _tile_loadd(4, task.a + k, task.a_stride * Operation::element_bytes);
    _tile_loadd(5, load_ahead(at), 64);
    Operation::template multiply<0, 4, 5>();
    if constexpr (panels > 1) {
      static_assert(panels == 4);
      _tile_loadd(6, load_ahead(at + task.panel_size), 64);
      Operation::template multiply<1, 4, 6>();
      _tile_loadd(7, load_ahead(at + 2 * task.panel_size), 64);
      Operation::template multiply<2, 4, 7>();
      _tile_loadd(5, load_ahead(at + 3 * task.panel_size), 64);
      Operation::template multiply<3, 4, 5>();
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
      Operation::finish(task, m, panel + p, sums + (m * panels + p) * kTileN);
    }
  }
}

template <typename Operation>
void few_rows(const GemmTask& task) {
  constexpr int panels = 4;
  TileConfig config;
  for (int tile = 0; tile < 5; ++tile) {  // C and A
    config.rows[tile] = static_cast<uint8_t>(task.m);
    config.bytes_per_row[tile] = 64;
  }
  for (int tile = 5; tile < 8; ++tile) {  // B
    config.rows[tile] = kTileBytes / 4;
    config.bytes_per_row[tile] = 64;
  }
  load_config(config);
  int64_t panel = task.panel_begin;
  for (; panel + panels <= task.panel_end; panel += panels)
    multiply_few_rows<Operation, panels>(task, panel);
  for (; panel < task.panel_end; ++panel) multiply_few_rows<Operation, 1>(task, panel);
}

// All rows of the task, whose number is arbitrary.
template <typename Operation>
void multiply_matrix(const GemmTask& task) {
  if (task.m == 0) return;
  if (task.m <= kBlockRows) {
    few_rows<Operation>(task);
    _tile_release();
    return;
  }
  alignas(64) float sums[kMaxRows * kBlockPanels * kTileN];
  int64_t rows_per_block =
      kActivationBytes / (Operation::element_bytes * task.padded_k) / kBlockM * kBlockM;
  if (rows_per_block < kBlockM) rows_per_block = kBlockM;
  if (rows_per_block > kMaxRows) rows_per_block = kMaxRows;
  Tiles tiles;
  for (int64_t begin = 0; begin < task.m; begin += rows_per_block) {
    const int64_t end = begin + rows_per_block < task.m ? begin + rows_per_block : task.m;
    int64_t panel = task.panel_begin;
    for (; panel + 2 <= task.panel_end; panel += 2) {
      multiply_panels<Operation, 2>(task, panel, begin, end, sums, tiles);
    }
    if (panel < task.panel_end) multiply_panels<Operation, 1>(task, panel, begin, end, sums, tiles);
  }
  _tile_release();
}

}  // namespace
}  // namespace tw::kernels::amx
