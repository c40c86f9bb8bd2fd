#include <gtest/gtest.h>

#include "weights/checkpoint.h"
#include "weights/gguf_writer.h"
#include "weights/safetensors_file.h"
#include "weights/safetensors_writer.h"
#include "weights/tokenizer_source.h"

namespace tw {
namespace {

using testing_support::GgufWriter;
using testing_support::TemporaryFolder;
using testing_support::tiny_llama;

std::string safetensors(const std::string& header, size_t data_bytes) {
  return GgufWriter::bytes<uint64_t>(header.size()) + header + std::string(data_bytes, '\0');
}

constexpr const char* kTwoTensors =
    R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
    R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},"__metadata__":{"format":"pt"}})";

struct SafetensorsTest : ::testing::Test {
  TemporaryFolder folder{"safetensors"};

  std::string refusal(const std::string& bytes) {
    const auto file = SafetensorsFile::open(folder.write("model.safetensors", bytes));
    EXPECT_FALSE(file);
    if (file) return "";
    EXPECT_NE(file.error().message.find("model.safetensors"), std::string::npos);
    return file.error().message;
  }
  void expect_refused(const std::string& header, size_t data_bytes, const std::string& words) {
    const std::string message = refusal(safetensors(header, data_bytes));
    EXPECT_NE(message.find(words), std::string::npos) << message;
  }
};

TEST_F(SafetensorsTest, ReadsTensors) {
  const auto file =
      SafetensorsFile::open(folder.write("model.safetensors", safetensors(kTwoTensors, 22)));
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->tensors()[0].name, "a");
  EXPECT_EQ(file->tensors()[1].type, StorageType::bf16);
  EXPECT_EQ(file->tensors()[1].data.size(), 6u);
}

TEST_F(SafetensorsTest, EveryTruncationIsAClearError) {
  const std::string whole = safetensors(kTwoTensors, 22);
  for (size_t size = 0; size < whole.size(); size += 8) {
    SCOPED_TRACE(size);
    EXPECT_FALSE(refusal(whole.substr(0, size)).empty());
  }
}

TEST_F(SafetensorsTest, LyingHeadersAreRefused) {
  EXPECT_NE(refusal(GgufWriter::bytes<uint64_t>(1ull << 62) + "{}").find("claims"),
            std::string::npos);
  expect_refused("{", 0, "JSON");
  expect_refused("[1]", 0, "no JSON object");
  expect_refused("{\"a\":" + std::string(100000, '['), 0, "nested");
  expect_refused(R"({"a":5})", 0, "tensor a");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1]}})", 4, "data_offsets");
  expect_refused(R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,4]}})", 4, "dtype F4");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 4, "outside");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[8,4]}})", 8, "outside");
  expect_refused(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "[-1]");
  expect_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "does not take");
  expect_refused(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
                 "does not take");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                 R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                 4, "overlaps");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "hole");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8, "behind the last");
}

TEST_F(SafetensorsTest, ScalarsAreReadAndRepeatedNamesRefused) {
  const auto file = SafetensorsFile::open(
      folder.write("model.safetensors",
                   safetensors(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4)));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->tensors()[0].shape.empty());
  EXPECT_EQ(file->tensors()[0].data.size(), 4u);
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                 R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                 8, "twice");
}

struct FolderTest : SafetensorsTest {
  std::string open_refusal() {
    const auto checkpoint = Checkpoint::open(folder.path());
    EXPECT_FALSE(checkpoint);
    return checkpoint ? "" : checkpoint.error().message;
  }
};

TEST_F(FolderTest, ShardsThroughTheIndex) {
  folder.write("config.json", "{}");
  folder.write("one.safetensors",
               safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4));
  folder.write("two.safetensors",
               safetensors(R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4));
  const auto index = [&](const std::string& map) {
    folder.write("model.safetensors.index.json", "{\"weight_map\":" + map + "}");
  };
  index(R"({"a":"one.safetensors","b":"two.safetensors"})");
  const auto opened = Checkpoint::open(folder.path());
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ((*opened)->tensors().size(), 2u);

  index(R"({"a":"one.safetensors","c":"two.safetensors"})");
  EXPECT_NE(open_refusal().find("tensor c is not in two.safetensors"), std::string::npos);
  index(R"({"a":"one.safetensors","b":"three.safetensors"})");
  EXPECT_NE(open_refusal().find("three.safetensors is missing"), std::string::npos);
  index(R"({"a":"../one.safetensors"})");
  EXPECT_NE(open_refusal().find("not a file name"), std::string::npos);
  index("[]");
  EXPECT_NE(open_refusal().find("weight_map"), std::string::npos);
  index(R"({"a":)");
  EXPECT_NE(open_refusal().find("index.json"), std::string::npos);
}

