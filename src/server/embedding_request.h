// POST /v1/embeddings: the request, and the vectors of its answer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "server/generation_options.h"

namespace tw {

struct EmbeddingRequest {
  std::vector<PromptInput> inputs;
  std::string model;  // empty: whatever is served
  std::string rid;    // the request's own id, for /abort_request
  bool base64 = false;
  std::optional<int32_t> dimensions;  // fewer than the model's
};

// `hidden_size`: the dimensions that the model has.
ApiExpected<EmbeddingRequest> parse_embedding_request(const Json& body, int64_t hidden_size);

// The first `dimensions` of the vector, of length 1 (Euclidean); a vector of zeros stays one.
void finish_embedding(std::vector<float>& embedding, std::optional<int32_t> dimensions);

// As OpenAI answers: an array of numbers, or base64 of little-endian fp32.
Json embedding_json(std::span<const float> embedding, bool base64);

}  // namespace tw
