#include "server/chat_request.h"

#include "text/tool_parsers/tool_parser.h"

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

void check_tools(RequestFields& fields, const Json& tools) {
  for (size_t i = 0; i < tools.size() && !fields.failed(); ++i) {
    const std::string where = fmt::format("tools[{}]", i);
    const Json& tool = tools[i];
    const Json type = tool.is_object() ? tool.value("type", Json("function")) : Json();
    if (type != "function") return fields.fail(where, tool, "{\"type\": \"function\", ...}");
    const auto function = tool.find("function");
    if (function == tool.end() || !function->is_object()) {
      return fields.fail(where + ".function", function == tool.end() ? Json() : *function,
                         "an object with name, description and parameters");
    }
    const Json name = function->value("name", Json());
    if (!name.is_string() || name.get_ref<const std::string&>().empty()) {
      return fields.fail(where + ".function.name", name, "a string that is not empty");
    }
    const Json parameters = function->value("parameters", Json());
    if (!parameters.is_null() && !parameters.is_object()) {
      return fields.fail(where + ".function.parameters", parameters, "a JSON schema (an object)");
    }
  }
}

// The function that {"type": "function", "function": {"name": ...}} names.
std::string named_function(const Json& choice) {
  if (!choice.is_object() || choice.value("type", Json("function")) != "function") return {};
  const auto function = choice.find("function");
  const Json& holder = function == choice.end() ? choice : *function;
  const Json name = holder.is_object() ? holder.value("name", Json()) : Json();
  return name.is_string() ? name.get<std::string>() : std::string();
}

void read_tool_choice(RequestFields& fields, const Json& choice, ChatRequest& request) {
  if (choice == "none") {
    request.tool_choice = ToolChoice::none;
  } else if (choice == "required" || choice == "any") {
    request.tool_choice = ToolChoice::required;
  } else if (choice.is_object()) {
    request.tool_choice = ToolChoice::named;
    request.tool_name = named_function(choice);
    const ToolSchemas schemas(request.tools);
    if (!schemas.has(request.tool_name)) {
      fields.fail("tool_choice", choice,
                  fmt::format("the name of one of the tools ({})", schemas.names()));
    }
  } else if (choice != "auto") {
    fields.fail("tool_choice", choice,
                "\"none\", \"auto\", \"required\" or {\"type\": \"function\", \"function\": "
                "{\"name\": ...}}");
  }
}

void read_tools(RequestFields& fields, ChatRequest& request) {
  if (fields.read_array("tools", request.tools)) check_tools(fields, request.tools);
  if (request.tools.empty()) request.tools = nullptr;
  fields.read("parallel_tool_calls", request.parallel_tool_calls);
  const Json* choice = fields.find("tool_choice");
  if (choice) read_tool_choice(fields, *choice, request);
  if (request.forces_call() && request.tools.is_null() && !fields.failed()) {
    fields.fail("tool_choice", *choice, "\"none\" or \"auto\" without tools");
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
  fields.read("separate_reasoning", request.separate_reasoning);
  fields.read("logprobs", request.logprobs);
  if (fields.read("top_logprobs", request.top_logprobs, {.min = 0, .max = kMaxTopLogprobs}) &&
      request.top_logprobs > 0 && !request.logprobs) {
    fields.fail("top_logprobs", request.top_logprobs, "absent unless logprobs is true");
  }
  if (fields.failed()) return tl::unexpected(fields.take_error());
  return request;
}

}  // namespace tw
