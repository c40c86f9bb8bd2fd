#include "server/prompt_evaluation.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace tw {
namespace {

ApiError client_is_gone() {
  return {.status = 499, .message = "the client is gone"};
}

ApiError was_aborted() {
  return to_api_error({ErrorCode::unavailable, "the request was aborted"});
}

// Waits for all of a group; what it says goes to results[offset ...].
asio::awaitable<std::optional<ApiError>> collect(GenerationGroup& group, size_t offset,
                                                 std::vector<GenerationUpdate>& results) {
  for (;;) {
    auto updates = co_await group.next();
    if (updates.empty()) break;
    for (GenerationUpdate& update : updates) {
      if (update.error) co_return to_api_error(*update.error);
      if (update.end && update.end->reason == FinishReason::abort) co_return was_aborted();
      results[offset + update.index] = std::move(update);
    }
  }
  if (group.cancelled()) co_return client_is_gone();
  co_return std::nullopt;
}

}  // namespace

asio::awaitable<ApiExpected<std::vector<GenerationUpdate>>> evaluate_prompts(
    Service& service, Responder& responder, std::vector<GenerationTask> tasks) {
  const auto wave = static_cast<size_t>(service.engine().config().max_running_requests);
  std::vector<GenerationUpdate> results(tasks.size());
  for (size_t begin = 0; begin < tasks.size(); begin += wave) {
    const auto first = tasks.begin() + static_cast<ptrdiff_t>(begin);
    const auto last = first + static_cast<ptrdiff_t>(std::min(wave, tasks.size() - begin));
    std::vector<GenerationTask> now(std::make_move_iterator(first), std::make_move_iterator(last));
    const auto group = GenerationGroup::start(service, responder, std::move(now));
    if (!group) co_return tl::unexpected(group.error());
    auto failure = co_await collect(**group, begin, results);
    if (failure) co_return tl::unexpected(std::move(*failure));
  }
  co_return results;
}

Json prompt_usage(const std::vector<GenerationUpdate>& updates) {
  int64_t tokens = 0;
  for (const GenerationUpdate& update : updates) tokens += update.num_prompt_tokens;
  return {{"prompt_tokens", tokens}, {"completion_tokens", 0}, {"total_tokens", tokens}};
}

}  // namespace tw
