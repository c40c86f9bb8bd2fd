#include "server/completion_request.h"

#include <algorithm>
#include <numeric>

#include "server/prompt_inputs.h"

namespace tw {
namespace {

void read_best_of(RequestFields& fields, CompletionRequest& request) {
  const int32_t n = request.openai.generation.n;
  request.best_of = n;
  const char* name = fields.read("best_of", request.best_of, {.min = n}) ? "best_of" : "n";
  if (static_cast<int64_t>(request.prompts.size()) * request.best_of > kMaxChoices) {
    fields.fail(name, request.best_of,
                fmt::format("at most {} with {} prompts: {} generations are allowed",
                            kMaxChoices / static_cast<int32_t>(request.prompts.size()),
                            request.prompts.size(), kMaxChoices));
  }
  if (request.openai.stream && request.best_of > n) {
    fields.fail("best_of", request.best_of,
                fmt::format("absent or equal to n ({}) in a stream: which are best is known at the "
                            "end alone",
                            n));
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
  if (!fields.failed()) read_best_of(fields, request);
  fields.read("echo", request.echo);
  fields.read("logprobs", request.logprobs, {.min = 0, .max = kMaxTopLogprobs});
  std::string suffix;
  if (fields.read("suffix", suffix) && !suffix.empty()) {
    fields.fail("suffix", suffix, "absent: text cannot be inserted before a suffix");
  }
  if (fields.failed()) return tl::unexpected(fields.take_error());
  return request;
}

std::vector<size_t> best_generations(std::span<const double> mean_logprobs, int32_t n) {
  std::vector<size_t> order(mean_logprobs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (order.size() <= static_cast<size_t>(n)) return order;
  std::ranges::stable_sort(order,
                           [&](size_t a, size_t b) { return mean_logprobs[a] > mean_logprobs[b]; });
  order.resize(static_cast<size_t>(n));
  return order;
}

}  // namespace tw
