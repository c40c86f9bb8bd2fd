#include "text/gguf_tokenizer.h"

#include <fmt/ranges.h>

#include <cmath>
#include <unordered_map>

#include "core/json.h"
#include "text/gguf_merges.h"
#include "text/gguf_pre_tokenizers.h"
#include "text/utf8.h"

namespace tw {
namespace {

// tokenizer.ggml.token_type.
enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4 };

constexpr const char* kMetaspace = "\u2581";

int32_t token_type(const GgufVocabulary& vocabulary, size_t id) {
  return vocabulary.token_types.empty() ? static_cast<int32_t>(kNormal)
                                        : vocabulary.token_types[id];
}

Status check_id(const GgufVocabulary& vocabulary, const char* name, std::optional<int32_t> id) {
  if (id && (*id < 0 || static_cast<size_t>(*id) >= vocabulary.tokens.size())) {
    return error(ErrorCode::corrupt_data,
                 "GGUF vocabulary: tokenizer.ggml.{} is {}, but there are {} tokens", name, *id,
                 vocabulary.tokens.size());
  }
  return {};
}

Status check_size(const GgufVocabulary& vocabulary, const char* name, size_t size, bool required) {
  if (size == vocabulary.tokens.size() || (size == 0 && !required)) return {};
  return error(ErrorCode::corrupt_data,
               "GGUF vocabulary: tokenizer.ggml.{} has {} entries, but there are {} tokens", name,
               size, vocabulary.tokens.size());
}

Status check(const GgufVocabulary& vocabulary, bool needs_scores) {
  if (vocabulary.tokens.empty()) {
    return error(ErrorCode::corrupt_data, "GGUF vocabulary: tokenizer.ggml.tokens is empty");
  }
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (find_invalid_utf8(vocabulary.tokens[id])) {
      return error(ErrorCode::corrupt_data, "GGUF vocabulary: token {} is not valid UTF-8", id);
    }
  }
  if (Status s = check_size(vocabulary, "token_type", vocabulary.token_types.size(), false); !s) {
    return s;
  }
  if (Status s = check_size(vocabulary, "scores", vocabulary.scores.size(), needs_scores); !s) {
    return s;
  }
  if (Status s = check_id(vocabulary, "bos_token_id", vocabulary.bos_token_id); !s) return s;
  if (Status s = check_id(vocabulary, "eos_token_id", vocabulary.eos_token_id); !s) return s;
  return check_id(vocabulary, "unknown_token_id", vocabulary.unk_token_id);
}

// Quoted, with the escapes that JSON demands. `text` is valid UTF-8. Half of loading would go into
// building JSON values for the vocabulary, so its text is written directly.
void append_string(std::string& out, std::string_view text) {
  out.push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (static_cast<uint8_t>(c) < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<uint8_t>(c));
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
}

// {"token": id, ...}. Where a token occurs twice (padding of some files), the first keeps its name.
std::string vocab_json(const GgufVocabulary& vocabulary) {
  std::unordered_map<std::string_view, size_t> ids;
  ids.reserve(vocabulary.tokens.size());
  std::string out = "{";
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (!ids.emplace(vocabulary.tokens[id], id).second) continue;
    if (out.size() > 1) out.push_back(',');
    append_string(out, vocabulary.tokens[id]);
    fmt::format_to(std::back_inserter(out), ":{}", id);
  }
  out.push_back('}');
  return out;
}

void append_merge(std::string& out, std::string_view left, std::string_view right) {
  out.append(out.size() > 1 ? ",[" : "[");
  append_string(out, left);
  out.push_back(',');
  append_string(out, right);
  out.push_back(']');
}

Expected<std::string> byte_level_merges_json(const GgufVocabulary& vocabulary) {
  std::string out = "[";
  for (size_t i = 0; i < vocabulary.merges.size(); ++i) {
    const std::string_view merge = vocabulary.merges[i];
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size() || find_invalid_utf8(merge)) {
      return error(ErrorCode::corrupt_data,
                   "GGUF vocabulary: tokenizer.ggml.merges[{}] is not two tokens with a space "
                   "between",
                   i);
    }
    append_merge(out, merge.substr(0, space), merge.substr(space + 1));
  }
  out.push_back(']');
  return out;
}

