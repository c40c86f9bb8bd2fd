#include "server/chat_generation.h"

namespace tw {
namespace {

// From where on a grammar holds, given how the model reasons before it answers.
ApiExpected<GrammarStart> grammar_start(Service& service, ReasoningStart reasoning) {
  const ReasoningFormat* format = service.model().reasoning_format;
  if (!format || reasoning == ReasoningStart::outside) return GrammarStart{};
  const Tokenizer& tokenizer = service.model().tokenizer;
  auto end = tokenizer.encode(format->end, false);
  if (!end) return tl::unexpected(to_api_error(end.error()));
  GrammarStart start{.after = std::move(*end)};
  // A model that may begin with reasoning or without shows it by its first token.
  if (reasoning == ReasoningStart::unknown && !format->is_harmony) {
    start.only_if_first = tokenizer.token_to_id(format->begin).value_or(-1);
    if (start.only_if_first < 0) start.after.clear();
  }
  return start;
}

class ParserFactory {
 public:
  ParserFactory(const ServedModel& model, const ChatRequest& request, ReasoningStart start)
      : model_(model),
        request_(request),
        start_(start),
        schemas_(std::make_shared<const ToolSchemas>(request.tools)) {}

  TextPipeline make() const {
    const bool has_tools = !request_.tools.is_null() && request_.tool_choice != ToolChoice::none;
    const ToolFormat* format = has_tools ? model_.tool_format : nullptr;
    const bool is_harmony = model_.reasoning_format && model_.reasoning_format->is_harmony;
    std::vector<std::unique_ptr<TextParser>> stages;
    if (model_.reasoning_format && request_.separate_reasoning) {
      stages.push_back(make_reasoning_parser(*model_.reasoning_format, start_));
    }
    if (request_.forces_call()) {
      stages.push_back(make_json_array_parser(schemas_));
    } else if (format && !(is_harmony && request_.separate_reasoning)) {
      stages.push_back(format->make(schemas_));
    }
    return TextPipeline(std::move(stages));
  }

  // The marks of the formats must be in the text.
  bool needs_special_tokens() const {
    const bool for_tools =
        !request_.tools.is_null() && model_.tool_format && model_.tool_format->special_tokens;
    return for_tools || (model_.reasoning_format && request_.separate_reasoning);
  }

 private:
  const ServedModel& model_;
  const ChatRequest& request_;
  const ReasoningStart start_;
  const ToolSchemasPtr schemas_;
};

}  // namespace

ApiExpected<ChatGeneration> prepare_chat_generation(Service& service, ChatRequest request) {
  const auto adapter = service.find_model(request.openai.model, request.openai.lora_path);
  if (!adapter) return tl::unexpected(adapter.error());
  const ServedModel& model = service.model();
  if (!model.chat_template) {
    return tl::unexpected(bad_field("messages", model.chat_template_problem));
  }
  const bool hide_tools = request.tool_choice == ToolChoice::none;
  const auto prompt =
      model.chat_template->render(request.messages, hide_tools ? Json() : request.tools,
                                  request.add_generation_prompt, request.template_kwargs);
  if (!prompt) return tl::unexpected(to_api_error(prompt.error(), "messages"));
  // The template writes the special tokens itself.
  auto ids = service.encode(*prompt, false, "messages");
  if (!ids) return tl::unexpected(ids.error());

  const ReasoningStart reasoning = model.reasoning_format
                                       ? reasoning_start(*model.reasoning_format, *prompt)
                                       : ReasoningStart::outside;
  auto start = grammar_start(service, reasoning);
  if (!start) return tl::unexpected(start.error());
  GenerationOptions& options = request.openai.generation;
  if (request.forces_call()) {
    const Json schema =
        forced_calls_schema(request.tools, request.tool_name, request.parallel_tool_calls);
    options.grammar = GrammarSource{GrammarKind::json_schema, dump_json(schema)};
  }
  const ParserFactory parsers(model, request, reasoning);
  if (parsers.needs_special_tokens()) options.skip_special_tokens = false;
  auto tasks = make_tasks(service, std::move(*ids), options, *start);
  if (!tasks) return tl::unexpected(tasks.error());

  ChatGeneration chat;
  chat.tasks = std::move(*tasks);
  for (GenerationTask& task : chat.tasks) {
    task.return_logprob = request.logprobs;
    task.num_top_logprobs = request.top_logprobs;
    task.rid = request.openai.rid;
    task.adapter = *adapter;
    chat.parsers.push_back(parsers.make());
  }
  request.messages = nullptr;
  request.tools = nullptr;
  chat.request = std::move(request);
  return chat;
}

ParsedText parse_update(Service& service, ChatGeneration& chat, const GenerationUpdate& update) {
  TextPipeline& parser = chat.parsers[update.index];
  ParsedText parsed = parser.push(update.text);
  if (update.end) {
    append(parser.finish(), parsed);
  }
  const ToolFormat* format = service.model().tool_format;
  for (ToolCall& call : parsed.calls) {
    if (!call.id.empty()) continue;
    call.id = format && format->id_length > 0
                  ? service.make_id("").substr(0, static_cast<size_t>(format->id_length))
                  : service.make_id("call_");
  }
  return parsed;
}

}  // namespace tw
