// Reads little-endian numbers from untrusted bytes, never past their end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

namespace tw {

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }

  template <typename T>
  std::optional<T> number() {
    if (remaining() < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  std::optional<std::span<const std::byte>> take(uint64_t count) {
    if (count > remaining()) return std::nullopt;
    const auto part = bytes_.subspan(position_, static_cast<size_t>(count));
    position_ += static_cast<size_t>(count);
    return part;
  }

  // A string with a 64-bit length before it, as GGUF writes them.
  std::optional<std::string_view> string() {
    const auto length = number<uint64_t>();
    if (!length) return std::nullopt;
    const auto part = take(*length);
    if (!part) return std::nullopt;
    return std::string_view(reinterpret_cast<const char*>(part->data()), part->size());
  }

 private:
  std::span<const std::byte> bytes_;
  size_t position_ = 0;
};

}  // namespace tw
