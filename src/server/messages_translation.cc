#include "server/chat_translation.h"
#include "server/request_fields.h"

namespace tw {
namespace {

// The text of a string or of an array of text blocks.
std::string text_of(RequestFields& fields, const Json& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (content.is_null()) return {};
  std::string text;
  for (const Json& block : content.is_array() ? content : Json::array({content})) {
    const Json value = block.is_object() ? block.value("text", Json()) : Json();
    if (!value.is_string()) {
      fields.fail(where, block, "a string or blocks {\"type\": \"text\", \"text\": ...}");
      return {};
    }
    if (!text.empty()) text += '\n';
    text += value.get_ref<const std::string&>();
  }
  return text;
}

// One message may hold several of chat's: results of tools come before what the user says.
class MessageTranslator {
 public:
  MessageTranslator(RequestFields& fields, Json& messages) : fields_(fields), messages_(messages) {}

  void add(const Json& message, const std::string& where) {
    const Json role = message.is_object() ? message.value("role", Json()) : Json();
    if (role != "user" && role != "assistant" && role != "system") {
      return fields_.fail(where, message, "an object with role user or assistant, and content");
    }
    const Json content = message.value("content", Json());
    if (content.is_string()) {
      messages_.push_back({{"role", role}, {"content", content}});
      return;
    }
    if (!content.is_array()) {
      return fields_.fail(where + ".content", content, "a string or an array of blocks");
    }
    Json text = Json::array();
    Json calls = Json::array();
    std::string thinking;
    for (size_t i = 0; i < content.size() && !fields_.failed(); ++i) {
      add_block(content[i], fmt::format("{}.content[{}]", where, i), text, calls, thinking);
    }
    if (text.empty() && calls.empty() && role == "user") return;
    Json chat = {{"role", role}, {"content", text.empty() ? Json() : text}};
    if (!calls.empty()) chat["tool_calls"] = std::move(calls);
    if (!thinking.empty()) chat["reasoning_content"] = thinking;
    messages_.push_back(std::move(chat));
  }

 private:
  void add_block(const Json& block, const std::string& where, Json& text, Json& calls,
                 std::string& thinking) {
    const Json type = block.is_object() ? block.value("type", Json()) : Json();
    if (type == "text") {
      text.push_back({{"type", "text"}, {"text", block.value("text", Json())}});
    } else if (type == "tool_use") {
      const Json input = block.value("input", Json::object());
      calls.push_back(
          {{"id", block.value("id", Json())},
           {"type", "function"},
           {"function", {{"name", block.value("name", Json())}, {"arguments", dump_json(input)}}}});
    } else if (type == "tool_result") {
      messages_.push_back(
          {{"role", "tool"},
           {"tool_call_id", block.value("tool_use_id", Json())},
           {"content", text_of(fields_, block.value("content", Json()), where + ".content")}});
    } else if (type == "thinking") {
      const Json value = block.value("thinking", Json());
      if (value.is_string()) thinking += value.get<std::string>();
    } else if (type != "redacted_thinking") {
      fields_.fail(where, block,
                   "a block of type text, tool_use, tool_result or thinking: this model takes text "
                   "alone");
    }
  }

  RequestFields& fields_;
  Json& messages_;
};

void read_messages(RequestFields& fields, Json& chat) {
  Json messages = Json::array();
  if (const Json* system = fields.find("system")) {
    messages.push_back({{"role", "system"}, {"content", text_of(fields, *system, "system")}});
  }
  Json given;
  if (!fields.read_array("messages", given) || given.empty()) {
    return fields.fail("messages", given, "an array of at least one message");
  }
  MessageTranslator translator(fields, messages);
  for (size_t i = 0; i < given.size() && !fields.failed(); ++i) {
    translator.add(given[i], fmt::format("messages[{}]", i));
  }
  chat["messages"] = std::move(messages);
}

void read_tools(RequestFields& fields, Json& chat) {
  Json tools;
  if (!fields.read_array("tools", tools)) return;
  chat["tools"] = Json::array();
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json& tool = tools[i];
    const Json type = tool.is_object() ? tool.value("type", Json("custom")) : Json();
    if (type != "custom") {
      return fields.fail(fmt::format("tools[{}]", i), tool,
                         "an object with name, description and input_schema: the server runs no "
                         "tools of its own");
    }
    chat["tools"].push_back({{"type", "function"},
                             {"function",
                              {{"name", tool.value("name", Json())},
                               {"description", tool.value("description", Json(""))},
                               {"parameters", tool.value("input_schema", Json())}}}});
  }
}

void read_tool_choice(RequestFields& fields, Json& chat) {
  Json choice;
  if (!fields.read_object("tool_choice", choice)) return;
  const Json type = choice.value("type", Json());
  if (type == "auto" || type == "none") {
    chat["tool_choice"] = type;
  } else if (type == "any") {
    chat["tool_choice"] = "required";
  } else if (type == "tool") {
    chat["tool_choice"] = {{"type", "function"},
                           {"function", {{"name", choice.value("name", Json())}}}};
  } else {
    fields.fail("tool_choice.type", type, "\"auto\", \"any\", \"tool\" or \"none\"");
  }
  if (choice.value("disable_parallel_tool_use", Json()) == true) {
    chat["parallel_tool_calls"] = false;
  }
}

}  // namespace

ApiExpected<Json> chat_from_messages(const Json& body, bool needs_max_tokens) {
  RequestFields fields(body);
  Json chat = body.is_object() ? body : Json::object();
  for (const char* name :
       {"system", "messages", "tools", "tool_choice", "stop_sequences", "thinking"}) {
    chat.erase(name);
  }
  read_messages(fields, chat);
  read_tools(fields, chat);
  read_tool_choice(fields, chat);
  if (const Json* stops = fields.find("stop_sequences")) chat["stop"] = *stops;
  if (needs_max_tokens && !fields.find("max_tokens")) {
    fields.fail("max_tokens", nullptr, "an integer of at least 1");
  }
  Json thinking;
  if (fields.read_object("thinking", thinking)) {
    // Qwen's and GLM's templates know it by one name, DeepSeek's by another.
    const bool enabled = thinking.value("type", Json()) != "disabled";
    Json& variables = chat["chat_template_kwargs"];
    if (!variables.is_object()) variables = Json::object();
    for (const char* name : {"enable_thinking", "thinking"}) variables[name] = enabled;
  }
  if (fields.failed()) return tl::unexpected(fields.take_error());
  return chat;
}

}  // namespace tw
