#include "server/score_request.h"

#include <algorithm>
#include <cmath>

#include "server/prompt_inputs.h"

namespace tw {
namespace {

constexpr size_t kMaxLabels = 1024;

size_t bytes_of(const PromptInput& prompt) {
  if (const auto* text = std::get_if<std::string>(&prompt)) return text->size();
  return std::get<std::vector<TokenId>>(prompt).size() * sizeof(TokenId);
}

void read_query(RequestFields& fields, ScoreRequest& request) {
  const Json* query = fields.find("query");
  if (query && query->is_array()) {
    std::vector<TokenId> ids;
    if (fields.read_token_ids("query", ids)) request.query = std::move(ids);
  } else if (query && query->is_string()) {
    request.query = query->get<std::string>();
  } else if (!fields.failed()) {
    fields.fail("query", query ? *query : Json(), "a string or an array of token ids");
  }
}

void read_items(RequestFields& fields, ScoreRequest& request) {
  const Json* items = fields.find("items");
  // One item of ids would look like several.
  if (items && items->is_array() && !items->empty() && items->front().is_number()) {
    fields.fail("items", *items, "a string, an array of strings or an array of arrays of ids");
  }
  read_prompts(fields, "items", kMaxPrompts, request.items);
  if (fields.failed()) return;
  if (request.items.front().index() != request.query.index()) {
    fields.fail("items", *items, "text where query is text, and token ids where it is token ids");
    return;
  }
  size_t bytes = bytes_of(request.query) * request.items.size();
  for (const PromptInput& item : request.items) bytes += bytes_of(item);
  check_prompt_bytes(fields, "items", request.items.size(), bytes);
}

void read_labels(RequestFields& fields, int64_t vocab_size, std::vector<TokenId>& labels) {
  if (!fields.read_token_ids("label_token_ids", labels) && !fields.failed()) {
    fields.fail("label_token_ids", nullptr, "an array of token ids");
  }
  const bool known = std::ranges::all_of(labels, [&](TokenId id) { return id < vocab_size; });
  if (!fields.failed() && (labels.empty() || labels.size() > kMaxLabels || !known)) {
    fields.fail("label_token_ids", labels,
                fmt::format("1 to {} ids in [0, {}]", kMaxLabels, vocab_size - 1));
  }
}

}  // namespace

PromptInput ScoreRequest::prompt(const PromptInput& item) const {
  const PromptInput& first = item_first ? item : query;
  const PromptInput& second = item_first ? query : item;
  return std::visit(
      [&second](auto joined) -> PromptInput {
        const auto& rest = std::get<decltype(joined)>(second);
        joined.insert(joined.end(), rest.begin(), rest.end());
        return joined;
      },
      first);
}

ApiExpected<ScoreRequest> parse_score_request(const Json& body, int64_t vocab_size) {
  RequestFields fields(body);
  ScoreRequest request;
  read_query(fields, request);
  read_items(fields, request);
  read_labels(fields, vocab_size, request.label_token_ids);
  fields.read("apply_softmax", request.apply_softmax);
  fields.read("item_first", request.item_first);
  fields.read("model", request.model);
  fields.read("rid", request.rid);
  if (fields.failed()) return tl::unexpected(fields.take_error());
  return request;
}

std::vector<double> label_scores(std::span<const float> logprobs, bool apply_softmax) {
  std::vector<double> scores(logprobs.size());
  // Of labels that are all unlikely, the shares would otherwise be of zeros.
  const double largest = apply_softmax ? std::ranges::max(logprobs) : 0;
  double sum = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    scores[i] = std::exp(static_cast<double>(logprobs[i]) - largest);
    sum += scores[i];
  }
  if (!apply_softmax) return scores;
  for (double& score : scores) score /= sum;
  return scores;
}

}  // namespace tw
