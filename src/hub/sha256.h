// SHA-256 (FIPS 180-4), fed in pieces.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tw {

class Sha256 {
 public:
  void update(std::span<const std::byte> bytes);
  // 64 hexadecimal digits. Nothing may be added afterwards.
  std::string hex_digest();

 private:
  static constexpr size_t kBlockBytes = 64;
  void process_block(const std::byte* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, kBlockBytes> rest_ = {};  // the beginning of a block
  uint64_t num_bytes_ = 0;
};

}  // namespace tw
