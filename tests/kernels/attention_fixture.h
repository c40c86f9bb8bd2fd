// Sequences with random queries, keys and values over a cache of shuffled pages; attention of them
// step by step, and a reference in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "core/buffer.h"
#include "core/check.h"
#include "kernels/attention/attention.h"
#include "kernels/rope/rope.h"

namespace tw::kernels {

struct AttentionProblem {
  AttentionShape shape;
  std::vector<int> lengths;                    // of each sequence
  std::vector<float> q;                        // [all tokens, num_heads * head_dim]
  std::vector<float> k;                        // [all tokens, num_kv_heads * head_dim]
  std::vector<float> v;                        // [all tokens, num_kv_heads * head_dim]
  std::vector<float> sinks;                    // empty or [num_heads]
  float key_scale = 1.0f, value_scale = 1.0f;  // of the cache
  std::vector<int32_t> page_tables;
  std::vector<int32_t> page_table_starts;
  int64_t num_pages = 0;

  int64_t first_token(size_t seq) const {
    return std::accumulate(lengths.begin(), lengths.begin() + static_cast<long>(seq), int64_t{0});
  }
  int64_t num_tokens() const { return first_token(lengths.size()); }
  int64_t row_size() const { return int64_t{shape.num_heads} * shape.layout.head_dim; }
  int64_t kv_row_size() const { return int64_t{shape.layout.num_kv_heads} * shape.layout.head_dim; }
};

inline AttentionShape attention_shape(int heads, int kv_heads, int head_dim, int page_size = 16) {
  AttentionShape shape;
  shape.num_heads = heads;
  shape.layout = {kv_heads, head_dim, page_size, 1};
  shape.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  return shape;
}

inline AttentionProblem attention_problem(const AttentionShape& shape, std::vector<int> lengths,
                                          uint32_t seed) {
  AttentionProblem problem;
  problem.shape = shape;
  problem.lengths = std::move(lengths);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<float>& values, int64_t size) {
    values.resize(static_cast<size_t>(size));
    for (float& value : values) value = normal(random);
  };
  fill(problem.q, problem.num_tokens() * problem.row_size());
  fill(problem.k, problem.num_tokens() * problem.kv_row_size());
  fill(problem.v, problem.num_tokens() * problem.kv_row_size());

  problem.page_table_starts.push_back(0);
  for (const int length : problem.lengths) {
    problem.num_pages += (length + shape.layout.page_size - 1) / shape.layout.page_size;
    problem.page_table_starts.push_back(static_cast<int32_t>(problem.num_pages));
  }
  problem.page_tables.resize(static_cast<size_t>(problem.num_pages));
  std::iota(problem.page_tables.begin(), problem.page_tables.end(), 0);
  problem.shape.layout.num_pages = problem.num_pages;
  std::shuffle(problem.page_tables.begin(), problem.page_tables.end(), random);
  return problem;
}

// Tokens [begin, end) of a sequence.
struct Piece {
  size_t seq;
  int begin;
  int end;
};
using Step = std::vector<Piece>;

// The cache of one layer. Everything not stored yet is NaN: a kernel that lets it into a sum is
// found out.
class AttentionRun {
 public:
  AttentionRun(const AttentionProblem& problem, const AttentionKernels& kernels, int num_threads)
      : problem_(problem), kernels_(kernels), num_threads_(num_threads) {
    const KvLayout& layout = problem.shape.layout;
    keys_ = allocate(problem.num_pages * layout.key_page_size());
    values_ = allocate(problem.num_pages * layout.value_page_size());
    out_.resize(problem.q.size(), std::numeric_limits<float>::quiet_NaN());
  }

