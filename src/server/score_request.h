// POST /v1/score (SGLang's): how likely each label token comes after a query and an item.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "server/generation_options.h"

namespace tw {

struct ScoreRequest {
  PromptInput query;
  std::vector<PromptInput> items;  // of the query's kind: text or ids
  std::vector<TokenId> label_token_ids;
  bool apply_softmax = false;  // over the labels alone
  bool item_first = false;
  std::string model;  // empty: whatever is served
  std::string rid;    // the request's own id, for /abort_request

  // What the model reads for an item.
  PromptInput prompt(const PromptInput& item) const;
};

// `vocab_size`: label ids are below. The query is repeated for each item: requests whose prompts
// would be larger than 64 MiB together are refused.
ApiExpected<ScoreRequest> parse_score_request(const Json& body, int64_t vocab_size);

// Probabilities of the labels, or with `apply_softmax` their shares of the labels' sum.
std::vector<double> label_scores(std::span<const float> logprobs, bool apply_softmax);

}  // namespace tw