Expected<std::string> sentencepiece_merges_json(const GgufVocabulary& vocabulary) {
  std::vector<ScoredPiece> pieces;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (std::isnan(vocabulary.scores[id])) {
      return error(ErrorCode::corrupt_data, "GGUF vocabulary: tokenizer.ggml.scores[{}] is NaN",
                   id);
    }
    if (token_type(vocabulary, id) != kNormal) continue;
    pieces.push_back({vocabulary.tokens[id], static_cast<int32_t>(id), vocabulary.scores[id]});
  }
  std::string out = "[";
  for (const PieceMerge& merge : merges_from_scores(pieces)) {
    append_merge(out, merge.left, merge.right);
  }
  out.push_back(']');
  return out;
}

Json added_tokens_json(const GgufVocabulary& vocabulary) {
  Json added = Json::array();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const int32_t type = token_type(vocabulary, id);
    const bool special = type == kControl || type == kUnknown;
    if ((!special && type != kUserDefined) || vocabulary.tokens[id].empty()) continue;
    added.push_back({{"id", id},
                     {"content", vocabulary.tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", special}});
  }
  return added;
}

// What encode() puts around the text: BOS before, EOS after, where wanted.
Json post_processor_json(const GgufVocabulary& vocabulary, std::optional<int32_t> bos,
                         std::optional<int32_t> eos) {
  if (!bos && !eos) return nullptr;
  Json special_tokens = Json::object();
  const auto special = [&](int32_t id, int type_id) {
    const std::string& token = vocabulary.tokens[static_cast<size_t>(id)];
    special_tokens[token] = {{"id", token}, {"ids", {id}}, {"tokens", {token}}};
    return Json{{"SpecialToken", {{"id", token}, {"type_id", type_id}}}};
  };
  const auto append = [&](Json& pieces, const char* sequence, int type_id) {
    if (bos) pieces.push_back(special(*bos, type_id));
    pieces.push_back(Json{{"Sequence", {{"id", sequence}, {"type_id", type_id}}}});
    if (eos) pieces.push_back(special(*eos, type_id));
  };
  Json single = Json::array();
  append(single, "A", 0);
  Json pair = single;
  append(pair, "B", 1);
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", pair},
          {"special_tokens", special_tokens}};
}

Json byte_level_json(bool split) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", split}};
}

