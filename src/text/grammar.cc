#include "text/grammar.h"

#include "text/tokenizer_handle.h"

namespace tw {
namespace {

tw_text_grammar_kind to_ffi(GrammarKind kind) {
  switch (kind) {
    case GrammarKind::json_schema:
      return TW_TEXT_JSON_SCHEMA;
    case GrammarKind::regex:
      return TW_TEXT_REGEX;
    case GrammarKind::ebnf:
      break;
  }
  return TW_TEXT_EBNF;
}

}  // namespace

struct GrammarCompiler::Handle {
  explicit Handle(tw_text_grammar_compiler* owned) : compiler(owned) {}
  ~Handle() { tw_text_grammar_compiler_free(compiler); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  tw_text_grammar_compiler* compiler;
};

void Grammar::Free::operator()(tw_text_grammar* grammar) const {
  tw_text_grammar_free(grammar);
}

Grammar Grammar::clone() const {
  return Grammar(tw_text_grammar_clone(grammar_.get()));
}

Status Grammar::mask(std::span<uint32_t> words) {
  tw_text_string message;
  const tw_text_status status =
      tw_text_grammar_mask(grammar_.get(), words.data(), words.size(), &message);
  if (status != TW_TEXT_OK) return text_error(status, message, "grammar");
  return {};
}

Status Grammar::accept(int32_t token) {
  tw_text_string message;
  const tw_text_status status =
      tw_text_grammar_accept(grammar_.get(), static_cast<uint32_t>(token), &message);
  if (status != TW_TEXT_OK) return text_error(status, message, "grammar");
  return {};
}

bool Grammar::complete() const {
  return tw_text_grammar_is_complete(grammar_.get());
}

Expected<GrammarCompiler> GrammarCompiler::create(const Tokenizer& tokenizer,
                                                  std::span<const int32_t> eos_token_ids) {
  tw_text_grammar_compiler* compiler = nullptr;
  tw_text_string message;
  const tw_text_status status = tw_text_grammar_compiler_new(
      tokenizer.handle_->tokenizer, reinterpret_cast<const uint32_t*>(eos_token_ids.data()),
      eos_token_ids.size(), &compiler, &message);
  if (status != TW_TEXT_OK) return text_error(status, message, "");
  return GrammarCompiler(std::make_shared<const Handle>(compiler));
}

Expected<Grammar> GrammarCompiler::compile(const GrammarSource& source) const {
  tw_text_grammar* grammar = nullptr;
  tw_text_string message;
  const tw_text_status status =
      tw_text_grammar_compile(handle_->compiler, to_ffi(source.kind), source.text.data(),
                              source.text.size(), &grammar, &message);
  if (status != TW_TEXT_OK) return text_error(status, message, "");
  return Grammar(grammar);
}

}  // namespace tw
