#include <gtest/gtest.h>

#include <cmath>

#include "weights/checkpoint.h"
#include "weights/gguf_writer.h"
#include "weights/model_config.h"
#include "weights/tokenizer_source.h"

namespace tw {
namespace {

using testing_support::GgufWriter;
using testing_support::TemporaryFolder;
using testing_support::tiny_llama;

struct GgufTest : ::testing::Test {
  TemporaryFolder folder{"gguf"};

  // The error of opening the bytes, which must name the file.
  std::string refusal(const std::string& bytes) {
    const auto path = folder.write("model.gguf", bytes);
    const auto checkpoint = Checkpoint::open(path);
    EXPECT_FALSE(checkpoint);
    if (checkpoint) return "";
    EXPECT_NE(checkpoint.error().message.find("model.gguf"), std::string::npos)
        << checkpoint.error().message;
    return checkpoint.error().message;
  }
  void expect_refused(const GgufWriter& gguf, const std::string& words) {
    const std::string message = refusal(gguf.encode());
    EXPECT_NE(message.find(words), std::string::npos) << message;
  }
};

TEST_F(GgufTest, ReadsNamesConfigAndTokenizer) {
  const auto opened = Checkpoint::open(folder.write("tiny.gguf", tiny_llama().encode()));
  ASSERT_TRUE(opened) << opened.error().message;
  const Checkpoint& checkpoint = **opened;
  EXPECT_STREQ(checkpoint.container(), "GGUF v3");
  const auto embeddings = checkpoint.require("model.embed_tokens.weight");
  ASSERT_TRUE(embeddings);
  EXPECT_EQ((*embeddings)->shape, (std::vector<int64_t>{4, 8}));
  EXPECT_TRUE(checkpoint.require("model.layers.0.self_attn.q_proj.weight"));
  EXPECT_TRUE(checkpoint.require("model.layers.0.mlp.down_proj.weight"));
  EXPECT_TRUE(checkpoint.require("model.layers.0.post_attention_layernorm.weight"));
  EXPECT_EQ(checkpoint.find("lm_head.weight"), nullptr);
  const Json& config = checkpoint.config();
  EXPECT_EQ(config["architectures"][0], "LlamaForCausalLM");
  EXPECT_EQ(config["hidden_size"], 8);
  EXPECT_EQ(config["num_key_value_heads"], 1);
  EXPECT_EQ(config["vocab_size"], 4);
  EXPECT_EQ(config["tie_word_embeddings"], true);
  EXPECT_EQ(config["eos_token_id"], 3);
  EXPECT_EQ(checkpoint.tokenizer_config()["eos_token"], "<|end|>");
  const auto source = checkpoint.tokenizer_source();
  ASSERT_TRUE(source && source->gguf);
  EXPECT_EQ(source->gguf->tokens.size(), 4u);
  EXPECT_EQ(source->gguf->merges, (std::vector<std::string>{"a b"}));
}

TEST_F(GgufTest, QueryAndKeyRowsAreMarkedInterleaved) {
  const auto opened = Checkpoint::open(folder.write("tiny.gguf", tiny_llama().encode()));
  ASSERT_TRUE(opened);
  const StoredTensor& q = **(*opened)->require("model.layers.0.self_attn.q_proj.weight");
  // One head of 8: rows 0..3 are the first half, which lies at even places.
  const std::vector<int64_t> expected = {0, 2, 4, 6, 1, 3, 5, 7};
  for (int64_t row = 0; row < 8; ++row) {
    EXPECT_EQ(q.row_order.stored_row(row, 8), expected[static_cast<size_t>(row)]);
  }
  const StoredTensor& v = **(*opened)->require("model.layers.0.self_attn.v_proj.weight");
  EXPECT_EQ(v.row_order.stored_row(5, 8), 5);
}

TEST_F(GgufTest, SplitFilesOpenFromAnyPartAndNameAMissingOne) {
  GgufWriter first = tiny_llama(), second;
  second.tensors.push_back(first.tensors.back());
  second.tensors[0].offset = 0;
  first.tensors.pop_back();
  folder.write("m-00001-of-00002.gguf", first.encode());
  const auto part = folder.write("m-00002-of-00002.gguf", second.encode());
  const auto opened = Checkpoint::open(part);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ((*opened)->tensors().size(), tiny_llama().tensors.size());
  EXPECT_TRUE((*opened)->require("model.layers.0.post_attention_layernorm.weight"));
  std::filesystem::remove(part);
  const auto missing = Checkpoint::open(folder.path() / "m-00001-of-00002.gguf");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("m-00002-of-00002.gguf"), std::string::npos);
}

TEST_F(GgufTest, EveryTruncationIsAClearError) {
  const std::string whole = tiny_llama().encode();
  for (size_t size = 0; size < whole.size(); size += 64) {
    SCOPED_TRACE(size);
    EXPECT_FALSE(refusal(whole.substr(0, size)).empty());
  }
}

TEST_F(GgufTest, LyingHeadersAreRefused) {
  GgufWriter gguf = tiny_llama();
  gguf.claimed_tensors = uint64_t{1} << 60;
  expect_refused(gguf, "tensors");
  gguf = tiny_llama();
  gguf.claimed_keys = uint64_t{1} << 60;
  expect_refused(gguf, "keys");
  gguf = tiny_llama();
  gguf.claimed_keys = gguf.keys.size() + 5;
  EXPECT_FALSE(refusal(gguf.encode()).empty());
  gguf = tiny_llama();
  gguf.version = 1;
  expect_refused(gguf, "version 1");
  gguf = tiny_llama();
  gguf.add("general.architecture", std::string("llama"));
  expect_refused(gguf, "general.architecture appears twice");
  gguf = tiny_llama();
  gguf.keys.push_back(GgufWriter::string("x") + GgufWriter::bytes<uint32_t>(99));
  expect_refused(gguf, "key x (type 99)");
  gguf = tiny_llama();  // an array of 2^60 strings
  gguf.keys.push_back(GgufWriter::string("x") + GgufWriter::bytes<uint32_t>(9) +
                      GgufWriter::bytes<uint32_t>(8) + GgufWriter::bytes<uint64_t>(1ull << 60));
  expect_refused(gguf, "key x");
  gguf = tiny_llama();  // arrays of arrays of arrays ...
  std::string nested = GgufWriter::string("x") + GgufWriter::bytes<uint32_t>(9);
  for (int i = 0; i < 1000; ++i) {
    nested += GgufWriter::bytes<uint32_t>(9) + GgufWriter::bytes<uint64_t>(1);
  }
  gguf.keys.push_back(nested);
  expect_refused(gguf, "key x");
}

TEST_F(GgufTest, ImpossibleTensorsAreRefusedByName) {
  const auto with = [](auto change) {
    GgufWriter gguf = tiny_llama();
    change(gguf.tensors[0]);
    return gguf;
  };
  expect_refused(with([](auto& t) { t.dimensions = {0, 4}; }), "token_embd.weight");
  expect_refused(with([](auto& t) {
                   t.dimensions = {1ull << 40, 1ull << 40};
                 }),
                 "impossible shape");
  expect_refused(with([](auto& t) { t.dimensions = {1ull << 63, 1}; }), "impossible shape");
  expect_refused(with([](auto& t) { t.dimensions = {8, 4, 1, 1, 1}; }), "5 dimensions");
  expect_refused(with([](auto& t) { t.dimensions = {}; }), "0 dimensions");
  expect_refused(with([](auto& t) { t.type = 77; }), "ggml type 77");
  expect_refused(with([](auto& t) { t.type = 2; }), "block of 32");  // Q4_0 rows of 8
  expect_refused(with([](auto& t) { t.offset = 1 << 20; }), "outside the file");
  expect_refused(with([](auto& t) { t.offset = UINT64_MAX - 31; }), "outside the file");
  expect_refused(with([](auto& t) { t.offset = 7; }), "misaligned");
  expect_refused(with([](auto& t) { t.name = "output_norm.weight"; }), "appears twice");
  GgufWriter gguf = tiny_llama();
  gguf.add("general.alignment", 3u);
  expect_refused(gguf, "general.alignment 3");
}

TEST_F(GgufTest, MissingMetadataIsNamed) {
  GgufWriter gguf = tiny_llama();
  gguf.keys.erase(gguf.keys.begin());
  expect_refused(gguf, "general.architecture");
  gguf = tiny_llama();
  gguf.keys.erase(gguf.keys.begin() + 1);
  expect_refused(gguf, "llama.embedding_length");
}

TEST_F(GgufTest, Llama3FrequencyDivisorsBecomeTheirScaling) {
  GgufWriter gguf = tiny_llama();
  gguf.keys[6] = GgufWriter::string("llama.rope.freq_base") + GgufWriter::bytes<uint32_t>(6) +
                 GgufWriter::bytes(500000.0f);
  std::string divisors;
  // Frequencies 1, 0.0376, 0.00141, 5.3e-5: the last one's wavelength exceeds 8192 positions.
  for (float divisor : {1.0f, 1.0f, 2.7178f, 32.0f}) divisors += GgufWriter::bytes(divisor);
  gguf.add_tensor("rope_freqs.weight", {4}, 0, divisors);
  const std::string message = refusal(gguf.encode());
  EXPECT_NE(message.find("no known scaling"), std::string::npos) << message;
}

// What Llama 3.1's definition divides the frequencies of a head of 8 by, for theta 500000.
std::string llama3_divisors(double factor) {
  std::string divisors;
  for (int i = 0; i < 4; ++i) {
    const double wavelength = 2 * 3.14159265358979 * std::pow(500000.0, i / 4.0);
    double divisor = 1;
    if (wavelength > 8192) {
      divisor = factor;
    } else if (wavelength > 8192 / 4.0) {
      const double smooth = (8192 / wavelength - 1) / 3;
      divisor = 1 / ((1 - smooth) / factor + smooth);
    }
    divisors += GgufWriter::bytes(static_cast<float>(divisor));
  }
  return divisors;
}

TEST_F(GgufTest, Llama3DivisorsGiveTheirFactor) {
  for (const double factor : {8.0, 32.0}) {
    GgufWriter gguf = tiny_llama();
    gguf.keys[6] = GgufWriter::string("llama.rope.freq_base") + GgufWriter::bytes<uint32_t>(6) +
                   GgufWriter::bytes(500000.0f);
    gguf.add_tensor("rope_freqs.weight", {4}, 0, llama3_divisors(factor));
    const auto opened = Checkpoint::open(folder.write("tiny.gguf", gguf.encode()));
    ASSERT_TRUE(opened) << opened.error().message;
    const Json& scaling = (*opened)->config()["rope_scaling"];
    EXPECT_EQ(scaling["rope_type"], "llama3");
    EXPECT_EQ(scaling["factor"], factor);
  }
}

TEST_F(GgufTest, EveryTokenThatEndsATurnEndsGeneration) {
  GgufWriter gguf = tiny_llama();
  gguf.add("tokenizer.ggml.eot_token_id", 2u);
  gguf.add("tokenizer.ggml.eom_token_id", 3u);  // named already
  const auto opened = Checkpoint::open(folder.write("tiny.gguf", gguf.encode()));
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ((*opened)->generation_config()["eos_token_id"], (Json{3, 2}));
}

TEST_F(GgufTest, WhetherABosIsAddedIsLeftOpenWhereTheFileDoesNotSay) {
  const auto add_bos = [&](const GgufWriter& gguf) {
    return (*Checkpoint::open(folder.write("tiny.gguf", gguf.encode())))
        ->tokenizer_source()
        ->gguf->add_bos_token;
  };
  EXPECT_EQ(add_bos(tiny_llama()), std::nullopt);
  GgufWriter gguf = tiny_llama();
  gguf.keys.push_back(GgufWriter::string("tokenizer.ggml.add_bos_token") +
                      GgufWriter::bytes<uint32_t>(7) + "\1");
  EXPECT_EQ(add_bos(gguf), true);
}

// Counts that fit no tensor must not divide by zero or run past rows.
TEST_F(GgufTest, HostileHeadCountsDoNoHarm) {
  for (const uint32_t heads : {0u, 3u, 1u << 31, UINT32_MAX}) {
    GgufWriter gguf = tiny_llama();
    gguf.keys[4] = GgufWriter::string("llama.attention.head_count") +
                   GgufWriter::bytes<uint32_t>(4) + GgufWriter::bytes(heads);
    const auto opened = Checkpoint::open(folder.write("tiny.gguf", gguf.encode()));
    if (!opened) continue;
    const auto q = (*opened)->require("model.layers.0.self_attn.q_proj.weight");
    ASSERT_TRUE(q);
    for (int64_t row = 0; row < 8; ++row) EXPECT_LT((*q)->row_order.stored_row(row, 8), 8);
    // Three heads of 2 are possible, if not for these tensors: the model's loader finds that out.
    if (heads != 3) {
      EXPECT_FALSE(ModelConfig::parse((*opened)->config(), "tiny.gguf")) << heads;
    }
  }
}

TEST_F(GgufTest, PartsOfASplitFileMustAgreeWithTheirNames) {
  const auto part = [](uint32_t index, uint32_t count, uint32_t tensors) {
    GgufWriter gguf = tiny_llama();
    gguf.add("split.no", index);
    gguf.add("split.count", count);
    gguf.add("split.tensors.count", tensors);
    return gguf;
  };
  const auto number = static_cast<uint32_t>(tiny_llama().tensors.size());
  const auto message_of = [&](const GgufWriter& gguf, const std::string& name) {
    const auto opened = Checkpoint::open(folder.write(name, gguf.encode()));
    EXPECT_FALSE(opened);
    return opened ? "" : opened.error().message;
  };
  EXPECT_NE(message_of(part(0, 3, number), "m-00001-of-00001.gguf").find("is one of 3 parts"),
            std::string::npos);
  GgufWriter second;
  second.add("split.no", 1u);
  folder.write("m-00002-of-00002.gguf", second.encode());
  EXPECT_NE(message_of(part(1, 2, number), "m-00001-of-00002.gguf").find("split.no"),
            std::string::npos);
  EXPECT_NE(message_of(part(0, 2, number + 5), "m-00001-of-00002.gguf").find("the parts hold"),
            std::string::npos);
}

TEST_F(GgufTest, PathsThatCannotBeLookedAtAreErrors) {
  const auto opened = Checkpoint::open(folder.path() / std::string(5000, 'x'));
  ASSERT_FALSE(opened);
  EXPECT_FALSE(opened.error().message.empty());
}

}  // namespace
}  // namespace tw
