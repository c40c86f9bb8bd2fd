#include "server/grammars.h"

namespace tw {
namespace {

// A mask takes tens of microseconds: two threads serve hundreds of generations per step, and what
// they do not come to is done by the engine's thread.
constexpr int kMaskThreads = 2;

}  // namespace

Grammars::Grammars(const Tokenizer& tokenizer, std::vector<int32_t> eos_token_ids,
                   int64_t vocab_size)
    : tokenizer_(tokenizer),
      eos_token_ids_(std::move(eos_token_ids)),
      vocab_size_(vocab_size),
      workers_(kMaskThreads) {}

Expected<GrammarCompiler> Grammars::compiler() {
  std::lock_guard lock(mutex_);
  if (!compiler_) {
    auto created = GrammarCompiler::create(tokenizer_, eos_token_ids_);
    if (!created) return created;
    compiler_ = std::move(*created);
  }
  return *compiler_;
}

Expected<std::vector<std::shared_ptr<TokenConstraint>>> Grammars::start(const GrammarSource& source,
                                                                        const GrammarStart& start,
                                                                        size_t count) {
  auto made = compiler();
  if (!made) return forward_error(made);
  auto grammar = made->compile(source);
  if (!grammar) return forward_error(grammar);
  std::vector<std::shared_ptr<TokenConstraint>> constraints;
  for (size_t i = 0; i < count; ++i) {
    constraints.push_back(
        std::make_shared<GrammarConstraint>(grammar->clone(), start, vocab_size_, workers_));
  }
  return constraints;
}

}  // namespace tw