  // Stores the step's keys and values and attends to them.
  void step(const Step& pieces) {
    std::vector<int32_t> positions;
    std::vector<int32_t> seq_starts = {0};
    std::vector<int32_t> page_tables;
    std::vector<int32_t> page_table_starts = {0};
    std::vector<int32_t> slots;
    std::vector<int64_t> rows;
    const int page_size = problem_.shape.layout.page_size;
    for (const Piece& piece : pieces) {
      const int32_t table = problem_.page_table_starts[piece.seq];
      for (int position = piece.begin; position < piece.end; ++position) {
        const int32_t page =
            problem_.page_tables[static_cast<size_t>(table + position / page_size)];
        positions.push_back(position);
        slots.push_back(page * page_size + position % page_size);
        rows.push_back(problem_.first_token(piece.seq) + position);
      }
      seq_starts.push_back(static_cast<int32_t>(positions.size()));
      const int num_pages = (piece.end + page_size - 1) / page_size;
      for (int page = 0; page < num_pages; ++page) {
        page_tables.push_back(problem_.page_tables[static_cast<size_t>(table + page)]);
      }
      page_table_starts.push_back(static_cast<int32_t>(page_tables.size()));
    }

    const auto num_tokens = static_cast<int64_t>(positions.size());
    std::vector<float> q = gather(problem_.q, rows, problem_.row_size());
    const std::vector<float> k = gather(problem_.k, rows, problem_.kv_row_size());
    const std::vector<float> v = gather(problem_.v, rows, problem_.kv_row_size());
    RopeStoreArguments store;
    store.layout = problem_.shape.layout;
    store.num_heads = problem_.shape.num_heads;
    store.q = dense_matrix(q.data(), num_tokens, problem_.row_size());
    store.k = dense_matrix(k.data(), num_tokens, problem_.kv_row_size());
    store.v = dense_matrix(v.data(), num_tokens, problem_.kv_row_size());
    store.positions = positions.data();
    store.kv_slots = slots.data();
    store.keys = keys_.data();
    store.values = values_.data();
    store.key_scale = problem_.key_scale;
    store.value_scale = problem_.value_scale;
    scalar::kRopeKernels.rope_and_store_kv(store, {0, num_tokens});

    AttentionLimits limits;
    limits.max_num_tokens = static_cast<int32_t>(num_tokens);
    limits.max_num_seqs = static_cast<int32_t>(pieces.size());
    limits.max_context_len = *std::max_element(problem_.lengths.begin(), problem_.lengths.end());
    limits.num_threads = num_threads_;
    std::vector<std::byte> memory(attention_plan_size(problem_.shape.work(), limits));
    AttentionPlan plan = layout_attention_plan(problem_.shape.work(), limits, memory.data());
    const AttentionBatch batch = {positions, seq_starts, page_tables, page_table_starts};
    build_attention_plan(problem_.shape.work(), batch, plan);
    TW_CHECK(plan.num_partials <= plan.max_partials);
    std::vector<float> partials(
        attention_partials_size(problem_.shape.work(), limits) / sizeof(float),
        std::numeric_limits<float>::quiet_NaN());

    std::vector<float> out(q.size(), std::numeric_limits<float>::quiet_NaN());
    AttentionArguments a;
    a.shape = problem_.shape;
    a.batch = batch;
    a.plan = &plan;
    a.q = dense_matrix<const float>(q.data(), num_tokens, problem_.row_size());
    a.out = dense_matrix(out.data(), num_tokens, problem_.row_size());
    a.keys = keys_.data();
    a.values = values_.data();
    a.key_scale = problem_.key_scale;
    a.value_scale = problem_.value_scale;
    a.sinks = problem_.sinks.empty() ? nullptr : problem_.sinks.data();
    a.partials = partials.data();
    // Threads in reverse: nothing may depend on their order.
    for (int rank = num_threads_ - 1; rank >= 0; --rank) kernels_.attend(a, plan.items_of(rank));
    for (int rank = num_threads_ - 1; rank >= 0; --rank) {
      kernels_.merge(a, partition(num_tokens, rank, num_threads_));
    }
    num_merges_ += plan.num_merges;

    for (size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(&out_[static_cast<size_t>(rows[i] * problem_.row_size())],
                  &out[i * static_cast<size_t>(problem_.row_size())],
                  static_cast<size_t>(problem_.row_size()) * sizeof(float));
    }
  }

  // All sequences in one step.
  void whole() {
    Step pieces;
    for (size_t seq = 0; seq < problem_.lengths.size(); ++seq) {
      pieces.push_back({seq, 0, problem_.lengths[seq]});
    }
    step(pieces);
  }

  // All sequences side by side, `size` tokens at a time.
  void in_pieces(int size) {
    const int longest = *std::max_element(problem_.lengths.begin(), problem_.lengths.end());
    for (int begin = 0; begin < longest; begin += size) {
      Step pieces;
      for (size_t seq = 0; seq < problem_.lengths.size(); ++seq) {
        const int end = std::min(begin + size, problem_.lengths[seq]);
        if (begin < end) pieces.push_back({seq, begin, end});
      }
      step(pieces);
    }
  }

  const std::vector<float>& out() const { return out_; }
  int64_t num_merges() const { return num_merges_; }

 private:
  static Buffer allocate(int64_t elements) {
    auto buffer = Buffer::allocate(static_cast<size_t>(elements) * sizeof(bf16_t));
    TW_CHECK(buffer.has_value());
    std::memset(buffer->data(), 0xff, buffer->size());
    return std::move(*buffer);
  }
  static std::vector<float> gather(const std::vector<float>& all, const std::vector<int64_t>& rows,
                                   int64_t row_size) {
    std::vector<float> result;
    for (const int64_t row : rows) {
      const auto begin = all.begin() + row * row_size;
      result.insert(result.end(), begin, begin + row_size);
    }
    return result;
  }

