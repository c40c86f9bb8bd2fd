// POST /generate (SGLang's native endpoint): the request.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "server/generation_options.h"

namespace tw {

// One prompt of a request, with its own settings.
struct GenerateItem {
  PromptInput prompt = {};
  GenerationOptions generation = {};
  std::string rid = {};
  std::string lora_path = {};  // name of an adapter; empty: none
  bool return_logprob = false;
  int32_t logprob_start_len = -1;  // prompt logprobs from this position on; -1: none
  int32_t top_logprobs_num = 0;
};

struct GenerateRequest {
  std::vector<GenerateItem> items;
  bool is_batch = false;  // lists were given: the answer is a list, too
  bool stream = false;
  bool return_text_in_logprobs = false;
};

ApiExpected<GenerateRequest> parse_generate_request(const Json& body,
                                                    const RequestDefaults& defaults);

}  // namespace tw