TEST_F(FolderTest, EveryTruncationOfTheIndexIsAClearError) {
  folder.write("config.json", "{}");
  folder.write("one.safetensors",
               safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4));
  const std::string whole =
      R"({"metadata":{"total_size":4,"note":"a name that is a good deal longer than 64 bytes"},)"
      R"("weight_map":{"a":"one.safetensors"}})";
  for (size_t size = 0; size < whole.size(); ++size) {
    SCOPED_TRACE(size);
    folder.write("model.safetensors.index.json", whole.substr(0, size));
    EXPECT_NE(open_refusal().find("model.safetensors.index.json"), std::string::npos);
  }
  folder.write("model.safetensors.index.json", whole);
  EXPECT_TRUE(Checkpoint::open(folder.path()));
}

TEST_F(FolderTest, MissingAndBrokenFilesAreNamed) {
  EXPECT_NE(open_refusal().find("config.json"), std::string::npos);
  folder.write("config.json", "[]");
  EXPECT_NE(open_refusal().find("config.json"), std::string::npos);
  folder.write("config.json", "{}");
  EXPECT_NE(open_refusal().find("neither model.safetensors"), std::string::npos);
}

TEST_F(FolderTest, ChatTemplatesComeFromThreePlaces) {
  folder.write("config.json", "{}");
  folder.write("model.safetensors", safetensors("{}", 0));
  const auto chat_template = [&] { return (*Checkpoint::open(folder.path()))->chat_template(); };
  EXPECT_EQ(chat_template(), std::nullopt);
  folder.write("tokenizer_config.json", R"({"chat_template":"one","bos_token":{"content":"<s>"}})");
  EXPECT_EQ(chat_template(), "one");
  EXPECT_EQ((*Checkpoint::open(folder.path()))->tokenizer_config()["bos_token"], "<s>");
  folder.write("tokenizer_config.json", R"({"chat_template":[{"name":"tool_use","template":"t"},)"
                                        R"({"name":"default","template":"two"}]})");
  EXPECT_EQ(chat_template(), "two");
  folder.write("chat_template.jinja", "three");
  EXPECT_EQ(chat_template(), "three");
}

// What convert does: a GGUF written as safetensors holds the same numbers, in Hugging Face's order.
TEST_F(FolderTest, WrittenShardsHoldTheSameTensors) {
  const auto source = Checkpoint::open(folder.write("tiny.gguf", tiny_llama().encode()));
  ASSERT_TRUE(source);
  SafetensorsParts parts;
  for (const StoredTensor& tensor : (*source)->tensors()) {
    parts.push_back(std::move(*make_bf16_part(tensor)));
  }
  SafetensorsWriteOptions options;
  options.max_shard_bytes = 300;
  ASSERT_TRUE(write_safetensors(folder.path(), parts, options));
  folder.write("config.json", dump_json((*source)->config()));
  const auto written = Checkpoint::open(folder.path());
  ASSERT_TRUE(written) << written.error().message;
  ASSERT_EQ((*written)->tensors().size(), parts.size());
  for (const StoredTensor& tensor : (*source)->tensors()) {
    const StoredTensor& copy = **(*written)->require(tensor.name);
    EXPECT_EQ(copy.shape, tensor.shape);
    const int64_t columns = tensor.shape.back();
    const auto rows = static_cast<int64_t>(copy.data.size()) / 2 / columns;
    std::vector<float> expected(static_cast<size_t>(columns)), actual(expected.size());
    for (int64_t row = 0; row < rows; ++row) {
      dequantize(copy.type, copy.data.data() + row * columns * 2, columns, actual.data());
      const int64_t stored = rows == 1 ? 0 : tensor.row_order.stored_row(row, rows);
      dequantize(tensor.type, tensor.data.data() + stored * columns * 4, columns, expected.data());
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(actual[i], expected[i], std::abs(expected[i]) / 256);
      }
    }
  }
}

}  // namespace
}  // namespace tw
