// The grammars of a served model: compiled on request, started for each generation.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/status.h"
#include "server/grammar_constraint.h"
#include "text/grammar.h"

namespace tw {

class Grammars {
 public:
  Grammars(const Tokenizer& tokenizer, std::vector<int32_t> eos_token_ids, int64_t vocab_size);

  // A constraint for each of `count` generations. Fails with invalid_argument where the source is
  // no grammar or too costly a one. The first call prepares the vocabulary: up to half a second.
  Expected<std::vector<std::shared_ptr<TokenConstraint>>> start(const GrammarSource& source,
                                                                const GrammarStart& start,
                                                                size_t count);

  MaskCosts costs() const { return workers_.costs(); }

 private:
  Expected<GrammarCompiler> compiler();

  const Tokenizer& tokenizer_;
  const std::vector<int32_t> eos_token_ids_;
  const int64_t vocab_size_;
  std::mutex mutex_;
  std::optional<GrammarCompiler> compiler_;
  MaskWorkers workers_;
};

}  // namespace tw
