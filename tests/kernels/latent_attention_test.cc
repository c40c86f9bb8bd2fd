#include "kernels/attention/latent_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "core/buffer.h"
#include "kernels/vector_rows.h"

namespace tw::kernels {
namespace {

struct LatentProblem {
  LatentAttentionShape shape;
  std::vector<int> lengths;   // of each sequence
  std::vector<float> q;       // [all tokens, num_heads * row_dim]: the rotated part is not set
  std::vector<float> q_rope;  // [all tokens, num_heads * rope_dim]
  std::vector<float> rows;    // [all tokens, row_dim]
  std::vector<int32_t> pages;
  std::vector<int32_t> page_starts = {0};

  int64_t first_token(size_t seq) const {
    return std::accumulate(lengths.begin(), lengths.begin() + static_cast<long>(seq), int64_t{0});
  }
  int64_t num_tokens() const { return first_token(lengths.size()); }
  int64_t q_size() const { return int64_t{shape.num_heads} * shape.layout.row_dim(); }
  int64_t rope_size() const { return int64_t{shape.num_heads} * shape.layout.rope_dim; }
  int64_t out_size() const { return int64_t{shape.num_heads} * shape.layout.latent_dim; }
};

LatentProblem latent_problem(KvType type, int heads, int latent_dim, int rope_dim,
                             std::vector<int> lengths, uint32_t seed) {
  LatentProblem p;
  p.shape.num_heads = heads;
  p.shape.scale = 0.1f;
  p.shape.layout = {latent_dim, rope_dim, 32, 0, type};
  p.lengths = std::move(lengths);
  for (const int length : p.lengths) {
    p.shape.layout.num_pages += (length + 31) / 32;
    p.page_starts.push_back(static_cast<int32_t>(p.shape.layout.num_pages));
  }
  p.pages.resize(static_cast<size_t>(p.shape.layout.num_pages));
  std::iota(p.pages.begin(), p.pages.end(), 0);
  std::mt19937 random(seed);
  std::shuffle(p.pages.begin(), p.pages.end(), random);
  p.q = random_floats(p.num_tokens() * p.q_size(), seed + 1);
  p.q_rope = random_floats(p.num_tokens() * p.rope_size(), seed + 2);
  p.rows = random_floats(p.num_tokens() * p.shape.layout.row_dim(), seed + 3);
  return p;
}

// No rotation: what store() rotates is checked apart.
struct NoRotation {
  std::vector<float> cos, sin;
  explicit NoRotation(int rope_dim)
      : cos(static_cast<size_t>(2048 * rope_dim / 2), 1.0f), sin(cos.size(), 0.0f) {}
  RopeView view(int rope_dim) const { return {cos.data(), sin.data(), rope_dim}; }
};

// The cache of one layer; what is not stored yet is NaN.
class LatentRun {
 public:
  LatentRun(const LatentProblem& problem, const LatentAttentionKernels& kernels, int num_threads)
      : p_(problem),
        kernels_(kernels),
        num_threads_(num_threads),
        rotation_(problem.shape.layout.rope_dim),
        out_(static_cast<size_t>(problem.num_tokens() * problem.out_size())) {
    const LatentLayout& layout = problem.shape.layout;
    auto buffer = Buffer::allocate(
        static_cast<size_t>(layout.num_pages * layout.page_size * layout.bytes_per_token()));
    TW_CHECK(buffer.has_value());
    std::memset(buffer->data(), 0xff, buffer->size());
    cache_ = std::move(*buffer);
  }

