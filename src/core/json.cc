#include "core/json.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tw {
namespace {

// What building a text's value will cost, found before it is built.
struct JsonCost {
  int depth = 0;
  int64_t key_comparisons = 0;
};

class CostScanner {
 public:
  explicit CostScanner(const JsonLimits& limits) : limits_(limits) {}

  // Stops at the first limit that is passed.
  JsonCost scan(std::string_view text) {
    for (size_t i = 0; i < text.size() && within_limits(); ++i) {
      if (text[i] == '"') {
        i = end_of_string(text, i);
      } else {
        structural(text[i]);
      }
    }
    return cost_;
  }

 private:
  bool within_limits() const {
    return cost_.depth <= limits_.max_depth && cost_.key_comparisons <= limits_.max_key_comparisons;
  }

  static size_t end_of_string(std::string_view text, size_t begin) {
    size_t i = begin + 1;
    while (i < text.size() && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
    return i;
  }

  void structural(char c) {
    if (c == '[' || c == '{') {
      members_.push_back(0);
      cost_.depth = std::max(cost_.depth, static_cast<int>(members_.size()));
    } else if (members_.empty()) {
      return;
    } else if (c == ']' || c == '}') {
      members_.pop_back();
    } else if (c == ':') {
      cost_.key_comparisons += members_.back()++;
    }
  }

  const JsonLimits& limits_;
  std::vector<int64_t> members_;  // of each open object
  JsonCost cost_;
};

}  // namespace

Expected<Json> parse_json(std::string_view text, std::string_view what, const JsonLimits& limits) {
  const JsonCost cost = CostScanner(limits).scan(text);
  if (cost.depth > limits.max_depth) {
    return error(ErrorCode::invalid_argument, "{}: JSON nested more than {} levels deep", what,
                 limits.max_depth);
  }
  if (cost.key_comparisons > limits.max_key_comparisons) {
    return error(
        ErrorCode::invalid_argument,
        "{}: JSON objects with too many members; one of {} is "
        "the most that is allowed",
        what,
        static_cast<int64_t>(std::sqrt(2.0 * static_cast<double>(limits.max_key_comparisons))));
  }
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::exception& failure) {
    return error(ErrorCode::invalid_argument, "{}: not valid JSON: {}", what, failure.what());
  }
}

std::string dump_json(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tw
