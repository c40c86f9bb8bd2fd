// The endpoints: one file each, one function each.
//
// An endpoint answers through its responder exactly once. It runs on the connection's executor.
#pragma once

#include "http/responder.h"
#include "server/service.h"

namespace tw {

using Endpoint = asio::awaitable<void> (*)(Service&, HttpRequest&, Responder&);

// OpenAI
asio::awaitable<void> chat_completions(Service& service, HttpRequest& request,
                                       Responder& responder);
asio::awaitable<void> completions(Service& service, HttpRequest& request, Responder& responder);
asio::awaitable<void> responses(Service& service, HttpRequest& request, Responder& responder);
asio::awaitable<void> embeddings(Service& service, HttpRequest& request, Responder& responder);
asio::awaitable<void> list_models(Service& service, HttpRequest& request, Responder& responder);
asio::awaitable<void> show_model(Service& service, HttpRequest& request, Responder& responder);
// Jina, Cohere
asio::awaitable<void> rerank(Service& service, HttpRequest& request, Responder& responder);
// Anthropic
asio::awaitable<void> messages(Service& service, HttpRequest& request, Responder& responder);
asio::awaitable<void> count_message_tokens(Service& service, HttpRequest& request,
                                           Responder& responder);
// SGLang
asio::awaitable<void> generate(Service& service, HttpRequest& request, Responder& responder);
asio::awaitable<void> score(Service& service, HttpRequest& request, Responder& responder);
asio::awaitable<void> tokenize(Service& service, HttpRequest& request, Responder& responder);
asio::awaitable<void> detokenize(Service& service, HttpRequest& request, Responder& responder);
asio::awaitable<void> health_generate(Service& service, HttpRequest& request, Responder& responder);
asio::awaitable<void> model_info(Service& service, HttpRequest& request, Responder& responder);
asio::awaitable<void> server_info(Service& service, HttpRequest& request, Responder& responder);
asio::awaitable<void> flush_cache(Service& service, HttpRequest& request, Responder& responder);
asio::awaitable<void> abort_request(Service& service, HttpRequest& request, Responder& responder);
asio::awaitable<void> load_lora_adapter(Service& service, HttpRequest& request,
                                        Responder& responder);
asio::awaitable<void> unload_lora_adapter(Service& service, HttpRequest& request,
                                          Responder& responder);
// Operation
asio::awaitable<void> health(Service& service, HttpRequest& request, Responder& responder);
asio::awaitable<void> start_profile(Service& service, HttpRequest& request, Responder& responder);
asio::awaitable<void> stop_profile(Service& service, HttpRequest& request, Responder& responder);
asio::awaitable<void> start_expert_recording(Service& service, HttpRequest& request,
                                             Responder& responder);
asio::awaitable<void> stop_expert_recording(Service& service, HttpRequest& request,
                                            Responder& responder);
asio::awaitable<void> dump_expert_recording(Service& service, HttpRequest& request,
                                            Responder& responder);
asio::awaitable<void> openapi(Service& service, HttpRequest& request, Responder& responder);
asio::awaitable<void> metrics(Service& service, HttpRequest& request, Responder& responder);
asio::awaitable<void> page(Service& service, HttpRequest& request, Responder& responder);

// Bodies up to this size are parsed, rendered and tokenized where they arrive: a millisecond or
// two. Larger ones go to a worker, so that other connections do not wait.
inline constexpr size_t kInlineBodyBytes = 4096;

// A body that mentions what grammars are asked for with: compiling one may take a while. A mention
// in passing costs a change of threads.
bool may_ask_for_grammar(std::string_view body);

// Runs `prepare(body)` where the body says.
template <typename Prepare>
asio::awaitable<std::invoke_result_t<Prepare, std::string>> prepare_request(Service& service,
                                                                            HttpRequest& request,
                                                                            Prepare prepare) {
  std::string body = std::move(request.body);
  if (body.size() <= kInlineBodyBytes && !may_ask_for_grammar(body))
    co_return prepare(std::move(body));
  auto work = [prepare = std::move(prepare), body = std::move(body)]() mutable {
    return prepare(std::move(body));
  };
  co_return co_await service.on_worker(std::move(work));
}

// {"error": ...} for 400s: a body that is no JSON.
ApiExpected<Json> parse_body(const std::string& body);

inline HttpResponse json_response(const Json& body) {
  return {.body = dump_json(body)};
}

}  // namespace tw
