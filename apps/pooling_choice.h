// How a checkpoint wants its hidden states pooled into an embedding.
#pragma once

#include <string>

#include "core/status.h"
#include "engine/pooling.h"
#include "weights/checkpoint.h"

namespace tw {

// Whether choose_pooling() knows the name.
Status check_pooling(const std::string& name);

// `name`: a pooling, or "auto": what the folder's 1_Pooling/config.json (of sentence-transformers)
// says, and the last token's state where there is none.
Expected<Pooling> choose_pooling(const std::string& name, const Checkpoint& checkpoint);

}  // namespace tw
