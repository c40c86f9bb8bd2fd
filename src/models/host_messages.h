// What the first host tells the others between two steps: the batch to compute, or that it is still
// there, or that they are done.
//
// A message is a row of 32-bit numbers. Its first part has a fixed length, which is enough for most
// steps; the rest follows if there is any.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/batch.h"
#include "parallel/host_link.h"

namespace tw {

enum class HostCommand : int32_t { step, ping, stop };

class HostMessages {
 public:
  explicit HostMessages(HostLink& link);

  // Of the first host. A batch may have no adapters and no trees. A ping is answered by all before
  // it returns.
  Status send(HostCommand command, const Batch& batch = {});

  // Of the others: waits for the next command, and answers pings.
  Expected<HostCommand> receive();
  // Of the last step; valid until the next receive().
  Batch batch() const;

 private:
  Status send_to_all(std::span<const int32_t> words);
  Status receive_from_first(std::span<int32_t> words);
  Status answer();
  Status await_answers();

  HostLink& link_;
  std::vector<int32_t> words_;  // of the message
  std::vector<HostSend> sends_;
  std::vector<HostReceive> answers_;
};

}  // namespace tw
