// POST /v1/completions
#include <algorithm>
#include <ctime>

#include "server/completion_request.h"
#include "server/endpoints/endpoints.h"
#include "server/generation_group.h"
#include "server/openai_response.h"

namespace tw {
namespace {

struct PreparedCompletion {
  CompletionRequest request;
  std::vector<std::string> echoes;  // each prompt's text, with echo
  std::vector<GenerationTask> tasks;
};

ApiExpected<PreparedCompletion> prepare_completion(Service& service, const std::string& body) {
  auto json = parse_body(body);
  if (!json) return tl::unexpected(json.error());
  auto request = parse_completion_request(*json, service.defaults());
  if (!request) return tl::unexpected(request.error());
  const auto adapter = service.find_model(request->openai.model, request->openai.lora_path);
  if (!adapter) return tl::unexpected(adapter.error());
  PreparedCompletion prepared;
  for (size_t i = 0; i < request->prompts.size(); ++i) {
    PromptInput& prompt = request->prompts[i];
    auto ids = service.encode(
        prompt, request->prompts.size() == 1 ? "prompt" : fmt::format("prompt[{}]", i));
    if (!ids) return tl::unexpected(ids.error());
    if (request->echo) {
      auto* text = std::get_if<std::string>(&prompt);
      prepared.echoes.push_back(
          text ? std::move(*text)
               : service.model().tokenizer.decode(*ids, false).value_or(std::string()));
    }
    GenerationOptions options = request->openai.generation;
    options.n = request->best_of;
    auto tasks = make_tasks(service, std::move(*ids), options);
    if (!tasks) return tl::unexpected(tasks.error());
    for (GenerationTask& task : *tasks) {
      task.return_logprob =
          request->logprobs.has_value() || request->best_of > request->openai.generation.n;
      task.return_prompt_logprob = request->echo && request->logprobs;
      task.num_top_logprobs = request->logprobs.value_or(0);
      task.rid = request->openai.rid;
      task.adapter = *adapter;
      prepared.tasks.push_back(std::move(task));
    }
  }
  request->prompts.clear();
  prepared.request = std::move(*request);
  return prepared;
}

Json envelope(const std::string& id, const std::string& model) {
  return {{"id", id},
          {"object", "text_completion"},
          {"created", static_cast<int64_t>(std::time(nullptr))},
          {"model", model}};
}

// What grows of a choice, over updates: the echo comes first, then the output.
class CompletionChoices {
 public:
  CompletionChoices(const Tokenizer& tokenizer, const PreparedCompletion& prepared,
                    size_t num_choices)
      : tokenizer_(tokenizer), prepared_(prepared), states_(num_choices) {}

  struct Piece {
    std::string text;
    Json logprobs = nullptr;
  };

  Piece piece(const GenerationUpdate& update) {
    const CompletionRequest& request = prepared_.request;
    State& state = states_[update.index];
    Piece piece;
    if (request.logprobs) piece.logprobs = empty_completion_logprobs();
    if (request.echo && !state.echoed) {
      state.echoed = true;
      piece.text = prepared_.echoes[update.index / static_cast<size_t>(request.best_of)];
      if (request.logprobs) append(update.prompt_logprobs, true, state, piece.logprobs);
    }
    piece.text += update.text;
    if (request.logprobs) append(shown_tokens(update), false, state, piece.logprobs);
    return piece;
  }

 private:
  struct State {
    bool echoed = false;
    size_t offset = 0;
  };

  void append(std::span<const TokenEvent> tokens, bool is_prompt, State& state, Json& logprobs) {
    append_completion_logprobs(tokenizer_, tokens, is_prompt, *prepared_.request.logprobs,
                               state.offset, logprobs);
  }

