#include "core/cpu.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

namespace tw {
namespace {

struct CpuidRegisters {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuidRegisters cpuid(uint32_t leaf, uint32_t subleaf = 0) {
  CpuidRegisters r;
  if (!__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx)) return {};
  return r;
}

bool bit(uint32_t word, int index) {
  return (word >> index) & 1u;
}

uint64_t enabled_state_components() {
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

// Linux hands out the 8 KiB of tile data per thread only on request.
bool request_amx_permission() {
  constexpr int kArchReqXcompPerm = 0x1023;
  constexpr int kXfeatureXtiledata = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) == 0;
}

std::optional<Isa> parse_isa(const char* name) {
  for (Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::amx}) {
    if (std::strcmp(name, to_string(isa)) == 0) return isa;
  }
  return std::nullopt;
}

}  // namespace

const char* to_string(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return "scalar";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::amx:
      return "amx";
  }
  return "?";
}

Isa CpuFeatures::isa() const {
  if (amx_tile && avx512) return Isa::amx;
  if (avx512) return Isa::avx512;
  if (avx2) return Isa::avx2;
  return Isa::scalar;
}

CpuFeatures CpuFeatures::limited_to(Isa limit) const {
  CpuFeatures f = *this;
  if (limit < Isa::amx) f.amx_tile = f.amx_int8 = f.amx_bf16 = f.amx_fp16 = false;
  if (limit < Isa::avx512) {
    f.avx512 = f.avx512_vnni = f.avx512_bf16 = f.avx512_vbmi = f.avx512_fp16 = false;
  }
  if (limit < Isa::avx2) f.avx2 = f.avx_vnni = false;
  return f;
}

std::string CpuFeatures::describe() const {
  std::string text;
  const auto add = [&text](bool present, const char* name) {
    if (!present) return;
    if (!text.empty()) text += ' ';
    text += name;
  };
  add(avx2, "AVX2");
  add(avx_vnni, "AVX-VNNI");
  add(avx512, "AVX512");
  add(avx512_vnni, "AVX512-VNNI");
  add(avx512_bf16, "AVX512-BF16");
  add(avx512_vbmi, "AVX512-VBMI");
  add(avx512_fp16, "AVX512-FP16");
  add(amx_tile, "AMX");
  add(amx_int8, "AMX-INT8");
  add(amx_bf16, "AMX-BF16");
  add(amx_fp16, "AMX-FP16");
  return text.empty() ? "none" : text;
}

CpuFeatures detect_cpu_features() {
  CpuFeatures f;
  const auto leaf1 = cpuid(1);
  const bool osxsave = bit(leaf1.ecx, 27);
  if (!osxsave) return f;
  const uint64_t state = enabled_state_components();
  const bool os_avx = (state & 0x6) == 0x6;
  const bool os_avx512 = os_avx && (state & 0xe0) == 0xe0;
  const bool os_amx = (state & 0x60000) == 0x60000;

  const auto leaf7 = cpuid(7, 0);
  const auto leaf7_1 = cpuid(7, 1);
  const bool fma = bit(leaf1.ecx, 12), f16c = bit(leaf1.ecx, 29);
  const bool bmi2 = bit(leaf7.ebx, 8);
  f.avx2 = os_avx && bit(leaf7.ebx, 5) && fma && f16c && bmi2;
  f.avx_vnni = f.avx2 && bit(leaf7_1.eax, 4);
  f.avx512 = f.avx2 && os_avx512 && bit(leaf7.ebx, 16) && bit(leaf7.ebx, 17) &&
             bit(leaf7.ebx, 28) && bit(leaf7.ebx, 30) && bit(leaf7.ebx, 31);
  f.avx512_vnni = f.avx512 && bit(leaf7.ecx, 11);
  f.avx512_vbmi = f.avx512 && bit(leaf7.ecx, 1);
  f.avx512_bf16 = f.avx512 && bit(leaf7_1.eax, 5);
  f.avx512_fp16 = f.avx512 && bit(leaf7.edx, 23);
  static const bool amx_permitted = os_amx && bit(leaf7.edx, 24) && request_amx_permission();
  f.amx_tile = f.avx512 && amx_permitted;
  f.amx_int8 = f.amx_tile && bit(leaf7.edx, 25);
  f.amx_bf16 = f.amx_tile && bit(leaf7.edx, 22);
  f.amx_fp16 = f.amx_tile && bit(leaf7_1.eax, 21);
  return f;
}

Expected<CpuFeatures> usable_cpu_features() {
  const CpuFeatures machine = detect_cpu_features();
  const char* name = std::getenv("TILEWRIGHT_ISA");
  if (name == nullptr || *name == '\0') return machine;
  const auto limit = parse_isa(name);
  if (!limit) {
    return error(ErrorCode::invalid_argument,
                 "TILEWRIGHT_ISA={}: unknown; use scalar, avx2, avx512 or amx", name);
  }
  if (*limit > machine.isa()) {
    return error(ErrorCode::invalid_argument, "TILEWRIGHT_ISA={}: this machine has no more than {}",
                 name, to_string(machine.isa()));
  }
  return machine.limited_to(*limit);
}

CacheSizes detect_cache_sizes() {
  CacheSizes sizes;
  const auto read = [](int name, int64_t& size) {
    const long value = sysconf(name);
    if (value > 0) size = value;
  };
  read(_SC_LEVEL1_DCACHE_SIZE, sizes.l1d);
  read(_SC_LEVEL2_CACHE_SIZE, sizes.l2);
  read(_SC_LEVEL3_CACHE_SIZE, sizes.l3);
  return sizes;
}

std::string cpu_model_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace tw
