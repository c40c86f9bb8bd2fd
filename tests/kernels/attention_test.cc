#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include "kernels/attention_fixture.h"
#include "kernels/vector_rows.h"

namespace tw::kernels {
namespace {

struct AttentionCase {
  const KernelRow<AttentionKernels>* row;
  KvType type;
};

std::vector<AttentionCase> attention_cases() {
  std::vector<AttentionCase> cases;
  for (const KvType type : {KvType::bf16, KvType::fp8_e4m3}) {
    for (const auto* row : machine_rows(attention_kernels(type))) cases.push_back({row, type});
  }
  return cases;
}

class AttentionTest : public testing::TestWithParam<AttentionCase> {
 protected:
  const AttentionKernels& kernels() const { return *GetParam().row->functions; }
  bool is_fp8() const { return GetParam().type == KvType::fp8_e4m3; }

  // With scales where the cache is fp8.
  AttentionProblem make_problem(AttentionShape shape, std::vector<int> lengths, uint32_t seed) {
    shape.layout.type = GetParam().type;
    AttentionProblem problem = attention_problem(shape, std::move(lengths), seed);
    if (is_fp8()) {
      problem.key_scale = 0.5f;
      problem.value_scale = 0.03125f;
    }
    return problem;
  }

  std::vector<float> whole(const AttentionProblem& problem, int num_threads = 1) {
    AttentionRun run(problem, kernels(), num_threads);
    run.whole();
    return run.out();
  }
  std::vector<float> in_pieces(const AttentionProblem& problem, int size, int num_threads = 1) {
    AttentionRun run(problem, kernels(), num_threads);
    run.in_pieces(size);
    return run.out();
  }
};

INSTANTIATE_TEST_SUITE_P(Table, AttentionTest, testing::ValuesIn(attention_cases()),
                         [](const auto& test) { return std::string(test.param.row->name); });

void expect_within_bounds(const AttentionProblem& problem, const std::vector<float>& out) {
  const Reference reference = attention_reference(problem);
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_LE(std::abs(out[i] - reference.out[i]), reference.bound[i])
        << "element " << i << ": " << out[i] << ", expected " << reference.out[i];
  }
}

// Same bits, and no NaN anywhere.
void expect_same(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(a[i], b[i]) << "element " << i;
}

TEST_P(AttentionTest, MatchesReferenceAtPageAndChunkBorders) {
  const AttentionProblem problem =
      make_problem(attention_shape(6, 2, 64), {1, 2, 15, 16, 17, 31, 33, 255, 256, 257, 300}, 1);
  expect_within_bounds(problem, whole(problem));
}

TEST_P(AttentionTest, MatchesReferenceForHeadSizesAndGroups) {
  for (const int head_dim : {8, 24, 64, 72, 80, 96, 128, 256}) {
    for (const int group : {1, 2, 3, 5, 7, 8, 13}) {
      const AttentionProblem problem =
          make_problem(attention_shape(2 * group, 2, head_dim), {37, 5}, 2);
      SCOPED_TRACE(fmt::format("head_dim {}, group {}", head_dim, group));
      expect_within_bounds(problem, whole(problem));
    }
  }
}

TEST_P(AttentionTest, MatchesReferenceWithSlidingWindow) {
  for (const int window : {1, 7, 16, 100, 256, 1000}) {
    AttentionProblem problem = make_problem(attention_shape(4, 2, 64), {530}, 3);
    problem.shape.sliding_window = window;
    SCOPED_TRACE(window);
    const std::vector<float> out = whole(problem);
    expect_within_bounds(problem, out);
    expect_same(out, in_pieces(problem, 48, 3));
  }
}

TEST_P(AttentionTest, MatchesReferenceInPiecesOfTheContext) {
  for (const int chunk : {1, 7, 16, 100, 256, 300, 1000}) {
    AttentionProblem problem = make_problem(attention_shape(4, 2, 64), {530, 40}, 3);
    problem.shape.attention_chunk = chunk;
    SCOPED_TRACE(chunk);
    const std::vector<float> out = whole(problem);
    expect_within_bounds(problem, out);
    expect_same(out, in_pieces(problem, 48, 3));
  }
}

TEST_P(AttentionTest, MatchesReferenceWithSoftCapAndSinks) {
  AttentionProblem problem = make_problem(attention_shape(4, 2, 64), {290, 3}, 4);
  problem.shape.soft_cap = 2.5f;
  problem.sinks = {-3.0f, 0.5f, 4.0f, 100.0f};
  const std::vector<float> out = whole(problem);
  expect_within_bounds(problem, out);
  expect_same(out, in_pieces(problem, 1, 4));
}

TEST_P(AttentionTest, LargePagesGiveTheSameBits) {
  AttentionProblem small = make_problem(attention_shape(6, 2, 64, 16), {300, 70}, 5);
  AttentionProblem large = make_problem(attention_shape(6, 2, 64, 64), {300, 70}, 5);
  expect_same(whole(small), whole(large));
}

// The contract that batching, chunked prefill, prefix reuse and preemption rely on.
TEST_P(AttentionTest, BitsDoNotDependOnHowTheWorkWasCut) {
  const AttentionProblem problem = make_problem(attention_shape(3, 1, 64), {530, 1, 260, 17}, 6);
  const std::vector<float> expected = whole(problem);
  for (const int size : {1, 7, 64, 256, 300}) {
    for (const int num_threads : {1, 2, 5}) {
      SCOPED_TRACE(fmt::format("pieces of {}, {} threads", size, num_threads));
      expect_same(expected, in_pieces(problem, size, num_threads));
    }
  }
  for (const int num_threads : {2, 3, 16, 61}) {
    SCOPED_TRACE(num_threads);
    expect_same(expected, whole(problem, num_threads));
  }
}

TEST_P(AttentionTest, BitsDoNotDependOnTheCompany) {
  const AttentionProblem together = make_problem(attention_shape(8, 1, 128), {40, 290}, 7);
  AttentionProblem alone = together;
  alone.lengths = {40};
  alone.q.resize(static_cast<size_t>(40 * alone.row_size()));
  const std::vector<float> expected = whole(together);
  const std::vector<float> single = whole(alone);
  expect_same({expected.begin(), expected.begin() + static_cast<long>(single.size())}, single);
}

TEST_P(AttentionTest, AgreesWithScalarBitForBit) {
  for (const int head_dim : {64, 72, 128}) {
    AttentionProblem problem = make_problem(attention_shape(15, 3, head_dim), {150, 9}, 8);
    SCOPED_TRACE(head_dim);
    AttentionRun run(problem, is_fp8() ? scalar::kAttentionFp8Kernels : scalar::kAttentionKernels,
                     1);
    run.whole();
    expect_same(run.out(), whole(problem));
  }
}

// A long context of one token is cut over threads; the cut must really happen.
TEST_P(AttentionTest, DecodeSplitsALongContext) {
  const AttentionProblem problem = make_problem(attention_shape(3, 1, 64), {1100}, 9);
  const std::vector<float> expected = whole(problem);
  for (const int num_threads : {2, 3, 40}) {
    AttentionRun run(problem, kernels(), num_threads);
    run.step({{0, 0, 1099}});
    const int64_t before = run.num_merges();
    run.step({{0, 1099, 1100}});
    EXPECT_EQ(run.num_merges(), before + 1);
    expect_same(expected, run.out());
  }
}

// Scores of a few hundred: exponentials would overflow without the maximum, and chunks before the
// largest score vanish.
TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  AttentionProblem problem = make_problem(attention_shape(2, 1, 64), {600}, 10);
  for (float& value : problem.q) value *= 200.0f;
  expect_within_bounds(problem, whole(problem));
}

