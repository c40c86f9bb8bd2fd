#include "server/chat_request.h"

namespace tw {
namespace {

void check_content(RequestFields& fields, const Json& content, const std::string& where) {
  if (content.is_null() || content.is_string()) return;
  if (!content.is_array()) {
    return fields.fail(where, content, "a string, null or an array of content parts");
  }
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string part_name = fmt::format("{}[{}]", where, i);
    const Json& part = content[i];
    if (part.is_string()) continue;
    if (!part.is_object()) return fields.fail(part_name, part, "a content part (an object)");
    const auto type = part.find("type");
    if (type == part.end() || !type->is_string()) {
      return fields.fail(part_name + ".type", type == part.end() ? Json(nullptr) : *type,
                         "\"text\"");
    }
    if (*type != "text") {
      return fields.fail(part_name + ".type", *type, "\"text\": this model takes text alone");
    }
    const auto text = part.find("text");
    if (text == part.end() || !text->is_string()) {
      return fields.fail(part_name + ".text", text == part.end() ? Json(nullptr) : *text,
                         "a string");
    }
  }
}

void check_messages(RequestFields& fields, const Json& messages) {
  if (messages.empty())
    return fields.fail("messages", messages, "an array of at least one message");
  for (size_t i = 0; i < messages.size() && !fields.failed(); ++i) {
    const Json& message = messages[i];
    const std::string where = fmt::format("messages[{}]", i);
    if (!message.is_object()) return fields.fail(where, message, "an object with role and content");
    const auto role = message.find("role");
    if (role == message.end() || !role->is_string()) {
      return fields.fail(where + ".role", role == message.end() ? Json(nullptr) : *role,
                         "a string: system, user, assistant or tool");
    }
    const auto content = message.find("content");
    if (content != message.end()) check_content(fields, *content, where + ".content");
  }
}

// "none" hides the tools from the template; what would force a call needs constrained decoding.
void read_tools(RequestFields& fields, ChatRequest& request) {
  fields.read_array("tools", request.tools);
  const Json* choice = fields.find("tool_choice");
  if (!choice) return;
  if (*choice == Json("none")) {
    request.tools = nullptr;
  } else if (*choice != Json("auto")) {
    fields.fail("tool_choice", *choice, "\"none\" or \"auto\": forced calls are not supported");
  }
}

}  // namespace

ApiExpected<ChatRequest> parse_chat_request(const Json& body, const RequestDefaults& defaults) {
  RequestFields fields(body);
  ChatRequest request;
  request.openai.generation.sampling = defaults.sampling;
  read_openai_common(fields, request.openai);
  if (!fields.read_array("messages", request.messages) && !fields.failed()) {
    fields.fail("messages", nullptr, "an array of messages");
  }
  if (!fields.failed()) check_messages(fields, request.messages);
  read_tools(fields, request);
  fields.read_object("chat_template_kwargs", request.template_kwargs);
  fields.read("add_generation_prompt", request.add_generation_prompt);
  fields.read("logprobs", request.logprobs);
  if (fields.read("top_logprobs", request.top_logprobs, {.min = 0, .max = kMaxTopLogprobs}) &&
      request.top_logprobs > 0 && !request.logprobs) {
    fields.fail("top_logprobs", request.top_logprobs, "absent unless logprobs is true");
  }
  if (fields.failed()) return tl::unexpected(fields.take_error());
  return request;
}

}  // namespace tw
