// POST /tokenize and /detokenize: SGLang's.
#include "server/endpoints/endpoints.h"

namespace tw {
namespace {

constexpr size_t kMaxPrompts = 1024;

ApiExpected<Json> tokenize_body(Service& service, const std::string& body) {
  auto json = parse_body(body);
  if (!json) return tl::unexpected(json.error());
  RequestFields fields(*json);
  std::vector<std::string> prompts;
  bool add_special_tokens = true;
  fields.read("add_special_tokens", add_special_tokens);
  const Json* prompt = fields.find("prompt");
  if (!fields.read_strings("prompt", prompts) && !fields.failed()) {
    fields.fail("prompt", nullptr, "a string or an array of strings");
  }
  if (prompts.size() > kMaxPrompts) {
    fields.fail("prompt", *prompt, fmt::format("at most {} strings", kMaxPrompts));
  }
  if (fields.failed()) return tl::unexpected(fields.take_error());
  auto batch = service.model().tokenizer.encode_batch(prompts, add_special_tokens);
  if (!batch) return tl::unexpected(to_api_error(batch.error(), "prompt"));
  Json tokens = Json::array();
  Json counts = Json::array();
  for (const std::vector<int32_t>& ids : *batch) {
    tokens.push_back(ids);
    counts.push_back(ids.size());
  }
  const bool one = prompt->is_string();
  return Json{{"tokens", one ? tokens[0] : tokens},
              {"count", one ? counts[0] : counts},
              {"max_model_len", service.engine().limits().max_position_embeddings}};
}

ApiExpected<Json> detokenize_body(Service& service, const std::string& body) {
  auto json = parse_body(body);
  if (!json) return tl::unexpected(json.error());
  RequestFields fields(*json);
  bool skip_special_tokens = true;
  fields.read("skip_special_tokens", skip_special_tokens);
  Json tokens;
  if (!fields.read_array("tokens", tokens) && !fields.failed()) {
    fields.fail("tokens", nullptr, "an array of token ids or of such arrays");
  }
  if (fields.failed()) return tl::unexpected(fields.take_error());
  const bool is_batch = !tokens.empty() && tokens.front().is_array();
  Json texts = Json::array();
  const Json batch = is_batch ? tokens : Json::array({tokens});
  for (size_t i = 0; i < batch.size(); ++i) {
    auto ids = token_ids_from_json(batch[i],
                                   is_batch ? fmt::format("tokens[{}]", i) : std::string("tokens"));
    if (!ids) return tl::unexpected(ids.error());
    auto text = service.model().tokenizer.decode(*ids, skip_special_tokens);
    if (!text) return tl::unexpected(to_api_error(text.error(), "tokens"));
    texts.push_back(std::move(*text));
  }
  return Json{{"text", is_batch ? texts : texts[0]}};
}

HttpResponse to_response(const ApiExpected<Json>& result) {
  return result ? json_response(*result) : tw::to_response(result.error());
}

}  // namespace

asio::awaitable<void> tokenize(Service& service, HttpRequest& request, Responder& responder) {
  auto result = co_await prepare_request(
      service, request, [&service](std::string body) { return tokenize_body(service, body); });
  co_await responder.send(to_response(result));
}

asio::awaitable<void> detokenize(Service& service, HttpRequest& request, Responder& responder) {
  auto result = co_await prepare_request(
      service, request, [&service](std::string body) { return detokenize_body(service, body); });
  co_await responder.send(to_response(result));
}

}  // namespace tw
