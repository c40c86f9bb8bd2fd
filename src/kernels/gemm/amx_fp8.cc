// C[M, N] = A[M, K] * W[N, K]^T for fp8 weights and bf16 activations, AMX-BF16.
//
// e4m3 is exact in bf16. A group of 128 k of a panel is converted once into B tiles in L1 and meets
// all rows; its sums (TDPBF16PS, four steps of 32 k) leave the tiles for
//   acc = fma(sum, weight_scale, acc)
// with the fp32 sums in memory. While the tiles multiply a group, the vector units add the sums of
// the one before it: the two take turns in the instruction stream.
//
// Conversion: two table look-ups of 128 bytes (VBMI) give the high and the low byte of a bf16, the
// sign is copied, and unpacking interleaves them.
//
// Every row count takes the same instructions in the same order, so a row's result never depends
// on its company.
#include <immintrin.h>

#include "core/dtype.h"
#include "kernels/gemm/amx.h"
#include "kernels/gemm/amx_inline.h"

namespace tw::kernels::amx {
namespace {

constexpr int kGroup = traits(WeightFormat::fp8).group_size;
constexpr int kStep = 32;  // k of one tile
constexpr int kSteps = kGroup / kStep;
constexpr int kPanels = 2;
constexpr int kMaxBlockM = 2 * kBlockRows;
constexpr int64_t kGroupBytes = kGroup * kTileN;   // of a panel, as fp8
constexpr int64_t kTileSize = kStep * kTileN * 2;  // of a B tile
constexpr int64_t kPrefetchBytes = 4096;
constexpr int64_t kMaxRows = 512;
constexpr int64_t kActivationBytes = 1 << 20;  // of a block of rows: half of L2

// The bytes of the bf16 of every e4m3 without its sign.
struct Bf16Bytes {
  alignas(64) uint8_t high[128];
  alignas(64) uint8_t low[128];
};

constexpr Bf16Bytes bf16_bytes() {
  Bf16Bytes table = {};
  for (int i = 0; i < 128; ++i) {
    const uint32_t bits =
        __builtin_bit_cast(uint32_t, to_float(f8_e4m3_t{static_cast<uint8_t>(i)}));
    table.high[i] = static_cast<uint8_t>(bits >> 24);
    table.low[i] = static_cast<uint8_t>(bits >> 16);
  }
  return table;
}

constexpr Bf16Bytes kBf16Bytes = bf16_bytes();

struct Converter {
  __m512i high[2];
  __m512i low[2];
  __m512i pairs;  // brings k 0, 1 of four channels before their k 2, 3
  __m512i sign;

  static Converter make() {
    const __m128i pairs = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    return {{_mm512_load_si512(kBf16Bytes.high), _mm512_load_si512(kBf16Bytes.high + 64)},
            {_mm512_load_si512(kBf16Bytes.low), _mm512_load_si512(kBf16Bytes.low + 64)},
            _mm512_broadcast_i32x4(pairs),
            _mm512_set1_epi8(-128)};
  }

  // 16 channels x 4 k -> two rows of a B tile: 16 channels x 2 k each.
  void convert(const std::byte* from, std::byte* to) const {
    const __m512i bytes = _mm512_shuffle_epi8(_mm512_loadu_si512(from), pairs);
    const __m512i low_bytes = _mm512_permutex2var_epi8(low[0], bytes, low[1]);
    const __m512i magnitude = _mm512_permutex2var_epi8(high[0], bytes, high[1]);
    constexpr int kFirstOrBothOthers = 0xf8;
    const __m512i high_bytes =
        _mm512_ternarylogic_epi32(magnitude, bytes, sign, kFirstOrBothOthers);
    _mm512_store_si512(to, _mm512_unpacklo_epi8(low_bytes, high_bytes));
    _mm512_store_si512(to + 64, _mm512_unpackhi_epi8(low_bytes, high_bytes));
  }

