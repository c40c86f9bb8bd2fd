#include "weights/schemes/scheme.h"

#include <gtest/gtest.h>

namespace tw {
namespace {

TEST(MakeScheme, ConfigurationsWithoutQuantizationArePlain) {
  EXPECT_TRUE(make_scheme(Json::object(), "config.json"));
  EXPECT_TRUE(make_scheme(Json{{"quantization_config", nullptr}}, "config.json"));
}

TEST(MakeScheme, UnknownMethodsAreNamed) {
  const auto refusal = [](const Json& quantization) {
    const auto scheme = make_scheme(Json{{"quantization_config", quantization}}, "config.json");
    return scheme ? std::string() : scheme.error().message;
  };
  EXPECT_NE(refusal({{"quant_method", "unheard-of"}}).find("unheard-of"), std::string::npos);
  EXPECT_NE(refusal({{"quant_method", 3}}).find('3'), std::string::npos);
  EXPECT_NE(refusal(Json::object()).find("without a quant_method"), std::string::npos);
  EXPECT_NE(refusal("fp8").find("without a quant_method"), std::string::npos);
}

}  // namespace
}  // namespace tw
