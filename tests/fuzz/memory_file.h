// Fuzzed bytes as a file: readers map files, so the bytes get a name, in memory.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/check.h"

namespace tw::testing_support {

class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : fd_(memfd_create("fuzz", 0)) {
    TW_CHECK(fd_ >= 0);
    for (size_t done = 0; done < size;) {
      const ssize_t count = write(fd_, data + done, size - done);
      TW_CHECK(count > 0);
      done += static_cast<size_t>(count);
    }
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

}  // namespace tw::testing_support
