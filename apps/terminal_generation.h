// One generation in the terminal: submits to the engine and hands text over as it comes.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/model_session.h"
#include "engine/request.h"

namespace tw {

struct GenerationResult {
  std::string text;
  FinishReason finish_reason = FinishReason::none;
  int32_t num_prompt_tokens = 0;
  int32_t num_cached_tokens = 0;
  int32_t num_output_tokens = 0;
  double seconds_to_first_token = 0;
  double seconds = 0;
};

// Blocks until the end. `on_text` gets each piece; `interrupted` is polled and aborts when true.
Expected<GenerationResult> generate_in_terminal(
    ModelSession& session, std::vector<TokenId> prompt, const SamplingParams& sampling,
    const std::vector<std::string>& stop, const std::function<void(std::string_view)>& on_text,
    const std::function<bool()>& interrupted);

}  // namespace tw
