#include "kernels/rope/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <vector>

#include "core/json.h"
#include "kernels/rope/rope_table.h"
#include "kernels/vector_rows.h"

namespace tw::kernels {
namespace {

RopeParameters parameters_of(const Json& json) {
  const std::map<std::string, RopeType> types = {
      {"default", RopeType::standard},    {"linear", RopeType::linear},
      {"dynamic", RopeType::dynamic_ntk}, {"llama3", RopeType::llama3},
      {"yarn", RopeType::yarn},           {"longrope", RopeType::longrope}};
  RopeParameters p;
  p.type = types.at(json.at("rope_type"));
  p.theta = json.at("rope_theta");
  p.head_dim = json.at("head_dim");
  p.max_position_embeddings = json.at("max_position_embeddings");
  p.partial_rotary_factor = json.value("partial_rotary_factor", 1.0f);
  p.factor = json.value("factor", 1.0f);
  p.original_max_position_embeddings = json.value("original_max_position_embeddings", int64_t{0});
  p.low_freq_factor = json.value("low_freq_factor", 1.0f);
  p.high_freq_factor = json.value("high_freq_factor", 4.0f);
  p.beta_fast = json.value("beta_fast", 32.0f);
  p.beta_slow = json.value("beta_slow", 1.0f);
  if (json.contains("attention_factor")) p.attention_factor = json.at("attention_factor");
  if (json.contains("mscale")) p.mscale = json.at("mscale");
  if (json.contains("mscale_all_dim")) p.mscale_all_dim = json.at("mscale_all_dim");
  p.truncate = json.value("truncate", true);
  p.sequence_length = json.value("sequence_length", int64_t{0});
  p.short_factor = json.value("short_factor", std::vector<float>());
  p.long_factor = json.value("long_factor", std::vector<float>());
  return p;
}

// Made by tools/golden/make_rope_golden.py with Hugging Face Transformers.
TEST(RopeTableTest, MatchesTransformers) {
  std::ifstream file(TW_SOURCE_DIR "/tests/kernels/golden/rope.json");
  std::stringstream text;
  text << file.rdbuf();
  const auto golden = parse_json(text.str(), "rope.json");
  ASSERT_TRUE(golden.has_value());
  ASSERT_GE(golden->size(), 15u);
  for (const Json& json : *golden) {
    SCOPED_TRACE(json.at("rope_type").get<std::string>() + " " +
                 std::to_string(json.at("head_dim").get<int>()));
    const RopeParameters parameters = parameters_of(json);
    const auto frequencies = rope_frequencies(parameters);
    ASSERT_TRUE(frequencies.has_value()) << frequencies.error().message;
    const std::vector<float> expected = json.at("inverse_frequencies");
    ASSERT_EQ(frequencies->inverse.size(), expected.size());
    // Powers, divisions and mixing are rounded to fp32 by both: a few units in the last place.
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(frequencies->inverse[i], expected[i], 5e-7f * expected[i]) << i;
    }
    EXPECT_NEAR(frequencies->attention_scaling, json.at("attention_scaling").get<float>(), 1e-6f);

    const auto table = RopeTable::build(parameters, parameters.max_position_embeddings);
    ASSERT_TRUE(table.has_value());
    const RopeView view = table->view();
    const std::vector<int64_t> positions = json.at("positions");
    const std::vector<float> cosines = json.at("cos");
    const std::vector<float> sines = json.at("sin");
    const size_t half = expected.size();
    ASSERT_EQ(static_cast<size_t>(view.rotary_dim), 2 * half);
    for (size_t p = 0; p < positions.size(); ++p) {
      for (size_t i = 0; i < half; ++i) {
        // An angle is as exact as its frequency, relatively.
        const float angle = static_cast<float>(positions[p]) * expected[i];
        const float bound = 1e-6f + 5e-7f * angle;
        const size_t index = static_cast<size_t>(positions[p]) * half + i;
        ASSERT_NEAR(view.cos[index], cosines[p * half + i], bound) << positions[p] << " " << i;
        ASSERT_NEAR(view.sin[index], sines[p * half + i], bound) << positions[p] << " " << i;
      }
    }
  }
}

TEST(RopeTableTest, RefusesParametersThatCannotBeRight) {
  RopeParameters good;
  good.head_dim = 64;
  ASSERT_TRUE(rope_frequencies(good).has_value());
  const auto refused = [&](auto change, const char* word) {
    RopeParameters bad = good;
    change(bad);
    const auto result = RopeTable::build(bad, 16);
    ASSERT_FALSE(result.has_value()) << word;
    EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(result.error().message.find(word), std::string::npos) << result.error().message;
  };
  using P = RopeParameters;
  refused([](P& p) { p.head_dim = 0; }, "head_dim");
  refused([](P& p) { p.theta = 0; }, "rope_theta");
  refused([](P& p) { p.theta = std::numeric_limits<float>::quiet_NaN(); }, "rope_theta");
  refused([](P& p) { p.theta = INFINITY; }, "rope_theta");
  refused([](P& p) { p.partial_rotary_factor = 1.5f; }, "partial_rotary_factor");
  refused([](P& p) { p.partial_rotary_factor = 0.01f; }, "partial_rotary_factor");
  refused([](P& p) { p.max_position_embeddings = 0; }, "lengths");
  refused([](P& p) { p.type = RopeType::linear, p.factor = 0.0f; }, "factor");
  refused([](P& p) { p.type = RopeType::llama3, p.high_freq_factor = 0.5f; }, "high_freq_factor");
  refused([](P& p) { p.type = RopeType::yarn, p.beta_slow = 0.0f; }, "beta_slow");
  EXPECT_FALSE(RopeTable::build(good, 0).has_value());
}

class RopeTest : public testing::TestWithParam<const KernelRow<RopeKernels>*> {
 protected:
  const RopeKernels& kernels() const { return *GetParam()->functions; }
};

INSTANTIATE_TEST_SUITE_P(Table, RopeTest, testing::ValuesIn(machine_rows(rope_kernels())),
                         row_name<RopeKernels>);

constexpr int kTokens = 5;
constexpr int kHeads = 3;
constexpr int kKvHeads = 2;
const std::vector<int32_t> kPositions = {0, 1, 17, 100, 3};
const std::vector<int32_t> kSlots = {33, 16, 31, 95, -1};

// Queries, keys and values as columns of one matrix, as the qkv projection leaves them.
struct RopeProblem {
  KvLayout layout;
  int64_t stride;
  std::vector<float> qkv;
  std::vector<bf16_t> keys;  // or twice as many e4m3
  std::vector<bf16_t> values;
  float key_scale = 1.0f, value_scale = 1.0f;

