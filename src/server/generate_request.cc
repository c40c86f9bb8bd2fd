#include "server/generate_request.h"

namespace tw {
namespace {

constexpr const char* kPromptForms =
    "text (a string or an array of strings) or input_ids (an array of token ids or of such arrays)";

void read_text(RequestFields& fields, const Json& text, GenerateRequest& request) {
  if (text.is_string()) {
    request.items.push_back({.prompt = text.get<std::string>()});
    return;
  }
  if (!text.is_array() || text.empty()) {
    return fields.fail("text", text, "a string or an array of strings");
  }
  request.is_batch = true;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!text[i].is_string()) return fields.fail(fmt::format("text[{}]", i), text[i], "a string");
    request.items.push_back({.prompt = text[i].get<std::string>()});
  }
}

void read_input_ids(RequestFields& fields, const Json& input, GenerateRequest& request) {
  const auto add = [&](const Json& ids, const std::string& name) {
    auto parsed = token_ids_from_json(ids, name);
    if (!parsed) return fields.fail(std::move(parsed.error()));
    request.items.push_back({.prompt = std::move(*parsed)});
  };
  if (!input.is_array() || input.empty() || !input.front().is_array())
    return add(input, "input_ids");
  request.is_batch = true;
  for (size_t i = 0; i < input.size() && !fields.failed(); ++i) {
    add(input[i], fmt::format("input_ids[{}]", i));
  }
}

void read_prompts(RequestFields& fields, GenerateRequest& request) {
  const Json* text = fields.find("text");
  const Json* input_ids = fields.find("input_ids");
  if ((text != nullptr) == (input_ids != nullptr)) {
    if (fields.failed()) return;
    return fields.fail(bad_field("text", fmt::format("give exactly one of {}", kPromptForms)));
  }
  const Json& prompts = text ? *text : *input_ids;
  const size_t limit = static_cast<size_t>(kMaxChoices);
  if (prompts.is_array() && prompts.size() > limit && !prompts.front().is_number()) {
    return fields.fail(text ? "text" : "input_ids", prompts,
                       fmt::format("at most {} prompts", limit));
  }
  text ? read_text(fields, prompts, request) : read_input_ids(fields, prompts, request);
}

// A field that holds one value for all items, or an array with one for each: `read(name, value,
// item)` reads it.
template <typename Read>
void read_per_item(RequestFields& fields, std::string_view name, GenerateRequest& request,
                   Read read) {
  const Json* found = fields.find(name);
  if (!found) return;
  const bool one_each = request.is_batch && found->is_array();
  if (one_each && found->size() != request.items.size()) {
    return fields.fail(name, *found,
                       fmt::format("one value or {}, as many as prompts", request.items.size()));
  }
  for (size_t i = 0; i < request.items.size() && !fields.failed(); ++i) {
    if (one_each) {
      read(fmt::format("{}[{}]", name, i), (*found)[i], request.items[i]);
    } else {
      read(std::string(name), *found, request.items[i]);
    }
  }
}

template <typename T>
void read_value(RequestFields& fields, std::string_view name, GenerateRequest& request,
                T GenerateItem::*member, IntegerRange range = {}) {
  read_per_item(fields, name, request,
                [&](const std::string& full_name, const Json& value, GenerateItem& item) {
                  const Json holder = {{full_name, value}};
                  RequestFields single(holder);
                  if constexpr (std::is_same_v<T, int32_t>) {
                    single.read(full_name, item.*member, range);
                  } else {
                    single.read(full_name, item.*member);
                  }
                  if (single.failed()) fields.fail(single.take_error());
                });
}

void read_sampling_params(RequestFields& fields, GenerateRequest& request) {
  read_per_item(fields, "sampling_params", request,
                [&](const std::string& name, const Json& value, GenerateItem& item) {
                  RequestFields nested(value, name);
                  read_native_options(nested, item.generation);
                  if (nested.failed()) fields.fail(nested.take_error());
                });
  int64_t choices = 0;
  for (const GenerateItem& item : request.items) choices += item.generation.n;
  if (choices > kMaxChoices) {
    fields.fail(
        bad_field("sampling_params.n",
                  fmt::format("sampling_params.n: {} outputs in all; at most {} are allowed",
                              choices, kMaxChoices)));
  }
}

}  // namespace

ApiExpected<GenerateRequest> parse_generate_request(const Json& body,
                                                    const RequestDefaults& defaults) {
  constexpr int32_t kDefaultMaxNewTokens = 128;  // SGLang's
  RequestFields fields(body);
  GenerateRequest request;
  read_prompts(fields, request);
  for (GenerateItem& item : request.items) {
    item.generation.sampling = defaults.sampling;
    item.generation.max_new_tokens = kDefaultMaxNewTokens;
  }
  read_sampling_params(fields, request);
  read_value(fields, "rid", request, &GenerateItem::rid);
  read_value(fields, "lora_path", request, &GenerateItem::lora_path);
  read_value(fields, "return_logprob", request, &GenerateItem::return_logprob);
  read_value(fields, "logprob_start_len", request, &GenerateItem::logprob_start_len, {.min = -1});
  read_value(fields, "top_logprobs_num", request, &GenerateItem::top_logprobs_num,
             {.min = 0, .max = kMaxTopLogprobs});
  fields.read("stream", request.stream);
  fields.read("return_text_in_logprobs", request.return_text_in_logprobs);
  if (fields.failed()) return tl::unexpected(fields.take_error());
  return request;
}

}  // namespace tw