  // Tokens [begin, end) of every sequence as one batch.
  void step(int begin, int end) {
    std::vector<int32_t> positions, starts = {0}, pages, page_starts = {0}, slots;
    std::vector<int64_t> tokens;
    for (size_t seq = 0; seq < p_.lengths.size(); ++seq) {
      const int last = std::min(end, p_.lengths[seq]);
      if (begin >= last) continue;
      const int32_t* table = p_.pages.data() + p_.page_starts[seq];
      for (int i = begin; i < last; ++i) {
        positions.push_back(i);
        slots.push_back(table[i / 32] * 32 + i % 32);
        tokens.push_back(p_.first_token(seq) + i);
      }
      starts.push_back(static_cast<int32_t>(positions.size()));
      pages.insert(pages.end(), table, table + (last + 31) / 32);
      page_starts.push_back(static_cast<int32_t>(pages.size()));
    }
    const auto n = static_cast<int64_t>(tokens.size());
    if (n == 0) return;
    const LatentLayout& layout = p_.shape.layout;
    std::vector<float> q = gather(p_.q, tokens, p_.q_size());
    const std::vector<float> q_rope = gather(p_.q_rope, tokens, p_.rope_size());
    const std::vector<float> rows = gather(p_.rows, tokens, layout.row_dim());
    LatentStoreArguments store;
    store.rope = rotation_.view(layout.rope_dim);
    store.layout = layout;
    store.num_heads = p_.shape.num_heads;
    store.q_rope = dense_matrix(q_rope.data(), n, p_.rope_size());
    store.rope_stride = layout.rope_dim;
    store.q = dense_matrix(q.data(), n, p_.q_size());
    store.latent = {rows.data(), n, layout.latent_dim, layout.row_dim()};
    store.k_rope = {rows.data() + layout.latent_dim, n, layout.rope_dim, layout.row_dim()};
    store.positions = positions.data();
    store.kv_slots = slots.data();
    store.rows = cache_.data();
    kernels_.store(store, {0, n});

    const AttentionWork work = p_.shape.work();
    const AttentionLimits limits = {static_cast<int32_t>(n), static_cast<int32_t>(starts.size()),
                                    *std::max_element(p_.lengths.begin(), p_.lengths.end()),
                                    num_threads_};
    std::vector<std::byte> memory(attention_plan_size(work, limits));
    AttentionPlan plan = layout_attention_plan(work, limits, memory.data());
    const AttentionBatch batch = {positions, starts, pages, page_starts};
    build_attention_plan(work, batch, plan);
    merges_ += plan.num_merges;
    std::vector<float> partials(attention_partials_size(work, limits) / sizeof(float));
    std::vector<float> out(static_cast<size_t>(n * p_.out_size()));
    LatentAttentionArguments a;
    a.shape = p_.shape;
    a.batch = batch;
    a.plan = &plan;
    a.q = dense_matrix<const float>(q.data(), n, p_.q_size());
    a.out = dense_matrix(out.data(), n, p_.out_size());
    a.rows = cache_.data();
    a.partials = partials.data();
    for (int rank = num_threads_ - 1; rank >= 0; --rank) kernels_.attend(a, plan.items_of(rank));
    for (int rank = num_threads_ - 1; rank >= 0; --rank) {
      kernels_.merge(a, partition(n, rank, num_threads_));
    }
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::copy_n(out.begin() + static_cast<long>(i) * p_.out_size(), p_.out_size(),
                  out_.begin() + tokens[i] * p_.out_size());
    }
  }

  std::vector<float> in_pieces(int size) {
    const int longest = *std::max_element(p_.lengths.begin(), p_.lengths.end());
    for (int begin = 0; begin < longest; begin += size) step(begin, begin + size);
    return out_;
  }
  const std::vector<float>& out() const { return out_; }
  int64_t merges() const { return merges_; }

 private:
  static std::vector<float> gather(const std::vector<float>& all,
                                   const std::vector<int64_t>& tokens, int64_t size) {
    std::vector<float> result;
    for (const int64_t token : tokens) {
      result.insert(result.end(), all.begin() + token * size, all.begin() + (token + 1) * size);
    }
    return result;
  }