  const Tokenizer& tokenizer_;
  const PreparedCompletion& prepared_;
  std::vector<State> states_;
};

void append_arrays(Json& all, Json&& more) {
  if (all.is_null()) {
    all = std::move(more);
    return;
  }
  for (auto& [key, values] : more.items()) {
    for (Json& value : values) all[key].push_back(std::move(value));
  }
}

asio::awaitable<void> answer_whole(Service& service, Responder& responder,
                                   const PreparedCompletion& prepared, GenerationGroup& group) {
  struct Choice {
    std::string text;
    Json logprobs = nullptr;
    std::optional<GenerationEnd> end;
    double sum_of_logprobs = 0;
    int64_t num_tokens = 0;
  };
  std::vector<Choice> choices(group.size());
  CompletionChoices pieces(service.model().tokenizer, prepared, group.size());
  UsageCounter usage(group.size(), prepared.request.best_of);
  for (;;) {
    const auto updates = co_await group.next();
    if (updates.empty()) break;
    for (const GenerationUpdate& update : updates) {
      if (update.error) {
        co_await responder.send(to_response(to_api_error(*update.error)));
        co_return;
      }
      Choice& choice = choices[update.index];
      CompletionChoices::Piece piece = pieces.piece(update);
      choice.text += piece.text;
      if (prepared.request.logprobs) append_arrays(choice.logprobs, std::move(piece.logprobs));
      choice.end = update.end;
      for (const TokenEvent& token : update.tokens) choice.sum_of_logprobs += token.logprob;
      choice.num_tokens += static_cast<int64_t>(update.tokens.size());
      usage.record(update);
    }
  }
  if (group.cancelled()) co_return;
  Json answer = envelope(service.make_id("cmpl-"), service.model().name);
  Json& list = answer["choices"] = Json::array();
  const auto of_prompt = static_cast<size_t>(prepared.request.best_of);
  for (size_t first = 0; first < choices.size(); first += of_prompt) {
    std::vector<double> means;
    for (size_t i = first; i < first + of_prompt; ++i) {
      means.push_back(choices[i].sum_of_logprobs /
                      static_cast<double>(std::max<int64_t>(1, choices[i].num_tokens)));
    }
    for (const size_t i : best_generations(means, prepared.request.openai.generation.n)) {
      Choice& choice = choices[first + i];
      list.push_back({{"text", std::move(choice.text)},
                      {"index", list.size()},
                      {"logprobs", std::move(choice.logprobs)},
                      {"finish_reason", finish_reason_json(choice.end)}});
    }
  }
  answer["usage"] = usage.to_json();
  co_await responder.send(json_response(answer));
}

asio::awaitable<void> answer_stream(Service& service, Responder& responder,
                                    const PreparedCompletion& prepared, GenerationGroup& group) {
  if (!co_await responder.begin_stream("text/event-stream; charset=utf-8")) co_return;
  CompletionChoices pieces(service.model().tokenizer, prepared, group.size());
  const OpenAiOptions& options = prepared.request.openai;
  UsageCounter usage(group.size(), options.generation.n);
  Json chunk = envelope(service.make_id("cmpl-"), service.model().name);
  for (;;) {
    const auto updates = co_await group.next();
    if (updates.empty()) break;
    std::string events;
    for (const GenerationUpdate& update : updates) {
      usage.record(update);
      if (update.error) {
        events += sse_event(to_json(to_api_error(*update.error)));
        continue;
      }
      CompletionChoices::Piece piece = pieces.piece(update);
      if (piece.text.empty() && piece.logprobs.is_null() && !update.end) continue;
      chunk["choices"] = Json::array({{{"text", std::move(piece.text)},
                                       {"index", update.index},
                                       {"logprobs", std::move(piece.logprobs)},
                                       {"finish_reason", finish_reason_json(update.end)}}});
      if (options.include_usage) chunk["usage"] = nullptr;
      events += sse_event(chunk);
    }
    if (!events.empty() && !co_await responder.write(std::move(events))) co_return;
  }
  if (group.cancelled()) co_return;
  std::string events;
  if (options.include_usage) {
    chunk["choices"] = Json::array();
    chunk["usage"] = usage.to_json();
    events = sse_event(chunk);
  }
  events += kSseDone;
  if (co_await responder.write(std::move(events))) co_await responder.end_stream();
}

}  // namespace

asio::awaitable<void> completions(Service& service, HttpRequest& request, Responder& responder) {
  auto prepared = co_await prepare_request(
      service, request, [&service](std::string body) { return prepare_completion(service, body); });
  if (!prepared) {
    co_await responder.send(to_response(prepared.error()));
    co_return;
  }
  const auto group = GenerationGroup::start(service, responder, std::move(prepared->tasks));
  if (!group) {
    co_await responder.send(to_response(group.error()));
  } else if (prepared->request.openai.stream) {
    co_await answer_stream(service, responder, *prepared, **group);
  } else {
    co_await answer_whole(service, responder, *prepared, **group);
  }
}

}  // namespace tw
