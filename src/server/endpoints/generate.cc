// POST /generate: SGLang's native endpoint. Streams carry the whole text so far in each event.
#include "server/endpoints/endpoints.h"
#include "server/generate_request.h"
#include "server/generation_group.h"
#include "server/openai_response.h"
#include "server/token_text.h"

namespace tw {
namespace {

struct PreparedGenerate {
  GenerateRequest request;
  std::vector<GenerationTask> tasks;
  std::vector<size_t> item_of_task;
};

std::string field_of(const GenerateRequest& request, size_t index) {
  const char* name =
      std::holds_alternative<std::string>(request.items[index].prompt) ? "text" : "input_ids";
  return request.is_batch ? fmt::format("{}[{}]", name, index) : std::string(name);
}

ApiExpected<PreparedGenerate> prepare_generate(Service& service, const std::string& body) {
  auto json = parse_body(body);
  if (!json) return tl::unexpected(json.error());
  auto request = parse_generate_request(*json, service.defaults());
  if (!request) return tl::unexpected(request.error());
  PreparedGenerate prepared;
  for (size_t i = 0; i < request->items.size(); ++i) {
    GenerateItem& item = request->items[i];
    const auto adapter = service.find_model({}, item.lora_path);
    if (!adapter) return tl::unexpected(adapter.error());
    auto ids = service.encode(item.prompt, field_of(*request, i));
    if (!ids) return tl::unexpected(ids.error());
    // As in SGLang, positions from the end of the prompt on ask for no prompt logprobs.
    const auto length = static_cast<int32_t>(ids->size());
    if (item.logprob_start_len < 0) item.logprob_start_len = length;
    if (item.rid.empty()) item.rid = service.make_id("");
    auto tasks = make_tasks(service, std::move(*ids), item.generation);
    if (!tasks) return tl::unexpected(tasks.error());
    for (GenerationTask& task : *tasks) {
      task.return_logprob = item.return_logprob;
      task.return_prompt_logprob = item.return_logprob && item.logprob_start_len < length;
      task.num_top_logprobs = item.return_logprob ? item.top_logprobs_num : 0;
      task.rid = item.rid;
      task.adapter = *adapter;
      prepared.tasks.push_back(std::move(task));
      prepared.item_of_task.push_back(i);
    }
    item.prompt = std::string();
  }
  prepared.request = std::move(*request);
  if (prepared.tasks.size() > 1) prepared.request.is_batch = true;
  return prepared;
}

Json finish_reason(const GenerationEnd& end, int32_t num_output_tokens) {
  switch (end.reason) {
    case FinishReason::length:
      return {{"type", "length"}, {"length", num_output_tokens}};
    case FinishReason::abort:
      return {{"type", "abort"}, {"message", "aborted"}};
    default:
      return {{"type", "stop"},
              {"matched", end.matched_token ? Json(*end.matched_token) : Json(end.matched_string)}};
  }
}

// The state of one answer: all of it is repeated in each event of a stream.
class NativeAnswer {
 public:
  NativeAnswer(const Tokenizer& tokenizer, const GenerateItem& item, bool with_text)
      : tokenizer_(tokenizer), item_(item), with_text_(with_text) {}

  void add(GenerationUpdate&& update) {
    text_ += update.text;
    for (const TokenEvent& event : update.prompt_logprobs) {
      const bool wanted = num_prompt_seen_++ >= item_.logprob_start_len;
      // The first token of all has nothing before it that could predict it.
      if (wanted) add_logprob(event, num_prompt_seen_ > 1, input_logprobs_, input_top_);
    }
    for (const TokenEvent& event : update.tokens) {
      output_ids_.push_back(event.token);
      if (item_.return_logprob) add_logprob(event, true, output_logprobs_, output_top_);
    }
    num_prompt_tokens_ = update.num_prompt_tokens;
    num_cached_tokens_ = update.num_cached_tokens;
    num_output_tokens_ = update.num_output_tokens;
    end_ = std::move(update.end);
  }

  Json to_json(double seconds) const {
    Json meta = {{"id", item_.rid},
                 {"finish_reason", end_ ? finish_reason(*end_, num_output_tokens_) : Json(nullptr)},
                 {"prompt_tokens", num_prompt_tokens_},
                 {"completion_tokens", num_output_tokens_},
                 {"cached_tokens", num_cached_tokens_}};
    if (end_) meta["e2e_latency"] = seconds;
    if (item_.return_logprob) {
      meta["input_token_logprobs"] = input_logprobs_;
      meta["output_token_logprobs"] = output_logprobs_;
      if (item_.top_logprobs_num > 0) {
        meta["input_top_logprobs"] = input_top_;
        meta["output_top_logprobs"] = output_top_;
      }
    }
    return {{"text", text_}, {"output_ids", output_ids_}, {"meta_info", std::move(meta)}};
  }

