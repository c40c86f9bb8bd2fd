#include "router/prompt_text.h"

#include <gtest/gtest.h>

namespace tw {
namespace {

TEST(PromptText, AConversationsNextRequestBeginsWithTheLastOnesText) {
  const std::string first = prompt_text(
      R"({"model": "m", "temperature": 0.5, "messages": [{"role": "system", "content": "Be kind."},
          {"role": "user", "content": "Hello"}]})");
  const std::string next = prompt_text(
      R"({"messages": [{"role": "system", "content": "Be kind."}, {"role": "user",
          "content": "Hello"}, {"role": "assistant", "content": "Hi"}], "model": "m"})");
  EXPECT_TRUE(next.starts_with(first)) << first << "\n--\n" << next;
  EXPECT_LT(first.size(), next.size());
}

TEST(PromptText, IdsAndTextsGoOnToo) {
  EXPECT_TRUE(prompt_text(R"({"input_ids": [1, 2, 3, 4]})")
                  .starts_with(prompt_text(R"({"input_ids": [1, 2, 3]})")));
  EXPECT_TRUE(prompt_text(R"({"prompt": "Once upon a time"})")
                  .starts_with(prompt_text(R"({"prompt": "Once upon"})")));
  EXPECT_NE(prompt_text(R"({"input_ids": [1, 23]})"), prompt_text(R"({"input_ids": [12, 3]})"));
}

TEST(PromptText, AdaptersAndToolsComeFirst) {
  const std::string plain = prompt_text(R"({"model": "m", "prompt": "Once"})");
  EXPECT_NE(prompt_text(R"({"model": "m:adapter", "prompt": "Once"})"), plain);
  EXPECT_NE(prompt_text(R"({"model": "m", "lora_path": "a", "prompt": "Once"})"), plain);
  const std::string tools = prompt_text(R"({"messages": ["x"], "tools": [{"name": "f"}]})");
  EXPECT_LT(tools.find("\"f\""), tools.find('x'));
}

TEST(PromptText, NothingOfWhatIsNoRequest) {
  for (const char* body :
       {"", "no json", "[1, 2]", "{}", R"({"model": "m"})", R"({"prompt": null})", "\xff\xfe"}) {
    EXPECT_EQ(prompt_text(body), "") << body;
  }
}

TEST(PromptText, NothingOfWhatIsTooLargeToLookAt) {
  const std::string large(9 << 20, 'a');
  EXPECT_EQ(prompt_text("{\"prompt\": \"" + large + "\"}"), "");
}

}  // namespace
}  // namespace tw
