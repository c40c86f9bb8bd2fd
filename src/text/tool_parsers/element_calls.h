// Calls written as elements: <function=NAME><parameter=KEY>VALUE</parameter>...</function> and the
// like. Values are text whose type the function's schema knows.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "text/tool_parsers/tool_parser.h"

namespace tw {

struct ElementMarks {
  std::string_view call_begin;   // up to the name: `<function=`, `<invoke name="`
  std::string_view call_end;     // `</function>`
  std::string_view value_begin;  // up to the key: `<parameter=`
  std::string_view value_end;    // `</parameter>`
  std::string_view name_end;     // after name and key: `>`, `">`
};

// A text of nothing but calls.
std::optional<std::vector<ToolCall>> calls_from_elements(std::string_view text,
                                                         const ElementMarks& marks,
                                                         const ToolSchemas& tools);

}  // namespace tw
