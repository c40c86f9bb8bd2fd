// Writes small GGUF files for tests: valid ones, and ones that lie.
#pragma once

#include <unistd.h>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tw::testing_support {

class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              ("tw_" + name + "_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    const auto path = path_ / name;
    std::ofstream(path, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

class GgufWriter {
 public:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dimensions;  // innermost first, as in the file
    uint32_t type = 0;
    uint64_t offset = 0;
    std::string data;
  };

  uint32_t version = 3;
  std::vector<std::string> keys;  // already encoded
  std::vector<Tensor> tensors;
  uint64_t claimed_tensors = UINT64_MAX;  // instead of the true counts
  uint64_t claimed_keys = UINT64_MAX;

  template <typename T>
  static std::string bytes(T value) {
    return {reinterpret_cast<const char*>(&value), sizeof(value)};
  }
  static std::string string(const std::string& text) { return bytes<uint64_t>(text.size()) + text; }

  void add(const std::string& key, uint32_t value) {
    keys.push_back(string(key) + bytes<uint32_t>(4) + bytes(value));
  }
  void add(const std::string& key, float value) {
    keys.push_back(string(key) + bytes<uint32_t>(6) + bytes(value));
  }
  void add(const std::string& key, const std::string& value) {
    keys.push_back(string(key) + bytes<uint32_t>(8) + string(value));
  }
  void add(const std::string& key, const std::vector<std::string>& values) {
    std::string encoded =
        string(key) + bytes<uint32_t>(9) + bytes<uint32_t>(8) + bytes<uint64_t>(values.size());
    for (const std::string& value : values) encoded += string(value);
    keys.push_back(encoded);
  }

  // Offsets follow from the order.
  void add_tensor(const std::string& name, std::vector<uint64_t> dimensions, uint32_t type,
                  std::string data) {
    uint64_t offset = 0;
    for (const Tensor& tensor : tensors) offset = tensor.offset + padded(tensor.data.size());
    tensors.push_back({name, std::move(dimensions), type, offset, std::move(data)});
  }

  std::string encode() const {
    std::string file = "GGUF" + bytes(version);
    file += bytes<uint64_t>(claimed_tensors != UINT64_MAX ? claimed_tensors : tensors.size());
    file += bytes<uint64_t>(claimed_keys != UINT64_MAX ? claimed_keys : keys.size());
    for (const std::string& key : keys) file += key;
    for (const Tensor& tensor : tensors) {
      file +=
          string(tensor.name) + bytes<uint32_t>(static_cast<uint32_t>(tensor.dimensions.size()));
      for (uint64_t dimension : tensor.dimensions) file += bytes(dimension);
      file += bytes(tensor.type) + bytes(tensor.offset);
    }
    file.resize(padded(file.size()), '\0');
    for (const Tensor& tensor : tensors) {
      file += tensor.data;
      file.resize(padded(file.size()), '\0');
    }
    return file;
  }

 private:
  static uint64_t padded(uint64_t size) { return (size + 31) / 32 * 32; }
};

// A Llama of one layer with every tensor that it needs, in F32.
inline GgufWriter tiny_llama() {
  GgufWriter gguf;
  gguf.add("general.architecture", std::string("llama"));
  gguf.add("llama.embedding_length", 8u);
  gguf.add("llama.feed_forward_length", 8u);
  gguf.add("llama.block_count", 1u);
  gguf.add("llama.attention.head_count", 1u);
  gguf.add("llama.context_length", 64u);
  gguf.add("llama.rope.freq_base", 10000.0f);
  gguf.add("tokenizer.ggml.model", std::string("gpt2"));
  gguf.add("tokenizer.ggml.pre", std::string("smollm"));
  gguf.add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab", "<|end|>"});
  gguf.add("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  gguf.add("tokenizer.ggml.eos_token_id", 3u);
  float next = 0;
  const auto matrix = [&](const std::string& name, uint64_t rows, uint64_t columns) {
    std::string data;
    for (uint64_t i = 0; i < rows * columns; ++i) data += GgufWriter::bytes(next += 0.25f);
    gguf.add_tensor(name, {columns, rows}, 0, data);
  };
  const auto vector = [&](const std::string& name, uint64_t size) {
    std::string data;
    for (uint64_t i = 0; i < size; ++i) data += GgufWriter::bytes(1.0f);
    gguf.add_tensor(name, {size}, 0, data);
  };
  matrix("token_embd.weight", 4, 8);
  vector("output_norm.weight", 8);
  vector("blk.0.attn_norm.weight", 8);
  for (const char* name :
       {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
    matrix(std::string("blk.0.") + name + ".weight", 8, 8);
  }
  vector("blk.0.ffn_norm.weight", 8);
  return gguf;
}

}  // namespace tw::testing_support