  RopeProblem(int head_dim, int page_size)
      : layout{kKvHeads, head_dim, page_size, 96 / page_size},
        stride((kHeads + 2 * kKvHeads) * head_dim),
        qkv(random_floats(kTokens * stride, 1)),
        keys(static_cast<size_t>(layout.num_pages * layout.key_page_size()), bf16_t{0x4242}),
        values(static_cast<size_t>(layout.num_pages * layout.value_page_size()), bf16_t{0x4242}) {}

  float* q(int64_t token) { return &qkv[static_cast<size_t>(token * stride)]; }
  float* k(int64_t token) { return q(token) + kHeads * layout.head_dim; }
  float* v(int64_t token) { return k(token) + kKvHeads * layout.head_dim; }

  void run(const RopeKernels& kernels, RopeView rope, Range tokens) {
    RopeStoreArguments a;
    a.rope = rope;
    a.layout = layout;
    a.num_heads = kHeads;
    a.q = {q(0), kTokens, kHeads * layout.head_dim, stride};
    a.k = {k(0), kTokens, kKvHeads * layout.head_dim, stride};
    a.v = {v(0), kTokens, kKvHeads * layout.head_dim, stride};
    a.positions = kPositions.data();
    a.kv_slots = kSlots.data();
    a.keys = reinterpret_cast<std::byte*>(keys.data());
    a.values = reinterpret_cast<std::byte*>(values.data());
    a.key_scale = key_scale;
    a.value_scale = value_scale;
    kernels.rope_and_store_kv(a, tokens);
  }
};

RopeTable table_of(int head_dim, float partial) {
  RopeParameters parameters;
  parameters.head_dim = head_dim;
  parameters.partial_rotary_factor = partial;
  auto table = RopeTable::build(parameters, 128);
  TW_CHECK(table.has_value());
  return std::move(*table);
}

double rotated(const float* x, int d, RopeView rope, int64_t position) {
  const int half = rope.rotary_dim / 2;
  if (d >= rope.rotary_dim) return x[d];
  const auto index = static_cast<size_t>(position * half + d % half);
  const double cosine = rope.cos[index];
  const double sine = rope.sin[index];
  return d < half ? x[d] * cosine - x[d + half] * sine : x[d] * cosine + x[d - half] * sine;
}

TEST_P(RopeTest, RotatesAndStores) {
  for (const int head_dim : {8, 24, 64, 80, 128}) {
    for (const float partial : {1.0f, 0.5f}) {
      for (const int page_size : {16, 32}) {
        SCOPED_TRACE(fmt::format("head_dim {}, partial {}", head_dim, partial));
        const RopeTable table = table_of(head_dim, partial);
        const RopeView rope = table.view();
        RopeProblem problem(head_dim, page_size);
        RopeProblem before = problem;
        problem.run(kernels(), rope, {0, 3});
        problem.run(kernels(), rope, {3, kTokens});

        size_t stored = 0;
        for (int64_t token = 0; token < kTokens; ++token) {
          const int64_t position = kPositions[static_cast<size_t>(token)];
          for (int head = 0; head < kHeads; ++head) {
            const float* x = before.q(token) + head * head_dim;
            for (int d = 0; d < head_dim; ++d) {
              ASSERT_NEAR(problem.q(token)[head * head_dim + d], rotated(x, d, rope, position),
                          1e-6);
            }
          }
          const int64_t slot = kSlots[static_cast<size_t>(token)];
          if (slot < 0) continue;
          for (int head = 0; head < kKvHeads; ++head) {
            const float* k = before.k(token) + head * head_dim;
            for (int d = 0; d < head_dim; ++d) {
              const auto key = static_cast<size_t>(problem.layout.key_offset(slot, head, d));
              const double exact = rotated(k, d, rope, position);
              ASSERT_NEAR(to_float(problem.keys[key]), exact, std::abs(exact) * 0x1p-8 + 1e-6);
              problem.keys[key] = {0x4242};
            }
            for (int d = 0; d < problem.layout.padded_head_dim(); ++d) {
              const auto value = static_cast<size_t>(problem.layout.value_offset(slot, head, d));
              const float v = d < head_dim ? before.v(token)[head * head_dim + d] : 0.0f;
              ASSERT_EQ(problem.values[value].bits, to_bf16(v).bits);
              problem.values[value] = {0x4242};
              ++stored;
            }
          }
        }
        EXPECT_EQ(stored, static_cast<size_t>(4 * kKvHeads * problem.layout.padded_head_dim()));
        // Nothing else was written: the token without a slot neither.
        for (const bf16_t key : problem.keys) ASSERT_EQ(key.bits, 0x4242);
        for (const bf16_t value : problem.values) ASSERT_EQ(value.bits, 0x4242);
        for (int64_t token = 0; token < kTokens; ++token) {
          for (int64_t i = 0; i < 2 * kKvHeads * head_dim; ++i) {
            ASSERT_EQ(problem.k(token)[i], before.k(token)[i]);
          }
        }
      }
    }
  }
}

TEST_P(RopeTest, WithoutRotationQueriesStay) {
  RopeProblem problem(64, 16);
  const RopeProblem before = problem;
  problem.run(kernels(), {}, {0, kTokens});
  EXPECT_EQ(problem.qkv, before.qkv);
  const auto key = static_cast<size_t>(problem.layout.key_offset(33, 1, 5));
  EXPECT_EQ(problem.keys[key].bits, to_bf16(problem.k(0)[64 + 5]).bits);
}

// Every finite e4m3, the middles between them, what is too large, and NaN.
TEST_P(RopeTest, StoresFp8RoundedToTheNearest) {
  std::vector<float> numbers = {0.0f,       500.0f,   465.0f,
                                1e30f,      INFINITY, 0x1p-10f,
                                0x1.8p-10f, 1e-30f,   std::numeric_limits<float>::quiet_NaN()};
  for (int bits = 0; bits < 0x7e; ++bits) {
    const float low = to_float(f8_e4m3_t{static_cast<uint8_t>(bits)});
    const float high = to_float(f8_e4m3_t{static_cast<uint8_t>(bits + 1)});
    const float middle = (low + high) / 2;
    for (const float x : {low, std::nextafter(middle, low), middle, std::nextafter(middle, high)}) {
      numbers.push_back(x);
    }
  }
  constexpr int kHeadDim = 64;
  for (size_t first = 0; first < numbers.size(); first += kHeadDim) {
    RopeProblem problem(kHeadDim, 16);
    problem.layout.type = KvType::fp8_e4m3;
    problem.key_scale = 0.25f;
    problem.value_scale = 2.0f;
    const auto number = [&](int d) {
      const float x = numbers[std::min(first + static_cast<size_t>(d), numbers.size() - 1)];
      return d % 2 == 0 ? x : -x;
    };
    for (int d = 0; d < kHeadDim; ++d) {
      problem.k(1)[d] = number(d) * problem.key_scale;
      problem.v(1)[d] = number(d) * problem.value_scale;
    }
    problem.run(kernels(), {}, {1, 2});
    const auto* keys = reinterpret_cast<const f8_e4m3_t*>(problem.keys.data());
    const auto* values = reinterpret_cast<const f8_e4m3_t*>(problem.values.data());
    for (int d = 0; d < kHeadDim; ++d) {
      const f8_e4m3_t expected = to_f8_e4m3(number(d));
      ASSERT_EQ(keys[problem.layout.key_offset(16, 0, d)].bits, expected.bits) << number(d);
      ASSERT_EQ(values[problem.layout.value_offset(16, 0, d)].bits, expected.bits) << number(d);
      // The definition: nothing finite is nearer, and of two equally near ones it is the even one.
      const double x = std::abs(double{number(d)});
      if (std::isnan(x)) continue;
      const double nearest = std::abs(double{to_float(expected)});
      const int bits = expected.bits & 0x7f;
      for (const int other : {bits - 1, bits + 1}) {
        if (other < 0 || other > 0x7e) continue;
        const double distance = std::abs(x - to_float(f8_e4m3_t{static_cast<uint8_t>(other)}));
        ASSERT_GE(distance, std::abs(x - nearest));
        if (distance == std::abs(x - nearest) && std::isfinite(x)) {
          ASSERT_EQ(bits % 2, 0) << x;
        }
      }
    }
  }
}

TEST_P(RopeTest, AgreesWithScalarBitForBit) {
  for (const int head_dim : {24, 64, 80}) {
    const RopeTable table = table_of(head_dim, 1.0f);
    RopeProblem problem(head_dim, 16);
    problem.v(2)[3] = std::numeric_limits<float>::quiet_NaN();
    problem.v(2)[4] = -INFINITY;
    problem.v(2)[5] = std::bit_cast<float>(0x7f800001u);  // rounding must not make it infinite
    RopeProblem expected = problem;
    expected.run(scalar::kRopeKernels, table.view(), {0, kTokens});
    problem.run(kernels(), table.view(), {0, kTokens});
    EXPECT_EQ(problem.qkv[0], expected.qkv[0]);
    for (int64_t token = 0; token < kTokens; ++token) {
      for (int64_t i = 0; i < kHeads * head_dim; ++i) {
        ASSERT_EQ(problem.q(token)[i], expected.q(token)[i]);
      }
    }
    for (size_t i = 0; i < problem.keys.size(); ++i) {
      ASSERT_EQ(problem.keys[i].bits, expected.keys[i].bits);
    }
    for (size_t i = 0; i < problem.values.size(); ++i) {
      ASSERT_EQ(problem.values[i].bits, expected.values[i].bits);
    }
  }
}

}  // namespace
}  // namespace tw::kernels
