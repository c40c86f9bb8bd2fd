#include "core/memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "core/buffer.h"

namespace tw {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kGiB = int64_t{1} << 30;

// A root folder with the files that the kernel would show.
class MemoryLimitsTest : public ::testing::Test {
 protected:
  MemoryLimitsTest() : root_(fs::temp_directory_path() / ("tw_mem_" + std::to_string(getpid()))) {
    fs::remove_all(root_);
    write("proc/meminfo", "MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB\n");
  }
  ~MemoryLimitsTest() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  fs::path root_;
};

TEST_F(MemoryLimitsTest, WithoutGroupTheMachineDecides) {
  const auto limits = detect_memory_limits(root_);
  EXPECT_EQ(limits.total, 16 * kGiB);
  EXPECT_EQ(limits.available, 8 * kGiB);
  EXPECT_FALSE(limits.limited_by_cgroup);
}

TEST_F(MemoryLimitsTest, Version2GroupLimitsAndItsPageCacheIsFree) {
  write("proc/self/cgroup", "0::/pod/container\n");
  write("sys/fs/cgroup/pod/container/memory.max", "4294967296\n");
  write("sys/fs/cgroup/pod/container/memory.current", "3221225472\n");
  write("sys/fs/cgroup/pod/container/memory.stat",
        "anon 1073741824\ninactive_file 1073741824\nactive_file 1073741824\n");
  const auto limits = detect_memory_limits(root_);
  EXPECT_TRUE(limits.limited_by_cgroup);
  EXPECT_EQ(limits.total, 4 * kGiB);
  EXPECT_EQ(limits.available, 3 * kGiB);
}

TEST_F(MemoryLimitsTest, LimitOfAnAncestorHolds) {
  write("proc/self/cgroup", "0::/pod/container\n");
  write("sys/fs/cgroup/pod/container/memory.max", "max\n");
  write("sys/fs/cgroup/pod/memory.max", "2147483648\n");
  write("sys/fs/cgroup/pod/memory.current", "1073741824\n");
  const auto limits = detect_memory_limits(root_);
  EXPECT_EQ(limits.total, 2 * kGiB);
  EXPECT_EQ(limits.available, 1 * kGiB);
}

TEST_F(MemoryLimitsTest, Version1Group) {
  write("proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/abc\n");
  write("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "1073741824\n");
  write("sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "536870912\n");
  const auto limits = detect_memory_limits(root_);
  EXPECT_EQ(limits.total, kGiB);
  EXPECT_EQ(limits.available, kGiB / 2);
}

TEST(ResidentMemory, GrowsWithTouchedMemory) {
  const int64_t before = resident_memory();
  auto buffer = Buffer::allocate(64 << 20);
  ASSERT_TRUE(buffer);
  std::fill_n(buffer->as<char>(), buffer->size(), char{1});
  EXPECT_GE(resident_memory() - before, 60 << 20);
}

TEST(Buffer, IsAlignedZeroedAndRefusesTheImpossible) {
  auto small = Buffer::allocate(100);
  ASSERT_TRUE(small);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(small->data()) % 4096, 0u);
  EXPECT_EQ(small->size(), 100u);
  auto large = Buffer::allocate((2 << 20) + 1);
  ASSERT_TRUE(large);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large->data()) % (2 << 20), 0u);
  EXPECT_EQ(large->as<char>()[2 << 20], 0);
  EXPECT_EQ(Buffer::allocate(0)->size(), 0u);
  const auto impossible = Buffer::allocate(SIZE_MAX / 2);
  ASSERT_FALSE(impossible);
  EXPECT_EQ(impossible.error().code, ErrorCode::resource_exhausted);
  EXPECT_FALSE(Buffer::allocate(SIZE_MAX));
}

TEST(ArenaLayout, OffsetsAreAlignedAndDisjoint) {
  ArenaLayout layout;
  EXPECT_EQ(layout.reserve(1), 0u);
  EXPECT_EQ(layout.reserve(64), 64u);
  EXPECT_EQ(layout.reserve(65), 128u);
  EXPECT_EQ(layout.size(), 256u);
}

}  // namespace
}  // namespace tw
