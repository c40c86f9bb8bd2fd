// POST /v1/embeddings
#include "server/embedding_request.h"
#include "server/endpoints/endpoints.h"
#include "server/prompt_evaluation.h"

namespace tw {
namespace {

ApiExpected<std::vector<GenerationTask>> embedding_tasks(const Service& service,
                                                         const EmbeddingRequest& request) {
  std::vector<GenerationTask> tasks;
  const std::vector<PromptInput>& inputs = request.inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto ids =
        service.encode(inputs[i], inputs.size() == 1 ? "input" : fmt::format("input[{}]", i));
    if (!ids) return tl::unexpected(ids.error());
    GenerationTask& task = tasks.emplace_back();
    task.prompt = std::move(*ids);
    task.pooling = service.model().pooling;
    task.rid = request.rid;
  }
  return tasks;
}

Json embedding_answer(const Service& service, const EmbeddingRequest& request,
                      std::vector<GenerationUpdate>& updates) {
  Json data = Json::array();
  for (size_t i = 0; i < updates.size(); ++i) {
    finish_embedding(updates[i].embedding, request.dimensions);
    data.push_back({{"object", "embedding"},
                    {"index", i},
                    {"embedding", embedding_json(updates[i].embedding, request.base64)}});
  }
  return {{"object", "list"},
          {"data", std::move(data)},
          {"model", service.model().name},
          {"usage", prompt_usage(updates)}};
}

}  // namespace

asio::awaitable<void> embeddings(Service& service, HttpRequest& request, Responder& responder) {
  co_await answer_about_prompts(
      service, request, responder,
      [&](const Json& body) {
        return parse_embedding_request(body, service.engine().limits().hidden_size);
      },
      [&](const EmbeddingRequest& parsed) { return embedding_tasks(service, parsed); },
      [&](const EmbeddingRequest& parsed, std::vector<GenerationUpdate>& updates) {
        return embedding_answer(service, parsed, updates);
      });
}

}  // namespace tw