 private:
  // SGLang's triple: [logprob, token id, text or null].
  Json triple(TokenId token, const Json& logprob) const {
    return Json::array(
        {logprob, token, with_text_ ? Json(token_text(tokenizer_, token).text) : Json(nullptr)});
  }

  void add_logprob(const TokenEvent& event, bool known, Json& list, Json& top_list) const {
    list.push_back(triple(event.token, known ? Json(finite_logprob(event.logprob)) : nullptr));
    Json top = nullptr;
    if (known && !event.top_logprobs.empty()) {
      top = Json::array();
      for (const TokenLogprob& other : event.top_logprobs) {
        top.push_back(triple(other.token, finite_logprob(other.logprob)));
      }
    }
    top_list.push_back(std::move(top));
  }

  const Tokenizer& tokenizer_;
  const GenerateItem& item_;
  const bool with_text_;
  std::string text_;
  std::vector<TokenId> output_ids_;
  Json input_logprobs_ = Json::array(), output_logprobs_ = Json::array();
  Json input_top_ = Json::array(), output_top_ = Json::array();
  int32_t num_prompt_seen_ = 0;
  int32_t num_prompt_tokens_ = 0, num_cached_tokens_ = 0, num_output_tokens_ = 0;
  std::optional<GenerationEnd> end_;
};

std::vector<NativeAnswer> make_answers(Service& service, const PreparedGenerate& prepared) {
  std::vector<NativeAnswer> answers;
  answers.reserve(prepared.item_of_task.size());
  for (const size_t item : prepared.item_of_task) {
    answers.emplace_back(service.model().tokenizer, prepared.request.items[item],
                         prepared.request.return_text_in_logprobs);
  }
  return answers;
}

asio::awaitable<void> answer_whole(Service& service, Responder& responder,
                                   const PreparedGenerate& prepared, GenerationGroup& group) {
  auto answers = make_answers(service, prepared);
  std::vector<double> seconds(answers.size());
  for (;;) {
    auto updates = co_await group.next();
    if (updates.empty()) break;
    for (GenerationUpdate& update : updates) {
      if (update.error) {
        co_await responder.send(to_response(to_api_error(*update.error)));
        co_return;
      }
      const size_t index = update.index;
      seconds[index] = group.seconds_since_start();
      answers[index].add(std::move(update));
    }
  }
  if (group.cancelled()) co_return;
  Json all = Json::array();
  for (size_t i = 0; i < answers.size(); ++i) all.push_back(answers[i].to_json(seconds[i]));
  co_await responder.send(json_response(prepared.request.is_batch ? all : all.front()));
}

asio::awaitable<void> answer_stream(Service& service, Responder& responder,
                                    const PreparedGenerate& prepared, GenerationGroup& group) {
  if (!co_await responder.begin_stream("text/event-stream; charset=utf-8")) co_return;
  auto answers = make_answers(service, prepared);
  for (;;) {
    auto updates = co_await group.next();
    if (updates.empty()) break;
    std::string events;
    for (size_t i = 0; i < updates.size(); ++i) {
      const size_t index = updates[i].index;
      if (updates[i].error) {
        events += sse_event(to_json(to_api_error(*updates[i].error)));
        continue;
      }
      answers[index].add(std::move(updates[i]));
      // Each event holds all there is: of several updates that piled up, the last one says it.
      const bool newer_follows = std::any_of(
          updates.begin() + static_cast<ptrdiff_t>(i) + 1, updates.end(),
          [index](const GenerationUpdate& later) { return later.index == index && !later.error; });
      if (newer_follows) continue;
      Json event = answers[index].to_json(group.seconds_since_start());
      if (prepared.request.is_batch) event["index"] = index;
      events += sse_event(event);
    }
    if (!co_await responder.write(std::move(events))) co_return;
  }
  if (group.cancelled()) co_return;
  std::string done = kSseDone;
  if (co_await responder.write(std::move(done))) co_await responder.end_stream();
}

}  // namespace

asio::awaitable<void> generate(Service& service, HttpRequest& request, Responder& responder) {
  auto prepared = co_await prepare_request(
      service, request, [&service](std::string body) { return prepare_generate(service, body); });
  if (!prepared) {
    co_await responder.send(to_response(prepared.error()));
    co_return;
  }
  const auto group = GenerationGroup::start(service, responder, std::move(prepared->tasks));
  if (!group) {
    co_await responder.send(to_response(group.error()));
  } else if (prepared->request.stream) {
    co_await answer_stream(service, responder, *prepared, **group);
  } else {
    co_await answer_whole(service, responder, *prepared, **group);
  }
}

}  // namespace tw