  const LatentProblem& p_;
  const LatentAttentionKernels& kernels_;
  int num_threads_;
  NoRotation rotation_;
  Buffer cache_;
  std::vector<float> out_;
  int64_t merges_ = 0;
};

// In double precision, from the rows as the cache holds them; the bound is that of
// attention_fixture.h.
void expect_within_bounds(const LatentProblem& p, const std::vector<float>& out) {
  const LatentLayout& layout = p.shape.layout;
  const auto stored = [&](float x) {
    return layout.type == KvType::bf16 ? double{to_float(to_bf16(x))}
                                       : double{to_float(to_f8_e4m3(x))};
  };
  const int row_dim = layout.row_dim();
  for (size_t seq = 0; seq < p.lengths.size(); ++seq) {
    const int64_t base = p.first_token(seq);
    for (int i = 0; i < p.lengths[seq]; ++i) {
      for (int head = 0; head < p.shape.num_heads; ++head) {
        const float* q = &p.q[static_cast<size_t>((base + i) * p.q_size() + head * row_dim)];
        const float* q_rope =
            &p.q_rope[static_cast<size_t>((base + i) * p.rope_size() + head * layout.rope_dim)];
        std::vector<double> scores;
        double magnitude = 0;
        for (int j = 0; j <= i; ++j) {
          const float* row = &p.rows[static_cast<size_t>((base + j) * row_dim)];
          double score = 0, sum = 0;
          for (int d = 0; d < row_dim; ++d) {
            const double x = d < layout.latent_dim ? q[d] : q_rope[d - layout.latent_dim];
            score += x * stored(row[d]);
            sum += std::abs(x * stored(row[d]));
          }
          scores.push_back(score * p.shape.scale);
          magnitude = std::max(magnitude, sum * p.shape.scale);
        }
        const double maximum = *std::max_element(scores.begin(), scores.end());
        double sum = 0, largest = 0;
        std::vector<double> expected(static_cast<size_t>(layout.latent_dim));
        for (int j = 0; j <= i; ++j) {
          const float* row = &p.rows[static_cast<size_t>((base + j) * row_dim)];
          const double weight = std::exp(scores[static_cast<size_t>(j)] - maximum);
          sum += weight;
          for (size_t d = 0; d < expected.size(); ++d) {
            expected[d] += weight * stored(row[d]);
            largest = std::max(largest, std::abs(stored(row[d])));
          }
        }
        const double bound =
            2 * largest * ((row_dim + 2) * 0x1p-24 * magnitude + 8 * 0x1p-23 + (i + 1) * 0x1p-24);
        for (size_t d = 0; d < expected.size(); ++d) {
          const auto at = static_cast<size_t>((base + i) * p.out_size()) +
                          static_cast<size_t>(head) * expected.size() + d;
          ASSERT_NEAR(out[at], expected[d] / sum, bound) << "token " << i << ", head " << head;
        }
      }
    }
  }
}

struct LatentCase {
  const KernelRow<LatentAttentionKernels>* row;
  KvType type;
};

std::vector<LatentCase> latent_cases() {
  std::vector<LatentCase> cases;
  for (const KvType type : {KvType::bf16, KvType::fp8_e4m3}) {
    for (const auto* row : machine_rows(latent_attention_kernels(type))) {
      cases.push_back({row, type});
    }
  }
  return cases;
}

class LatentAttentionTest : public testing::TestWithParam<LatentCase> {
 protected:
  const LatentAttentionKernels& kernels() const { return *GetParam().row->functions; }
  std::vector<float> run(const LatentProblem& problem, int piece, int threads) {
    return LatentRun(problem, kernels(), threads).in_pieces(piece);
  }
};

INSTANTIATE_TEST_SUITE_P(Table, LatentAttentionTest, testing::ValuesIn(latent_cases()),
                         [](const auto& test) { return std::string(test.param.row->name); });

TEST_P(LatentAttentionTest, MatchesReference) {
  for (const auto& [heads, latent_dim, rope_dim] :
       {std::tuple{1, 32, 32}, {5, 64, 32}, {3, 512, 64}, {16, 128, 64}, {70, 96, 32}}) {
    SCOPED_TRACE(testing::Message() << heads << " heads, " << latent_dim << " + " << rope_dim);
    const LatentProblem p =
        latent_problem(GetParam().type, heads, latent_dim, rope_dim, {37, 1}, 1);
    expect_within_bounds(p, run(p, 1000, 1));
  }
  const LatentProblem longer = latent_problem(GetParam().type, 2, 64, 32, {257, 300, 16}, 2);
  expect_within_bounds(longer, run(longer, 1000, 1));
}

TEST_P(LatentAttentionTest, BitsDoNotDependOnHowTheWorkWasCut) {
  const LatentProblem p = latent_problem(GetParam().type, 6, 64, 32, {530, 1, 260, 17}, 3);
  const std::vector<float> expected = run(p, 1000, 1);
  for (const auto& [piece, threads] : {std::pair{1, 1}, {7, 2}, {64, 3}, {256, 5}, {1000, 16}}) {
    SCOPED_TRACE(testing::Message() << "pieces of " << piece << ", " << threads << " threads");
    const std::vector<float> out = run(p, piece, threads);
    ASSERT_TRUE(std::equal(out.begin(), out.end(), expected.begin()));
  }
}

TEST_P(LatentAttentionTest, DecodeSplitsALongContext) {
  const LatentProblem p = latent_problem(GetParam().type, 16, 32, 32, {600}, 4);
  LatentRun whole(p, kernels(), 1), split(p, kernels(), 7);
  whole.step(0, 599);
  split.step(0, 599);
  const int64_t before = split.merges();
  whole.step(599, 600);
  split.step(599, 600);
  EXPECT_GT(split.merges(), before);
  EXPECT_EQ(whole.out(), split.out());
}

TEST_P(LatentAttentionTest, AgreesWithScalarBitForBit) {
  const auto& scalar_kernels = GetParam().type == KvType::bf16 ? scalar::kLatentAttentionKernels
                                                               : scalar::kLatentAttentionFp8Kernels;
  for (const int latent_dim : {32, 160, 512}) {
    const LatentProblem p = latent_problem(GetParam().type, 13, latent_dim, 64, {40, 9}, 5);
    EXPECT_EQ(LatentRun(p, scalar_kernels, 1).in_pieces(1000), run(p, 1000, 1));
  }
}

// Both pairings of dimensions, against a rotation in double precision.
TEST_P(LatentAttentionTest, StoresRotatedRows) {
  constexpr int kLatent = 32, kRope = 32, kHeads = 3, kStride = 50;
  LatentStoreArguments a;
  a.layout = {kLatent, kRope, 16, 4, GetParam().type};
  a.num_heads = kHeads;
  a.rope_stride = kStride;
  std::vector<float> cosines, sines;
  for (int i = 0; i < 8 * kRope / 2; ++i) {
    cosines.push_back(static_cast<float>(std::cos(0.1 * i)));
    sines.push_back(static_cast<float>(std::sin(0.1 * i)));
  }
  a.rope = {cosines.data(), sines.data(), kRope};
  const std::vector<int32_t> positions = {5, 2}, slots = {37, -1};
  const auto q_rope = random_floats(2 * kHeads * kStride, 1);
  const auto latent = random_floats(2 * kLatent, 2);
  const auto k_rope = random_floats(2 * kRope, 3);
  a.q_rope = dense_matrix(q_rope.data(), 2, kHeads * kStride);
  a.latent = dense_matrix(latent.data(), 2, kLatent);
  a.k_rope = dense_matrix(k_rope.data(), 2, kRope);
  a.positions = positions.data();
  a.kv_slots = slots.data();
  for (const bool interleaved : {false, true}) {
    a.interleaved = interleaved;
    std::vector<float> q(2 * kHeads * (kLatent + kRope), 7.0f);
    std::vector<std::byte> rows(static_cast<size_t>(64 * a.layout.bytes_per_token()),
                                std::byte{0x42});
    a.q = dense_matrix(q.data(), 2, kHeads * (kLatent + kRope));
    a.rows = rows.data();
    kernels().store(a, {0, 2});
    const auto rotated = [&](const float* x, int d, int position) {
      const int i = d % (kRope / 2);
      const double first = interleaved ? x[2 * i] : x[i];
      const double second = interleaved ? x[2 * i + 1] : x[i + kRope / 2];
      const double c = cosines[static_cast<size_t>(position * kRope / 2 + i)];
      const double s = sines[static_cast<size_t>(position * kRope / 2 + i)];
      return d < kRope / 2 ? first * c - second * s : second * c + first * s;
    };
    for (int token = 0; token < 2; ++token) {
      for (int head = 0; head < kHeads; ++head) {
        const float* at = &q[static_cast<size_t>((token * kHeads + head) * (kLatent + kRope))];
        for (int d = 0; d < kLatent; ++d) ASSERT_EQ(at[d], 7.0f);
        for (int d = 0; d < kRope; ++d) {
          const float* x = &q_rope[static_cast<size_t>((token * kHeads + head) * kStride)];
          ASSERT_NEAR(at[kLatent + d], rotated(x, d, positions[static_cast<size_t>(token)]), 1e-6);
        }
      }
    }
    const auto read = [&](int i) {
      const auto at = static_cast<size_t>(37 * (kLatent + kRope) + i);
      if (GetParam().type == KvType::bf16) {
        return to_float(reinterpret_cast<const bf16_t*>(rows.data())[at]);
      }
      return to_float(reinterpret_cast<const f8_e4m3_t*>(rows.data())[at]);
    };
    const double relative = GetParam().type == KvType::bf16 ? 0x1p-8 : 0x1p-4;
    for (int i = 0; i < kLatent + kRope; ++i) {
      const double exact =
          i < kLatent ? latent[static_cast<size_t>(i)] : rotated(k_rope.data(), i - kLatent, 5);
      ASSERT_NEAR(read(i), exact, std::abs(exact) * relative + 0x1p-9);
    }
    const auto written = static_cast<int64_t>(
        std::count_if(rows.begin(), rows.end(), [](std::byte b) { return b != std::byte{0x42}; }));
    EXPECT_LE(written, a.layout.bytes_per_token());
  }
}

TEST(LatentAttentionShapeTest, RefusesWhatItCannotDo) {
  const auto shape = [](int heads, int latent, int rope) {
    return LatentAttentionShape{heads, {latent, rope, 16, 1}, 1.0f};
  };
  EXPECT_TRUE(shape(128, 512, 64).validate());
  EXPECT_FALSE(shape(0, 512, 64).validate());
  EXPECT_FALSE(shape(4, 520, 64).validate());
  EXPECT_FALSE(shape(4, 576, 64).validate());
  EXPECT_FALSE(shape(4, 512, 128).validate());
  const Status rank = shape(4, 100, 64).validate();
  EXPECT_NE(rank.error().message.find("kv_lora_rank is 100"), std::string::npos);
}

}  // namespace
}  // namespace tw::kernels
