// Request bodies of all generating endpoints: whatever bytes arrive, they are refused with an error
// that is itself valid, or become a request within its documented bounds.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/check.h"
#include "core/json.h"
#include "http/http_message.h"
#include "server/chat_request.h"
#include "server/chat_translation.h"
#include "server/completion_request.h"
#include "server/embedding_request.h"
#include "server/generate_request.h"
#include "server/prompt_inputs.h"
#include "server/score_request.h"
#include "text/utf8.h"

namespace tw {
namespace {

void check_error(const ApiError& error) {
  TW_CHECK(error.status >= 400 && error.status < 600);
  TW_CHECK(!error.message.empty());
  const std::string body = to_response(error).body;
  TW_CHECK(!find_invalid_utf8(body));
  const auto parsed = parse_json(body, "error");
  TW_CHECK(parsed && parsed->at("error").at("message").is_string());
}

void check_options(const GenerationOptions& options) {
  TW_CHECK(options.n >= 1 && options.n <= kMaxChoices);
  TW_CHECK(options.stops.size() <= kMaxStopStrings);
  TW_CHECK(options.sampling.temperature >= 0);
  TW_CHECK(!options.max_new_tokens || *options.max_new_tokens >= 0);
  for (const std::string& stop : options.stops) TW_CHECK(!stop.empty() && !find_invalid_utf8(stop));
  for (const TokenId id : options.sampling.stop_token_ids) TW_CHECK(id >= 0);
}

void check_prompt(const PromptInput& prompt) {
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    TW_CHECK(!find_invalid_utf8(*text));
  } else {
    for (const TokenId id : std::get<std::vector<TokenId>>(prompt)) TW_CHECK(id >= 0);
  }
}

void check_chat(const Json& body) {
  const auto request = parse_chat_request(body, {});
  if (!request) return check_error(request.error());
  check_options(request->openai.generation);
  TW_CHECK(request->messages.is_array() && !request->messages.empty());
  TW_CHECK(request->top_logprobs >= 0 && request->top_logprobs <= kMaxTopLogprobs);
}

void check_completion(const Json& body) {
  const auto request = parse_completion_request(body, {});
  if (!request) return check_error(request.error());
  check_options(request->openai.generation);
  TW_CHECK(!request->prompts.empty());
  const auto num_prompts = static_cast<int32_t>(request->prompts.size());
  TW_CHECK(num_prompts * request->openai.generation.n <= kMaxChoices);
  for (const PromptInput& prompt : request->prompts) check_prompt(prompt);
}

void check_generate(const Json& body) {
  const auto request = parse_generate_request(body, {});
  if (!request) return check_error(request.error());
  TW_CHECK(!request->items.empty());
  TW_CHECK(request->is_batch || request->items.size() == 1);
  int32_t choices = 0;
  for (const GenerateItem& item : request->items) {
    check_options(item.generation);
    check_prompt(item.prompt);
    TW_CHECK(item.top_logprobs_num >= 0 && item.top_logprobs_num <= kMaxTopLogprobs);
    choices += item.generation.n;
  }
  TW_CHECK(choices <= kMaxChoices);
}

void check_embedding(const Json& body) {
  const auto request = parse_embedding_request(body, 16);
  if (!request) return check_error(request.error());
  TW_CHECK(!request->inputs.empty() && request->inputs.size() <= kMaxPrompts);
  TW_CHECK(!request->dimensions || (*request->dimensions >= 1 && *request->dimensions <= 16));
  for (const PromptInput& input : request->inputs) check_prompt(input);
}

void check_score(const Json& body) {
  const auto request = parse_score_request(body, 100);
  if (!request) return check_error(request.error());
  TW_CHECK(!request->items.empty() && !request->label_token_ids.empty());
  for (const TokenId id : request->label_token_ids) TW_CHECK(id >= 0 && id < 100);
  for (const PromptInput& item : request->items) check_prompt(request->prompt(item));
}

// Other APIs' requests, which become chat requests.
void check_translated(const ApiExpected<Json>& chat) {
  chat ? check_chat(*chat) : check_error(chat.error());
}

}  // namespace
}  // namespace tw

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  TW_CHECK(tw::percent_decode(text).size() <= size);
  const auto body = tw::parse_json(text, "the request body");
  if (!body) {
    tw::check_error(tw::to_api_error(body.error()));
    return 0;
  }
  tw::check_chat(*body);
  tw::check_completion(*body);
  tw::check_generate(*body);
  tw::check_embedding(*body);
  tw::check_score(*body);
  tw::check_translated(tw::chat_from_responses(*body));
  tw::check_translated(tw::chat_from_messages(*body, true));
  return 0;
}
