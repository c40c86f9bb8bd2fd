// Requests about many prompts, without generation: embeddings, scores and ranks.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "server/endpoints/endpoints.h"
#include "server/generation_group.h"

namespace tw {

// Runs the tasks, as many at a time as the engine runs, so that a long list does not fill its
// queue. Each one's last update, in order; the first failure otherwise. Of a client that is gone
// the error has status 499, and nobody to be sent to.
asio::awaitable<ApiExpected<std::vector<GenerationUpdate>>> evaluate_prompts(
    Service& service, Responder& responder, std::vector<GenerationTask> tasks);

// {"prompt_tokens", "completion_tokens", "total_tokens"}
Json prompt_usage(const std::vector<GenerationUpdate>& updates);

// The whole of such an endpoint, which says what differs:
//   parse(json)            -> ApiExpected<ParsedRequest>, which has a `model`
//   make_tasks(parsed)     -> ApiExpected<std::vector<GenerationTask>>
//   answer(parsed, updates) -> Json
// Each may take long (megabytes of text, or of digits): they run where prepare_request() says, the
// last one on a worker.
template <typename Parse, typename MakeTasks, typename Answer>
asio::awaitable<void> answer_about_prompts(Service& service, HttpRequest& request,
                                           Responder& responder, Parse parse, MakeTasks make_tasks,
                                           Answer answer) {
  using Parsed = typename std::invoke_result_t<Parse, const Json&>::value_type;
  struct Prepared {
    Parsed request;
    std::vector<GenerationTask> tasks;
  };
  auto prepare = [&](const std::string& body) -> ApiExpected<Prepared> {
    auto json = parse_body(body);
    if (!json) return tl::unexpected(json.error());
    auto parsed = parse(*json);
    if (!parsed) return tl::unexpected(parsed.error());
    const auto adapter = service.find_model(parsed->model);
    if (!adapter) return tl::unexpected(adapter.error());
    auto tasks = make_tasks(*parsed);
    if (!tasks) return tl::unexpected(tasks.error());
    for (GenerationTask& task : *tasks) task.adapter = *adapter;
    return Prepared{std::move(*parsed), std::move(*tasks)};
  };
  auto prepared = co_await prepare_request(service, request, std::move(prepare));
  if (!prepared) {
    co_await responder.send(to_response(prepared.error()));
    co_return;
  }
  auto updates = co_await evaluate_prompts(service, responder, std::move(prepared->tasks));
  if (!updates) {
    co_await responder.send(to_response(updates.error()));
    co_return;
  }
  auto work = [&] { return dump_json(answer(prepared->request, *updates)); };
  HttpResponse response;
  response.body = co_await service.on_worker(std::move(work));
  co_await responder.send(std::move(response));
}

}  // namespace tw
