// Drives scheduler, pages and prefix cache with random requests, cancellations and memory pressure,
// checks their invariants after every step, and every output against the oracle.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>

#include "engine/fake_model.h"
#include "engine/scheduler.h"

namespace tw {
namespace {

using testing_support::FakeModel;

class Simulation {
 public:
  explicit Simulation(uint32_t seed)
      : random_(seed), config_(random_config()), scheduler_(config_) {
    EXPECT_TRUE(model_.prepare(
        config_.num_pages, config_.page_size,
        config_.chunked_prefill_size +
            config_.max_running_requests * (1 + config_.max_drafts * (1 + config_.max_drafts)),
        config_.max_running_requests));
  }

  // One event; false when an expectation failed.
  bool run_event() {
    const unsigned choice = random_() % 100;
    if (choice < 25 && open_.size() < 40) {
      submit();
    } else if (choice < 28 && !open_.empty()) {
      cancel();
    } else if (choice < 29) {
      EXPECT_EQ(scheduler_.flush_prefix_cache(), open_.empty());
    } else if (!scheduler_.idle()) {
      step();
    }
    check_invariants();
    return !::testing::Test::HasFailure();
  }

  void drain() {
    for (int guard = 0; !scheduler_.idle() && !::testing::Test::HasFailure(); ++guard) {
      ASSERT_LT(guard, 200000) << "no end";
      step();
      check_invariants();
    }
    EXPECT_TRUE(open_.empty());
    EXPECT_TRUE(scheduler_.flush_prefix_cache());
    EXPECT_EQ(scheduler_.pool().num_free(), config_.num_pages);
  }

  int64_t num_preemptions() const { return scheduler_.num_preemptions(); }
  int64_t num_finished = 0;
  int64_t num_cached_tokens = 0;
  int64_t num_accepted_drafts = 0;
  int64_t num_accepted_branches = 0;

 private:
  struct Expected {
    std::vector<TokenId> prompt;
    int32_t max_new_tokens;
  };

  int32_t between(int32_t lowest, int32_t highest) {
    return lowest + static_cast<int32_t>(random_() % static_cast<unsigned>(highest - lowest + 1));
  }

  SchedulerConfig random_config() {
    SchedulerConfig config;
    config.page_size = 1 << between(0, 4);
    config.num_pages = between(80, 400) / config.page_size + 2;
    config.chunked_prefill_size = between(1, 64);
    config.max_running_requests = between(1, 12);
    config.enable_prefix_cache = between(0, 4) != 0;
    config.max_drafts = between(0, 1) * between(1, 8);
    return config;
  }

  int32_t max_tokens() const { return config_.num_pages * config_.page_size; }

  void submit() {
    auto sequence = std::make_unique<Sequence>();
    const uint64_t id = ++last_id_;
    // Prompts from few beginnings, so that prefixes are shared.
    std::mt19937 prefix(random_() % 5);
    const int32_t shared = between(0, 40);
    for (int32_t i = 0; i < shared; ++i) {
      sequence->tokens.push_back(static_cast<TokenId>(prefix() % FakeModel::kVocabSize));
    }
    for (int32_t i = between(1, 20); i > 0; --i) {
      sequence->tokens.push_back(static_cast<TokenId>(random_() % FakeModel::kVocabSize));
    }
    if (static_cast<int32_t>(sequence->tokens.size()) >= max_tokens()) return;
    sequence->request.id = id;
    sequence->request.prompt = sequence->tokens;
    sequence->request.return_prompt_logprob = between(0, 9) == 0;
    open_[id] = {sequence->tokens, between(1, 40)};
    scheduler_.add(std::move(sequence));
  }

  void cancel() {
    auto chosen = open_.begin();
    std::advance(chosen, static_cast<int64_t>(random_() % open_.size()));
    const auto removed = scheduler_.remove(chosen->first);
    ASSERT_NE(removed, nullptr);
    EXPECT_TRUE(removed->pages.empty());
    EXPECT_EQ(removed->state_slot, -1);
    open_.erase(chosen);
  }

  void step() {
    draft();
    const auto scheduled = scheduler_.schedule();
    ASSERT_FALSE(scheduled.empty()) << "work is left, but nothing is scheduled";
    check_batch(scheduled);
    const Matrix<const float> logits = model_.forward(scheduler_.batch());
    scheduler_.commit();
    for (const ScheduledSequence& entry : scheduled) {
      if (entry.samples) take_tokens(entry, logits);
    }
  }

  void take_tokens(const ScheduledSequence& entry, Matrix<const float> logits) {
    Sequence& sequence = *entry.sequence;
    const DraftTree drafts = std::exchange(sequence.drafts, {});
    const int32_t first = entry.first_logit + entry.num_logits - 1 - entry.num_drafts;
    for (int32_t node = DraftTree::kRoot;;) {
      const float* row = logits.row(first + 1 + node);
      const auto token = static_cast<TokenId>(std::max_element(row, row + logits.cols) - row);
      ASSERT_EQ(token, FakeModel::next_token(sequence.tokens));
      sequence.tokens.push_back(token);
      const uint64_t id = sequence.request.id;
      if (sequence.num_output() >= open_.at(id).max_new_tokens ||
          sequence.num_tokens() >= max_tokens()) {
        num_cached_tokens += sequence.num_cached;
        ASSERT_NE(scheduler_.finish(sequence), nullptr);
        open_.erase(id);
        ++num_finished;
        return;
      }
      const auto child = drafts.find_child(node, token);
      if (!child) return scheduler_.release_branches(sequence);
      node = *child;
      scheduler_.accept_draft(sequence, drafts, node);
      ++num_accepted_drafts;
      num_accepted_branches += drafts.begins_branch(node) ? 1 : 0;
    }
  }

