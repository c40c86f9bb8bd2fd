// The request fields that ask for structured output.
#pragma once

#include <optional>

#include "server/request_fields.h"
#include "text/grammar.h"

namespace tw {

// OpenAI's response_format (text, json_object, json_schema, structural_tag), and SGLang's regex,
// ebnf, json_schema and structural_tag. At most one of them.
void read_grammar(RequestFields& fields, std::optional<GrammarSource>& grammar);

// SGLang's structural tag as a grammar: free text, in which each of `triggers` must go on as one of
// `structures` ({"begin", "schema", "end"}) does. An error names the member at fault.
Expected<GrammarSource> structural_tag_grammar(const Json& tag);

}  // namespace tw
