#include "core/machine_limits.h"

#include <atomic>
#include <cstring>

#include "core/buffer.h"
#include "core/check.h"
#include "core/measure.h"

namespace tw {
namespace {

// Each loop keeps 10 independent chains of one instruction in flight, which hides a latency of 4 or
// 5 cycles at two a cycle. Assembly, so that no compiler merges, hoists or splits anything.
constexpr int64_t kLoops = 100'000;
constexpr int kChains = 10;

// Zeros in all registers: no subnormals, and nothing to slow the multipliers down.
void fma_avx2_loop() {
  __asm__ volatile(
      "vzeroall\n mov %0, %%rcx\n 1:\n"
      "vfmadd231ps %%ymm10, %%ymm11, %%ymm0\n vfmadd231ps %%ymm10, %%ymm11, %%ymm1\n"
      "vfmadd231ps %%ymm10, %%ymm11, %%ymm2\n vfmadd231ps %%ymm10, %%ymm11, %%ymm3\n"
      "vfmadd231ps %%ymm10, %%ymm11, %%ymm4\n vfmadd231ps %%ymm10, %%ymm11, %%ymm5\n"
      "vfmadd231ps %%ymm10, %%ymm11, %%ymm6\n vfmadd231ps %%ymm10, %%ymm11, %%ymm7\n"
      "vfmadd231ps %%ymm10, %%ymm11, %%ymm8\n vfmadd231ps %%ymm10, %%ymm11, %%ymm9\n"
      "dec %%rcx\n jnz 1b\n vzeroupper\n" ::"i"(kLoops)
      : "rcx", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
        "xmm10", "xmm11");
}

void maddubs_avx2_loop() {
  __asm__ volatile(
      "vzeroall\n mov %0, %%rcx\n 1:\n"
      "vpmaddubsw %%ymm10, %%ymm11, %%ymm0\n vpmaddubsw %%ymm10, %%ymm11, %%ymm1\n"
      "vpmaddubsw %%ymm10, %%ymm11, %%ymm2\n vpmaddubsw %%ymm10, %%ymm11, %%ymm3\n"
      "vpmaddubsw %%ymm10, %%ymm11, %%ymm4\n vpmaddubsw %%ymm10, %%ymm11, %%ymm5\n"
      "vpmaddubsw %%ymm10, %%ymm11, %%ymm6\n vpmaddubsw %%ymm10, %%ymm11, %%ymm7\n"
      "vpmaddubsw %%ymm10, %%ymm11, %%ymm8\n vpmaddubsw %%ymm10, %%ymm11, %%ymm9\n"
      "dec %%rcx\n jnz 1b\n vzeroupper\n" ::"i"(kLoops)
      : "rcx", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
        "xmm10", "xmm11");
}

void fma_avx512_loop() {
  __asm__ volatile(
      "vzeroall\n mov %0, %%rcx\n 1:\n"
      "vfmadd231ps %%zmm10, %%zmm11, %%zmm0\n vfmadd231ps %%zmm10, %%zmm11, %%zmm1\n"
      "vfmadd231ps %%zmm10, %%zmm11, %%zmm2\n vfmadd231ps %%zmm10, %%zmm11, %%zmm3\n"
      "vfmadd231ps %%zmm10, %%zmm11, %%zmm4\n vfmadd231ps %%zmm10, %%zmm11, %%zmm5\n"
      "vfmadd231ps %%zmm10, %%zmm11, %%zmm6\n vfmadd231ps %%zmm10, %%zmm11, %%zmm7\n"
      "vfmadd231ps %%zmm10, %%zmm11, %%zmm8\n vfmadd231ps %%zmm10, %%zmm11, %%zmm9\n"
      "dec %%rcx\n jnz 1b\n vzeroupper\n" ::"i"(kLoops)
      : "rcx", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
        "xmm10", "xmm11");
}

void dpbusd_avx512_loop() {
  __asm__ volatile(
      "vzeroall\n mov %0, %%rcx\n 1:\n"
      "vpdpbusd %%zmm10, %%zmm11, %%zmm0\n vpdpbusd %%zmm10, %%zmm11, %%zmm1\n"
      "vpdpbusd %%zmm10, %%zmm11, %%zmm2\n vpdpbusd %%zmm10, %%zmm11, %%zmm3\n"
      "vpdpbusd %%zmm10, %%zmm11, %%zmm4\n vpdpbusd %%zmm10, %%zmm11, %%zmm5\n"
      "vpdpbusd %%zmm10, %%zmm11, %%zmm6\n vpdpbusd %%zmm10, %%zmm11, %%zmm7\n"
      "vpdpbusd %%zmm10, %%zmm11, %%zmm8\n vpdpbusd %%zmm10, %%zmm11, %%zmm9\n"
      "dec %%rcx\n jnz 1b\n vzeroupper\n" ::"i"(kLoops)
      : "rcx", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
        "xmm10", "xmm11");
}

void dpbf16_avx512_loop() {
  __asm__ volatile(
      "vzeroall\n mov %0, %%rcx\n 1:\n"
      "vdpbf16ps %%zmm10, %%zmm11, %%zmm0\n vdpbf16ps %%zmm10, %%zmm11, %%zmm1\n"
      "vdpbf16ps %%zmm10, %%zmm11, %%zmm2\n vdpbf16ps %%zmm10, %%zmm11, %%zmm3\n"
      "vdpbf16ps %%zmm10, %%zmm11, %%zmm4\n vdpbf16ps %%zmm10, %%zmm11, %%zmm5\n"
      "vdpbf16ps %%zmm10, %%zmm11, %%zmm6\n vdpbf16ps %%zmm10, %%zmm11, %%zmm7\n"
      "vdpbf16ps %%zmm10, %%zmm11, %%zmm8\n vdpbf16ps %%zmm10, %%zmm11, %%zmm9\n"
      "dec %%rcx\n jnz 1b\n vzeroupper\n" ::"i"(kLoops)
      : "rcx", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
        "xmm10", "xmm11");
}

// Eight full tiles: palette 1, 64 bytes x 16 rows each.
struct alignas(64) FullTiles {
  uint8_t bytes[64] = {};
  FullTiles() {
    bytes[0] = 1;
    for (int tile = 0; tile < 8; ++tile) {
      bytes[16 + 2 * tile] = 64;
      bytes[48 + tile] = 16;
    }
  }
};

void amx_int8_loop() {
  const FullTiles tiles;
  __asm__ volatile(
      "ldtilecfg (%1)\n mov %0, %%rcx\n"
      "tilezero %%tmm0\n tilezero %%tmm1\n tilezero %%tmm2\n tilezero %%tmm3\n"
      "tilezero %%tmm4\n tilezero %%tmm5\n tilezero %%tmm6\n tilezero %%tmm7\n 1:\n"
      "tdpbusd %%tmm6, %%tmm4, %%tmm0\n tdpbusd %%tmm7, %%tmm4, %%tmm1\n"
      "tdpbusd %%tmm6, %%tmm5, %%tmm2\n tdpbusd %%tmm7, %%tmm5, %%tmm3\n"
      "dec %%rcx\n jnz 1b\n tilerelease\n" ::"i"(kLoops / 10),
      "r"(tiles.bytes)
      : "rcx", "memory");
}

void amx_bf16_loop() {
  const FullTiles tiles;
  __asm__ volatile(
      "ldtilecfg (%1)\n mov %0, %%rcx\n"
      "tilezero %%tmm0\n tilezero %%tmm1\n tilezero %%tmm2\n tilezero %%tmm3\n"
      "tilezero %%tmm4\n tilezero %%tmm5\n tilezero %%tmm6\n tilezero %%tmm7\n 1:\n"
      "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n"
      "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n tdpbf16ps %%tmm7, %%tmm5, %%tmm3\n"
      "dec %%rcx\n jnz 1b\n tilerelease\n" ::"i"(kLoops / 10),
      "r"(tiles.bytes)
      : "rcx", "memory");
}

double rate(ThreadTeam& team, const MeasurementEffort& effort, double operations_per_member,
            void (*loop)()) {
  const Timing timing = measure(effort.seconds_each, effort.min_runs,
                                [&] { team.run([loop](const TeamMember&) { loop(); }); });
  return operations_per_member * team.size() / timing.best;
}

// Reads `count` words as `streams` equal runs side by side, asking for each `ahead` bytes early.
// How many requests a core keeps open depends on both, and which way is best on the machine.
template <int streams, int ahead>
uint64_t sum_words(const uint64_t* words, int64_t count) {
  constexpr int kLine = 8;
  const int64_t run = count / streams / kLine * kLine;
  uint64_t sums[kLine] = {};
  for (int64_t i = 0; i < run; i += kLine) {
    for (int s = 0; s < streams; ++s) {
      const uint64_t* line = words + s * run + i;
      if constexpr (ahead > 0) __builtin_prefetch(reinterpret_cast<const char*>(line) + ahead);
      for (int j = 0; j < kLine; ++j) sums[j] += line[j];
    }
  }
  uint64_t total = 0;
  for (uint64_t sum : sums) total += sum;
  return total;
}

double read_bandwidth(ThreadTeam& team, const MeasurementEffort& effort) {
  auto buffer = Buffer::allocate(effort.buffer_bytes);
  if (!buffer) return 0;
  auto* words = buffer->as<uint64_t>();
  const auto count = static_cast<int64_t>(effort.buffer_bytes / sizeof(uint64_t));
  team.run([&](const TeamMember& member) {
    const Range share = member.share(count, 4096);
    std::memset(words + share.begin, 1, static_cast<size_t>(share.size()) * sizeof(uint64_t));
  });
  std::atomic<uint64_t> total{0};
  double shortest = 1e9;
  for (auto* sum : {sum_words<1, 0>, sum_words<4, 0>, sum_words<1, 4096>, sum_words<4, 1024>,
                    sum_words<4, 4096>, sum_words<8, 2048>}) {
    const Timing timing = measure(effort.seconds_each / 2, effort.min_runs, [&] {
      team.run([&](const TeamMember& member) {
        const Range share = member.share(count, 4096);
        total += sum(words + share.begin, share.size());
      });
    });
    shortest = std::min(shortest, timing.best);
  }
  return static_cast<double>(effort.buffer_bytes) / shortest;
}

}  // namespace

MachineLimits measure_machine(ThreadTeam& team, const CpuFeatures& features,
                              const MeasurementEffort& effort) {
  const double loops = static_cast<double>(kLoops) * kChains;
  const double tiles = static_cast<double>(kLoops / 10) * 4;
  MachineLimits limits;
  limits.read_bandwidth = read_bandwidth(team, effort);
  if (features.avx2) {
    limits.fma_avx2 = rate(team, effort, loops * 8 * 2, fma_avx2_loop);
    limits.maddubs_avx2 = rate(team, effort, loops * 32 * 2, maddubs_avx2_loop);
  }
  if (features.avx512) {
    limits.fma_avx512 = rate(team, effort, loops * 16 * 2, fma_avx512_loop);
  }
  if (features.avx512_vnni) {
    limits.dpbusd_avx512 = rate(team, effort, loops * 64 * 2, dpbusd_avx512_loop);
  }
  if (features.avx512_bf16) {
    limits.dpbf16_avx512 = rate(team, effort, loops * 32 * 2, dpbf16_avx512_loop);
  }
  if (features.amx_int8) {
    limits.amx_int8 = rate(team, effort, tiles * 16 * 16 * 64 * 2, amx_int8_loop);
  }
  if (features.amx_bf16) {
    limits.amx_bf16 = rate(team, effort, tiles * 16 * 16 * 32 * 2, amx_bf16_loop);
  }
  return limits;
}

}  // namespace tw
