// POST /v1/rerank: Jina's and Cohere's.
#include "server/endpoints/endpoints.h"
#include "server/prompt_evaluation.h"
#include "server/rerank_request.h"
#include "server/score_request.h"

namespace tw {
namespace {

ApiExpected<std::vector<GenerationTask>> rerank_tasks(const Service& service,
                                                      const RerankRequest& request) {
  const ServedModel& model = service.model();
  if (!model.chat_template) {
    return tl::unexpected(bad_field("documents", model.chat_template_problem));
  }
  const auto labels = rerank_labels(model.tokenizer);
  if (!labels) return tl::unexpected(to_api_error(labels.error()));
  std::vector<GenerationTask> tasks;
  for (size_t i = 0; i < request.documents.size(); ++i) {
    const std::string name = fmt::format("documents[{}]", i);
    const auto prompt = rerank_prompt(*model.chat_template, request, request.documents[i]);
    if (!prompt) return tl::unexpected(to_api_error(prompt.error(), name));
    // The template writes the special tokens itself.
    auto ids = service.encode(*prompt, false, name);
    if (!ids) return tl::unexpected(ids.error());
    GenerationTask& task = tasks.emplace_back();
    task.prompt = std::move(*ids);
    task.label_token_ids = *labels;
    task.rid = request.rid;
  }
  return tasks;
}

Json rerank_answer(Service& service, const RerankRequest& request,
                   const std::vector<GenerationUpdate>& updates) {
  std::vector<double> scores;
  for (const GenerationUpdate& update : updates) {
    scores.push_back(label_scores(update.label_logprobs, true).front());
  }
  return {{"id", service.make_id("rerank-")},
          {"results", rerank_results(request, scores)},
          {"model", service.model().name},
          {"usage", prompt_usage(updates)}};
}

}  // namespace

asio::awaitable<void> rerank(Service& service, HttpRequest& request, Responder& responder) {
  co_await answer_about_prompts(
      service, request, responder, parse_rerank_request,
      [&](const RerankRequest& parsed) { return rerank_tasks(service, parsed); },
      [&](const RerankRequest& parsed, const std::vector<GenerationUpdate>& updates) {
        return rerank_answer(service, parsed, updates);
      });
}

}  // namespace tw
