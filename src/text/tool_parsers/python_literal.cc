#include "text/tool_parsers/python_literal.h"

#include <charconv>

#include "text/utf8.h"

namespace tw {
namespace {

constexpr int kMaxDepth = 64;

bool is_name_part(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-';
}

}  // namespace

void PythonReader::skip_space() {
  const size_t begin = rest_.find_first_not_of(" \t\r\n");
  rest_.remove_prefix(begin == std::string_view::npos ? rest_.size() : begin);
}

bool PythonReader::at(char c) {
  skip_space();
  return rest_.starts_with(c);
}

bool PythonReader::take(char c) {
  if (!at(c)) return false;
  rest_.remove_prefix(1);
  return true;
}

bool PythonReader::at_end() {
  skip_space();
  return rest_.empty();
}

std::optional<std::string> PythonReader::take_name() {
  skip_space();
  size_t end = 0;
  while (end < rest_.size() && is_name_part(rest_[end])) ++end;
  if (end == 0 || (rest_[0] >= '0' && rest_[0] <= '9')) return std::nullopt;
  std::string name(rest_.substr(0, end));
  rest_.remove_prefix(end);
  return name;
}

std::optional<Json> PythonReader::take_literal(int depth) {
  if (depth > kMaxDepth) return std::nullopt;
  if (at('"') || at('\'')) return take_string();
  if (take('[')) return take_sequence(']', depth);
  if (take('(')) return take_sequence(')', depth);
  if (take('{')) return take_dict(depth);
  struct Constant {
    std::string_view name;
    Json value;
  };
  // JSON's own spellings, too: models mix them.
  static const Constant kConstants[] = {{"True", true}, {"False", false}, {"None", nullptr},
                                        {"true", true}, {"false", false}, {"null", nullptr}};
  for (const Constant& constant : kConstants) {
    if (!rest_.starts_with(constant.name)) continue;
    rest_.remove_prefix(constant.name.size());
    return constant.value;
  }
  return take_number();
}

std::optional<Json> PythonReader::take_number() {
  const size_t end = std::min(rest_.find_first_not_of("+-.0123456789eE_"), rest_.size());
  std::string digits;
  for (const char c : rest_.substr(0, end)) {
    if (c != '_') digits += c;
  }
  if (digits.starts_with('+')) digits.erase(0, 1);
  const char* last = digits.data() + digits.size();
  int64_t integer = 0;
  const auto whole = std::from_chars(digits.data(), last, integer);
  if (whole.ec == std::errc{} && whole.ptr == last) {
    rest_.remove_prefix(end);
    return integer;
  }
  double number = 0;
  const auto real = std::from_chars(digits.data(), last, number);
  if (real.ec != std::errc{} || real.ptr != last) return std::nullopt;
  rest_.remove_prefix(end);
  return number;
}

bool PythonReader::take_escape(std::string& text) {
  if (rest_.empty()) return false;
  const char c = rest_.front();
  rest_.remove_prefix(1);
  const auto code_point = [&](size_t num_digits) {
    uint32_t value = 0;
    if (rest_.size() < num_digits) return false;
    const char* last = rest_.data() + num_digits;
    const auto [stop, failure] = std::from_chars(rest_.data(), last, value, 16);
    if (failure != std::errc{} || stop != last) return false;
    rest_.remove_prefix(num_digits);
    return append_utf8(value, text);
  };
  switch (c) {
    case 'n':
      text += '\n';
      return true;
    case 't':
      text += '\t';
      return true;
    case 'r':
      text += '\r';
      return true;
    case '\n':
      return true;
    case 'x':
      return code_point(2);
    case 'u':
      return code_point(4);
    case 'U':
      return code_point(8);
    case '\\':
    case '\'':
    case '"':
      text += c;
      return true;
    default:
      // As in Python, an unknown escape stands for itself.
      text += '\\';
      text += c;
      return true;
  }
}

std::optional<Json> PythonReader::take_string() {
  const char quote = rest_.front();
  rest_.remove_prefix(1);
  std::string text;
  while (!rest_.empty()) {
    const char c = rest_.front();
    rest_.remove_prefix(1);
    if (c == quote) return text;
    if (c != '\\') {
      text += c;
    } else if (!take_escape(text)) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

std::optional<Json> PythonReader::take_sequence(char close, int depth) {
  Json list = Json::array();
  while (!take(close)) {
    auto value = take_literal(depth + 1);
    if (!value) return std::nullopt;
    list.push_back(std::move(*value));
    if (!take(',') && !at(close)) return std::nullopt;
  }
  return list;
}

std::optional<Json> PythonReader::take_dict(int depth) {
  Json dict = Json::object();
  while (!take('}')) {
    auto key = take_literal(depth + 1);
    if (!key || !take(':')) return std::nullopt;
    auto value = take_literal(depth + 1);
    if (!value) return std::nullopt;
    dict[key->is_string() ? key->get<std::string>() : dump_json(*key)] = std::move(*value);
    if (!take(',') && !at('}')) return std::nullopt;
  }
  return dict;
}

}  // namespace tw
