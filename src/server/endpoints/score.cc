// POST /v1/score: SGLang's.
#include "server/endpoints/endpoints.h"
#include "server/prompt_evaluation.h"
#include "server/score_request.h"

namespace tw {
namespace {

struct PreparedScore {
  ScoreRequest request;
  std::vector<GenerationTask> tasks;
};

ApiExpected<PreparedScore> prepare_score(Service& service, const std::string& body) {
  auto json = parse_body(body);
  if (!json) return tl::unexpected(json.error());
  auto request = parse_score_request(*json, service.engine().limits().vocab_size);
  if (!request) return tl::unexpected(request.error());
  if (auto known = service.check_model(request->model); !known) {
    return tl::unexpected(known.error());
  }
  PreparedScore prepared{.request = std::move(*request), .tasks = {}};
  const ScoreRequest& score = prepared.request;
  for (size_t i = 0; i < score.items.size(); ++i) {
    auto ids = service.encode(score.prompt(score.items[i]), fmt::format("items[{}]", i));
    if (!ids) return tl::unexpected(ids.error());
    GenerationTask& task = prepared.tasks.emplace_back();
    task.prompt = std::move(*ids);
    task.label_token_ids = score.label_token_ids;
    task.rid = score.rid;
  }
  return prepared;
}

}  // namespace

asio::awaitable<void> score(Service& service, HttpRequest& request, Responder& responder) {
  auto prepared = co_await prepare_request(
      service, request, [&service](std::string body) { return prepare_score(service, body); });
  if (!prepared) {
    co_await responder.send(to_response(prepared.error()));
    co_return;
  }
  auto updates = co_await evaluate_prompts(service, responder, std::move(prepared->tasks));
  if (!updates) {
    co_await responder.send(to_response(updates.error()));
    co_return;
  }
  Json scores = Json::array();
  for (const GenerationUpdate& update : *updates) {
    scores.push_back(label_scores(update.label_logprobs, prepared->request.apply_softmax));
  }
  const Json answer = {{"object", "scoring"},
                       {"scores", std::move(scores)},
                       {"model", service.model().name},
                       {"usage", prompt_usage(*updates)}};
  co_await responder.send(json_response(answer));
}

}  // namespace tw