  // Right guesses up to a random place, wrong ones from there on, and other branches, of which
  // some go on rightly.
  void draft() {
    for (const auto& sequence : scheduler_.running()) {
      sequence->drafts.clear();
      if (!sequence->decoding() || !sequence->next_is_generated()) continue;
      std::vector<TokenId> context = sequence->tokens;
      const int32_t room = max_tokens() - sequence->num_tokens() - 1;
      const int32_t count =
          scheduler_.reserve_drafts(*sequence, std::min(room, between(0, config_.max_drafts)));
      const int32_t right = between(0, config_.max_drafts);
      for (int32_t i = 0; i < count; ++i) {
        const TokenId next = FakeModel::next_token(context);
        context.push_back(i < right ? next
                                    : static_cast<TokenId>(random_() % FakeModel::kVocabSize));
        sequence->drafts.append(context.back());
      }
      for (int32_t i = between(0, 1) * between(0, count); i > 0; --i) add_branch(*sequence, count);
      scheduler_.reserve_branches(*sequence);
      copy_pages(*sequence);
    }
  }

  // From the last node or one of its ancestors on.
  void add_branch(Sequence& sequence, int32_t max_depth) {
    DraftTree& drafts = sequence.drafts;
    int32_t parent = drafts.size() - 1;
    for (int32_t up = between(1, max_depth); up > 0 && parent != DraftTree::kRoot; --up) {
      parent = drafts.parent(parent);
    }
    std::vector<TokenId> path;
    for (int32_t node = parent; node != DraftTree::kRoot; node = drafts.parent(node)) {
      path.push_back(drafts.token(node));
    }
    std::vector<TokenId> context = sequence.tokens;
    context.insert(context.end(), path.rbegin(), path.rend());
    for (int32_t i = between(1, max_depth); i > 0 && drafts.depth(parent) < max_depth; --i) {
      context.push_back(FakeModel::next_token(context));
      drafts.add(context.back(), parent);
      parent = drafts.size() - 1;
    }
  }

  void copy_pages(const Sequence& sequence) {
    const BranchPages& branches = sequence.branch_pages;
    for (int32_t branch = 1; branch < sequence.drafts.num_branches(); ++branch) {
      model_.copy_page(to_index(sequence.pages[static_cast<size_t>(branches.first)]),
                       to_index(branches.of(branch).front()));
    }
  }

  void check_batch(std::span<const ScheduledSequence> scheduled) {
    const Batch batch = scheduler_.batch();
    int32_t prompt_tokens = 0;
    for (const ScheduledSequence& entry : scheduled) {
      EXPECT_GT(entry.num_tokens, 0);
      if (entry.num_drafts == 0 && entry.num_tokens > 1) prompt_tokens += entry.num_tokens;
      if (entry.samples) {
        EXPECT_GT(entry.num_logits, 0);
      }
    }
    check_classes(scheduled);
    EXPECT_LE(prompt_tokens, config_.chunked_prefill_size);
    EXPECT_LE(static_cast<int32_t>(scheduled.size()), config_.max_running_requests);
    size_t index = 0;
    for (const ScheduledSequence& entry : scheduled) {
      const int32_t branches = entry.num_drafts > 0 ? entry.sequence->drafts.num_branches() : 1;
      for (int32_t i = 0; i < branches; ++i) {
        EXPECT_EQ(batch.state_slots[index++], entry.sequence->state_slot);
      }
    }
    EXPECT_EQ(batch.num_seqs(), static_cast<int32_t>(index));
    // Nobody writes to a slot of another, nor to a page that others read.
    std::map<int32_t, int> writers;
    for (int32_t slot : batch.kv_slots) EXPECT_EQ(++writers[slot], 1);
    for (const KvCopy& copy : batch.kv_copies) EXPECT_EQ(++writers[copy.slot], 1);
  }

  // Generated tokens come first, and no share mixes them with tokens of the prompt.
  void check_classes(std::span<const ScheduledSequence> scheduled) {
    int32_t generated = 0;
    bool prompts_began = false;
    for (const ScheduledSequence& entry : scheduled) {
      const Sequence& sequence = *entry.sequence;
      const int32_t end = sequence.num_computed + entry.num_tokens;
      if (sequence.num_computed >= sequence.num_prompt()) {
        EXPECT_FALSE(prompts_began);
        generated += entry.num_tokens;
      } else {
        EXPECT_LE(end, sequence.num_prompt());
        prompts_began = true;
      }
    }
    EXPECT_EQ(scheduler_.batch().num_generated_tokens, generated);
  }

