// Branches of a tree of guesses, computed in one step, against each path alone: the same bits, and
// what follows an accepted branch goes on in its pages.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "engine/batch_builder.h"
#include "models/model.h"
#include "models/tensor_parallel.h"
#include "weights/checkpoint.h"

namespace tw {
namespace {

constexpr int32_t kPageSize = 16, kMaxTokens = 64, kPromptLength = 20;

struct Case {
  const char* model;
  kernels::KvType kv_type;
  int num_ranks;
};

class DraftTreeTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const auto path =
        std::filesystem::path(TW_SOURCE_DIR) / ".cache/test-models" / GetParam().model;
    if (!std::filesystem::exists(path)) {
      GTEST_SKIP() << path << " is missing; run tools/proxy/make_proxy.py --tests";
    }
    auto opened = Checkpoint::open(path);
    ASSERT_TRUE(opened) << opened.error().message;
    checkpoint_ = std::move(*opened);
    teams_ =
        std::make_unique<TeamGroup>(std::vector<int>(static_cast<size_t>(GetParam().num_ranks), 1));
    WeightLoader loader(*checkpoint_, teams_->team(0), {*usable_cpu_features()});
    loader.kv_type = GetParam().kv_type;
    auto loaded = load_model(loader, *teams_);
    ASSERT_TRUE(loaded) << loaded.error().message;
    model_ = std::move(*loaded);
    ASSERT_TRUE(model_->prepare(8, kPageSize, kMaxTokens, 4));
  }

  using Pages = std::vector<PageId>;

  void add(const Pages& pages, int32_t position, const std::vector<TokenId>& tokens,
           bool generated = true) {
    builder_.begin_sequence(position, pages, generated);
    for (const TokenId token : tokens) builder_.add_token(token, generated);
    builder_.end_sequence();
  }

  std::vector<std::vector<float>> forward() {
    const Matrix<const float> logits = model_->forward(builder_.batch());
    std::vector<std::vector<float>> rows;
    for (int64_t row = 0; row < logits.rows; ++row) {
      rows.emplace_back(logits.row(row), logits.row(row) + logits.cols);
    }
    builder_.clear();
    return rows;
  }

  void prefill(const Pages& pages) {
    std::vector<TokenId> prompt;
    for (int32_t i = 0; i < kPromptLength; ++i) prompt.push_back(3 + 5 * i);
    add(pages, 0, prompt, false);
    forward();
  }

  // The last row of the prompt and these tokens, one after the other.
  std::vector<float> alone(const std::vector<TokenId>& tokens) {
    const Pages pages = {PageId{6}, PageId{7}};
    prefill(pages);
    std::vector<float> last;
    for (size_t i = 0; i < tokens.size(); ++i) {
      add(pages, kPromptLength + static_cast<int32_t>(i), {tokens[i]});
      last = forward().front();
    }
    return last;
  }

  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<TeamGroup> teams_;
  std::unique_ptr<Model> model_;
  BatchBuilder builder_{kPageSize, kMaxTokens, 4};
};

TEST_P(DraftTreeTest, EachPathHasTheBitsThatItHasAlone) {
  const Pages trunk = {PageId{0}, PageId{1}}, second = {PageId{0}, PageId{2}},
              third = {PageId{0}, PageId{3}};
  prefill(trunk);
  model_->copy_page(1, 2);
  model_->copy_page(1, 3);
  // 7 - 8 - 9
  //   \   \ 10
  //    11 - 12
  add(trunk, kPromptLength, {7, 8, 9});
  builder_.copy_token(0, PageId{2});
  builder_.copy_token(1, PageId{2});
  add(second, kPromptLength + 2, {10});
  builder_.copy_token(0, PageId{3});
  add(third, kPromptLength + 1, {11, 12});
  const auto tree = forward();
  ASSERT_EQ(tree.size(), 6u);
  EXPECT_EQ(tree[0], alone({7}));
  EXPECT_EQ(tree[2], alone({7, 8, 9}));
  EXPECT_EQ(tree[3], alone({7, 8, 10}));
  EXPECT_EQ(tree[4], alone({7, 11}));
  EXPECT_EQ(tree[5], alone({7, 11, 12}));
  add(third, kPromptLength + 3, {13});
  const auto after_third = forward().front();
  EXPECT_EQ(after_third, alone({7, 11, 12, 13}));
  add(second, kPromptLength + 3, {14});
  const auto after_second = forward().front();
  EXPECT_EQ(after_second, alone({7, 8, 10, 14}));
}

INSTANTIATE_TEST_SUITE_P(Caches, DraftTreeTest,
                         ::testing::Values(Case{"tiny-llama3", kernels::KvType::bf16, 1},
                                           Case{"tiny-llama3", kernels::KvType::fp8_e4m3, 2},
                                           Case{"tiny-gemma3", kernels::KvType::bf16, 1},
                                           Case{"tiny-deepseek-v3", kernels::KvType::bf16, 2}),
                         [](const auto& chosen) {
                           std::string name =
                               std::string(chosen.param.model) +
                               (chosen.param.kv_type == kernels::KvType::bf16 ? "_bf16" : "_fp8");
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace tw
