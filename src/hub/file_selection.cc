#include "hub/file_selection.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>

namespace tw {
namespace {

// Beside the weights; what is not there is not needed.
constexpr std::string_view kSmallFiles[] = {
    "config.json",           "generation_config.json",  "tokenizer.json",
    "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
    "hf_quant_config.json",  "1_Pooling/config.json",   "model.safetensors.index.json"};

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

bool is_digits(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c); });
}

// "a-00001-of-00003" -> "a".
std::string_view without_part(std::string_view stem) {
  constexpr size_t kLength = std::string_view("-00001-of-00003").size();
  if (stem.size() <= kLength) return stem;
  const std::string_view part = stem.substr(stem.size() - kLength);
  const bool is_part = part[0] == '-' && is_digits(part.substr(1, 5)) &&
                       part.substr(6, 4) == "-of-" && is_digits(part.substr(10, 5));
  return is_part ? stem.substr(0, stem.size() - kLength) : stem;
}

// GGUF models by the name that their parts share. Projectors of images are no models.
std::map<std::string, std::vector<std::string>> gguf_models(const std::vector<std::string>& files) {
  std::map<std::string, std::vector<std::string>> models;
  constexpr std::string_view kSuffix = ".gguf";
  for (const std::string& file : files) {
    const std::string name = lower(file.substr(file.rfind('/') + 1));
    if (!name.ends_with(kSuffix) || name.starts_with("mmproj")) continue;
    const std::string stem = file.substr(0, file.size() - kSuffix.size());
    models[std::string(without_part(stem))].push_back(file);
  }
  for (auto& [name, parts] : models) std::ranges::sort(parts);
  return models;
}

// What comes behind the last '-' or '.' of a model's name: "Q4_K_M".
std::string tag_of(const std::string& model) {
  return model.substr(model.find_last_of("-./") + 1);
}

template <typename Models>
std::string tags_of(const Models& models) {
  std::string tags;
  for (const auto& [name, parts] : models) tags += (tags.empty() ? "" : ", ") + tag_of(name);
  return tags;
}

bool is_weights(const std::string& file) {
  return file.ends_with(".safetensors") && file.starts_with("model") &&
         file.find('/') == std::string::npos;
}

// A single file beside the parts of a split one would be the same weights again.
std::vector<std::string> weight_files(const std::vector<std::string>& files) {
  std::vector<std::string> weights;
  const bool has_index = std::ranges::find(files, "model.safetensors.index.json") != files.end();
  for (const std::string& file : files) {
    if (is_weights(file) &&
        (has_index ? file.find("-of-") != std::string::npos : file == "model.safetensors")) {
      weights.push_back(file);
    }
  }
  return weights;
}

FileSelection folder_of(const std::vector<std::string>& files, std::vector<std::string> weights) {
  FileSelection selection;
  for (const std::string& file : files) {
    if (std::ranges::find(kSmallFiles, file) != std::end(kSmallFiles)) {
      selection.files.push_back(file);
    }
  }
  selection.files.insert(selection.files.end(), weights.begin(), weights.end());
  return selection;
}

}  // namespace

Expected<FileSelection> select_files(const ModelId& id, const std::vector<std::string>& files) {
  const auto models = gguf_models(files);
  if (!id.tag.empty()) {
    for (const auto& [name, parts] : models) {
      if (lower(tag_of(name)) == lower(id.tag)) return FileSelection{parts, parts.front()};
    }
    return error(
        ErrorCode::not_found, "{}:{}: the repository has {}{}", id.repository, id.tag,
        models.empty() ? "no GGUF files; leave :" + id.tag + " away" : "no such GGUF file; it has ",
        tags_of(models));
  }
  if (auto weights = weight_files(files); !weights.empty()) {
    return folder_of(files, std::move(weights));
  }
  if (models.size() == 1) {
    const auto& parts = models.begin()->second;
    return FileSelection{parts, parts.front()};
  }
  if (models.empty()) {
    return error(ErrorCode::unsupported,
                 "{}: the repository has neither model.safetensors, nor "
                 "model.safetensors.index.json with its parts, nor a GGUF file",
                 id.repository);
  }
  return error(ErrorCode::invalid_argument,
               "{}: the repository has several GGUF files; choose one with {}:TAG, TAG of {}",
               id.repository, id.repository, tags_of(models));
}

}  // namespace tw
