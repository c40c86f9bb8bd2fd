#include "weights/hugging_face_checkpoint.h"

#include <map>
#include <set>

#include "core/text_file.h"
#include "weights/header_json.h"
#include "weights/safetensors_file.h"
#include "weights/tokenizer_source.h"

namespace tw {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxTextFile = 256 << 20;
constexpr int kMaxIndexDepth = 8;  // the format needs 2

Expected<std::string> read_text(const fs::path& path) {
  std::error_code failure;
  const auto size = fs::file_size(path, failure);
  if (failure) return error(ErrorCode::not_found, "{}: {}", path.string(), failure.message());
  if (size > kMaxTextFile) {
    return error(ErrorCode::corrupt_data, "{}: {} bytes; at most {} are read", path.string(), size,
                 kMaxTextFile);
  }
  auto text = read_text_file(path);
  if (!text) return error(ErrorCode::internal, "{}: cannot read", path.string());
  return std::move(*text);
}

Expected<Json> read_object(const fs::path& path) {
  auto text = read_text(path);
  if (!text) return forward_error(text);
  auto value = parse_json(*text, path.string());
  if (!value) return error(ErrorCode::corrupt_data, "{}", value.error().message);
  if (!value->is_object()) {
    return error(ErrorCode::corrupt_data, "{}: expected a JSON object", path.string());
  }
  return value;
}

// A file that cannot be looked at is there: reading it gives the reason.
bool is_there(const fs::path& path) {
  std::error_code failure;
  return fs::exists(path, failure) || failure;
}

Expected<Json> read_object_if_present(const fs::path& path) {
  if (!is_there(path)) return Json::object();
  return read_object(path);
}

// Special tokens are written as strings or as objects with their text in "content".
void flatten_special_tokens(Json& config) {
  for (auto& [key, value] : config.items()) {
    if (value.is_object() && value.contains("content") && value["content"].is_string()) {
      value = std::string(value["content"].get<std::string>());
    }
  }
}

// The template inside tokenizer_config.json: a string, or a list of named ones.
std::optional<std::string> take_chat_template(Json& config) {
  const auto found = config.find("chat_template");
  if (found == config.end()) return std::nullopt;
  std::optional<std::string> result;
  if (found->is_string()) {
    result = found->get<std::string>();
  } else if (found->is_array()) {
    for (const Json& entry : *found) {
      if (!entry.is_object() || !entry.contains("template") || !entry["template"].is_string()) {
        continue;
      }
      const bool is_default = entry.contains("name") && entry["name"] == "default";
      if (!result || is_default) result = entry["template"].get<std::string>();
      if (is_default) break;
    }
  }
  config.erase("chat_template");
  return result;
}

class HuggingFaceCheckpoint final : public Checkpoint {
 public:
  static Expected<std::unique_ptr<Checkpoint>> open(const fs::path& folder) {
    auto checkpoint = std::make_unique<HuggingFaceCheckpoint>();
    checkpoint->path_ = folder;
    if (Status status = checkpoint->read_configuration(); !status) return forward_error(status);
    if (Status status = checkpoint->open_shards(); !status) return forward_error(status);
    return checkpoint;
  }

  const fs::path& path() const override { return path_; }
  const char* container() const override { return "safetensors"; }
  std::span<const StoredTensor> tensors() const override { return tensors_; }
  const Json& config() const override { return config_; }
  const Json& generation_config() const override { return generation_config_; }
  const Json& tokenizer_config() const override { return tokenizer_config_; }
  std::optional<std::string> chat_template() const override { return chat_template_; }

  Expected<TokenizerSource> tokenizer_source() const override {
    auto text = read_text(path_ / "tokenizer.json");
    if (!text) return forward_error(text);
    return TokenizerSource{std::move(*text), std::nullopt};
  }

  void release(const StoredTensor& tensor) const override {
    shards_[shard_of_tensor_[static_cast<size_t>(&tensor - tensors_.data())]].file().release(
        tensor.data);
  }

