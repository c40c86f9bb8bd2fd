#include "hub/model_id.h"

#include <algorithm>

namespace tw {
namespace {

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 96 && text.front() != '.' && text.front() != '-' &&
         text.find("..") == std::string_view::npos && std::ranges::all_of(text, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
         });
}

}  // namespace

std::optional<ModelId> parse_model_id(std::string_view text) {
  ModelId id;
  if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    id.tag = text.substr(colon + 1);
    text = text.substr(0, colon);
    if (!is_name(id.tag)) return std::nullopt;
  }
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos || !is_name(text.substr(0, slash)) ||
      !is_name(text.substr(slash + 1)) || text.ends_with(".gguf")) {
    return std::nullopt;
  }
  id.repository = text;
  return id;
}

bool is_safe_relative_path(std::string_view path) {
  if (path.empty() || path.size() > 1024 || path.find('\\') != std::string_view::npos) return false;
  if (std::ranges::any_of(path, [](unsigned char c) { return c < ' ' || c == 127; })) return false;
  for (;;) {
    const size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    path = path.substr(slash + 1);
  }
}

}  // namespace tw
