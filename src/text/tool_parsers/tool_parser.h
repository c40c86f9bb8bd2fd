// From a model's text to tool calls: one format, one file.
//
// Each family of models writes its calls in a format of its own, learnt with its chat template. A
// parser takes the text in pieces, however they are cut, and gives content and calls. It may hold
// text back until it knows what it is, but loses none: what looks like a call and turns out to be
// none is content. (Only the marks of the format and the white space beside them are dropped.)
// A call is given when it is complete, so that its arguments are valid JSON in any case.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/status.h"
#include "text/text_parser.h"

namespace tw {

// The functions that a request offers: OpenAI's `tools`, or null.
class ToolSchemas {
 public:
  explicit ToolSchemas(const Json& tools);
  bool has(std::string_view name) const;
  // The JSON schema of a parameter; null where there is none.
  const Json* parameter(std::string_view function, std::string_view name) const;
  // The JSON schema of all parameters; null where there is none.
  const Json* parameters(std::string_view function) const;
  // The names, for messages.
  std::string names() const;

 private:
  struct Function {
    std::string name;
    Json parameters;
  };
  const Function* find(std::string_view name) const;
  std::vector<Function> functions_;
};

struct ToolFormat {
  std::string_view name;  // of --tool-call-parser
  std::unique_ptr<TextParser> (*make)(std::shared_ptr<const ToolSchemas>);
  bool special_tokens;  // its marks are special tokens: these must be shown
  int id_length = 0;    // of calls, where the chat template insists on one
};

// Null when unknown.
const ToolFormat* find_tool_format(std::string_view name);
// All names, for messages: "deepseekv3, glm45, ...".
std::string tool_format_names();

// The formats, each in the file of that name.
using ToolParserPtr = std::unique_ptr<TextParser>;
using ToolSchemasPtr = std::shared_ptr<const ToolSchemas>;
ToolParserPtr make_deepseek_parser(ToolSchemasPtr tools);
ToolParserPtr make_glm_parser(ToolSchemasPtr tools);
ToolParserPtr make_harmony_parser(ToolSchemasPtr tools);
ToolParserPtr make_kimi_k2_parser(ToolSchemasPtr tools);
ToolParserPtr make_llama3_parser(ToolSchemasPtr tools);
ToolParserPtr make_minimax_parser(ToolSchemasPtr tools);
ToolParserPtr make_mistral_parser(ToolSchemasPtr tools);
ToolParserPtr make_pythonic_parser(ToolSchemasPtr tools);
ToolParserPtr make_qwen_parser(ToolSchemasPtr tools);
ToolParserPtr make_qwen3_coder_parser(ToolSchemasPtr tools);
// A JSON array of {"name": ..., "parameters": {...}} and nothing else: what forced_calls_schema
// makes a model write, whatever its own format is.
ToolParserPtr make_json_array_parser(ToolSchemasPtr tools);

// The JSON schema of at least one call of these functions, or of exactly one call of `only`.
Json forced_calls_schema(const Json& tools, std::string_view only, bool parallel);

}  // namespace tw
