// Several hosts, which are threads here, compute what one does with as many ranks: the same bits,
// for each kind of block. And what happens when a host hangs.
#include "models/host_parallel.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "models/forward_runner.h"
#include "models/host_messages.h"
#include "models/parallel_model.h"
#include "models/real_model.h"
#include "models/test_name.h"
#include "parallel/host_traffic.h"
#include "parallel/hosts_in_memory.h"

namespace tw {
namespace {

using testing_support::ForwardRunner;
using testing_support::HostsInMemory;
using testing_support::some_tokens;
using testing_support::test_model;

// A host's part of a model and what it needs to live.
struct Host {
  std::unique_ptr<HostLink> link;
  TeamGroup teams;
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Model> model;

  // `hosts`: null where this is the only one.
  Host(HostsInMemory* hosts, int host, const std::string& name, int num_ranks, int num_groups = 1)
      : teams(std::vector<int>(static_cast<size_t>(num_ranks), 1)) {
    if (hosts != nullptr) link = hosts->link(host);
    auto opened = Checkpoint::open(test_model(name));
    EXPECT_TRUE(opened) << (opened ? "" : opened.error().message);
    checkpoint = std::move(*opened);
    WeightLoader loader(*checkpoint, teams.team(0),
                        {*usable_cpu_features(), kernels::ActivationPrecision::f32});
    loader.experts.num_groups = num_groups;
    auto loaded = load_model(loader, teams, link.get());
    EXPECT_TRUE(loaded) << (loaded ? "" : loaded.error().message);
    if (loaded) model = std::move(*loaded);
  }
};

constexpr int32_t kContext = 64, kChunk = 32;

std::vector<float> logits_of(Host& first) {
  return ForwardRunner(*first.model, kContext, kChunk).run(some_tokens(60));
}

// The other hosts' threads end when the first stops.
std::vector<float> logits_of_hosts(const std::string& name, int num_hosts, int ranks_per_host,
                                   int num_groups) {
  HostsInMemory memory(num_hosts);
  std::vector<std::thread> others;
  for (int index = 1; index < num_hosts; ++index) {
    others.emplace_back([&, index] {
      Host host(&memory, index, name, ranks_per_host, num_groups);
      const int32_t pages = kContext / ForwardRunner::kPageSize;
      Status status = host.model->prepare(pages, ForwardRunner::kPageSize, kChunk, 1);
      if (status) status = host.model->follow();
      EXPECT_TRUE(status) << (status ? "" : status.error().message);
    });
  }
  std::vector<float> logits;
  {
    Host first(&memory, 0, name, ranks_per_host, num_groups);
    logits = logits_of(first);
    EXPECT_TRUE(first.model->health());
    EXPECT_TRUE(first.model->keep_alive());
  }
  for (std::thread& other : others) other.join();
  return logits;
}

class HostParallel : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(test_model(GetParam()))) GTEST_SKIP() << GetParam();
  }
  static std::vector<float> expected(int num_ranks, int num_groups = 1) {
    Host alone(nullptr, 0, GetParam(), num_ranks, num_groups);
    return logits_of(alone);
  }
};

TEST_P(HostParallel, ComputesTheBitsOfOneHost) {
  EXPECT_EQ(logits_of_hosts(GetParam(), 2, 1, 1), expected(2));
  EXPECT_EQ(logits_of_hosts(GetParam(), 2, 2, 1), expected(4));
  EXPECT_EQ(logits_of_hosts(GetParam(), 3, 1, 1), expected(3));
}

INSTANTIATE_TEST_SUITE_P(Kinds, HostParallel,
                         ::testing::Values("tiny-llama3", "tiny-mixtral", "tiny-deepseek-v3",
                                           "tiny-gpt-oss"),
                         testing_support::NamedByParameter());

TEST(HostParallelExperts, OfHostsAreWhole) {
  if (!std::filesystem::exists(test_model("tiny-mixtral"))) GTEST_SKIP() << "tiny-mixtral";
  Host alone(nullptr, 0, "tiny-mixtral", 4, 2);
  EXPECT_EQ(logits_of_hosts("tiny-mixtral", 2, 2, 2), logits_of(alone));
}

// What `tilewright plan` predicts: sums behind the embedding and two blocks of each of the layers.
TEST(HostParallelTraffic, IsThatOfTheSums) {
  if (!std::filesystem::exists(test_model("tiny-llama3"))) GTEST_SKIP() << "tiny-llama3";
  HostsInMemory memory(2);
  HostTraffic sent;
  int64_t num_sums = 0, hidden_size = 0, vocab_size = 0;
  std::thread other([&] {
    Host host(&memory, 1, "tiny-llama3", 1);
    num_sums = 2 * host.checkpoint->config().value("num_hidden_layers", int64_t{0}) + 1;
    hidden_size = host.model->limits().hidden_size;
    vocab_size = host.model->limits().vocab_size;
    EXPECT_TRUE(host.model->prepare(4, ForwardRunner::kPageSize, kChunk, 1));
    const HostTraffic before = host.link->traffic();
    EXPECT_TRUE(host.model->follow());
    sent = host.link->traffic();
    sent.messages -= before.messages;
    sent.bytes -= before.bytes;
  });
  {
    Host first(&memory, 0, "tiny-llama3", 1);
    ForwardRunner(*first.model, kContext, kChunk).run(some_tokens(20));
  }
  other.join();
  const HostTraffic each = all_reduce_traffic(2, 1, 20 * hidden_size);
  EXPECT_EQ(sent.messages, num_sums * each.messages + 1);
  // And its part of the logits.
  const int64_t columns = make_tensor_shards({1, 1})[1].share(vocab_size, 16).size();
  EXPECT_EQ(sent.bytes, num_sums * each.bytes + 20 * columns * 4);
}