  const AttentionProblem& problem_;
  const AttentionKernels& kernels_;
  int num_threads_;
  Buffer keys_;
  Buffer values_;
  std::vector<float> out_;
  int64_t num_merges_ = 0;
};

struct Reference {
  std::vector<double> out;    // as AttentionRun::out()
  std::vector<double> bound;  // of the error of each row
};

// The bound: a score is a sum of head_dim products and a scaling, each rounded, so it is off by at
// most (head_dim + 2) 2^-24 times the sum of their magnitudes; exponentials are within 2 units in
// the last place of 1 plus what the shift rounds; sums over n positions add n 2^-24. Weights that
// are off by a factor 1 + e change a weighted mean of values by at most 2 e max|v|.
inline Reference attention_reference(const AttentionProblem& problem) {
  const AttentionShape& shape = problem.shape;
  const int head_dim = shape.layout.head_dim;
  const int group = shape.group_size();
  Reference result;
  result.out.resize(problem.q.size());
  result.bound.resize(problem.q.size());
  // As the cache holds it. Scales are powers of two, so that dividing by them rounds nothing.
  const auto stored = [&](float value, float scale) {
    if (shape.layout.type == KvType::fp8_e4m3) {
      return double{to_float(to_f8_e4m3(value / scale)) * scale};
    }
    return double{to_float(to_bf16(value))};
  };
  for (size_t seq = 0; seq < problem.lengths.size(); ++seq) {
    const int64_t base = problem.first_token(seq);
    for (int64_t i = 0; i < problem.lengths[seq]; ++i) {
      for (int64_t head = 0; head < shape.num_heads; ++head) {
        const int64_t kv_offset = head / group * head_dim;
        const float* q =
            &problem.q[static_cast<size_t>((base + i) * problem.row_size() + head * head_dim)];
        int64_t first =
            shape.sliding_window > 0 ? std::max<int64_t>(0, i + 1 - shape.sliding_window) : 0;
        if (shape.attention_chunk > 0) {
          first = std::max(first, i / shape.attention_chunk * shape.attention_chunk);
        }
        std::vector<double> scores;
        double largest_magnitude = 0;
        for (int64_t j = first; j <= i; ++j) {
          const float* k =
              &problem.k[static_cast<size_t>((base + j) * problem.kv_row_size() + kv_offset)];
          double score = 0;
          double magnitude = 0;
          for (int d = 0; d < head_dim; ++d) {
            score += double{q[d]} * stored(k[d], problem.key_scale);
            magnitude += std::abs(double{q[d]} * stored(k[d], problem.key_scale));
          }
          score *= shape.scale;
          if (shape.soft_cap > 0) score = shape.soft_cap * std::tanh(score / shape.soft_cap);
          scores.push_back(score);
          largest_magnitude = std::max(largest_magnitude, magnitude * shape.scale);
        }
        const double sink = problem.sinks.empty()
                                ? -std::numeric_limits<double>::infinity()
                                : double{problem.sinks[static_cast<size_t>(head)]};
        const double maximum = std::max(sink, *std::max_element(scores.begin(), scores.end()));
        double sum = std::exp(sink - maximum);
        std::vector<double> out(static_cast<size_t>(head_dim));
        double largest_value = 0;
        for (int64_t j = first; j <= i; ++j) {
          const float* v =
              &problem.v[static_cast<size_t>((base + j) * problem.kv_row_size() + kv_offset)];
          const double weight = std::exp(scores[static_cast<size_t>(j - first)] - maximum);
          sum += weight;
          for (int d = 0; d < head_dim; ++d) {
            out[static_cast<size_t>(d)] += weight * stored(v[d], problem.value_scale);
            largest_value = std::max(largest_value, std::abs(stored(v[d], problem.value_scale)));
          }
        }
        double error = (head_dim + 2) * 0x1p-24 * largest_magnitude + 8 * 0x1p-23 +
                       static_cast<double>(scores.size()) * 0x1p-24;
        if (shape.soft_cap > 0) error += shape.soft_cap * 4e-7;
        for (int d = 0; d < head_dim; ++d) {
          const auto index =
              static_cast<size_t>((base + i) * problem.row_size() + head * head_dim + d);
          result.out[index] = out[static_cast<size_t>(d)] / sum;
          result.bound[index] = 2 * error * largest_value;
        }
      }
    }
  }
  return result;
}

}  // namespace tw::kernels
