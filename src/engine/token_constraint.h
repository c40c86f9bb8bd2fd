// What restricts a sequence's next token, such as the state of a grammar.
#pragma once

#include <cstdint>
#include <span>

#include "core/status.h"

namespace tw {

// Belongs to one request and moves on with its output: preemption, which computes the same tokens
// again, does not touch it. Used by the engine thread alone.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // Which tokens may come next: bit id % 32 of word id / 32; ids beyond the last word may not. An
  // empty span allows all. Valid until accept(). Waits where accept() left work to other threads.
  virtual Expected<std::span<const uint32_t>> allowed() = 0;

  // Takes note of the token that was chosen among those. What may follow it can be computed on
  // another thread from now on, while the model runs.
  virtual Status accept(int32_t token) = 0;

  // Nothing may follow: the generation ends.
  virtual bool complete() const = 0;
};

}  // namespace tw
