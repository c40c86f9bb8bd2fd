#include "server/openai_response.h"

#include "server/token_text.h"

namespace tw {

void UsageCounter::record(const GenerationUpdate& update) {
  counts_[update.index] = {update.num_prompt_tokens, update.num_cached_tokens,
                           update.num_output_tokens};
}

Json UsageCounter::to_json() const {
  Usage total;
  for (size_t i = 0; i < counts_.size(); ++i) {
    if (i % choices_per_prompt_ == 0) {
      total.prompt_tokens += counts_[i].prompt_tokens;
      total.cached_tokens += counts_[i].cached_tokens;
    }
    total.completion_tokens += counts_[i].completion_tokens;
  }
  return {{"prompt_tokens", total.prompt_tokens},
          {"completion_tokens", total.completion_tokens},
          {"total_tokens", total.prompt_tokens + total.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", total.cached_tokens}}}};
}

Json finish_reason_json(const std::optional<GenerationEnd>& end) {
  return end ? Json(to_string(end->reason)) : Json(nullptr);
}

std::string sse_event(const Json& data) {
  return "data: " + dump_json(data) + "\n\n";
}

std::span<const TokenEvent> shown_tokens(const GenerationUpdate& update) {
  return std::span(update.tokens).first(update.tokens.size() - (update.last_token_is_stop ? 1 : 0));
}

void append_chat_logprobs(const Tokenizer& tokenizer, std::span<const TokenEvent> tokens,
                          Json& content) {
  const auto entry_of = [&](TokenId id, float logprob) -> Json {
    const TokenText token = token_text(tokenizer, id);
    return {
        {"token", token.text}, {"logprob", finite_logprob(logprob)}, {"bytes", bytes_json(token)}};
  };
  for (const TokenEvent& event : tokens) {
    Json entry = entry_of(event.token, event.logprob);
    Json& top = entry["top_logprobs"] = Json::array();
    for (const TokenLogprob& other : event.top_logprobs) {
      top.push_back(entry_of(other.token, other.logprob));
    }
    content.push_back(std::move(entry));
  }
}

Json empty_completion_logprobs() {
  return {{"tokens", Json::array()},
          {"token_logprobs", Json::array()},
          {"top_logprobs", Json::array()},
          {"text_offset", Json::array()}};
}

void append_completion_logprobs(const Tokenizer& tokenizer, std::span<const TokenEvent> tokens,
                                bool first_has_no_logprob, int32_t num_top, size_t& offset,
                                Json& logprobs) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string text = token_text(tokenizer, tokens[i].token).text;
    const bool known = i > 0 || !first_has_no_logprob;
    logprobs["tokens"].push_back(text);
    logprobs["token_logprobs"].push_back(known ? Json(finite_logprob(tokens[i].logprob))
                                               : Json(nullptr));
    Json top = nullptr;
    if (known && num_top > 0) {
      top = Json::object();
      for (const TokenLogprob& other : tokens[i].top_logprobs) {
        // Two tokens may read the same (parts of characters); the likelier comes first and stays.
        top.emplace(token_text(tokenizer, other.token).text, finite_logprob(other.logprob));
      }
    }
    logprobs["top_logprobs"].push_back(std::move(top));
    logprobs["text_offset"].push_back(offset);
    offset += count_code_points(text);
  }
}

}  // namespace tw
