// What guessing from repetitions keeps of a sequence.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/speculative/suffix_automaton.h"

namespace tw {

struct NgramState {
  std::unique_ptr<SuffixAutomaton> own;  // of the sequence's tokens; null: none seen yet
  SuffixAutomaton::Match earlier;        // in the texts of earlier requests
  int32_t num_seen = 0;                  // of the sequence's tokens
};

}  // namespace tw
