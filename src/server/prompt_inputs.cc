#include "server/prompt_inputs.h"

namespace tw {
namespace {

constexpr const char* kPromptForms =
    "a string, an array of strings, an array of token ids, or an array of such arrays";
constexpr size_t kMaxPromptBytes = size_t{64} << 20;

}  // namespace

void read_prompts(RequestFields& fields, std::string_view name, size_t max_prompts,
                  std::vector<PromptInput>& prompts) {
  if (fields.failed()) return;
  const Json* prompt = fields.find(name);
  if (!prompt) return fields.fail(name, nullptr, kPromptForms);
  if (prompt->is_string()) {
    prompts.emplace_back(prompt->get<std::string>());
    return;
  }
  if (!prompt->is_array() || prompt->empty()) return fields.fail(name, *prompt, kPromptForms);
  if (prompt->front().is_number()) {
    auto ids = token_ids_from_json(*prompt, fields.full_name(name));
    if (!ids) return fields.fail(std::move(ids.error()));
    prompts.emplace_back(std::move(*ids));
    return;
  }
  if (prompt->size() > max_prompts) {
    return fields.fail(name, *prompt, fmt::format("at most {} prompts", max_prompts));
  }
  for (size_t i = 0; i < prompt->size(); ++i) {
    const Json& entry = (*prompt)[i];
    const std::string entry_name = fmt::format("{}[{}]", name, i);
    if (entry.is_string() && prompt->front().is_string()) {
      prompts.emplace_back(entry.get<std::string>());
    } else if (entry.is_array() && prompt->front().is_array()) {
      auto ids = token_ids_from_json(entry, fields.full_name(entry_name));
      if (!ids) return fields.fail(std::move(ids.error()));
      prompts.emplace_back(std::move(*ids));
    } else {
      return fields.fail(entry_name, entry, kPromptForms);
    }
  }
}

void check_prompt_bytes(RequestFields& fields, const char* name, size_t num_prompts, size_t bytes) {
  if (bytes <= kMaxPromptBytes) return;
  fields.fail(
      bad_field(name, fmt::format("{}: with the query before each of {}, the prompts have {} "
                                  "bytes; {} are allowed",
                                  name, num_prompts, bytes, kMaxPromptBytes)));
}

}  // namespace tw
