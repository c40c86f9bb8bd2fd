#include "core/cpu.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace tw {
namespace {

class IsaVariable : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* value = std::getenv("TILEWRIGHT_ISA");
    saved_ = value == nullptr ? "" : value;
  }
  void TearDown() override { setenv("TILEWRIGHT_ISA", saved_.c_str(), 1); }

 private:
  std::string saved_;
};

TEST(CpuFeatures, LimitingRemovesEverythingAbove) {
  CpuFeatures all{true, true, true, true, true, true, true, true, true, true, true};
  EXPECT_EQ(all.isa(), Isa::amx);
  EXPECT_EQ(all.limited_to(Isa::avx512).isa(), Isa::avx512);
  EXPECT_TRUE(all.limited_to(Isa::avx512).avx512_vnni);
  EXPECT_FALSE(all.limited_to(Isa::avx512).amx_int8);
  EXPECT_EQ(all.limited_to(Isa::avx2).isa(), Isa::avx2);
  EXPECT_FALSE(all.limited_to(Isa::avx2).avx512_vnni);
  EXPECT_EQ(all.limited_to(Isa::scalar).describe(), "none");
}

TEST_F(IsaVariable, LowersTheLevel) {
  setenv("TILEWRIGHT_ISA", "scalar", 1);
  const auto features = usable_cpu_features();
  ASSERT_TRUE(features);
  EXPECT_EQ(features->isa(), Isa::scalar);
}

TEST_F(IsaVariable, UnknownNameListsTheKnown) {
  setenv("TILEWRIGHT_ISA", "sse9", 1);
  const auto features = usable_cpu_features();
  ASSERT_FALSE(features);
  EXPECT_NE(features.error().message.find("sse9"), std::string::npos);
  EXPECT_NE(features.error().message.find("avx512"), std::string::npos);
}

TEST_F(IsaVariable, LevelThatTheMachineLacksIsRefused) {
  if (detect_cpu_features().isa() == Isa::amx) GTEST_SKIP() << "this machine has every level";
  setenv("TILEWRIGHT_ISA", "amx", 1);
  EXPECT_FALSE(usable_cpu_features());
}

TEST(CacheSizes, ArePlausible) {
  const CacheSizes sizes = detect_cache_sizes();
  EXPECT_GE(sizes.l1d, 8 << 10);
  EXPECT_GE(sizes.l2, sizes.l1d);
}

}  // namespace
}  // namespace tw
