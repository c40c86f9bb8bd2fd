// Owned, aligned, uninitialized memory for weights, KV pages and activations.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "core/status.h"

namespace tw {

// Memory mapped straight from the system, 2 MiB aligned when large so that transparent huge
// pages apply; zero pages until first touch, so that the thread that writes first places them.
class Buffer {
 public:
  Buffer() = default;
  // Fails with resource_exhausted when the system has no address space or memory for it.
  static Expected<Buffer> allocate(size_t size);

  // Backs these bytes by small pages: for places that may stay nearly unused, of which a huge page
  // would take 2 MiB at the first touch.
  void use_small_pages(size_t offset, size_t bytes) const;

  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  struct Unmap {
    size_t size;
    void operator()(std::byte* data) const;
  };
  Buffer(std::byte* data, size_t size) : data_(data, Unmap{size}), size_(size) {}
  std::unique_ptr<std::byte, Unmap> data_;
  size_t size_ = 0;
};

// Hands out 64-byte aligned offsets of a buffer that does not exist yet. Steps are recorded with
// offsets; the buffer is allocated once, when all are known.
class ArenaLayout {
 public:
  static constexpr size_t kAlignment = 64;
  size_t reserve(size_t bytes) {
    const size_t offset = size_;
    size_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }
  size_t size() const { return size_; }

 private:
  size_t size_ = 0;
};

}  // namespace tw
