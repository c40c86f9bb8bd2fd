#include "http/identifiers.h"

#include <fmt/format.h>

#include <random>

namespace tw {
namespace {

uint64_t random_start() {
  std::random_device device;
  return (uint64_t{device()} << 32) ^ device();
}

// SplitMix64: distinct inputs, distinct outputs.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

Identifiers::Identifiers() : counter_(random_start()) {}

std::string Identifiers::make(std::string_view prefix) {
  const uint64_t count = counter_.fetch_add(1);
  return fmt::format("{}{:016x}{:08x}", prefix, mix(count), mix(~count) >> 32);
}

}  // namespace tw
