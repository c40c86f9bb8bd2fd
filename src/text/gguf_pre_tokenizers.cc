#include "text/gguf_pre_tokenizers.h"

#include <algorithm>

namespace tw {
namespace {

constexpr std::string_view kGpt2 =
    R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re";

// Tiktoken's cl100k and what Llama 3 made of it: up to three digits together.
constexpr std::string_view kLlama3 =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})re"
    R"re(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

// The same with single digits.
constexpr std::string_view kQwen2 =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})re"
    R"re(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

// Marks belong to the word before them.
constexpr std::string_view kQwen35 =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})re"
    R"re(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

// Tiktoken's o200k: words end where upper case follows lower case.
constexpr std::string_view kGpt4o =
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)re"
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)?)re"
    R"re(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)re"
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3})re"
    R"re(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

// The same without contractions and with single digits (Mistral Nemo).
constexpr std::string_view kTekken =
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)re"
    R"re(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N})re"
    R"re(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

constexpr std::string_view kNumbersOfThree = R"re(\p{N}{1,3})re";
constexpr std::string_view kHanAndKana = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
constexpr std::string_view kDeepseek3 =
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)re"
    R"re(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)re"
    R"re(|\s*[\r\n]+|\s+(?!\S)|\s+)re";

constexpr std::string_view kPunctuation = R"re([\p{P}\$\+<=>\^~\|]+)re";

constexpr GgufPreTokenizer kPreTokenizers[] = {
    // name, splits, split_digits, gpt2_split, normalize_nfc, ignore_merges, add_bos
    {"chatglm-bpe", {kLlama3}, false, false, false, false, false},
    {"deepseek-r1-qwen", {kQwen2}, false, false, true, false, true},
    {"deepseek-v3", {kNumbersOfThree, kHanAndKana, kDeepseek3}, false, false, false, false, true},
    {"default",
     {kPunctuation, kGpt2, R"re(\p{N}+)re", "[0-9][0-9][0-9]"},
     false,
     false,
     false,
     false,
     false},
    {"glm4", {kLlama3}, false, false, false, false, false},
    {"gpt-2", {}, false, true, false, false, false},
    {"gpt-4o", {kGpt4o}, false, false, false, true, false},
    {"llama-bpe", {kLlama3}, false, false, false, true, true},
    {"llama-v3", {kLlama3}, false, false, false, true, true},
    {"llama3", {kLlama3}, false, false, false, true, true},
    {"llama4", {kGpt4o}, false, false, false, true, true},
    {"mpt", {}, false, true, false, false, false},
    {"olmo", {}, false, true, false, false, false},
    {"phi-2", {}, false, true, false, false, false},
    {"qwen2", {kQwen2}, false, false, true, false, false},
    {"qwen35", {kQwen35}, false, false, true, false, false},
    {"refact", {}, true, true, false, false, false},
    {"smollm", {}, true, true, false, false, false},
    {"starcoder", {}, true, true, false, false, false},
    {"tekken", {kTekken}, false, false, false, true, true},
};
static_assert(std::ranges::is_sorted(kPreTokenizers, {}, &GgufPreTokenizer::name));

}  // namespace

std::span<const GgufPreTokenizer> gguf_pre_tokenizers() {
  return kPreTokenizers;
}

const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name) {
  if (name.empty()) name = "default";
  const auto found = std::ranges::lower_bound(kPreTokenizers, name, {}, &GgufPreTokenizer::name);
  return found != std::end(kPreTokenizers) && found->name == name ? found : nullptr;
}

}  // namespace tw
