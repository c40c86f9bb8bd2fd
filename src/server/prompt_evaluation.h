// Requests about many prompts, without generation: embeddings and scores.
#pragma once

#include <vector>

#include "server/generation_group.h"

namespace tw {

// Runs the tasks, as many at a time as the engine runs, so that a long list does not fill its
// queue. Each one's last update, in order; the first failure otherwise. Of a client that is gone
// the error has status 499, and nobody to be sent to.
asio::awaitable<ApiExpected<std::vector<GenerationUpdate>>> evaluate_prompts(
    Service& service, Responder& responder, std::vector<GenerationTask> tasks);

// {"prompt_tokens", "completion_tokens", "total_tokens"}
Json prompt_usage(const std::vector<GenerationUpdate>& updates);

}  // namespace tw
