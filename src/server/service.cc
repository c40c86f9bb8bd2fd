#include "server/service.h"

#include <algorithm>
#include <ctime>

#include "server/routes.h"

namespace tw {
namespace {

// An upper bound of the text that can fit: the longest token's bytes for every position. Texts
// beyond it are refused without tokenizing megabytes first. Normalizers may shorten text (runs of
// white space, composed characters), which the factor of two allows for.
size_t longest_prompt_bytes(const Tokenizer& tokenizer, int64_t context_length) {
  size_t longest = 16;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto token = tokenizer.id_to_token(static_cast<int32_t>(id));
    if (token) longest = std::max(longest, token->size());
  }
  return 2 * longest * static_cast<size_t>(context_length);
}

ApiError too_long(std::string message, const std::string& field) {
  return {.message = std::move(message), .param = field, .code = "context_length_exceeded"};
}

}  // namespace

Service::Service(ServerConfig config, ServedModel model, Engine& engine)
    : config_(std::move(config)),
      model_(std::move(model)),
      engine_(engine),
      defaults_{sampling_defaults(model_.generation_config)},
      created_(static_cast<int64_t>(std::time(nullptr))),
      max_prompt_bytes_(
          longest_prompt_bytes(model_.tokenizer, engine.limits().max_position_embeddings)),
      metrics_(model_.name, model_.limits),
      grammars_(model_.tokenizer, engine.config().eos_token_ids, engine.limits().vocab_size),
      adapters_(engine),
      workers_(static_cast<size_t>(config_.worker_threads)) {}

asio::awaitable<Application::Answered> Service::answer(HttpRequest& request, Responder& responder) {
  const Route* route = find_route(request.path);
  co_await dispatch(*this, route, request, responder);
  if (!route) co_return Answered{"unknown"};
  co_return Answered{route->path, route->is_quiet};
}

ApiExpected<Service::AdapterPtr> Service::find_model(const std::string& model,
                                                     const std::string& lora_path) const {
  const auto is_model = [this](std::string_view name) {
    return name.empty() || name == model_.name || name == model_.path || name == "default";
  };
  std::string adapter = lora_path;
  bool known = is_model(model);
  if (!known) {
    const size_t colon = model.rfind(':');
    const std::string named = colon == std::string::npos ? model : model.substr(colon + 1);
    known = (colon == std::string::npos || is_model(std::string_view(model).substr(0, colon))) &&
            adapters_.find(named) != nullptr;
    if (adapter.empty()) adapter = named;
  }
  if (known && adapter.empty()) return nullptr;
  if (const AdapterPtr found = adapters_.find(adapter); known && found) return found;
  std::string served = fmt::format("\"{}\"", model_.name);
  for (const auto& [name, folder] : adapters_.list()) {
    served += fmt::format(", \"{}:{}\"", model_.name, name);
  }
  const char* field = known ? "lora_path" : "model";
  return tl::unexpected(
      ApiError{.status = 404,
               .message = fmt::format("{}: \"{}\" does not exist; served are {}", field,
                                      shorten(known ? adapter : model, 100), shorten(served, 500)),
               .param = field,
               .code = "model_not_found"});
}

ApiExpected<std::vector<TokenId>> Service::check_prompt(std::vector<TokenId> ids,
                                                        const std::string& field) const {
  const int64_t context_length = engine_.limits().max_position_embeddings;
  if (ids.empty()) {
    return tl::unexpected(bad_field(field, fmt::format("{}: the prompt is empty", field)));
  }
  if (static_cast<int64_t>(ids.size()) >= context_length) {
    return tl::unexpected(too_long(
        fmt::format("{}: the prompt has {} tokens; this model's context length is {} tokens, "
                    "prompt and output together",
                    field, ids.size(), context_length),
        field));
  }
  return ids;
}

ApiExpected<std::vector<TokenId>> Service::encode(std::string_view text, bool add_special_tokens,
                                                  const std::string& field) const {
  if (text.size() > max_prompt_bytes_) {
    return tl::unexpected(too_long(
        fmt::format("{}: the prompt has {} bytes of text; that cannot fit this model's context "
                    "length of {} tokens",
                    field, text.size(), engine_.limits().max_position_embeddings),
        field));
  }
  auto ids = model_.tokenizer.encode(text, add_special_tokens);
  if (!ids) return tl::unexpected(to_api_error(ids.error(), field));
  return check_prompt(std::move(*ids), field);
}

ApiExpected<std::vector<TokenId>> Service::encode(const PromptInput& prompt,
                                                  const std::string& field) const {
  if (const auto* text = std::get_if<std::string>(&prompt)) return encode(*text, true, field);
  return check_prompt(std::get<std::vector<TokenId>>(prompt), field);
}

void Service::register_request(const std::string& rid, uint64_t engine_id) {
  std::lock_guard lock(requests_mutex_);
  requests_.emplace(rid, engine_id);
}

void Service::forget_request(const std::string& rid, uint64_t engine_id) {
  std::lock_guard lock(requests_mutex_);
  const auto [begin, end] = requests_.equal_range(rid);
  const auto found = std::find_if(
      begin, end, [engine_id](const auto& entry) { return entry.second == engine_id; });
  if (found != end) requests_.erase(found);
}

void Service::abort_request(const std::string& rid) {
  std::vector<uint64_t> ids;
  {
    std::lock_guard lock(requests_mutex_);
    const auto [begin, end] = requests_.equal_range(rid);
    for (auto entry = begin; entry != end; ++entry) ids.push_back(entry->second);
  }
  for (uint64_t id : ids) engine_.abort(id);
}

void Service::shutdown() {
  engine_.shutdown();
  workers_.stop();
  workers_.join();
}

}  // namespace tw