  // A group of a panel; asks for what lies kPrefetchBytes behind it.
  void convert_group(const std::byte* from, std::byte* to) const {
#pragma GCC unroll 4
    for (int64_t at = 0; at < kGroupBytes; at += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(from + at + kPrefetchBytes), _MM_HINT_T0);
      convert(from + at, to + 2 * at);
    }
  }
};

struct Group {
  alignas(64) std::byte tiles[kPanels][kSteps * kTileSize];
};

// Sums of one group of a block of rows, as they leave the tiles: [row tile][panel][16][16].
struct TileSums {
  alignas(64) float values[2][kPanels][kBlockRows][kTileN];
};

// Tiles 0 to 3 hold C (2 * row tile + panel), 4 and 5 hold A, 6 and 7 hold B.
void configure_tiles(int64_t rows) {
  TileConfig config;
  const auto set = [&config](int tile, int64_t tile_rows) {
    config.rows[tile] = static_cast<uint8_t>(tile_rows);
    config.bytes_per_row[tile] = 64;
  };
  const int64_t first = rows < kBlockRows ? rows : kBlockRows;
  const int64_t second = rows - first;
  for (int panel = 0; panel < kPanels; ++panel) {
    set(panel, first);
    if (second > 0) set(2 + panel, second);
    set(6 + panel, kStep / 2);
  }
  set(4, first);
  if (second > 0) set(5, second);
  load_config(config);
}

// The products of a group: `a` is the block's first row at the group's first k, stride in bytes.
template <int row_tiles>
inline void multiply_group(const std::byte* a, int64_t stride, const Group& group, TileSums& out) {
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (row_tiles == 2) {
    _tile_zero(2);
    _tile_zero(3);
  }
#pragma GCC unroll 4
  for (int step = 0; step < kSteps; ++step) {
    _tile_loadd(4, a + step * 64, stride);
    _tile_loadd(6, group.tiles[0] + step * kTileSize, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (row_tiles == 2) {
      _tile_loadd(5, a + kBlockRows * stride + step * 64, stride);
      _tile_dpbf16ps(2, 5, 6);
    }
    _tile_loadd(7, group.tiles[1] + step * kTileSize, 64);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (row_tiles == 2) _tile_dpbf16ps(3, 5, 7);
  }
  constexpr int64_t kStride = kTileN * sizeof(float);
  _tile_stored(0, out.values[0][0], kStride);
  _tile_stored(1, out.values[0][1], kStride);
  if constexpr (row_tiles == 2) {
    _tile_stored(2, out.values[1][0], kStride);
    _tile_stored(3, out.values[1][1], kStride);
  }
}

// acc[rows][panels][16] += sums * scale, or = at the first group (fma onto zeros).
inline void add_scaled(const TileSums& sums, const __m512 (&scales)[kPanels], int64_t rows,
                       float* acc) {
  for (int64_t r = 0; r < rows; ++r) {
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      float* at = acc + (r * kPanels + p) * kTileN;
      const __m512 sum = _mm512_load_ps(sums.values[r / kBlockRows][p][r % kBlockRows]);
      _mm512_store_ps(at, _mm512_fmadd_ps(sum, scales[p], _mm512_load_ps(at)));
    }
  }
}

// Remembers which shape the tiles have.
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

struct Workspace {
  Group groups[2];   // in turns, so that a group is converted while the one before is multiplied
  TileSums sums[2];  // in turns as well
  alignas(64) float acc[kMaxRows * kPanels * kTileN];
  Tiles tiles;
};

// A block of rows whose tile sums wait to be added.
struct Pending {
  const TileSums* sums = nullptr;
  __m512 scales[kPanels];
  int64_t rows;
  float* acc;

  void add() {
    if (sums != nullptr) add_scaled(*sums, scales, rows, acc);
    sums = nullptr;
  }
};

// Rows [begin, end) of two panels; the second may be the first again, at an odd end.
void multiply_panels(const GemmTask& task, int64_t panel, bool two, int64_t begin, int64_t end,
                     const Converter& converter, Workspace& work) {
  const std::byte* bases[kPanels] = {task.panels + panel * task.panel_size,
                                     task.panels + (panel + (two ? 1 : 0)) * task.panel_size};
  for (int64_t i = 0; i < (end - begin) * kPanels * kTileN; ++i) work.acc[i] = 0.0f;
  const int64_t num_groups = task.padded_k / kGroup;
  const int64_t stride = 2 * task.a_stride;
  const auto convert = [&](int64_t g) {
    for (int p = 0; p < kPanels; ++p) {
      converter.convert_group(bases[p] + g * kGroupBytes, work.groups[g % 2].tiles[p]);
    }
  };
  convert(0);
  Pending pending;
  int turn = 0;
  for (int64_t g = 0; g < num_groups; ++g) {
    finish_stores();
    __m512 scales[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      scales[p] = load_group_values<WeightFormat::fp8>(bases[p] + task.layout.scales, nullptr, g);
    }
    for (int64_t m = begin; m < end; m += kMaxBlockM) {
      const int64_t rows = end - m < kMaxBlockM ? end - m : kMaxBlockM;
      work.tiles.set_rows(rows);
      const std::byte* a = task.a + m * stride + g * kGroup * 2;
      TileSums& sums = work.sums[turn];
      turn ^= 1;
      if (rows > kBlockRows) {
        multiply_group<2>(a, stride, work.groups[g % 2], sums);
      } else {
        multiply_group<1>(a, stride, work.groups[g % 2], sums);
      }
      pending.add();
      pending = {&sums, {scales[0], scales[1]}, rows, work.acc + (m - begin) * kPanels * kTileN};
    }
    if (g + 1 < num_groups) convert(g + 1);
  }
  pending.add();
  for (int64_t m = begin; m < end; ++m) {
    for (int p = 0; p < (two ? 2 : 1); ++p) {
      finish_row(task, m, panel + p,
                 _mm512_load_ps(work.acc + ((m - begin) * kPanels + p) * kTileN));
    }
  }
}

}  // namespace

void gemm_fp8(const GemmTask& task) {
  if (task.m == 0) return;
  int64_t rows_per_block = kActivationBytes / (2 * task.padded_k) / kMaxBlockM * kMaxBlockM;
  if (rows_per_block < kMaxBlockM) rows_per_block = kMaxBlockM;
  if (rows_per_block > kMaxRows) rows_per_block = kMaxRows;
  const Converter converter = Converter::make();
  Workspace work;
  for (int64_t begin = 0; begin < task.m; begin += rows_per_block) {
    const int64_t end = begin + rows_per_block < task.m ? begin + rows_per_block : task.m;
    for (int64_t panel = task.panel_begin; panel < task.panel_end; panel += kPanels) {
      const bool two = panel + 1 < task.panel_end;
      multiply_panels(task, panel, two, begin, end, converter, work);
    }
  }
  _tile_release();
}

}  // namespace tw::kernels::amx