Json pre_tokenizer_json(const GgufPreTokenizer& rules) {
  Json steps = Json::array();
  if (rules.split_digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  for (const std::string_view regex : rules.splits) {
    if (regex.empty()) continue;
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", regex}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back(byte_level_json(rules.gpt2_split));
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

// The parts of a tokenizer.json, in its order, as JSON text.
struct TokenizerParts {
  Json normalizer;
  Json pre_tokenizer;
  Json decoder;
  Json model;  // without vocab and merges
  std::string merges;
};

std::string assemble(const GgufVocabulary& vocabulary, const TokenizerParts& parts,
                     const Json& post_processor) {
  std::string model = dump_json(parts.model);
  model.pop_back();  // the closing brace
  return fmt::format(
      R"({{"version":"1.0","truncation":null,"padding":null,"added_tokens":{},"normalizer":{},)"
      R"("pre_tokenizer":{},"post_processor":{},"decoder":{},"model":{},"vocab":{},"merges":{}}}}})",
      dump_json(added_tokens_json(vocabulary)), dump_json(parts.normalizer),
      dump_json(parts.pre_tokenizer), dump_json(post_processor), dump_json(parts.decoder), model,
      vocab_json(vocabulary), parts.merges);
}

Expected<TokenizerParts> byte_level_parts(const GgufVocabulary& vocabulary,
                                          const GgufPreTokenizer& rules) {
  auto merges = byte_level_merges_json(vocabulary);
  if (!merges) return forward_error(merges);
  return TokenizerParts{.normalizer = rules.normalize_nfc ? Json{{"type", "NFC"}} : Json(nullptr),
                        .pre_tokenizer = pre_tokenizer_json(rules),
                        .decoder = byte_level_json(true),
                        .model = {{"type", "BPE"},
                                  {"dropout", nullptr},
                                  {"unk_token", nullptr},
                                  {"continuing_subword_prefix", nullptr},
                                  {"end_of_word_suffix", nullptr},
                                  {"fuse_unk", false},
                                  {"byte_fallback", false},
                                  {"ignore_merges", rules.ignore_merges}},
                        .merges = std::move(*merges)};
}

Expected<TokenizerParts> sentencepiece_parts(const GgufVocabulary& vocabulary) {
  auto merges = sentencepiece_merges_json(vocabulary);
  if (!merges) return forward_error(merges);
  const Json spaces = {
      {"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kMetaspace}};
  Json decoders = Json::array();
  decoders.push_back(
      {{"type", "Replace"}, {"pattern", {{"String", kMetaspace}}}, {"content", " "}});
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  Json normalizers = Json::array();
  if (vocabulary.add_space_prefix) {
    normalizers.push_back({{"type", "Prepend"}, {"prepend", kMetaspace}});
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  normalizers.push_back(spaces);
  Json unk_token = nullptr;
  if (vocabulary.unk_token_id) {
    unk_token = vocabulary.tokens[static_cast<size_t>(*vocabulary.unk_token_id)];
  }
  return TokenizerParts{.normalizer = {{"type", "Sequence"}, {"normalizers", normalizers}},
                        .pre_tokenizer = nullptr,
                        .decoder = {{"type", "Sequence"}, {"decoders", decoders}},
                        .model = {{"type", "BPE"},
                                  {"dropout", nullptr},
                                  {"unk_token", unk_token},
                                  {"continuing_subword_prefix", nullptr},
                                  {"end_of_word_suffix", nullptr},
                                  {"fuse_unk", true},
                                  {"byte_fallback", true},
                                  {"ignore_merges", false}},
                        .merges = std::move(*merges)};
}

// The id to put before or after a text, if one is wanted. Files that ask for one must name it.
Expected<std::optional<int32_t>> wanted_id(const char* name, std::optional<bool> wanted,
                                           bool wanted_by_default, std::optional<int32_t> id) {
  if (!wanted.value_or(wanted_by_default)) return std::nullopt;
  if (!id && wanted) {
    return error(ErrorCode::corrupt_data,
                 "GGUF vocabulary: tokenizer.ggml.add_{}_token is set without {}_token_id", name,
                 name);
  }
  return id;
}

}  // namespace

Expected<std::string> gguf_tokenizer_json(const GgufVocabulary& vocabulary) {
  const bool byte_level = vocabulary.model == "gpt2";
  if (!byte_level && vocabulary.model != "llama") {
    return error(ErrorCode::unsupported,
                 "GGUF vocabulary: tokenizer.ggml.model \"{}\" is not supported; known are gpt2 "
                 "(byte-level BPE) and llama (SentencePiece)",
                 vocabulary.model);
  }
  if (Status valid = check(vocabulary, !byte_level); !valid) return forward_error(valid);

  bool bos_by_default = true;
  Expected<TokenizerParts> parts;
  if (byte_level) {
    const GgufPreTokenizer* rules = find_gguf_pre_tokenizer(vocabulary.pre);
    if (rules == nullptr) {
      std::vector<std::string_view> known;
      for (const GgufPreTokenizer& one : gguf_pre_tokenizers()) known.push_back(one.name);
      return error(ErrorCode::unsupported,
                   "GGUF vocabulary: tokenizer.ggml.pre \"{}\" is not supported; known are {}",
                   vocabulary.pre, fmt::join(known, ", "));
    }
    bos_by_default = rules->add_bos;
    parts = byte_level_parts(vocabulary, *rules);
  } else {
    parts = sentencepiece_parts(vocabulary);
  }
  if (!parts) return forward_error(parts);

  auto bos = wanted_id("bos", vocabulary.add_bos_token, bos_by_default, vocabulary.bos_token_id);
  if (!bos) return forward_error(bos);
  auto eos = wanted_id("eos", vocabulary.add_eos_token, false, vocabulary.eos_token_id);
  if (!eos) return forward_error(eos);
  return assemble(vocabulary, *parts, post_processor_json(vocabulary, *bos, *eos));
}

}  // namespace tw
