// Prompts of a request in OpenAI's four forms: "text", ["text", ...], [1, 2, ...], [[1, 2], ...].
#pragma once

#include <string_view>
#include <vector>

#include "server/generation_options.h"
#include "server/request_fields.h"

namespace tw {

// Prompts of a request that generates nothing; OpenAI's bound of embeddings.
inline constexpr size_t kMaxPrompts = 2048;

// Reads the field, which must be there and hold 1 to max_prompts prompts of one kind.
void read_prompts(RequestFields& fields, std::string_view name, size_t max_prompts,
                  std::vector<PromptInput>& prompts);

// Refuses a field whose `num_prompts` prompts, what is repeated in each included, are larger than
// 64 MiB together.
void check_prompt_bytes(RequestFields& fields, const char* name, size_t num_prompts, size_t bytes);

}  // namespace tw
