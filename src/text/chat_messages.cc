#include "text/chat_messages.h"

namespace tw {
namespace {

Expected<std::string> text_of_parts(const Json& parts, size_t message_index) {
  std::string text;
  for (const Json& part : parts) {
    const auto type = part.is_object() ? part.find("type") : part.end();
    const auto content = part.is_object() ? part.find("text") : part.end();
    if (content == part.end() || !content->is_string()) {
      return error(ErrorCode::invalid_argument,
                   "messages[{}].content: a part of type {} where this model's chat template takes "
                   "text alone",
                   message_index, type == part.end() ? "unknown" : dump_json(*type));
    }
    if (!text.empty()) text += '\n';
    text += content->get_ref<const std::string&>();
  }
  return text;
}

// Arguments come as JSON text; text that is no object stays as it is.
void adapt_arguments(Json& arguments, bool as_object) {
  if (as_object && arguments.is_string()) {
    auto parsed =
        parse_json(arguments.get_ref<const std::string&>(), "arguments", kRequestJsonLimits);
    if (parsed && parsed->is_object()) arguments = std::move(*parsed);
  } else if (!as_object && !arguments.is_string()) {
    arguments = dump_json(arguments);
  }
}

void adapt_tool_calls(Json& calls, const ChatTemplateForms& forms) {
  if (!calls.is_array()) return;
  for (Json& call : calls) {
    if (!call.is_object()) continue;
    const auto function = call.find("function");
    if (function == call.end() || !function->is_object()) continue;
    const auto arguments = function->find("arguments");
    if (arguments != function->end()) adapt_arguments(*arguments, forms.argument_objects);
  }
}

}  // namespace

Expected<Json> adapt_messages(const Json& messages, const ChatTemplateForms& forms) {
  if (!messages.is_array()) {
    return error(ErrorCode::invalid_argument, "messages: must be an array, found {}",
                 messages.type_name());
  }
  Json adapted = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    if (!message.is_object()) {
      return error(ErrorCode::invalid_argument, "messages[{}]: must be an object, found {}", i,
                   message.type_name());
    }
    Json copy = Json::object();
    for (const auto& [name, value] : message.items()) {
      if (!value.is_null()) copy[name] = value;
    }
    const auto content = copy.find("content");
    if (content == copy.end()) {
      copy["content"] = forms.null_content ? Json(nullptr) : Json("");
    } else if (content->is_array() && !forms.content_parts) {
      auto text = text_of_parts(*content, i);
      if (!text) return forward_error(text);
      *content = std::move(*text);
    }
    const auto calls = copy.find("tool_calls");
    if (calls != copy.end()) adapt_tool_calls(*calls, forms);
    adapted.push_back(std::move(copy));
  }
  return adapted;
}

}  // namespace tw
