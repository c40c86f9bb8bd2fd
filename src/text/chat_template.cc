#include "text/chat_template.h"

#include <ctime>

#include "text/chat_messages.h"
#include "text/text_ffi.h"

namespace tw {
namespace {

constexpr std::string_view kErrorSource = "chat template";

// The members *_token, each as its text.
Json token_variables(const Json& special_tokens) {
  Json variables = Json::object();
  if (!special_tokens.is_object()) return variables;
  for (const auto& [name, value] : special_tokens.items()) {
    if (!name.ends_with("_token")) continue;
    if (value.is_string()) {
      variables[name] = value;
    } else if (value.is_object() && value.contains("content") && value["content"].is_string()) {
      variables[name] = value["content"];
    }
  }
  return variables;
}

}  // namespace

struct ChatTemplate::Handle {
  Handle(tw_text_template* owned, std::string_view text, Json tokens)
      : compiled(owned), source(text), token_variables(std::move(tokens)) {}
  ~Handle() { tw_text_template_free(compiled); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  // `messages` in the forms that the template reads.
  Expected<std::string> render(const Json& messages, const Json& tools, bool add_generation_prompt,
                               const Json& extra, std::optional<int64_t> unix_time) const;
  ChatTemplateForms find_forms() const;

  tw_text_template* compiled;
  std::string source;
  Json token_variables;
  ChatTemplateForms forms;
};

Expected<std::string> ChatTemplate::Handle::render(const Json& messages, const Json& tools,
                                                   bool add_generation_prompt, const Json& extra,
                                                   std::optional<int64_t> unix_time) const {
  Json variables = token_variables;
  if (extra.is_object()) {
    for (const auto& [name, value] : extra.items()) variables[name] = value;
  }
  variables["messages"] = messages;
  variables["tools"] = tools;
  variables["add_generation_prompt"] = add_generation_prompt;
  const std::string json = dump_json(variables);

  tw_text_string text;
  tw_text_string message;
  const tw_text_status status = tw_text_template_render(
      compiled, json.data(), json.size(), unix_time.value_or(std::time(nullptr)), &text, &message);
  if (status != TW_TEXT_OK) return text_error(status, message, kErrorSource);
  return take_string(text);
}

// Renders a conversation in each form and keeps the first that comes out whole. A template that
// fails on all (it may demand things that no probe has) keeps the usual form.
ChatTemplateForms ChatTemplate::Handle::find_forms() const {
  const std::string marker = "tilewright-probe";
  const Json user = {{"role", "user"}, {"content", "x"}};
  const auto shows = [&](const Json& messages) {
    const auto text = render(messages, nullptr, false, nullptr, 0);
    // Python's "None" in a prompt is a null that the template did not expect.
    return text && text->find(marker) != std::string::npos && text->find("None") == text->npos;
  };

  ChatTemplateForms found;
  const Json part = {{"type", "text"}, {"text", marker}};
  const Json parts_message = {{"role", "user"}, {"content", Json::array({part})}};
  const auto parts = render(Json::array({parts_message}), nullptr, false, nullptr, 0);
  // A template that prints the array itself shows its keys, too.
  found.content_parts = parts && parts->find(marker) != std::string::npos &&
                        parts->find("'type'") == std::string::npos &&
                        parts->find("\"type\"") == std::string::npos;

  const auto call_message = [&](const Json& content, const Json& arguments) {
    const Json function = {{"name", "f"}, {"arguments", arguments}};
    const Json call = {{"id", "call00000"}, {"type", "function"}, {"function", function}};
    return Json{{"role", "assistant"}, {"content", content}, {"tool_calls", Json::array({call})}};
  };
  const Json arguments = {{"a", marker}};
  for (const bool argument_objects : {true, false}) {
    for (const bool null_content : {true, false}) {
      const Json message = call_message(null_content ? Json(nullptr) : Json(""),
                                        argument_objects ? arguments : Json(dump_json(arguments)));
      if (!shows(Json::array({user, message}))) continue;
      found.null_content = null_content;
      found.argument_objects = argument_objects;
      return found;
    }
  }
  // No tool calls in this template: see whether it stands null content at all.
  const Json silent = {{"role", "assistant"}, {"content", nullptr}};
  const auto text = render(Json::array({user, silent}), nullptr, false, nullptr, 0);
  found.null_content = text && text->find("None") == std::string::npos;
  return found;
}

Expected<ChatTemplate> ChatTemplate::compile(std::string_view source, const Json& special_tokens) {
  tw_text_template* compiled = nullptr;
  tw_text_string message;
  const tw_text_status status =
      tw_text_template_compile(source.data(), source.size(), &compiled, &message);
  if (status != TW_TEXT_OK) return text_error(status, message, kErrorSource);
  auto handle = std::make_shared<Handle>(compiled, source, tw::token_variables(special_tokens));
  handle->forms = handle->find_forms();
  return ChatTemplate(std::move(handle));
}

Expected<std::string> ChatTemplate::render(const Json& messages, const Json& tools,
                                           bool add_generation_prompt, const Json& extra,
                                           std::optional<int64_t> unix_time) const {
  if (!tools.is_null() && !tools.is_array()) {
    return error(ErrorCode::invalid_argument, "tools: must be an array, found {}",
                 tools.type_name());
  }
  if (!extra.is_null() && !extra.is_object()) {
    return error(ErrorCode::invalid_argument, "chat_template_kwargs: must be an object, found {}",
                 extra.type_name());
  }
  auto adapted = adapt_messages(messages, handle_->forms);
  if (!adapted) return forward_error(adapted);
  return handle_->render(*adapted, tools, add_generation_prompt, extra, unix_time);
}

const std::string& ChatTemplate::source() const {
  return handle_->source;
}

const ChatTemplateForms& ChatTemplate::forms() const {
  return handle_->forms;
}

}  // namespace tw
