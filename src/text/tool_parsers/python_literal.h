// Reads names and literals of Python's expressions, as JSON values.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"

namespace tw {

class PythonReader {
 public:
  explicit PythonReader(std::string_view text) : rest_(text) {}

  // Each skips white space before it, and takes nothing where it fails.
  bool take(char c);
  bool at(char c);
  bool at_end();
  // letters, digits, _ and dots: get_weather, math.add
  std::optional<std::string> take_name();
  // A string, number, True, False, None, list, tuple or dict. Nested at most 64 deep.
  std::optional<Json> take_literal(int depth = 0);

 private:
  void skip_space();
  std::optional<Json> take_string();
  std::optional<Json> take_number();
  std::optional<Json> take_sequence(char close, int depth);
  std::optional<Json> take_dict(int depth);
  bool take_escape(std::string& text);

  std::string_view rest_;
};

}  // namespace tw
