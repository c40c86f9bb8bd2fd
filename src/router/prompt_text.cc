#include "router/prompt_text.h"

#include "core/json.h"

namespace tw {
namespace {

// What is larger holds up other requests for longer than a cached prefix is worth.
constexpr size_t kMaxBodyBytes = size_t{8} << 20;

// Lists piece by piece, so that a list which goes on begins with the text of what it goes on from.
void append(std::string& text, const Json& value) {
  if (value.is_string()) {
    text += value.get_ref<const std::string&>();
  } else if (value.is_array()) {
    for (const Json& piece : value) {
      append(text, piece);
      text += '\n';
    }
  } else {
    text += dump_json(value);
  }
}

}  // namespace

std::string prompt_text(std::string_view body) {
  if (body.size() > kMaxBodyBytes) return {};
  const auto request = parse_json(body, "body");
  if (!request || !request->is_object()) return {};
  std::string prompt;
  for (const char* field : {"tools", "system", "instructions", "messages", "prompt", "text",
                            "input_ids", "input", "query", "documents"}) {
    const auto found = request->find(field);
    if (found != request->end() && !found->is_null()) append(prompt, *found);
  }
  if (prompt.empty()) return {};
  std::string text;
  for (const char* field : {"model", "lora_path"}) {
    if (const auto found = request->find(field); found != request->end()) append(text, *found);
  }
  return text + '\n' + prompt;
}

}  // namespace tw
