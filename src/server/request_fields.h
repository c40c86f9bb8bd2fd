// Reads the fields of a JSON request into typed values.
//
//   RequestFields fields(body);
//   fields.read("temperature", sampling.temperature, {.min = 0});
//   fields.read("stream", stream);
//   if (fields.failed()) return fields.take_error();
//
// Absent and null fields leave the target as it is; unknown fields are nobody's business. The first
// error stays (naming the field, what was found and what is valid), and everything after it is a
// no-op, so that a request's fields can be listed without a check after each.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "http/api_error.h"

namespace tw {

struct NumberRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_allowed = true;  // min itself is valid
};

struct IntegerRange {
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();
};

class RequestFields {
 public:
  // `object` must outlive this; anything but an object is an error. `path` goes before the names
  // in messages: "sampling_params".
  explicit RequestFields(const Json& object, std::string path = {});

  bool failed() const { return error_.has_value(); }
  ApiError take_error() { return std::move(*error_); }

  // The field, unless it is absent or null (or an error came before).
  const Json* find(std::string_view name) const;

  // Each returns whether the field was there and valid.
  bool read(std::string_view name, bool& value);
  bool read(std::string_view name, std::string& value);
  bool read(std::string_view name, float& value, NumberRange range = {});
  template <std::integral T>
  bool read(std::string_view name, T& value, IntegerRange range = {}) {
    range.min = std::max<int64_t>(range.min, std::numeric_limits<T>::min());
    if constexpr (sizeof(T) < 8)
      range.max = std::min<int64_t>(range.max, std::numeric_limits<T>::max());
    const auto found = read_integer(name, range);
    if (found) value = static_cast<T>(*found);
    return found.has_value();
  }
  template <std::integral T>
  bool read(std::string_view name, std::optional<T>& value, IntegerRange range) {
    T found{};
    if (!read(name, found, range)) return false;
    value = std::move(found);
    return true;
  }
  // A seed: any 64-bit integer, negative ones included.
  bool read_seed(std::string_view name, std::optional<uint64_t>& value);
  // A string or an array of strings.
  bool read_strings(std::string_view name, std::vector<std::string>& values);
  bool read_token_ids(std::string_view name, std::vector<TokenId>& values);
  bool read_object(std::string_view name, Json& value);
  bool read_array(std::string_view name, Json& value);

  // Records "<name>: <found> is not valid; it must be <valid>".
  void fail(std::string_view name, const Json& found, std::string_view valid);
  void fail(ApiError error);
  // The name with its path: "sampling_params.top_p".
  std::string full_name(std::string_view name) const;

 private:
  std::optional<int64_t> read_integer(std::string_view name, IntegerRange range);

  const Json* object_;
  std::string path_;
  std::optional<ApiError> error_;
};

// An integer that a JSON number stands for: 5 and 5.0, but not 5.5 or 1e300.
std::optional<int64_t> exact_integer(const Json& value);

// How messages quote a value: its JSON, cut short.
std::string quote_json(const Json& value);

// Ids as JSON gives them; `valid` range is the vocabulary's and checked by the engine.
ApiExpected<std::vector<TokenId>> token_ids_from_json(const Json& value, const std::string& field);

}  // namespace tw