  void check_invariants() {
    std::vector<int32_t> holders(static_cast<size_t>(config_.num_pages), 0);
    std::vector<bool> has_slot(static_cast<size_t>(config_.max_running_requests), false);
    for (const auto& sequence : scheduler_.running()) {
      ASSERT_TRUE(sequence->state_slot >= 0 && sequence->state_slot < config_.max_running_requests);
      EXPECT_FALSE(has_slot[static_cast<size_t>(sequence->state_slot)]) << "two have one slot";
      has_slot[static_cast<size_t>(sequence->state_slot)] = true;
      const int32_t room = static_cast<int32_t>(sequence->pages.size()) * config_.page_size;
      EXPECT_LE(sequence->num_computed, room);
      EXPECT_LE(sequence->num_computed, sequence->num_tokens());
      for (PageId page : sequence->pages) ++holders[static_cast<size_t>(to_index(page))];
    }
    int32_t in_use = 0, held_by_cache = 0;
    for (int32_t i = 0; i < config_.num_pages; ++i) {
      const int32_t count = scheduler_.pool().reference_count(PageId{i});
      const int32_t by_cache = count - holders[static_cast<size_t>(i)];
      EXPECT_TRUE(by_cache == 0 || by_cache == 1) << "page " << i << " leaked or freed early";
      in_use += count > 0;
      held_by_cache += by_cache;
    }
    EXPECT_EQ(held_by_cache, scheduler_.prefix_cache().num_pages());
    EXPECT_EQ(in_use, config_.num_pages - scheduler_.pool().num_free());
    EXPECT_EQ(scheduler_.num_running() + scheduler_.num_waiting(),
              static_cast<int32_t>(open_.size()));
  }

  std::mt19937 random_;
  SchedulerConfig config_;
  Scheduler scheduler_;
  FakeModel model_;
  std::map<uint64_t, Expected> open_;
  uint64_t last_id_ = 0;
};

TEST(SchedulerSimulation, HoldsItsInvariantsUnderRandomLoads) {
  const char* given = std::getenv("TW_SIMULATION_SEED");
  const uint32_t first = given != nullptr ? static_cast<uint32_t>(std::atoi(given)) : 1;
  const uint32_t rounds = given != nullptr ? 1 : 60;
  int64_t finished = 0, preemptions = 0, cached = 0, accepted = 0, branches = 0;
  for (uint32_t seed = first; seed < first + rounds; ++seed) {
    SCOPED_TRACE(::testing::Message() << "TW_SIMULATION_SEED=" << seed);
    Simulation simulation(seed);
    for (int event = 0; event < 2000; ++event) {
      if (!simulation.run_event()) return;
    }
    simulation.drain();
    if (HasFailure()) return;
    finished += simulation.num_finished;
    preemptions += simulation.num_preemptions();
    cached += simulation.num_cached_tokens;
    accepted += simulation.num_accepted_drafts;
    branches += simulation.num_accepted_branches;
  }
  if (given != nullptr) return;
  // The load was one: otherwise the invariants say little.
  EXPECT_GT(finished, 5000);
  EXPECT_GT(preemptions, 500);
  EXPECT_GT(cached, 5000);
  EXPECT_GT(accepted, 5000);
  EXPECT_GT(branches, 500);
}

// A long prompt among many short ones, and short ones behind a long one.
TEST(Scheduler, NeitherLongNorShortPromptsStarve) {
  SchedulerConfig config;
  config.num_pages = 1000;
  config.page_size = 16;
  config.chunked_prefill_size = 64;
  config.max_running_requests = 16;
  config.enable_prefix_cache = false;
  Scheduler scheduler(config);
  const auto add = [&](uint64_t id, int32_t length) {
    auto sequence = std::make_unique<Sequence>();
    sequence->request.id = id;
    sequence->request.prompt.assign(static_cast<size_t>(length), 1);
    sequence->tokens = sequence->request.prompt;
    scheduler.add(std::move(sequence));
  };
  add(1, 2000);
  for (uint64_t id = 2; id <= 6; ++id) add(id, 30);
  std::map<uint64_t, int> first_token_step;
  for (int step = 1; step <= 80; ++step) {
    for (const ScheduledSequence& entry : scheduler.schedule()) {
      if (entry.samples) first_token_step.try_emplace(entry.sequence->request.id, step);
    }
    std::vector<Sequence*> done;
    for (const auto& sequence : scheduler.running()) {
      if (first_token_step.contains(sequence->request.id)) done.push_back(sequence.get());
    }
    scheduler.commit();
    for (Sequence* sequence : done) scheduler.finish(*sequence);
    // Short ones keep arriving.
    add(100 + static_cast<uint64_t>(step), 30);
  }
  for (uint64_t id = 2; id <= 6; ++id) {
    ASSERT_TRUE(first_token_step.contains(id));
    EXPECT_LE(first_token_step[id], 8);
  }
  ASSERT_TRUE(first_token_step.contains(1)) << "the long prompt starved";
  EXPECT_LE(first_token_step[1], 64);
}

}  // namespace
}  // namespace tw
