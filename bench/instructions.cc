// How many instructions does each GEMM kernel need?
//
// Run it by bench/instructions.sh, on an emulated processor whose time-stamp counter counts
// instructions: the numbers depend on nothing but the program, so that they can be compared with
// those of the last version (--baseline), where times on a shared machine could not. They say
// nothing of caches, ports and latencies.
//
// Prompts, AMX kernels (512 rows): per tile multiplication, that is a product of 16 rows, 16
// channels and 64 of K if int8, else 32 (bf16, and q8, whose tiles hold one group). Other kernels
// (96 rows): per vector of 512 bits, a product of a row, 16 channels and 4 of K if int8 or q8,
// else 1. Decoding (1 row): per 64 bytes of weights, scales included.
#include <fmt/format.h>
#include <immintrin.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/check.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/unpack.h"

namespace tw::bench {
namespace {

using namespace tw::kernels;

constexpr int64_t kChannels = 64;
constexpr int64_t kDepth = 4096;
constexpr int64_t kPromptPanels = 2;
constexpr size_t kStackBytes = size_t{512} << 10;
constexpr double kTolerance = 0.05;

uint64_t ticks() {
  _mm_lfence();
  return __rdtsc();
}

// Whether a tick is an instruction: a loop of two of them tells.
bool counts_instructions() {
  constexpr uint64_t kTurns = 100000;
  uint64_t turns = kTurns;
  const uint64_t begin = ticks();
  __asm__ volatile("1: dec %0\n jnz 1b" : "+r"(turns));
  const double each = static_cast<double>(ticks() - begin) / (2 * kTurns);
  return std::abs(each - 1) < 0.02;
}

// Kernels keep their sums on the stack: the first touch of its pages, once a thread, is not theirs.
__attribute__((noinline)) void touch_stack() {
  char bytes[kStackBytes];
  std::memset(bytes, 0, sizeof(bytes));
  __asm__ volatile("" ::"r"(bytes) : "memory");
}

// Of one call of the kernel for the first panels of the weight.
uint64_t count(const GemmKernel& kernel, const PackedWeight& weight, int64_t m, int64_t panels) {
  std::vector<float> a(static_cast<size_t>(m * kDepth), 1.0f);  // no kernel looks at its values
  std::vector<float> c(static_cast<size_t>(m * kChannels));
  auto memory = Buffer::allocate(prepared_activations_size(kernel.activations, m, kDepth));
  TW_CHECK(memory.has_value());
  GemmArguments arguments;
  arguments.weight = &weight;
  arguments.a = layout_prepared_activations(kernel.activations, m, kDepth, memory->data());
  arguments.c = dense_matrix(c.data(), m, kChannels);
  kernel.prepare({a.data(), m, kDepth, kDepth}, {0, m}, arguments.a);
  // The first use of the program's pages is not the kernel's.
  const GemmArguments all = arguments;
  arguments.a.m = arguments.c.rows = std::min<int64_t>(m, 48);
  kernel.run(arguments, {0, panels});
  const uint64_t begin = ticks();
  kernel.run(all, {0, panels});
  return ticks() - begin;
}

// Random quants; fp8 with a scale for each block of 128 x 128, as checkpoints have it.
PackedWeight make_weight(WeightFormat format) {
  auto weight = random_weight(format, kChannels, kDepth, 1);
  TW_CHECK(weight.has_value());
  if (format != WeightFormat::fp8) return std::move(*weight);
  for (int64_t p = 0; p < weight->num_panels(); ++p) {
    auto* scales = reinterpret_cast<float*>(weight->panel(p) + weight->layout().scales);
    for (int64_t group = 0; group < num_groups(traits(format), kDepth); ++group) {
      std::fill_n(scales + group * kTileN, kTileN, scales[group * kTileN]);
    }
  }
  return std::move(*weight);
}

// Instructions for a prompt per multiplication by a tile or a vector, as explained above.
double count_prompt(const GemmKernel& kernel, const PackedWeight& weight) {
  const bool is_tile = kernel.isa == Isa::amx;
  const int64_t rows = is_tile ? 512 : 96;
  const int64_t k_per_tile = kernel.activations == ActivationFormat::int8 ? 64 : 32;
  const int64_t k_per_vector = kernel.activations == ActivationFormat::f32 ? 1 : 4;
  const int64_t size = is_tile ? 16 * 16 * k_per_tile : 16 * k_per_vector;
  return static_cast<double>(count(kernel, weight, rows, kPromptPanels)) /
         static_cast<double>(rows * kPromptPanels * kTileN * kDepth / size);
}

double count_decode(const GemmKernel& kernel, const PackedWeight& weight) {
  return static_cast<double>(count(kernel, weight, 1, weight.num_panels())) * 64 /
         static_cast<double>(weight.size_bytes());
}

struct Row {
  std::string kernel;
  std::string phase;  // prompt or decode
  double instructions;
};

using Baseline = std::map<std::string, double>;  // "kernel phase" -> instructions

Expected<Baseline> read_baseline(const std::string& path) {
  std::ifstream file(path);
  if (!file) return error(ErrorCode::not_found, "{}: cannot be read", path);
  Baseline baseline;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    Row row;
    if (!(words >> row.kernel >> row.phase >> row.instructions)) {
      return error(ErrorCode::invalid_argument,
                   "{}:{}: '{}' should be a kernel's name, 'prompt' or 'decode', and a number",
                   path, number, line);
    }
    baseline[row.kernel + " " + row.phase] = row.instructions;
  }
  return baseline;
}

std::vector<Row> count_all(const CpuFeatures& features, const std::string& filter,
                           const Baseline& baseline) {
  std::vector<Row> rows;
  // The guest's timer may interrupt a count, which is too rare to happen twice: what is not as
  // expected is counted again.
  const auto add = [&](const GemmKernel& kernel, const PackedWeight& weight, const char* phase,
                       double (*count_phase)(const GemmKernel&, const PackedWeight&)) {
    double instructions = count_phase(kernel, weight);
    const auto expected = baseline.find(fmt::format("{} {}", kernel.name, phase));
    if (expected == baseline.end() || instructions > expected->second * 1.01) {
      instructions = std::min(instructions, count_phase(kernel, weight));
    }
    rows.push_back({kernel.name, phase, instructions});
  };
  for (const GemmKernel& kernel : gemm_kernels()) {
    if (kernel.isa == Isa::scalar || !kernel.supported(features)) continue;
    if (std::string_view(kernel.name).find(filter) == std::string::npos) continue;
    const PackedWeight weight = make_weight(kernel.format);
    add(kernel, weight, "prompt", count_prompt);
    add(kernel, weight, "decode", count_decode);
  }
  return rows;
}

// How many rows are missing in the baseline or have grown; says which.
int compare(const std::vector<Row>& rows, const Baseline& baseline) {
  int failures = 0;
  for (const Row& row : rows) {
    const auto found = baseline.find(row.kernel + " " + row.phase);
    if (found == baseline.end()) {
      fmt::print(stderr, "{} {}: not in the baseline\n", row.kernel, row.phase);
      ++failures;
      continue;
    }
    const double growth = row.instructions / found->second - 1;
    if (std::abs(growth) <= kTolerance) continue;
    fmt::print(stderr, "{} {}: {:.2f} instructions, {:+.1f}% of the baseline's {:.2f}\n",
               row.kernel, row.phase, row.instructions, growth * 100, found->second);
    failures += growth > 0;
  }
  return failures;
}

int run(const std::string& filter, const std::string& baseline_path) {
  const auto features = usable_cpu_features();
  if (!features) {
    fmt::print(stderr, "{}\n", features.error().message);
    return 2;
  }
  if (!counts_instructions()) {
    fmt::print(stderr,
               "this processor's time-stamp counter does not count instructions: use "
               "bench/instructions.sh, which emulates one whose does\n");
    return 2;
  }
  Baseline baseline;
  if (!baseline_path.empty()) {
    auto read = read_baseline(baseline_path);
    if (!read) {
      fmt::print(stderr, "{}\n", read.error().message);
      return 2;
    }
    baseline = std::move(*read);
  }
  touch_stack();
  const std::vector<Row> rows = count_all(*features, filter, baseline);
  if (baseline_path.empty()) {
    for (const Row& row : rows) {
      fmt::print("{:18} {:8} {:8.2f}\n", row.kernel, row.phase, row.instructions);
    }
    return 0;
  }
  const int failures = compare(rows, baseline);
  fmt::print("{} counts of instructions, {} grown by more than {:.0f}%\n", rows.size(), failures,
             kTolerance * 100);
  return failures > 0 ? 1 : 0;
}

}  // namespace
}  // namespace tw::bench

int main(int argc, char** argv) {
  CLI::App app("Counts the instructions of every GEMM kernel, on an emulated processor");
  std::string filter;
  std::string baseline;
  app.add_option("--kernel", filter, "Only kernels whose name contains this");
  app.add_option("--baseline", baseline,
                 "Fail when a count has grown by more than 5% over this table; print nothing else");
  CLI11_PARSE(app, argc, argv);
  return tw::bench::run(filter, baseline);
}
