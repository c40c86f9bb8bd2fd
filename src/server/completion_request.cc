#include "server/completion_request.h"

#include "server/prompt_inputs.h"

namespace tw {
namespace {

void check_choices(RequestFields& fields, const CompletionRequest& request) {
  const int32_t n = request.openai.generation.n;
  if (static_cast<int64_t>(request.prompts.size()) * n > kMaxChoices) {
    fields.fail("n", n,
                fmt::format("at most {} with {} prompts: {} choices are allowed",
                            kMaxChoices / static_cast<int32_t>(request.prompts.size()),
                            request.prompts.size(), kMaxChoices));
  }
  int32_t best_of = n;
  if (fields.read("best_of", best_of, {.min = 1}) && best_of != n) {
    fields.fail("best_of", best_of, fmt::format("absent or equal to n ({})", n));
  }
}

}  // namespace

ApiExpected<CompletionRequest> parse_completion_request(const Json& body,
                                                        const RequestDefaults& defaults) {
  constexpr int32_t kDefaultMaxTokens = 16;  // OpenAI's
  RequestFields fields(body);
  CompletionRequest request;
  request.openai.generation.sampling = defaults.sampling;
  request.openai.generation.max_new_tokens = kDefaultMaxTokens;
  read_openai_common(fields, request.openai);
  read_prompts(fields, "prompt", kMaxChoices, request.prompts);
  if (!fields.failed()) check_choices(fields, request);
  fields.read("echo", request.echo);
  fields.read("logprobs", request.logprobs, {.min = 0, .max = kMaxTopLogprobs});
  std::string suffix;
  if (fields.read("suffix", suffix) && !suffix.empty()) {
    fields.fail("suffix", suffix, "absent: text cannot be inserted before a suffix");
  }
  if (fields.failed()) return tl::unexpected(fields.take_error());
  return request;
}

}  // namespace tw
