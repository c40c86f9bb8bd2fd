// POST /v1/rerank (Jina's and Cohere's): documents by how well they answer a query.
//
// The model is asked about each document, "yes" or "no", in a conversation rendered by its chat
// template; a document's relevance is the share of "yes". The wording is the one that
// Qwen3-Reranker was trained with.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "http/api_error.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tw {

struct RerankRequest {
  std::string query;
  std::vector<std::string> documents;
  std::string instruction;  // what "relevant" means
  size_t top_n = 0;         // of the results, the best; at most the number of documents
  bool return_documents = true;
  std::string model;  // empty: whatever is served
  std::string rid;    // the request's own id, for /abort_request
};

ApiExpected<RerankRequest> parse_rerank_request(const Json& body);

// What the model reads about a document. A template that knows no system role gets all in one
// message.
Expected<std::string> rerank_prompt(const ChatTemplate& chat_template, const RerankRequest& request,
                                    const std::string& document);

// The ids of "yes" and "no", or of the tokens that they begin with; they differ.
Expected<std::vector<int32_t>> rerank_labels(const Tokenizer& tokenizer);

// The `results` of an answer, best first; equal scores in the documents' order.
Json rerank_results(const RerankRequest& request, const std::vector<double>& scores);

}  // namespace tw
