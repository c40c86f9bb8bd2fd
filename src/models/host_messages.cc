#include "models/host_messages.h"

#include <algorithm>

#include "core/check.h"

namespace tw {
namespace {

constexpr size_t kFirstPart = 8192;  // words: 64 sequences with 100 pages each

constexpr std::span<const int32_t> Batch::*kArrays[] = {
    &Batch::token_ids,    &Batch::positions,   &Batch::seq_starts,        &Batch::context_lens,
    &Batch::kv_slots,     &Batch::page_tables, &Batch::page_table_starts, &Batch::logit_tokens,
    &Batch::state_tokens, &Batch::state_slots};

// Words before the arrays: the command, the number of all words, the number of generated tokens,
// and the arrays' sizes.
constexpr size_t kCommand = 0, kNumWords = 1, kNumGenerated = 2, kSizes = 3;
constexpr size_t kHeader = kSizes + std::size(kArrays);

}  // namespace

HostMessages::HostMessages(HostLink& link) : link_(link), words_(kFirstPart) {}

Status HostMessages::send(HostCommand command, const Batch& batch) {
  TW_CHECK(batch.adapters.empty() && batch.kv_copies.empty());
  size_t num_words = kHeader;
  for (const auto array : kArrays) num_words += (batch.*array).size();
  words_.resize(std::max(num_words, kFirstPart));
  words_[kCommand] = static_cast<int32_t>(command);
  words_[kNumWords] = static_cast<int32_t>(num_words);
  words_[kNumGenerated] = batch.num_generated_tokens;
  auto next = words_.begin() + kHeader;
  for (size_t i = 0; i < std::size(kArrays); ++i) {
    const auto values = batch.*kArrays[i];
    words_[kSizes + i] = static_cast<int32_t>(values.size());
    next = std::ranges::copy(values, next).out;
  }
  // No more of the first part than there is in it.
  const auto message = std::span(words_).first(num_words);
  Status status = send_to_all(message.first(std::min(num_words, kFirstPart)));
  if (status && num_words > kFirstPart) status = send_to_all(message.subspan(kFirstPart));
  if (status && command == HostCommand::ping) status = await_answers();
  return status;
}

Expected<HostCommand> HostMessages::receive() {
  words_.resize(std::max(words_.size(), kFirstPart));
  if (Status status = receive_from_first(std::span(words_).first(kFirstPart)); !status) {
    return forward_error(status);
  }
  const auto num_words = static_cast<size_t>(words_[kNumWords]);
  if (num_words > kFirstPart) {
    words_.resize(num_words);
    Status status = receive_from_first(std::span(words_).subspan(kFirstPart));
    if (!status) return forward_error(status);
  }
  const auto command = static_cast<HostCommand>(words_[kCommand]);
  if (command == HostCommand::ping) {
    if (Status status = answer(); !status) return forward_error(status);
  }
  return command;
}

Batch HostMessages::batch() const {
  Batch batch;
  batch.num_generated_tokens = words_[kNumGenerated];
  size_t next = kHeader;
  for (size_t i = 0; i < std::size(kArrays); ++i) {
    const auto size = static_cast<size_t>(words_[kSizes + i]);
    batch.*kArrays[i] = std::span(words_).subspan(next, size);
    next += size;
  }
  return batch;
}

Status HostMessages::send_to_all(std::span<const int32_t> words) {
  sends_.clear();
  for (int host = 1; host < link_.num_hosts(); ++host) {
    sends_.push_back({host, std::as_bytes(words)});
  }
  return link_.exchange(sends_, {});
}

Status HostMessages::receive_from_first(std::span<int32_t> words) {
  HostReceive receive{0, std::as_writable_bytes(words)};
  return link_.exchange({}, std::span(&receive, 1));
}

Status HostMessages::answer() {
  const HostSend send{0, {}};
  return link_.exchange(std::span(&send, 1), {});
}

Status HostMessages::await_answers() {
  answers_.clear();
  for (int host = 1; host < link_.num_hosts(); ++host) answers_.push_back({host, {}});
  return link_.exchange({}, answers_);
}

}  // namespace tw
