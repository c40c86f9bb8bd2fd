#include "text/tokenizer.h"

#include <type_traits>

#include "core/check.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer_handle.h"

namespace tw {
namespace {

// Ids are read as unsigned by the library: a negative one becomes one that no vocabulary has.
static_assert(std::is_same_v<std::make_unsigned_t<int32_t>, uint32_t>);

}  // namespace

Expected<Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json,
                                         std::string_view source_name) {
  const tw_text_tokenizer* tokenizer = nullptr;
  tw_text_string message;
  const tw_text_status status = tw_text_tokenizer_from_json(
      tokenizer_json.data(), tokenizer_json.size(), &tokenizer, &message);
  if (status != TW_TEXT_OK) {
    auto failed = text_error(status, message, source_name);
    // Whatever is wrong with it, it is the file that is at fault.
    if (status == TW_TEXT_INVALID_ARGUMENT) failed.value().code = ErrorCode::corrupt_data;
    return failed;
  }
  return Tokenizer(std::make_shared<const Handle>(tokenizer));
}

Expected<Tokenizer> Tokenizer::from_gguf(const GgufVocabulary& vocabulary) {
  auto json = gguf_tokenizer_json(vocabulary);
  if (!json) return forward_error(json);
  return from_json(*json, "GGUF vocabulary");
}

Expected<std::vector<int32_t>> Tokenizer::encode(std::string_view text,
                                                 bool add_special_tokens) const {
  tw_text_ids ids;
  tw_text_string message;
  const tw_text_status status = tw_text_tokenizer_encode(
      handle_->tokenizer, text.data(), text.size(), add_special_tokens, &ids, &message);
  if (status != TW_TEXT_OK) return text_error(status, message, "");
  std::vector<int32_t> result(ids.data, ids.data + ids.size);
  tw_text_ids_free(ids);
  return result;
}

Expected<std::vector<std::vector<int32_t>>> Tokenizer::encode_batch(
    std::span<const std::string> texts, bool add_special_tokens) const {
  std::vector<std::vector<int32_t>> batch;
  batch.reserve(texts.size());
  for (const std::string& text : texts) {
    auto ids = encode(text, add_special_tokens);
    if (!ids) {
      return error(ids.error().code, "text {} of {}: {}", batch.size() + 1, texts.size(),
                   ids.error().message);
    }
    batch.push_back(std::move(*ids));
  }
  return batch;
}

Expected<std::string> Tokenizer::decode(std::span<const int32_t> ids,
                                        bool skip_special_tokens) const {
  tw_text_string text;
  tw_text_string message;
  const tw_text_status status =
      tw_text_tokenizer_decode(handle_->tokenizer, reinterpret_cast<const uint32_t*>(ids.data()),
                               ids.size(), skip_special_tokens, &text, &message);
  if (status != TW_TEXT_OK) return text_error(status, message, "");
  return take_string(text);
}

int64_t Tokenizer::vocab_size() const {
  return static_cast<int64_t>(tw_text_tokenizer_vocab_size(handle_->tokenizer));
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  const int64_t id = tw_text_tokenizer_token_to_id(handle_->tokenizer, token.data(), token.size());
  if (id < 0 || id > INT32_MAX) return std::nullopt;
  return static_cast<int32_t>(id);
}

std::optional<std::string> Tokenizer::id_to_token(int32_t id) const {
  tw_text_string token;
  if (!tw_text_tokenizer_id_to_token(handle_->tokenizer, static_cast<uint32_t>(id), &token)) {
    return std::nullopt;
  }
  return take_string(token);
}

bool Tokenizer::is_special(int32_t id) const {
  return tw_text_tokenizer_is_special(handle_->tokenizer, static_cast<uint32_t>(id));
}

std::string Tokenizer::to_json() const {
  tw_text_string json;
  tw_text_string message;
  const tw_text_status status = tw_text_tokenizer_to_json(handle_->tokenizer, &json, &message);
  // What was read from JSON can be written to it.
  TW_CHECK(status == TW_TEXT_OK);
  return take_string(json);
}

}  // namespace tw
