#include "core/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tw {
namespace {
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSmallPage = 4096;
}  // namespace

void Buffer::Unmap::operator()(std::byte* data) const {
  munmap(data, size);
}

Expected<Buffer> Buffer::allocate(size_t size) {
  if (size == 0) return Buffer();
  const bool large = size >= kHugePage;
  const size_t alignment = large ? kHugePage : kSmallPage;
  if (size > SIZE_MAX - 2 * kHugePage) {
    return error(ErrorCode::resource_exhausted, "cannot allocate {} bytes", size);
  }
  const size_t length = (size + alignment - 1) / alignment * alignment;
  const size_t reserved = length + (large ? kHugePage : 0);
  void* address = mmap(nullptr, reserved, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    return error(ErrorCode::resource_exhausted, "cannot allocate {} MiB: {}", size >> 20,
                 std::strerror(errno));
  }
  auto* begin = static_cast<std::byte*>(address);
  if (large) {
    // Give back what lies outside the aligned part.
    const size_t misalignment = reinterpret_cast<uintptr_t>(begin) % kHugePage;
    const size_t head = misalignment == 0 ? 0 : kHugePage - misalignment;
    if (head > 0) munmap(begin, head);
    if (reserved - head > length) munmap(begin + head + length, reserved - head - length);
    begin += head;
    madvise(begin, length, MADV_HUGEPAGE);
  }
  Buffer buffer(begin, length);
  buffer.size_ = size;
  return buffer;
}

void Buffer::use_small_pages(size_t offset, size_t bytes) const {
  const size_t begin = offset / kSmallPage * kSmallPage;
  const size_t end = std::min(size_, offset + bytes);
  // A mere advice: where the system knows no huge pages it fails, and nothing is lost.
  if (begin < end) madvise(data() + begin, end - begin, MADV_NOHUGEPAGE);
}

}  // namespace tw
