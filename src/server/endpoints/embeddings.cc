// POST /v1/embeddings
#include "server/embedding_request.h"
#include "server/endpoints/endpoints.h"
#include "server/prompt_evaluation.h"

namespace tw {
namespace {

struct PreparedEmbedding {
  EmbeddingRequest request;
  std::vector<GenerationTask> tasks;
};

ApiExpected<PreparedEmbedding> prepare_embedding(Service& service, const std::string& body) {
  auto json = parse_body(body);
  if (!json) return tl::unexpected(json.error());
  auto request = parse_embedding_request(*json, service.engine().limits().hidden_size);
  if (!request) return tl::unexpected(request.error());
  if (auto known = service.check_model(request->model); !known) {
    return tl::unexpected(known.error());
  }
  PreparedEmbedding prepared{.request = std::move(*request), .tasks = {}};
  const std::vector<PromptInput>& inputs = prepared.request.inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto ids =
        service.encode(inputs[i], inputs.size() == 1 ? "input" : fmt::format("input[{}]", i));
    if (!ids) return tl::unexpected(ids.error());
    GenerationTask& task = prepared.tasks.emplace_back();
    task.prompt = std::move(*ids);
    task.pooling = service.model().pooling;
    task.rid = prepared.request.rid;
  }
  return prepared;
}

std::string answer_of(const Service& service, const EmbeddingRequest& request,
                      std::vector<GenerationUpdate>& updates) {
  Json data = Json::array();
  for (size_t i = 0; i < updates.size(); ++i) {
    finish_embedding(updates[i].embedding, request.dimensions);
    data.push_back({{"object", "embedding"},
                    {"index", i},
                    {"embedding", embedding_json(updates[i].embedding, request.base64)}});
  }
  return dump_json({{"object", "list"},
                    {"data", std::move(data)},
                    {"model", service.model().name},
                    {"usage", prompt_usage(updates)}});
}

}  // namespace

asio::awaitable<void> embeddings(Service& service, HttpRequest& request, Responder& responder) {
  auto prepared = co_await prepare_request(
      service, request, [&service](std::string body) { return prepare_embedding(service, body); });
  if (!prepared) {
    co_await responder.send(to_response(prepared.error()));
    co_return;
  }
  auto updates = co_await evaluate_prompts(service, responder, std::move(prepared->tasks));
  if (!updates) {
    co_await responder.send(to_response(updates.error()));
    co_return;
  }
  // Megabytes of digits, for a long list.
  auto work = [&service, &prepared, &updates] {
    return answer_of(service, prepared->request, *updates);
  };
  HttpResponse response;
  response.body = co_await service.on_worker(std::move(work));
  co_await responder.send(std::move(response));
}

}  // namespace tw
