// Where guesses come from and how many are made; what they may do to an engine's output (nothing)
// is in engine_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <random>

#include "engine/engine.h"
#include "engine/fake_model.h"
#include "engine/speculative/state_rows.h"
#include "engine/speculative/suffix_automaton.h"
#include "engine/speculative/tree_growth.h"

namespace tw {
namespace {

using testing_support::FakeModel;

std::vector<TokenId> continued(const SuffixAutomaton& text, const SuffixAutomaton::Match& match,
                               int32_t count) {
  std::vector<TokenId> tokens;
  text.continue_from(match, count, tokens);
  return tokens;
}

SuffixAutomaton automaton_of(const std::vector<TokenId>& tokens) {
  SuffixAutomaton automaton(1 << 20);
  for (const TokenId token : tokens) automaton.append(token);
  return automaton;
}

TEST(SuffixAutomaton, GoesOnAsTheLongestRepetitionDidMostOften) {
  const auto guess = [](const std::vector<TokenId>& tokens, int32_t count) {
    const SuffixAutomaton text = automaton_of(tokens);
    return continued(text, text.last_repetition(), count);
  };
  using Tokens = std::vector<TokenId>;
  EXPECT_EQ(guess({1, 2, 3, 9, 2, 3, 8, 1, 2, 3}, 2), (Tokens{9, 2})) << "the longest";
  EXPECT_EQ(guess({2, 3, 9, 2, 3, 8, 2, 3}, 1), (Tokens{8})) << "then the youngest";
  EXPECT_EQ(guess({2, 3, 9, 2, 3, 9, 2, 3, 8, 2, 3}, 1), (Tokens{9}))
      << "but more often goes first";
  EXPECT_EQ(guess({1, 2, 3}, 4), Tokens());
  EXPECT_EQ(guess({5, 1, 5}, 4), Tokens()) << "one token in common is too little";
  EXPECT_EQ(guess({5}, 4), Tokens());
  EXPECT_EQ(guess({}, 4), Tokens());
  EXPECT_EQ(guess({4, 5, 6, 4, 5, 6, 4}, 7), (Tokens{5, 6, 4, 5, 6, 4, 5})) << "beyond its end";
  EXPECT_EQ(guess({7, 7, 7, 7}, 5), Tokens(5, 7));
}

TEST(SuffixAutomaton, TextsBehindSeparatorsAreApart) {
  const TokenId end = SuffixAutomaton::kSeparator;
  SuffixAutomaton texts = automaton_of({1, 2, 3, end, 1, 2, 3, end, 3, 1, 2, 4});
  SuffixAutomaton::Match match;
  std::vector<TokenId> tokens;
  for (const TokenId token : {9, 1, 2}) {
    match = texts.advance(match, tokens, token);
    tokens.push_back(token);
  }
  EXPECT_EQ(match.length, 2);
  EXPECT_EQ(continued(texts, match, 5), std::vector<TokenId>{3}) << "nothing behind a text's end";
  // It is valid while the texts grow ...
  for (const TokenId token : {end, 1, 2, 5, end, 1, 2, 5, end, 1, 2, 5}) texts.append(token);
  match = texts.advance(match, tokens, 5);
  EXPECT_EQ(match.length, 3);
  // ... and is made again when they start anew.
  texts.clear();
  for (const TokenId token : {8, 1, 2, 5, 6}) texts.append(token);
  tokens.push_back(5);
  match = texts.advance(match, tokens, 6);
  EXPECT_EQ(match.length, 4);
}

// Against the definition, on texts of few different tokens, whose states split all the time.
TEST(SuffixAutomaton, MatchesAreTheLongestSuffixesOfTheText) {
  std::mt19937 random(5);
  const auto ends_in = [](std::span<const TokenId> text, std::span<const TokenId> sequence) {
    for (size_t length = sequence.size(); length > 0; --length) {
      if (!std::ranges::search(text, sequence.last(length)).empty()) return length;
    }
    return size_t{0};
  };
  for (int round = 0; round < 40; ++round) {
    const auto draw = [&] { return static_cast<TokenId>(random() % (2 + random() % 3)); };
    SuffixAutomaton automaton(1 << 20);
    std::vector<TokenId> text, other;
    SuffixAutomaton::Match match;
    for (int i = 0; i < 120; ++i) {
      text.push_back(draw());
      automaton.append(text.back());
      const TokenId next = draw();
      match = automaton.advance(match, other, next);
      other.push_back(next);
      ASSERT_EQ(match.length, ends_in(text, other)) << "round " << round << ", token " << i;
      const std::span<const TokenId> all = text;
      size_t repeated = text.size() - 1;
      while (repeated > 0 &&
             std::ranges::search(all.first(text.size() - 1), all.last(repeated)).empty()) {
        --repeated;
      }
      ASSERT_EQ(automaton.last_repetition().length, repeated) << "round " << round << ", " << i;
    }
  }
}

TEST(SuffixAutomaton, MemoryIsBounded) {
  std::mt19937 random(6);
  SuffixAutomaton automaton(1000);
  size_t largest = 0;
  for (int i = 0; i < 20000; ++i) {
    automaton.append(static_cast<TokenId>(random() % (i % 2000 < 1000 ? 5 : 50000)));
    EXPECT_LE(automaton.num_tokens(), 1000);
    largest = std::max(largest, automaton.num_bytes());
  }
  EXPECT_LT(largest, 200u * 1000);
}

TEST(DraftTree, BranchesBeginWhereANodeDoesNotFollowTheLast) {
  DraftTree tree;
  EXPECT_EQ(tree.num_branches(), 1);
  EXPECT_EQ(tree.depth(), 0);
  tree.append(10);
  tree.append(11);
  tree.add(12, 0);
  tree.append(13);
  tree.add(14, DraftTree::kRoot);
  EXPECT_EQ(tree.size(), 5);
  EXPECT_EQ(tree.num_branches(), 3);
  EXPECT_EQ(tree.depth(), 3);
  EXPECT_EQ(tree.branch(3), 1);
  EXPECT_EQ(tree.depth(4), 1);
  EXPECT_TRUE(tree.begins_branch(2));
  EXPECT_FALSE(tree.begins_branch(3));
  EXPECT_EQ(tree.find_child(0, 12), 2);
  EXPECT_EQ(tree.find_child(DraftTree::kRoot, 14), 4);
  EXPECT_EQ(tree.find_child(0, 14), std::nullopt);
  EXPECT_TRUE(tree.has_children(2));
  EXPECT_FALSE(tree.has_children(4));
  tree.drop_from_branch(1);
  EXPECT_EQ(tree.size(), 2);
}

std::vector<TokenId> tokens_of(const TreeGrowth& growth) {
  std::vector<TokenId> tokens;
  for (const TreeGrowth::Leaf& leaf : growth.leaves()) tokens.push_back(growth.token(leaf));
  return tokens;
}

TEST(TreeGrowth, GoesOnFromTheLikeliestAndKeepsTheLikeliest) {
  using Copies = std::vector<std::pair<int32_t, int32_t>>;
  Copies copies;
  const auto copy = [&](int32_t from, int32_t to) { copies.emplace_back(from, to); };
  const auto add = [](TreeGrowth& growth, size_t leaf, TokenId token, double chance) {
    growth.add(leaf, token, static_cast<float>(std::log(chance)));
  };
  TreeGrowth growth;
  growth.begin(2, 0.05f);
  add(growth, 0, 1, 0.6);
  add(growth, 0, 2, 0.3);
  add(growth, 0, 9, std::nan(""));
  growth.descend(copy);
  EXPECT_EQ(tokens_of(growth), (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(copies, (Copies{{0, 1}}));
  copies.clear();
  add(growth, 0, 3, 0.5);   // 0.3 in all
  add(growth, 0, 4, 0.4);   // 0.24
  add(growth, 1, 5, 0.7);   // 0.21
  add(growth, 1, 6, 0.01);  // too little
  growth.descend(copy);
  EXPECT_EQ(tokens_of(growth), (std::vector<TokenId>{3, 4}));
  EXPECT_EQ(copies, (Copies{{0, 1}})) << "token 2's branch is free";
  add(growth, 1, 7, 1);  // 0.24
  const auto chosen = [&](int32_t count) {
    DraftTree tree;
    growth.choose(count, tree);
    std::vector<std::pair<TokenId, int32_t>> nodes;
    for (int32_t i = 0; i < tree.size(); ++i) nodes.emplace_back(tree.token(i), tree.parent(i));
    return nodes;
  };
  using Nodes = std::vector<std::pair<TokenId, int32_t>>;
  EXPECT_EQ(chosen(3), (Nodes{{1, -1}, {3, 0}, {2, -1}}));
  EXPECT_EQ(chosen(9), (Nodes{{1, -1}, {3, 0}, {4, 0}, {7, 2}, {2, -1}, {5, 4}}));
}

TEST(StateRows, KeepsWhatIsConsecutive) {
  const std::vector<float> values = {0, 1, 2, 3, 4, 5};
  const Matrix<const float> rows = {values.data(), 3, 2, 2};
  StateRows states;
  EXPECT_EQ(states.find(0), nullptr);
  states.put(4, rows);
  states.put(6, rows);  // replaces the last
  ASSERT_NE(states.find(8), nullptr);
  EXPECT_EQ(states.find(8)[1], 5);
  EXPECT_EQ(states.find(6)[0], 0);
  EXPECT_EQ(states.find(5)[0], 2);
  EXPECT_EQ(states.find(9), nullptr);
  states.drop_before(6);
  EXPECT_EQ(states.find(5), nullptr);
  EXPECT_EQ(states.find(7)[0], 2);
  states.put(20, rows);  // a gap
  EXPECT_EQ(states.find(8), nullptr);
  EXPECT_EQ(states.find(22)[0], 4);
  states.put(3, rows);
  EXPECT_EQ(states.find(5)[0], 4);
  EXPECT_EQ(states.find(20), nullptr);
}

// A layer that guesses: it is told the state before each token, and checks it.
class FakeNextToken final : public NextTokenModel {
 public:
  int64_t kv_bytes_per_token() const override { return inner.limits().kv_bytes_per_token; }
  Status prepare(int64_t num_pages, int32_t page_size, int32_t max_num_tokens,
                 int32_t max_num_seqs) override {
    return inner.prepare(num_pages, page_size, max_num_tokens, max_num_seqs);
  }
  Matrix<const float> forward(const Batch& batch, Matrix<const float> previous) override {
    EXPECT_EQ(previous.rows, batch.num_tokens());
    const Matrix<const float> logits = inner.forward(batch);
    for (int32_t token = 0; token < batch.num_tokens(); ++token) {
      const int32_t before = batch.positions[static_cast<size_t>(token)] - 1;
      const float* state = previous.row(token);
      if (before < 0 || (state[0] == 0 && state[1] == 0)) {
        ++num_unknown_states;
        continue;
      }
      EXPECT_EQ(state[1], static_cast<float>(before));
      EXPECT_EQ(state[0], static_cast<float>(inner.next_after(batch, token, before)));
    }
    return logits;
  }
  void copy_page(int64_t from, int64_t to) override { inner.copy_page(from, to); }
  Matrix<const float> hidden_states() const override { return inner.hidden_states(); }

  FakeModel inner;
  int64_t num_unknown_states = 0;
};

// An engine whose model is guessed for by another.
class DraftModelTest : public ::testing::Test {
 protected:
  void make(EngineConfig config, int64_t context_length = 400, int64_t draft_context = 400) {
    auto fake = std::make_unique<FakeModel>(context_length);
    auto fake_draft = std::make_unique<FakeModel>(draft_context);
    model = fake.get();
    draft = fake_draft.get();
    config.speculative_algorithm = "STANDALONE";
    start(config, std::move(fake), std::move(fake_draft));
  }

  void make_with_layer(EngineConfig config) {
    auto fake = std::make_unique<FakeModel>(400);
    auto fake_layer = std::make_unique<FakeNextToken>();
    model = fake.get();
    layer = fake_layer.get();
    draft = &layer->inner;
    fake->next_token_layer = std::move(fake_layer);
    config.speculative_algorithm = "NEXTN";
    start(config, std::move(fake), nullptr);
  }

  void start_ngram(EngineConfig config) {
    config.speculative_algorithm = "NGRAM";
    start(config, std::make_unique<FakeModel>(400), nullptr);
  }

  void start(EngineConfig config, std::unique_ptr<Model> fake, std::unique_ptr<Model> fake_draft) {
    config.speculative_num_steps = 4;  // not by the clock
    auto created = Engine::create(std::move(fake), config, std::move(fake_draft));
    ASSERT_TRUE(created) << created.error().message;
    engine = std::move(*created);
  }

  // Requests of all lengths at once, with shared prefixes and too few pages.
  void generate_under_pressure() {
    std::mt19937 random(11);
    for (int round = 0; round < 12; ++round) {
      draft->errs_every = 1 + round % 5;
      std::vector<std::future<void>> all;
      for (int i = 0; i < 8; ++i) {
        std::vector<TokenId> prompt(1 + random() % 50, static_cast<TokenId>(random() % 2));
        all.push_back(generate(std::move(prompt), 1 + static_cast<int32_t>(random() % 60)));
      }
      for (auto& one : all) one.wait();
    }
    const EngineStats stats = engine->stats();
    EXPECT_GT(stats.num_preemptions, 0);
    EXPECT_GT(stats.cached_tokens_total, 0);
    EXPECT_GT(stats.accepted_draft_tokens_total, 100);
    EXPECT_EQ(draft->num_poisoned, 0);
  }

  // Greedy generation; checks it against what the model says.
  std::future<void> generate(std::vector<TokenId> prompt, int32_t count) {
    struct Run {
      std::vector<TokenId> context;
      int32_t left;
      std::promise<void> done;
    };
    auto run = std::make_shared<Run>(prompt, count, std::promise<void>());
    Request request;
    request.prompt = std::move(prompt);
    request.sampling.temperature = 0;
    request.sampling.max_new_tokens = count;
    request.sink = [run](EngineOutput&& output) {
      for (const TokenEvent& event : output.tokens) {
        EXPECT_EQ(event.token, FakeModel::next_token(run->context));
        run->context.push_back(event.token);
        --run->left;
      }
      if (output.finish_reason == FinishReason::none) return;
      EXPECT_EQ(run->left, 0);
      run->done.set_value();
    };
    auto done = run->done.get_future();
    EXPECT_TRUE(engine->submit(std::move(request)));
    return done;
  }

  FakeModel* model = nullptr;
  FakeModel* draft = nullptr;
  FakeNextToken* layer = nullptr;
  std::unique_ptr<Engine> engine;
};

const EngineConfig kPressure{
    .page_size = 4, .max_total_tokens = 260, .chunked_prefill_size = 24, .max_running_requests = 8};

TEST_F(DraftModelTest, RightGuessesSaveStepsAndWrongOnesChangeNothing) {
  make({});
  generate({1, 2, 3}, 100).wait();
  EXPECT_LT(model->num_steps, 25);
  const EngineStats stats = engine->stats();
  EXPECT_GT(stats.draft_tokens_total, 50);
  // A request's last step may end before its last guesses are looked at.
  EXPECT_GE(stats.accepted_draft_tokens_total + 8, stats.draft_tokens_total);

  draft->errs_every = 3;
  generate({4, 5}, 100).wait();
  draft->errs_every = 1;
  generate({6}, 100).wait();
  EXPECT_EQ(draft->num_poisoned, 0);
}

// Its keys and values are right whatever happens to the pages: what it says on each context is what
// it would say alone.
TEST_F(DraftModelTest, FollowsSharedEvictedAndPreemptedPages) {
  make(kPressure);
  generate_under_pressure();
}

TEST_F(DraftModelTest, ALayerThatGuessesGetsTheStateBeforeEachToken) {
  make_with_layer({});
  generate({1, 2, 3}, 100).wait();
  EXPECT_LT(model->num_steps, 25);
  EXPECT_EQ(layer->num_unknown_states, 1) << "before the first token there is none";
  layer->inner.errs_every = 3;
  generate({4, 5}, 100).wait();
}

TEST_F(DraftModelTest, ALayerThatGuessesFollowsSharedEvictedAndPreemptedPages) {
  make_with_layer(kPressure);
  generate_under_pressure();
}

EngineConfig with_trees(EngineConfig config) {
  config.speculative_eagle_topk = 3;
  config.speculative_num_draft_tokens = 12;
  return config;
}

// What comes second at every other place is found in a tree, and in a chain it ends it.
TEST_F(DraftModelTest, TreesFindWhatComesSecond) {
  int64_t chain_steps = 0;
  for (const bool tree : {false, true}) {
    make(tree ? with_trees({.page_size = 4}) : EngineConfig{.page_size = 4});
    draft->hesitates_every = 2;
    generate({1, 2, 3}, 100).wait();
    if (tree) {
      EXPECT_LT(3 * model->num_steps, 2 * chain_steps);
    } else {
      EXPECT_GT(model->num_steps, 30);
    }
    chain_steps = model->num_steps;
    EXPECT_EQ(model->num_poisoned, 0);
    EXPECT_EQ(draft->num_poisoned, 0);
  }
}

TEST_F(DraftModelTest, TreesKeepToPagesUnderPressure) {
  make(with_trees(kPressure));
  draft->hesitates_every = 3;
  generate_under_pressure();
  EXPECT_EQ(model->num_poisoned, 0);
}

TEST_F(DraftModelTest, TreesOfALayerGoByTheStatesOfTheirBranches) {
  make_with_layer(with_trees(kPressure));
  layer->inner.hesitates_every = 3;
  generate_under_pressure();
  EXPECT_EQ(model->num_poisoned, 0);
}

// By the clock, too.
TEST_F(DraftModelTest, TreesAreNoDeeperThanPays) {
  auto fake = std::make_unique<FakeModel>(400);
  auto fake_draft = std::make_unique<FakeModel>(400);
  fake_draft->hesitates_every = 2;
  EngineConfig config = with_trees({});
  config.speculative_algorithm = "STANDALONE";
  auto created = Engine::create(std::move(fake), config, std::move(fake_draft));
  ASSERT_TRUE(created) << created.error().message;
  engine = std::move(*created);
  generate({1, 2, 3}, 200).wait();
  EXPECT_GT(engine->stats().draft_tokens_total, 0);
}

// Nothing is generated from them, so there is nothing to guess; and their pages, which lack the
// drafter's part, are nobody else's prefix.
TEST_F(DraftModelTest, PooledPromptsAreNotFollowed) {
  make_with_layer({.page_size = 4});
  const std::vector<TokenId> prompt(30, 5);
  Request request;
  request.prompt = prompt;
  request.pooling = Pooling::mean;
  std::promise<EngineOutput> end;
  request.sink = [&end](EngineOutput&& output) { end.set_value(std::move(output)); };
  ASSERT_TRUE(engine->submit(std::move(request)));
  const EngineOutput output = end.get_future().get();
  ASSERT_EQ(output.embedding.size(), 2u);
  EXPECT_EQ(output.embedding[1], 14.5f) << "the mean of 30 positions";
  EXPECT_EQ(draft->num_steps, 0);
  generate(prompt, 40).wait();
  EXPECT_EQ(engine->stats().cached_tokens_total, 0);
  EXPECT_EQ(layer->num_unknown_states, 1);
  EXPECT_GT(engine->stats().accepted_draft_tokens_total, 20);
}

// What one request said is guessed for the next, until the cache is flushed.
TEST_F(DraftModelTest, TextsOfFinishedRequestsAreGuessedFrom) {
  const auto accepted = [this] { return engine->stats().accepted_draft_tokens_total; };
  EngineConfig config;
  for (const bool keeps : {true, false}) {
    config.disable_radix_cache = !keeps;
    start_ngram(config);
    generate({1, 2, 3}, 60).wait();
    const int64_t alone = accepted();
    EXPECT_LT(alone, 20) << "random text";
    generate({1, 2, 3}, 60).wait();
    EXPECT_EQ(accepted() > alone + 30, keeps);
    EXPECT_TRUE(engine->flush_cache());
    const int64_t before = accepted();
    generate({1, 2, 3}, 60).wait();
    EXPECT_LT(accepted() - before, 20) << "flushed";
  }
}

TEST_F(DraftModelTest, StopsGuessingAtTheEndOfItsOwnContext) {
  make({.chunked_prefill_size = 16}, 400, 40);
  generate({1, 2, 3}, 90).wait();
  const int64_t drafts = engine->stats().draft_tokens_total;
  EXPECT_GT(drafts, 10);
  EXPECT_LE(drafts, 40);
  generate(std::vector<TokenId>(120, 7), 20).wait();
  EXPECT_EQ(engine->stats().draft_tokens_total, drafts);
}

}  // namespace
}  // namespace tw
