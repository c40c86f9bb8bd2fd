// Checkpoints that cannot be loaded: the error names the tensor or the field, and what was
// expected.
#include <gtest/gtest.h>

#include <functional>

#include "models/registry.h"
#include "weights/gguf_writer.h"

namespace tw {
namespace {

using testing_support::GgufWriter;
using testing_support::TemporaryFolder;
using testing_support::tiny_llama;

std::string load_error(const GgufWriter& gguf) {
  const TemporaryFolder folder("bad_checkpoint");
  const auto checkpoint = Checkpoint::open(folder.write("model.gguf", gguf.encode()));
  EXPECT_TRUE(checkpoint) << (checkpoint ? "" : checkpoint.error().message);
  if (!checkpoint) return "";
  ThreadTeam team(2);
  const WeightLoader loader(**checkpoint, team,
                            {*usable_cpu_features(), kernels::ActivationPrecision::bf16});
  const auto model = load_model(loader);
  return model ? "" : model.error().message;
}

void expect_words(const std::string& message, std::initializer_list<const char*> words) {
  for (const char* word : words) {
    EXPECT_NE(message.find(word), std::string::npos) << message << "\nlacks " << word;
  }
}

TEST(BadCheckpoint, TheTinyOneItselfLoads) {
  EXPECT_EQ(load_error(tiny_llama()), "");
}

TEST(BadCheckpoint, AnyMissingTensorIsNamed) {
  for (size_t i = 0; i < tiny_llama().tensors.size(); ++i) {
    GgufWriter gguf = tiny_llama();
    gguf.tensors[i].name = "something.else";
    const std::string message = load_error(gguf);
    expect_words(message, {"model.gguf", "is missing"});
  }
}

TEST(BadCheckpoint, AnyWrongShapeIsNamed) {
  for (size_t i = 0; i < tiny_llama().tensors.size(); ++i) {
    GgufWriter gguf = tiny_llama();
    gguf.tensors[i].dimensions[0] /= 2;
    // Fewer rows of the embeddings are a smaller vocabulary, and all right.
    const std::string message = load_error(gguf);
    expect_words(message, {"model.gguf", "has shape [", "expected ["});
  }
}

TEST(BadCheckpoint, AnUnknownArchitectureListsTheKnown) {
  GgufWriter gguf = tiny_llama();
  gguf.keys[0] = GgufWriter::string("general.architecture") + GgufWriter::bytes<uint32_t>(8) +
                 GgufWriter::string("mamba");
  expect_words(load_error(gguf), {"model.gguf", "mamba", "LlamaForCausalLM", "MistralForCausalLM"});
}

TEST(BadCheckpoint, IntegerWeightsAreRefused) {
  GgufWriter gguf = tiny_llama();
  gguf.tensors[3].type = 26;  // I32, of the same size
  expect_words(load_error(gguf), {"model.layers.0.self_attn.q_proj.weight", "I32"});
}

}  // namespace
}  // namespace tw
