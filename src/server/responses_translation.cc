#include "server/chat_translation.h"
#include "server/request_fields.h"

namespace tw {
namespace {

// Content parts input_text and output_text are chat's text.
Json chat_content(const Json& content) {
  if (!content.is_array()) return content;
  Json parts = Json::array();
  for (const Json& part : content) {
    Json copy = part;
    const Json type = part.is_object() ? part.value("type", Json()) : Json();
    if (type == "input_text" || type == "output_text") copy["type"] = "text";
    if (type == "refusal") copy = {{"type", "text"}, {"text", part.value("refusal", Json(""))}};
    parts.push_back(std::move(copy));
  }
  return parts;
}

class Conversation {
 public:
  // False, with the error in `fields`, for an item that is none.
  void add(RequestFields& fields, const Json& item, const std::string& where) {
    const Json type = item.is_object() ? item.value("type", Json("message")) : Json();
    if (type == "message") {
      Json message = {{"role", item.value("role", Json())},
                      {"content", chat_content(item.value("content", Json()))}};
      if (message["role"] == "developer") message["role"] = "system";
      push(std::move(message));
    } else if (type == "function_call") {
      add_call(item);
    } else if (type == "function_call_output") {
      push({{"role", "tool"},
            {"tool_call_id", item.value("call_id", Json())},
            {"content", chat_content(item.value("output", Json("")))}});
    } else if (type == "reasoning") {
      add_reasoning(item);
    } else {
      fields.fail(where, item, "a message, function_call, function_call_output or reasoning item");
    }
  }

  Json take() { return std::move(messages_); }
  void push(Json message) {
    if (!reasoning_.empty() && message["role"] == "assistant") {
      message["reasoning_content"] = std::exchange(reasoning_, {});
    }
    messages_.push_back(std::move(message));
  }

 private:
  // Calls that follow each other are of one message.
  void add_call(const Json& item) {
    const bool continues = !messages_.empty() && messages_.back()["role"] == "assistant";
    if (!continues) push({{"role", "assistant"}, {"content", nullptr}});
    messages_.back()["tool_calls"].push_back(
        {{"id", item.value("call_id", Json())},
         {"type", "function"},
         {"function",
          {{"name", item.value("name", Json())}, {"arguments", item.value("arguments", Json())}}}});
  }

  void add_reasoning(const Json& item) {
    for (const Json& part : item.value("content", Json::array())) {
      if (part.is_object() && part.contains("text") && part["text"].is_string()) {
        reasoning_ += part["text"].get<std::string>();
      }
    }
  }

  Json messages_ = Json::array();
  std::string reasoning_;  // for the assistant's next message
};

void read_input(RequestFields& fields, Json& chat) {
  Conversation conversation;
  std::string instructions;
  if (fields.read("instructions", instructions)) {
    conversation.push({{"role", "system"}, {"content", instructions}});
  }
  const Json* input = fields.find("input");
  if (!input || (!input->is_string() && (!input->is_array() || input->empty()))) {
    return fields.fail("input", input ? *input : Json(), "a string or an array of items");
  }
  if (input->is_string()) {
    conversation.push({{"role", "user"}, {"content", *input}});
  } else {
    for (size_t i = 0; i < input->size(); ++i) {
      conversation.add(fields, (*input)[i], fmt::format("input[{}]", i));
    }
  }
  chat["messages"] = conversation.take();
}

void read_tools(RequestFields& fields, Json& chat) {
  Json tools;
  if (!fields.read_array("tools", tools)) return;
  chat["tools"] = Json::array();
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json& tool = tools[i];
    if (!tool.is_object() || tool.value("type", Json()) != "function") {
      return fields.fail(fmt::format("tools[{}]", i), tool,
                         "{\"type\": \"function\", ...}: the server runs no tools of its own");
    }
    Json function = tool;
    function.erase("type");
    chat["tools"].push_back({{"type", "function"}, {"function", std::move(function)}});
  }
}

void read_format(RequestFields& fields, Json& chat) {
  Json text;
  if (!fields.read_object("text", text)) return;
  const Json format = text.value("format", Json());
  if (format.is_null()) return;
  if (!format.is_object() || format.value("type", Json()) != "json_schema") {
    chat["response_format"] = format;
    return;
  }
  Json schema = format;
  schema.erase("type");
  chat["response_format"] = {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
}

}  // namespace

ApiExpected<Json> chat_from_responses(const Json& body) {
  RequestFields fields(body);
  Json chat = body.is_object() ? body : Json::object();
  for (const char* name : {"input", "instructions", "tools", "text", "max_output_tokens",
                           "reasoning", "previous_response_id", "background"}) {
    chat.erase(name);
  }
  read_input(fields, chat);
  read_tools(fields, chat);
  read_format(fields, chat);
  if (const Json* limit = fields.find("max_output_tokens")) chat["max_completion_tokens"] = *limit;
  Json reasoning;
  if (fields.read_object("reasoning", reasoning) && reasoning.value("effort", Json()).is_string()) {
    Json& variables = chat["chat_template_kwargs"];
    if (!variables.is_object()) variables = Json::object();
    variables["reasoning_effort"] = reasoning["effort"];
  }
  for (const char* name : {"previous_response_id", "conversation"}) {
    if (const Json* found = fields.find(name)) {
      fields.fail(name, *found, "absent: responses are not stored; send the whole input");
    }
  }
  bool background = false;
  if (fields.read("background", background) && background) {
    fields.fail("background", true, "false: responses are not stored");
  }
  if (fields.failed()) return tl::unexpected(fields.take_error());
  return chat;
}

}  // namespace tw
