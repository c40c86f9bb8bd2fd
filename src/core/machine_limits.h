// What this machine can do at most, measured: the figures that kernels are compared with.
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/cpu.h"
#include "core/thread_team.h"

namespace tw {

// Totals of all members of the team, of the best run: what else the machine does is no limit of
// its. An operation is a multiplication or an addition; zero where the processor lacks the
// instruction.
struct MachineLimits {
  double read_bandwidth = 0;  // bytes/s, of memory far larger than the caches
  double fma_avx2 = 0;        // operations/s: fp32 vfmadd on 256 bits
  double fma_avx512 = 0;      // fp32 vfmadd on 512 bits
  double maddubs_avx2 = 0;    // int8 vpmaddubsw on 256 bits alone, without what sums up
  double dpbusd_avx512 = 0;   // int8 vpdpbusd on 512 bits
  double dpbf16_avx512 = 0;   // bf16 vdpbf16ps on 512 bits
  double amx_int8 = 0;        // int8 tdpbusd
  double amx_bf16 = 0;        // bf16 tdpbf16ps

  // The fastest of them: what a roofline's roof is.
  double operations() const {
    return std::max(
        {fma_avx2, fma_avx512, maddubs_avx2, dpbusd_avx512, dpbf16_avx512, amx_int8, amx_bf16});
  }
};

// Of the threads and the memory that a rank of a model has.
struct RankLimits {
  int node = -1;  // of its memory; -1: of several nodes, or unknown
  MachineLimits limits;
};

struct MeasurementEffort {
  double seconds_each = 0.3;              // for each instruction, and half of it per way to read
  int min_runs = 5;                       // of each
  size_t buffer_bytes = size_t{1} << 30;  // that is read; far larger than the caches
};
// A fifth of a second on most machines: to within some percent, for a server that starts.
inline constexpr MeasurementEffort kQuickMeasurement{0.002, 2, size_t{256} << 20};

// The caller is a member of the team. A bandwidth of 0: there was no memory for it.
MachineLimits measure_machine(ThreadTeam& team, const CpuFeatures& features,
                              const MeasurementEffort& effort = {});

}  // namespace tw
