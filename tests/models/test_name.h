// Names of parameterized tests after the models that they are about.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>

namespace tw::testing_support {

// What GoogleTest allows in a name: "tiny-qwen3.5" becomes "tiny_qwen3_5".
inline std::string test_name(std::string name) {
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

// For INSTANTIATE_TEST_SUITE_P of names.
struct NamedByParameter {
  template <typename Name>
  std::string operator()(const ::testing::TestParamInfo<Name>& test) const {
    return test_name(test.param);
  }
};

}  // namespace tw::testing_support
