#include "server/completion_request.h"

namespace tw {
namespace {

constexpr const char* kPromptForms =
    "a string, an array of strings, an array of token ids, or an array of such arrays";

// OpenAI's four forms: "text", ["text", ...], [1, 2, ...], [[1, 2], ...].
void read_prompts(RequestFields& fields, std::vector<PromptInput>& prompts) {
  const Json* prompt = fields.find("prompt");
  if (!prompt) return fields.fail("prompt", nullptr, kPromptForms);
  if (prompt->is_string()) {
    prompts.emplace_back(prompt->get<std::string>());
    return;
  }
  if (!prompt->is_array() || prompt->empty()) return fields.fail("prompt", *prompt, kPromptForms);
  if (prompt->front().is_number()) {
    auto ids = token_ids_from_json(*prompt, "prompt");
    if (!ids) return fields.fail(std::move(ids.error()));
    prompts.emplace_back(std::move(*ids));
    return;
  }
  if (prompt->size() > static_cast<size_t>(kMaxChoices)) {
    return fields.fail("prompt", *prompt, fmt::format("at most {} prompts", kMaxChoices));
  }
  for (size_t i = 0; i < prompt->size(); ++i) {
    const Json& entry = (*prompt)[i];
    if (entry.is_string() && prompt->front().is_string()) {
      prompts.emplace_back(entry.get<std::string>());
    } else if (entry.is_array() && prompt->front().is_array()) {
      auto ids = token_ids_from_json(entry, fmt::format("prompt[{}]", i));
      if (!ids) return fields.fail(std::move(ids.error()));
      prompts.emplace_back(std::move(*ids));
    } else {
      return fields.fail(fmt::format("prompt[{}]", i), entry, kPromptForms);
    }
  }
}

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
  if (!fields.failed()) read_prompts(fields, request.prompts);
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
