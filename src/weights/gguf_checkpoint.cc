#include "weights/gguf_checkpoint.h"

#include <charconv>
#include <regex>

#include "weights/gguf_config.h"
#include "weights/gguf_file.h"
#include "weights/gguf_names.h"
#include "weights/tokenizer_source.h"

namespace tw {
namespace {

namespace fs = std::filesystem;

class GgufCheckpoint final : public Checkpoint {
 public:
  // files[0] carries the metadata.
  static Expected<std::unique_ptr<Checkpoint>> make(fs::path path, std::vector<GgufFile> files) {
    auto checkpoint = std::make_unique<GgufCheckpoint>();
    checkpoint->path_ = std::move(path);
    checkpoint->container_ = fmt::format("GGUF v{}", files.front().version());
    checkpoint->files_ = std::move(files);
    if (Status status = checkpoint->collect_tensors(); !status) return forward_error(status);
    const GgufFile& first = checkpoint->files_.front();
    auto config = gguf_model_config(first, checkpoint->tensors_);
    if (!config) return forward_error(config);
    checkpoint->config_ = std::move(*config);
    checkpoint->mark_interleaved_heads();
    checkpoint->generation_config_ = gguf_generation_config(first);
    checkpoint->tokenizer_config_ = gguf_tokenizer_config(first);
    return checkpoint;
  }

  const fs::path& path() const override { return path_; }
  const char* container() const override { return container_.c_str(); }
  std::span<const StoredTensor> tensors() const override { return tensors_; }
  const Json& config() const override { return config_; }
  const Json& generation_config() const override { return generation_config_; }
  const Json& tokenizer_config() const override { return tokenizer_config_; }

  std::optional<std::string> chat_template() const override {
    const auto source = files_.front().string("tokenizer.chat_template");
    return source ? std::optional<std::string>(*source) : std::nullopt;
  }

  Expected<TokenizerSource> tokenizer_source() const override {
    auto vocabulary = gguf_vocabulary(files_.front());
    if (!vocabulary) return forward_error(vocabulary);
    return TokenizerSource{"", std::move(*vocabulary)};
  }

  void release(const StoredTensor& tensor) const override {
    files_[part_of_tensor_[static_cast<size_t>(&tensor - tensors_.data())]].file().release(
        tensor.data);
  }

 private:
  Status collect_tensors() {
    for (size_t part = 0; part < files_.size(); ++part) {
      for (StoredTensor tensor : files_[part].tensors()) {
        tensor.name = hugging_face_name(tensor.name);
        tensors_.push_back(std::move(tensor));
        part_of_tensor_.push_back(part);
      }
    }
    return index_tensors();
  }

  void mark_interleaved_heads() {
    if (config_.value("model_type", "") != "llama" &&
        config_.value("model_type", "") != "mistral") {
      return;
    }
    const auto ends_with = [](const std::string& name, std::string_view tail) {
      return name.size() >= tail.size() &&
             name.compare(name.size() - tail.size(), tail.size(), tail) == 0;
    };
    const auto mark = [&](StoredTensor& tensor, const char* heads) {
      const int64_t count = config_.value(heads, int64_t{0});
      // A shape that doesn't fit is reported by whoever loads the tensor.
      if (count > 0 && tensor.shape[0] % (2 * count) == 0) {
        tensor.row_order.interleaved_heads = count;
      }
    };
    for (StoredTensor& tensor : tensors_) {
      if (ends_with(tensor.name, "q_proj.weight") || ends_with(tensor.name, "q_proj.bias")) {
        mark(tensor, "num_attention_heads");
      } else if (ends_with(tensor.name, "k_proj.weight") || ends_with(tensor.name, "k_proj.bias")) {
        mark(tensor, "num_key_value_heads");
      }
    }
  }

  fs::path path_;
  std::string container_;
  std::vector<GgufFile> files_;
  std::vector<StoredTensor> tensors_;
  std::vector<size_t> part_of_tensor_;
  Json config_;
  Json generation_config_;
  Json tokenizer_config_;
};

// The parts of NAME-00002-of-00005.gguf in order; the path alone if it is no split file.
std::vector<fs::path> split_parts(const fs::path& path) {
  static const std::regex kSplit(R"((.*)-(\d{5})-of-(\d{5})\.gguf)");
  std::smatch match;
  const std::string name = path.filename().string();
  if (!std::regex_match(name, match, kSplit)) return {path};
  const int count = std::stoi(match[3].str());
  std::vector<fs::path> parts;
  for (int part = 1; part <= count; ++part) {
    parts.push_back(path.parent_path() /
                    fmt::format("{}-{:05d}-of-{:05d}.gguf", match[1].str(), part, count));
  }
  return parts.empty() ? std::vector{path} : parts;
}

}  // namespace

Expected<std::unique_ptr<Checkpoint>> open_gguf_checkpoint(const fs::path& path) {
  std::vector<GgufFile> files;
  const std::vector<fs::path> parts = split_parts(path);
  for (const fs::path& part : parts) {
    auto file = GgufFile::open(part);
    if (!file && file.error().code == ErrorCode::not_found && parts.size() > 1) {
      return error(ErrorCode::not_found, "{}: part {} of {} is missing: {}", path.string(),
                   files.size() + 1, parts.size(), part.string());
    }
    if (!file) return forward_error(file);
    const int64_t count = file->integer("split.count").value_or(1);
    if (count > 1 && count != static_cast<int64_t>(parts.size())) {
      return error(ErrorCode::corrupt_data, "{}: says it is one of {} parts, found {}",
                   part.string(), count, parts.size());
    }
    files.push_back(std::move(*file));
  }
  return GgufCheckpoint::make(path, std::move(files));
}

}  // namespace tw
