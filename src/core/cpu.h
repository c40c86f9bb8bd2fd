// What this machine's processor can do, and how far the kernels may use it.
#pragma once

#include <cstdint>
#include <string>

#include "core/status.h"

namespace tw {

// Levels of kernels, each including those below. A kernel may need more than its level's
// baseline (say AVX512-VNNI); it then names the feature bits it needs as well.
enum class Isa : uint8_t { scalar, avx2, avx512, amx };

const char* to_string(Isa isa);

struct CpuFeatures {
  bool avx2 = false;      // AVX2 + FMA + F16C + BMI2
  bool avx_vnni = false;  // VEX-encoded VNNI
  bool avx512 = false;    // F + BW + DQ + VL + CD (Skylake-X baseline)
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool avx512_vbmi = false;
  bool avx512_fp16 = false;
  bool amx_tile = false;  // with the operating system's permission to use tile data
  bool amx_int8 = false;
  bool amx_bf16 = false;
  bool amx_fp16 = false;

  // The highest level whose baseline is present.
  Isa isa() const;
  // The same features with everything above `limit` removed.
  CpuFeatures limited_to(Isa limit) const;
  // "AVX2 FMA AVX512 VNNI BF16 AMX-INT8 ..." for the log.
  std::string describe() const;
};

struct CacheSizes {
  int64_t l1d = 32 << 10;
  int64_t l2 = 1 << 20;
  int64_t l3 = 16 << 20;  // of one socket
};

// CPUID, XGETBV and, for AMX, the kernel's permission (asked for here, once per process).
CpuFeatures detect_cpu_features();

// detect_cpu_features() lowered by the environment variable TILEWRIGHT_ISA=scalar|avx2|avx512|amx.
// An unknown name, or a level that the machine lacks, is an error.
Expected<CpuFeatures> usable_cpu_features();

CacheSizes detect_cache_sizes();

std::string cpu_model_name();

}  // namespace tw