TEST_P(AttentionTest, NanStaysInItsSequence) {
  AttentionProblem problem = make_problem(attention_shape(4, 2, 64), {20, 300}, 11);
  const std::vector<float> clean = whole(problem);
  problem.v[3] = std::numeric_limits<float>::quiet_NaN();  // of the first sequence
  problem.q[static_cast<size_t>(10 * problem.row_size())] = std::numeric_limits<float>::infinity();
  const std::vector<float> out = whole(problem);
  // e4m3's NaN is read as 480.
  EXPECT_EQ(std::isnan(out[3]), !is_fp8());
  EXPECT_TRUE(std::isnan(out[static_cast<size_t>(10 * problem.row_size())]));
  for (size_t i = static_cast<size_t>(20 * problem.row_size()); i < out.size(); ++i) {
    ASSERT_EQ(out[i], clean[i]);
  }
}

AttentionPlan plan_of(const AttentionShape& shape, const AttentionBatch& batch, int num_threads,
                      std::vector<std::byte>& memory) {
  AttentionLimits limits;
  limits.max_num_tokens = static_cast<int32_t>(batch.positions.size());
  limits.max_num_seqs = batch.num_seqs();
  limits.max_context_len = 1 + *std::max_element(batch.positions.begin(), batch.positions.end());
  limits.num_threads = num_threads;
  memory.resize(attention_plan_size(shape.work(), limits));
  AttentionPlan plan = layout_attention_plan(shape.work(), limits, memory.data());
  build_attention_plan(shape.work(), batch, plan);
  return plan;
}

