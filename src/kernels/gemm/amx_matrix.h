// C[M, N] = A[M, K] * W[N, K]^T by tiles that need no scales along K: bf16, int8, and quantized
// weights that are widened to bf16 on the way.
//
// Blocks of 2 x 2 C tiles: 32 rows of A and 2 panels (32 channels). A step of 64 bytes of K loads
// two A tiles (16 rows) and two B tiles (16 channels, the packed order itself) for four
// multiplications: one tile load per multiply. C stays in tiles over a block of K; between blocks
// its sums wait in memory, which changes nothing about their order. That costs more than reading
// weights from L2 does, so a block of K of two panels (2 x 32 KiB) may be larger than L1 while all
// rows pass (5% faster than half of it).
//
// Weights that lie as tiles read them: a block of rows (1 MiB) stays in L2 while all panels pass.
// Weights that must be widened first: each block of K of two panels is widened once for up to 512
// rows. Four pairs of panels share the block of K of these rows (1 MiB, which stays in L2), and
// their sums (256 KiB) wait.
//
// Up to 16 rows, bound by memory, take 1 x 4 tiles instead where nothing is widened: four panels
// stream side by side, each asked for early (19 GB/s a core, against 15 with one stream).
//
// An Operation is a type with
//   element_bytes              of A and of W in a tile
//   multiply<c, a, b>()        tile c += tile a * tile b
//   finish<panels>(task, panel, begin, end, sums)
//                              rows [begin, end) on their way out; sums [rows][panels][16] of 4
//                              bytes
//   stores_sums                whether sums without an epilogue are results, so that tiles may
//   store
//                              them to C
//   widens                     whether weights are widened, then
//   widen(task, panel, begin, end, out)
//                              bytes [begin, end) of rows of W as tiles read them, 16 to a step
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
constexpr int kWidenedPairs = 4;  // of panels that share a block of K of A
constexpr int64_t kUnrolledSteps = 8;
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

// What operations on bf16 tiles share.
struct TileBf16 {
  static constexpr int64_t element_bytes = 2;
  static constexpr bool stores_sums = true;
  template <int c, int a, int b>
  static void multiply() {
    // GCC's intrinsic wants literal tile numbers.
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
  }
  template <int panels>
  static void finish(const GemmTask& task, int64_t panel, int64_t begin, int64_t end,
                     const float* sums) {
    avx512::finish_rows<panels>(task, panel, begin, end, [&](int64_t row, int p) {
      return _mm512_load_ps(sums + (row * panels + p) * kTileN);
    });
  }
};

struct Operands {
  const std::byte* a;   // first row of the block, at the first k
  int64_t a_stride;     // bytes
  const std::byte* b0;  // first panel, at the first k
  const std::byte* b1;  // second panel
  int64_t steps;        // of kTileBytes
  bool is_first;        // steps: the sums begin here
  const float* sums;    // [rows][panels][16] of the steps before, fp32 or int32
  float* out;           // sums with these steps
  int64_t out_stride;   // elements
};

// The tiles of a block: row_tiles is 2 for more than 16 rows, panels 1 at an odd end.
template <typename Operation, int row_tiles, int panels>
struct Block {
  static constexpr int64_t kSumStride = panels * kTileN * sizeof(float);

  // Calls f<tile, row tile, panel>() for every C tile.
  template <typename F>
  static void for_each_sum(F f) {
    f.template operator()<0, 0, 0>();
    if constexpr (panels == 2) f.template operator()<1, 0, 1>();
    if constexpr (row_tiles == 2) f.template operator()<2, 1, 0>();
    if constexpr (row_tiles == 2 && panels == 2) f.template operator()<3, 1, 1>();
  }

  // Step `step` behind the pointers: what it adds to addresses is part of the instructions.
  template <int step>
  static void multiply_step(const std::byte* upper, const std::byte* lower, const std::byte* b0,
                            const std::byte* b1, int64_t stride) {
    constexpr int kA = step * kTileBytes;
    constexpr int kB = step * kTileBytes * kTileN;
    load_tile<4, kA>(upper, stride);
    load_tile<6, kB>(b0, 64);
    Operation::template multiply<0, 4, 6>();
    if constexpr (row_tiles == 2) {
      load_tile<5, kA>(lower, stride);
      Operation::template multiply<2, 5, 6>();
    }
    if constexpr (panels == 2) {
      load_tile<7, kB>(b1, 64);
      Operation::template multiply<1, 4, 7>();
      if constexpr (row_tiles == 2) Operation::template multiply<3, 5, 7>();
    }
  }

