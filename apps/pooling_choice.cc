#include "apps/pooling_choice.h"

#include <filesystem>

#include "core/json.h"
#include "core/text_file.h"

namespace tw {
namespace {

struct PoolingField {
  const char* name;
  Pooling pooling;
};

// Those of sentence-transformers' Pooling that exist here.
constexpr PoolingField kFields[] = {{"pooling_mode_lasttoken", Pooling::last},
                                    {"pooling_mode_mean_tokens", Pooling::mean},
                                    {"pooling_mode_cls_token", Pooling::cls}};

Expected<Pooling> pooling_of(const std::filesystem::path& path) {
  const auto config = parse_json(read_text_file(path).value_or(""), path.string());
  if (!config) return tl::unexpected(config.error());
  for (const PoolingField& field : kFields) {
    if (config->is_object() && config->value(field.name, Json()) == true) return field.pooling;
  }
  return error(ErrorCode::unsupported,
               "{}: none of pooling_mode_lasttoken, pooling_mode_mean_tokens and "
               "pooling_mode_cls_token is true; choose with --pooling {}",
               path.string(), pooling_names());
}

}  // namespace

Status check_pooling(const std::string& name) {
  if (name == "auto" || find_pooling(name)) return {};
  return error(ErrorCode::invalid_argument, "--pooling {}: unknown; use auto, {}", name,
               pooling_names());
}

Expected<Pooling> choose_pooling(const std::string& name, const Checkpoint& checkpoint) {
  if (Status status = check_pooling(name); !status) return forward_error(status);
  if (const auto pooling = find_pooling(name)) return *pooling;
  const std::filesystem::path path = checkpoint.path() / "1_Pooling/config.json";
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) ? pooling_of(path) : Pooling::last;
}

}  // namespace tw