// Every (token, KV head, chunk up to the token) is done exactly once, whatever the batch.
TEST(AttentionPlanTest, CoversTheWorkOnce) {
  std::mt19937 random(12);
  const auto uniform = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1));
  };
  for (int round = 0; round < 300; ++round) {
    AttentionShape shape = attention_shape(1, 1, 64);
    shape.layout.num_kv_heads = uniform(1, 4);
    shape.num_heads = shape.layout.num_kv_heads * uniform(1, 9);
    if (uniform(0, 3) == 0) shape.sliding_window = uniform(1, 2000);
    if (uniform(0, 3) == 0) shape.attention_chunk = uniform(1, 2000);
    std::vector<int32_t> positions;
    std::vector<int32_t> seq_starts = {0};
    const int num_seqs = uniform(1, 6);
    for (int seq = 0; seq < num_seqs; ++seq) {
      const int first = uniform(0, 1) * uniform(0, 5000);
      const int count = uniform(0, 2) == 0 ? uniform(1, 700) : 1;
      for (int i = 0; i < count; ++i) positions.push_back(first + i);
      seq_starts.push_back(static_cast<int32_t>(positions.size()));
    }
    const AttentionBatch batch = {positions, seq_starts, {}, {}};
    const int num_threads = uniform(1, 50);
    std::vector<std::byte> memory;
    const AttentionPlan plan = plan_of(shape, batch, num_threads, memory);

    std::vector<int> done(positions.size() * static_cast<size_t>(shape.layout.num_kv_heads));
    std::vector<std::pair<int64_t, int64_t>> partials;
    EXPECT_EQ(plan.thread_starts[num_threads], plan.num_items);
    for (int64_t i = 0; i < plan.num_items; ++i) {
      const AttentionItem& item = plan.items[i];
      ASSERT_LT(item.first_chunk, item.last_chunk);
      ASSERT_LE(item.num_tokens * shape.group_size(), kMaxAttentionRows);
      const int64_t chunks = item.last_chunk - item.first_chunk;
      for (int t = 0; t < item.num_tokens; ++t) {
        const int token = item.first_token + t;
        done[static_cast<size_t>(token * shape.layout.num_kv_heads + item.kv_head)] +=
            static_cast<int>(chunks);
      }
      if (item.first_partial >= 0) {
        const int64_t rows = item.num_tokens * shape.group_size();
        partials.push_back({item.first_partial, item.first_partial + chunks * rows});
      }
    }
    for (int rank = 0; rank < num_threads; ++rank) {
      ASSERT_LE(plan.items_of(rank).begin, plan.items_of(rank).end);
    }
    // A block's first token sees no fewer chunks than the rest of the block needs.
    for (size_t token = 0; token < positions.size(); ++token) {
      for (int head = 0; head < shape.layout.num_kv_heads; ++head) {
        const int64_t window = shape.sliding_window > 0 ? shape.sliding_window : 1 << 30;
        const int64_t piece = shape.attention_chunk > 0 ? shape.attention_chunk : 1 << 30;
        const int64_t first = std::max<int64_t>({0, positions[token] + 1 - window,
                                                 positions[token] / piece * piece}) /
                              kAttentionChunk;
        const int64_t last = positions[token] / kAttentionChunk;
        ASSERT_GE(done[token * static_cast<size_t>(shape.layout.num_kv_heads) +
                       static_cast<size_t>(head)],
                  last - first + 1);
      }
    }
    std::sort(partials.begin(), partials.end());
    int64_t end = 0;
    for (const auto& [first, last] : partials) {
      ASSERT_EQ(first, end);
      end = last;
    }
    ASSERT_EQ(end, plan.num_partials);
    ASSERT_LE(plan.num_partials, plan.max_partials);
  }
}

