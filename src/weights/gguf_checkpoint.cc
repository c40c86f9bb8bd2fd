#include "weights/gguf_checkpoint.h"

#include <charconv>

#include "weights/gguf_architectures.h"
#include "weights/gguf_config.h"
#include "weights/gguf_file.h"
#include "weights/gguf_names.h"
#include "weights/tokenizer_source.h"

namespace tw {
namespace {

namespace fs = std::filesystem;

// Shapes as models ask for them: all heads' matrices below each other, and a matrix of one row that
// converters left as a vector.
void adapt_shape(StoredTensor& tensor) {
  std::vector<int64_t>& shape = tensor.shape;
  const auto is_named = [&](std::string_view end) { return tensor.name.ends_with(end); };
  if (shape.size() == 3 && (is_named(".k_b_proj.weight") || is_named(".v_b_proj.weight"))) {
    shape = {shape[0] * shape[1], shape[2]};
  } else if (shape.size() == 1 && is_named(".shared_expert_gate.weight")) {
    shape.insert(shape.begin(), 1);
  }
}

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
    std::span<const GgufName> layer_names;
    if (const GgufArchitecture* row = architecture()) layer_names = row->layer_names;
    for (size_t part = 0; part < files_.size(); ++part) {
      for (StoredTensor tensor : files_[part].tensors()) {
        tensor.name = hugging_face_name(tensor.name, layer_names);
        adapt_shape(tensor);
        tensors_.push_back(std::move(tensor));
        part_of_tensor_.push_back(part);
      }
    }
    return index_tensors();
  }

  // Null for an unknown one.
  const GgufArchitecture* architecture() const {
    return find_gguf_architecture(files_.front().string("general.architecture").value_or(""));
  }

  void mark_interleaved_heads() {
    if (architecture() == nullptr || !architecture()->interleaved_heads) return;
    const auto ends_with = [](const std::string& name, std::string_view tail) {
      return name.size() >= tail.size() &&
             name.compare(name.size() - tail.size(), tail.size(), tail) == 0;
    };
    const auto mark = [&](StoredTensor& tensor, const char* heads) {
      const int64_t count = config_.value(heads, int64_t{0});
      // A shape that doesn't fit is reported by whoever loads the tensor.
      if (count > 0 && count <= tensor.shape[0] && tensor.shape[0] % (2 * count) == 0) {
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

std::string part_name(std::string_view stem, int part, int count) {
  return fmt::format("{}-{:05d}-of-{:05d}.gguf", stem, part, count);
}

// The parts of NAME-00002-of-00005.gguf in order; the path alone if it is no part of a split file.
std::vector<fs::path> split_parts(const fs::path& path) {
  constexpr std::string_view kTail = "-00002-of-00005.gguf";
  constexpr size_t kDigits = 5;
  const std::string name = path.filename().string();
  if (name.size() < kTail.size()) return {path};
  const std::string_view stem(name.data(), name.size() - kTail.size());
  const auto number_at = [&](size_t offset) {
    int number = 0;
    const char* first = name.data() + stem.size() + offset;
    std::from_chars(first, first + kDigits, number);
    return number;
  };
  const int index = number_at(kTail.find('0')), count = number_at(kTail.rfind('5') - kDigits + 1);
  if (index < 1 || index > count || name != part_name(stem, index, count)) return {path};
  std::vector<fs::path> parts;
  for (int part = 1; part <= count; ++part) {
    parts.push_back(path.parent_path() / part_name(stem, part, count));
  }
  return parts;
}

// Whether the file is the part that its name says, by what converters note in each part.
Status check_part(const GgufFile& file, size_t index, size_t count) {
  const std::string path = file.file().path().string();
  const int64_t stated_count = file.integer("split.count").value_or(static_cast<int64_t>(count));
  if (stated_count > 1 && stated_count != static_cast<int64_t>(count)) {
    return error(ErrorCode::corrupt_data,
                 "{}: is one of {} parts, but {} by its name; parts are named "
                 "NAME-00001-of-{:05d}.gguf",
                 path, stated_count, count, stated_count);
  }
  const int64_t stated_index = file.integer("split.no").value_or(static_cast<int64_t>(index));
  if (count > 1 && stated_index != static_cast<int64_t>(index)) {
    return error(ErrorCode::corrupt_data, "{}: is part {} (split.no) under the name of part {}",
                 path, stated_index + 1, index + 1);
  }
  return {};
}

// All tensors of the split model must have come with the parts.
Status check_split(const std::vector<GgufFile>& files) {
  const GgufFile& first = files.front();
  const auto stated = first.integer("split.tensors.count");
  size_t count = 0;
  for (const GgufFile& file : files) count += file.tensors().size();
  if (files.size() > 1 && stated && *stated != static_cast<int64_t>(count)) {
    return error(ErrorCode::corrupt_data, "{}: split.tensors.count is {}, the parts hold {}",
                 first.file().path().string(), *stated, count);
  }
  return {};
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
    if (Status status = check_part(*file, files.size(), parts.size()); !status) {
      return forward_error(status);
    }
    files.push_back(std::move(*file));
  }
  if (Status status = check_split(files); !status) return forward_error(status);
  return GgufCheckpoint::make(path, std::move(files));
}

}  // namespace tw
