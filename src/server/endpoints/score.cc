// POST /v1/score: SGLang's.
#include "server/endpoints/endpoints.h"
#include "server/prompt_evaluation.h"
#include "server/score_request.h"

namespace tw {
namespace {

ApiExpected<std::vector<GenerationTask>> score_tasks(const Service& service,
                                                     const ScoreRequest& request) {
  std::vector<GenerationTask> tasks;
  for (size_t i = 0; i < request.items.size(); ++i) {
    auto ids = service.encode(request.prompt(request.items[i]), fmt::format("items[{}]", i));
    if (!ids) return tl::unexpected(ids.error());
    GenerationTask& task = tasks.emplace_back();
    task.prompt = std::move(*ids);
    task.label_token_ids = request.label_token_ids;
    task.rid = request.rid;
  }
  return tasks;
}

Json score_answer(const Service& service, const ScoreRequest& request,
                  const std::vector<GenerationUpdate>& updates) {
  Json scores = Json::array();
  for (const GenerationUpdate& update : updates) {
    scores.push_back(label_scores(update.label_logprobs, request.apply_softmax));
  }
  return {{"object", "scoring"},
          {"scores", std::move(scores)},
          {"model", service.model().name},
          {"usage", prompt_usage(updates)}};
}

}  // namespace

asio::awaitable<void> score(Service& service, HttpRequest& request, Responder& responder) {
  co_await answer_about_prompts(
      service, request, responder,
      [&](const Json& body) {
        return parse_score_request(body, service.engine().limits().vocab_size);
      },
      [&](const ScoreRequest& parsed) { return score_tasks(service, parsed); },
      [&](const ScoreRequest& parsed, const std::vector<GenerationUpdate>& updates) {
        return score_answer(service, parsed, updates);
      });
}

}  // namespace tw