 private:
  Status read_configuration() {
    auto config = read_object(path_ / "config.json");
    if (!config) return forward_error(config);
    config_ = std::move(*config);
    if (Status status = read_modelopt_configuration(); !status) return status;
    auto generation = read_object_if_present(path_ / "generation_config.json");
    if (!generation) return forward_error(generation);
    generation_config_ = std::move(*generation);
    auto tokenizer = read_object_if_present(path_ / "tokenizer_config.json");
    if (!tokenizer) return forward_error(tokenizer);
    tokenizer_config_ = std::move(*tokenizer);
    chat_template_ = take_chat_template(tokenizer_config_);
    flatten_special_tokens(tokenizer_config_);
    // The newer place wins.
    if (is_there(path_ / "chat_template.jinja")) {
      auto text = read_text(path_ / "chat_template.jinja");
      if (!text) return forward_error(text);
      chat_template_ = std::move(*text);
    }
    return {};
  }

  // ModelOpt's older checkpoints describe their quantization in a file of its own.
  Status read_modelopt_configuration() {
    if (config_.contains("quantization_config")) return {};
    auto file = read_object_if_present(path_ / "hf_quant_config.json");
    if (!file) return forward_error(file);
    const auto quantization = file->find("quantization");
    if (quantization == file->end() || !quantization->is_object()) return {};
    config_["quantization_config"] = *quantization;
    config_["quantization_config"]["quant_method"] = "modelopt";
    return {};
  }

  Status open_shards() {
    const fs::path index = path_ / "model.safetensors.index.json";
    const fs::path single = path_ / "model.safetensors";
    if (is_there(index)) return open_indexed(index);
    if (is_there(single)) {
      if (Status status = add_shard(single, nullptr); !status) return status;
      return index_tensors();
    }
    return error(ErrorCode::not_found,
                 "{}: has neither model.safetensors nor model.safetensors.index.json",
                 path_.string());
  }

  Status open_indexed(const fs::path& index_path) {
    auto text = read_text(index_path);
    if (!text) return forward_error(text);
    auto index = parse_header_json(*text, index_path.string(), kMaxIndexDepth);
    if (!index) return forward_error(index);
    const auto map = index->find("weight_map");
    if (map == index->end() || !map->is_object()) {
      return error(ErrorCode::corrupt_data, "{}: no object \"weight_map\"", index_path.string());
    }
    std::map<std::string, std::set<std::string>> names_of_shard;
    for (const auto& [tensor, shard] : map->items()) {
      const std::string file = shard.is_string() ? shard.get<std::string>() : "";
      // A shard lies in the folder itself: an index must not lead elsewhere.
      if (file.empty() || fs::path(file).filename() != fs::path(file)) {
        return error(ErrorCode::corrupt_data, "{}: tensor {} is mapped to {}, not a file name",
                     index_path.string(), tensor, dump_header_json(shard));
      }
      names_of_shard[file].insert(tensor);
    }
    for (auto& [file, names] : names_of_shard) {
      if (!is_there(path_ / file)) {
        return error(ErrorCode::not_found, "{}: shard {} is missing (it holds {} and {} more)",
                     index_path.string(), file, *names.begin(), names.size() - 1);
      }
      if (Status status = add_shard(path_ / file, &names); !status) return status;
      if (!names.empty()) {
        return error(ErrorCode::corrupt_data, "{}: tensor {} is not in {}", index_path.string(),
                     *names.begin(), file);
      }
    }
    return index_tensors();
  }

  // Adds the shard's tensors; with `wanted`, only those, and takes them off the set.
  Status add_shard(const fs::path& path, std::set<std::string>* wanted) {
    auto shard = SafetensorsFile::open(path);
    if (!shard) return forward_error(shard);
    for (const StoredTensor& tensor : shard->tensors()) {
      if (wanted != nullptr && wanted->erase(tensor.name) == 0) continue;
      tensors_.push_back(tensor);
      shard_of_tensor_.push_back(shards_.size());
    }
    shards_.push_back(std::move(*shard));
    return {};
  }

  fs::path path_;
  Json config_;
  Json generation_config_;
  Json tokenizer_config_;
  std::optional<std::string> chat_template_;
  std::vector<SafetensorsFile> shards_;
  std::vector<StoredTensor> tensors_;
  std::vector<size_t> shard_of_tensor_;
};

}  // namespace

Expected<std::unique_ptr<Checkpoint>> open_hugging_face_checkpoint(const fs::path& folder) {
  return HuggingFaceCheckpoint::open(folder);
}

}  // namespace tw