// Longer than the part of a message that is always sent.
TEST(HostMessages, CarryBatchesOfAnySize) {
  HostsInMemory memory(2);
  const auto link = memory.link(0), other = memory.link(1);
  HostMessages sender(*link), receiver(*other);
  for (const size_t num_pages : {size_t{1}, size_t{20000}, size_t{3}}) {
    const std::vector<int32_t> pages = some_tokens(num_pages), tokens = {5, 6}, starts = {0, 2};
    Batch batch;
    batch.token_ids = batch.positions = batch.kv_slots = tokens;
    batch.seq_starts = starts;
    batch.page_tables = pages;
    batch.num_generated_tokens = 2;
    ASSERT_TRUE(sender.send(HostCommand::step, batch));
    const auto command = receiver.receive();
    ASSERT_TRUE(command);
    EXPECT_EQ(*command, HostCommand::step);
    const Batch received = receiver.batch();
    EXPECT_TRUE(std::ranges::equal(received.page_tables, pages));
    EXPECT_TRUE(std::ranges::equal(received.token_ids, tokens));
    EXPECT_TRUE(std::ranges::equal(received.seq_starts, starts));
    EXPECT_EQ(received.num_generated_tokens, 2);
    EXPECT_EQ(received.num_states(), 0);
  }
}

// Two hosts with an engine; the second can be made to hang.
class HostFailure : public ::testing::Test {
 protected:
  static constexpr std::chrono::milliseconds kLong{60000};

  void start(std::chrono::milliseconds timeout) {
    config_.max_total_tokens = 1024;
    other_ = std::thread([this] {
      Host host(&memory_, 1, "tiny-llama3", 1);
      host.link->set_step_timeout(kLong);
      status_of_other_ = Engine::follow(std::move(host.model), config_);
    });
    first_ = std::make_unique<Host>(&memory_, 0, "tiny-llama3", 1);
    first_->link->set_step_timeout(timeout);
    auto engine = Engine::create(std::move(first_->model), config_);
    ASSERT_TRUE(engine) << engine.error().message;
    engine_ = std::move(*engine);
  }

  void SetUp() override {
    if (!std::filesystem::exists(test_model("tiny-llama3"))) GTEST_SKIP() << "tiny-llama3";
  }
  void TearDown() override {
    engine_.reset();
    if (!other_.joinable()) return;
    memory_.close();
    other_.join();
  }

  EngineConfig config_;
  HostsInMemory memory_{2};
  std::thread other_;
  Status status_of_other_;
  std::unique_ptr<Host> first_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(HostFailure, NoneWhenTheFirstStops) {
  start(kLong);
  EXPECT_EQ(testing_support::greedy(*engine_, {some_tokens(20)}, 4).front().size(), 4u);
  EXPECT_TRUE(engine_->failure());
  engine_.reset();
  other_.join();
  EXPECT_TRUE(status_of_other_) << status_of_other_.error().message;
}

TEST_F(HostFailure, EndsRequestsWithItsCause) {
  start(std::chrono::milliseconds(300));
  std::promise<void> began, heard;
  std::promise<Error> ended;
  engine_->on_failure([&] { heard.set_value(); });
  Request request;
  request.prompt = some_tokens(20);
  request.sampling.max_new_tokens = 900;
  request.sampling.ignore_eos = true;
  request.sink = [&, first = true](EngineOutput&& output) mutable {
    if (std::exchange(first, false)) began.set_value();
    if (output.finish_reason == FinishReason::none) return;
    ended.set_value(output.error.value_or(Error{ErrorCode::internal, "no error"}));
  };
  ASSERT_TRUE(engine_->submit(request));
  began.get_future().wait();
  memory_.silence(1);
  const Error error = ended.get_future().get();
  EXPECT_EQ(error.code, ErrorCode::unavailable);
  EXPECT_EQ(error.message, "host 1 has not answered");
  heard.get_future().wait();
  const auto refused = engine_->submit(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "host 1 has not answered");
  EXPECT_FALSE(engine_->failure());
}

TEST_F(HostFailure, IsNoticedWithoutRequests) {
  start(std::chrono::milliseconds(300));
  std::promise<void> heard;
  memory_.silence(1);
  engine_->on_failure([&] { heard.set_value(); });
  EXPECT_EQ(heard.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_FALSE(engine_->failure());
}

}  // namespace
}  // namespace tw
