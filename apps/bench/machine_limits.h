// What this machine can do at most, measured: the figures that kernels are compared with.
#pragma once

#include "core/cpu.h"
#include "core/thread_team.h"

namespace tw::bench {

// Totals of all members of the team. An operation is a multiplication or an addition; zero where
// the processor lacks the instruction.
struct MachineLimits {
  double read_bandwidth = 0;  // bytes/s, of memory far larger than the caches
  double fma_avx2 = 0;        // operations/s: fp32 vfmadd on 256 bits
  double fma_avx512 = 0;      // fp32 vfmadd on 512 bits
  double maddubs_avx2 = 0;    // int8 vpmaddubsw on 256 bits alone, without what sums up
  double dpbusd_avx512 = 0;   // int8 vpdpbusd on 512 bits
  double dpbf16_avx512 = 0;   // bf16 vdpbf16ps on 512 bits
  double amx_int8 = 0;        // int8 tdpbusd
  double amx_bf16 = 0;        // bf16 tdpbf16ps
};

MachineLimits measure_machine(ThreadTeam& team, const CpuFeatures& features, double seconds_each);

}  // namespace tw::bench
