// How many pages the KV cache gets.
#pragma once

#include <cstdint>

#include "core/memory.h"
#include "core/status.h"
#include "engine/engine.h"

namespace tw {

struct KvBudgetInput {
  MemoryLimits memory;
  int64_t resident_bytes = 0;  // of this process: mostly weights
  int64_t kv_bytes_per_token = 0;
  int64_t state_bytes = 0;     // recurrent states of --max-running-requests sequences
  int64_t context_length = 0;  // tokens of one request at most
};

// --max-total-tokens as given, or what --mem-fraction-static of the usable memory leaves beside
// what is resident and the states, but no more than all running requests can use. Fails with
// resource_exhausted, saying what is needed for what, when that is less than a page or more than
// there is.
Expected<int32_t> kv_pages(const EngineConfig& config, const KvBudgetInput& input);

}  // namespace tw
