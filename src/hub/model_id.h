// Names of models on a hub: "organization/name", with ":TAG" for one GGUF file of several.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tw {

struct ModelId {
  std::string repository;  // "Qwen/Qwen3-0.6B"
  std::string tag;         // "Q4_K_M"; empty: none
};

// Nothing for what can only be a path.
std::optional<ModelId> parse_model_id(std::string_view text);

// Whether a name of a hub's answer may become a path below a folder: no absolute ones, none that
// lead out of it.
bool is_safe_relative_path(std::string_view path);

}  // namespace tw