  static void multiply(const Operands& o) {
    constexpr int kPanelOffset = kTileN * sizeof(float);
    if (o.is_first) {
      for_each_sum([]<int tile, int, int>() { zero_tile<tile>(); });
    } else {
      const float* rows[2] = {o.sums, o.sums + kBlockRows * panels * kTileN};
      for_each_sum([&]<int tile, int row_tile, int panel>() {
        load_tile<tile, panel * kPanelOffset>(rows[row_tile], kSumStride);
      });
    }
    const std::byte* upper = o.a;
    const std::byte* lower = o.a + kBlockRows * o.a_stride;
    const std::byte* b0 = o.b0;
    const std::byte* b1 = o.b1;
    const auto advance = [&](int64_t steps) {
      upper += steps * kTileBytes;
      lower += steps * kTileBytes;
      b0 += steps * kTileBytes * kTileN;
      b1 += steps * kTileBytes * kTileN;
    };
    int64_t left = o.steps;
    for (; left >= kUnrolledSteps; left -= kUnrolledSteps, advance(kUnrolledSteps)) {
      multiply_step<0>(upper, lower, b0, b1, o.a_stride);
      multiply_step<1>(upper, lower, b0, b1, o.a_stride);
      multiply_step<2>(upper, lower, b0, b1, o.a_stride);
      multiply_step<3>(upper, lower, b0, b1, o.a_stride);
      multiply_step<4>(upper, lower, b0, b1, o.a_stride);
      multiply_step<5>(upper, lower, b0, b1, o.a_stride);
      multiply_step<6>(upper, lower, b0, b1, o.a_stride);
      multiply_step<7>(upper, lower, b0, b1, o.a_stride);
    }
#pragma GCC unroll 1
    for (; left > 0; --left, advance(1)) multiply_step<0>(upper, lower, b0, b1, o.a_stride);
    float* rows[2] = {o.out, o.out + kBlockRows * o.out_stride};
    const int64_t out_bytes = o.out_stride * static_cast<int64_t>(sizeof(float));
    for_each_sum([&]<int tile, int row_tile, int panel>() {
      store_tile<tile, panel * kPanelOffset>(rows[row_tile], out_bytes);
    });
  }
};

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

template <typename Operation>
struct Workspace {
  static constexpr int64_t kWidenedBytes = Operation::widens ? kBlockBytes * kTileN : 64;
  alignas(64) float sums[Operation::widens ? kWidenedPairs : 1][kMaxRows * kBlockPanels * kTileN];
  alignas(64) std::byte widened[kBlockPanels][kWidenedBytes];
  Tiles tiles;
};

// Whether tiles may store their last sums to C: nothing happens to them, and the panels before
// `end` are whole.
template <typename Operation>
bool stores_to_c(const GemmTask& task, int64_t end) {
  return Operation::stores_sums && !avx512::has_epilogue(task) && end * kTileN <= task.n;
}

// Bytes [at, at + depth) of rows [begin, end), times one or two panels.
template <typename Operation, int panels>
void multiply_depth(const GemmTask& task, int64_t panel, int64_t begin, int64_t end, int64_t at,
                    int64_t depth, float* sums, Workspace<Operation>& work) {
  const std::byte* b[2];
  for (int p = 0; p < panels; ++p) {
    if constexpr (Operation::widens) {
      Operation::widen(task, panel + p, at, at + depth, work.widened[p]);
      b[p] = work.widened[p];
    } else {
      b[p] = task.panels + (panel + p) * task.panel_size + at * kTileN;
    }
  }
  if constexpr (panels == 1) b[1] = b[0];
  finish_stores();
  const bool is_last = at + depth == task.padded_k * Operation::element_bytes;
  const bool to_c = is_last && stores_to_c<Operation>(task, panel + panels);
  const int64_t stride = task.a_stride * Operation::element_bytes;
  Operands operands = {task.a + begin * stride + at,
                       stride,
                       b[0],
                       b[1],
                       depth / kTileBytes,
                       at == 0,
                       sums,
                       to_c ? task.c + begin * task.c_stride + panel * kTileN : sums,
                       to_c ? task.c_stride : panels * kTileN};
  int64_t rows = end - begin;
  if (rows >= kBlockM) work.tiles.set_rows(kBlockM);
  for (; rows >= kBlockM; rows -= kBlockM) {
    Block<Operation, 2, panels>::multiply(operands);
    operands.a += kBlockM * stride;
    operands.sums += kBlockM * panels * kTileN;
    operands.out += kBlockM * operands.out_stride;
  }
  if (rows == 0) return;
  work.tiles.set_rows(rows);
  if (rows > kBlockRows) {
    Block<Operation, 2, panels>::multiply(operands);
  } else {
    Block<Operation, 1, panels>::multiply(operands);
  }
}