// 32 sequences of equal length in decode: no thread gets more than a chunk and a group above its
// share.
TEST(AttentionPlanTest, BalancesDecode) {
  const AttentionShape shape = attention_shape(9, 3, 64);
  std::vector<int32_t> positions(32, 1999);
  std::vector<int32_t> seq_starts(33);
  std::iota(seq_starts.begin(), seq_starts.end(), 0);
  std::vector<std::byte> memory;
  for (const int num_threads : {2, 7, 43}) {
    const AttentionPlan plan = plan_of(shape, {positions, seq_starts, {}, {}}, num_threads, memory);
    for (int rank = 0; rank < num_threads; ++rank) {
      int64_t chunks = 0;
      const Range items = plan.items_of(rank);
      for (int64_t i = items.begin; i < items.end; ++i) {
        chunks += plan.items[i].last_chunk - plan.items[i].first_chunk;
      }
      EXPECT_NEAR(static_cast<double>(chunks), 32.0 * 3 * 8 / num_threads, 2.0)
          << rank << " of " << num_threads;
    }
  }
}

TEST(AttentionShapeTest, RefusesWhatItCannotDo) {
  EXPECT_TRUE(attention_shape(9, 3, 64).validate());
  EXPECT_FALSE(attention_shape(8, 3, 64).validate());
  EXPECT_FALSE(attention_shape(0, 3, 64).validate());
  EXPECT_FALSE(attention_shape(3, 0, 64).validate());
  EXPECT_FALSE(attention_shape(3, 3, 60).validate());
  EXPECT_FALSE(attention_shape(3, 3, 512).validate());
  EXPECT_FALSE(attention_shape(3, 3, 64, 24).validate());
  EXPECT_FALSE(attention_shape(3, 3, 64, 0).validate());
  EXPECT_FALSE(attention_shape(300, 1, 64).validate());
  const Status page = attention_shape(3, 3, 64, 24).validate();
  EXPECT_NE(page.error().message.find("page_size is 24"), std::string::npos);
  AttentionShape negative_window = attention_shape(3, 3, 64);
  negative_window.sliding_window = -1;
  EXPECT_FALSE(negative_window.validate());
  AttentionShape negative_chunk = attention_shape(3, 3, 64);
  negative_chunk.attention_chunk = -1;
  EXPECT_FALSE(negative_chunk.validate());
}

TEST(AttentionSelectionTest, FollowsTheFeaturesGiven) {
  CpuFeatures features;
  EXPECT_EQ(&select_attention(features, KvType::bf16), &scalar::kAttentionKernels);
  EXPECT_EQ(&select_attention(features, KvType::fp8_e4m3), &scalar::kAttentionFp8Kernels);
  features.avx2 = true;
  EXPECT_EQ(&select_attention(features, KvType::bf16), &avx2::kAttentionKernels);
  EXPECT_EQ(&select_attention(features, KvType::fp8_e4m3), &avx2::kAttentionFp8Kernels);
  features.avx512 = true;
  EXPECT_EQ(&select_attention(features, KvType::bf16), &avx512::kAttentionKernels);
  EXPECT_EQ(&select_attention(features, KvType::fp8_e4m3), &avx512::kAttentionFp8Kernels);
}

}  // namespace
}  // namespace tw::kernels
