#include "core/log.h"
#include "text/tokenizer.h"
#include "text/tokenizer_handle.h"

namespace tw {
namespace {

std::string copy_piece(tw_text_status status, tw_text_view piece, tw_text_string message) {
  if (status == TW_TEXT_OK) return std::string(piece.data, piece.size);
  // Nothing that a client sent leads here, and a stream has no place for an error: the token is
  // shown as nothing, and the log says so.
  log::error("incremental decoding: {}", take_string(message));
  return {};
}

}  // namespace

void IncrementalDecoder::FreeStream::operator()(tw_text_decode_stream* stream) const {
  tw_text_decode_stream_free(stream);
}

IncrementalDecoder::IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : stream_(tw_text_decode_stream_new(tokenizer.handle_->tokenizer, skip_special_tokens)) {}

std::string IncrementalDecoder::push(int32_t id) {
  tw_text_view piece;
  tw_text_string message;
  const tw_text_status status =
      tw_text_decode_stream_push(stream_.get(), static_cast<uint32_t>(id), &piece, &message);
  return copy_piece(status, piece, message);
}

std::string IncrementalDecoder::finish() {
  tw_text_view piece;
  tw_text_string message;
  const tw_text_status status = tw_text_decode_stream_finish(stream_.get(), &piece, &message);
  return copy_piece(status, piece, message);
}

}  // namespace tw