// Rows [begin, end) of the panels, of which there are at most two for each of the workspace's sums.
template <typename Operation>
void multiply_panels(const GemmTask& task, Range panels, int64_t begin, int64_t end,
                     Workspace<Operation>& work) {
  // Calls f<number of panels>(first panel, their sums) for each pair, and an odd end.
  const auto for_each_pair = [&](auto f) {
    int64_t panel = panels.begin;
    int pair = 0;
    for (; panel + 2 <= panels.end; panel += 2) f.template operator()<2>(panel, work.sums[pair++]);
    if (panel < panels.end) f.template operator()<1>(panel, work.sums[pair]);
  };
  const int64_t row_bytes = task.padded_k * Operation::element_bytes;
  for (int64_t at = 0; at < row_bytes; at += kBlockBytes) {
    const int64_t depth = row_bytes - at < kBlockBytes ? row_bytes - at : kBlockBytes;
    for_each_pair([&]<int count>(int64_t panel, float* sums) {
      multiply_depth<Operation, count>(task, panel, begin, end, at, depth, sums, work);
    });
  }
  for_each_pair([&]<int count>(int64_t panel, float* sums) {
    if (stores_to_c<Operation>(task, panel + count)) return;
    Operation::template finish<count>(task, panel, begin, end, sums);
  });
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
  zero_tile<0>();
  if constexpr (panels > 1) {
    zero_tile<1>();
    zero_tile<2>();
    zero_tile<3>();
  }
  for (int64_t k = 0; k < task.padded_k * Operation::element_bytes; k += kTileBytes) {
    const std::byte* at = b + k * kTileN;
    load_tile<4>(task.a + k, task.a_stride * Operation::element_bytes);
    load_tile<5>(load_ahead(at), 64);
    Operation::template multiply<0, 4, 5>();
    if constexpr (panels > 1) {
      static_assert(panels == 4);
      load_tile<6>(load_ahead(at + task.panel_size), 64);
      Operation::template multiply<1, 4, 6>();
      load_tile<7>(load_ahead(at + 2 * task.panel_size), 64);
      Operation::template multiply<2, 4, 7>();
      load_tile<5>(load_ahead(at + 3 * task.panel_size), 64);
      Operation::template multiply<3, 4, 5>();
    }
  }
  store_tile<0>(sums, stride);
  if constexpr (panels > 1) {
    store_tile<1, 64>(sums, stride);
    store_tile<2, 128>(sums, stride);
    store_tile<3, 192>(sums, stride);
  }
  Operation::template finish<panels>(task, panel, 0, task.m, sums);
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
  if constexpr (!Operation::widens) {
    if (task.m <= kBlockRows) {
      few_rows<Operation>(task);
      _tile_release();
      return;
    }
  }
  constexpr int64_t kPanels = Operation::widens ? kWidenedPairs * kBlockPanels : kBlockPanels;
  int64_t rows_per_block = kMaxRows;
  if constexpr (!Operation::widens) {
    rows_per_block =
        kActivationBytes / (Operation::element_bytes * task.padded_k) / kBlockM * kBlockM;
    if (rows_per_block < kBlockM) rows_per_block = kBlockM;
    if (rows_per_block > kMaxRows) rows_per_block = kMaxRows;
  }
  Workspace<Operation> work;
  for (int64_t begin = 0; begin < task.m; begin += rows_per_block) {
    const int64_t end = begin + rows_per_block < task.m ? begin + rows_per_block : task.m;
    for (int64_t panel = task.panel_begin; panel < task.panel_end; panel += kPanels) {
      const int64_t last = panel + kPanels < task.panel_end ? panel + kPanels : task.panel_end;
      multiply_panels<Operation>(task, {panel, last}, begin, end, work);
    }
  }
  _tile_release();
}

}  // namespace
}  // namespace tw::kernels::amx
