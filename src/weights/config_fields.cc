#include "weights/config_fields.h"

namespace tw {
namespace {

bool is_integer_within(const Json& value, int64_t lowest, int64_t highest) {
  return value.is_number_integer() &&
         !(value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) &&
         value.get<int64_t>() >= lowest && value.get<int64_t>() <= highest;
}

bool is_number_within(const Json& value, double lowest, double highest) {
  return value.is_number() && value.get<double>() >= lowest && value.get<double>() <= highest;
}

}  // namespace

const Json* ConfigFields::find(const char* field) const {
  const auto found = object_.find(field);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

int64_t ConfigFields::integer(const char* field, int64_t lowest, int64_t highest,
                              std::optional<int64_t> fallback) {
  const Json* value = find(field);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr || !is_integer_within(*value, lowest, highest)) {
    return fail(field, value, fmt::format("an integer from {} to {}", lowest, highest));
  }
  return value->get<int64_t>();
}

double ConfigFields::number(const char* field, double lowest, double highest,
                            std::optional<double> fallback) {
  const Json* value = find(field);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr || !is_number_within(*value, lowest, highest)) {
    return fail(field, value, fmt::format("a number from {} to {}", lowest, highest));
  }
  return value->get<double>();
}

std::optional<double> ConfigFields::optional_number(const char* field, double lowest,
                                                    double highest) {
  if (!has(field)) return std::nullopt;
  return number(field, lowest, highest);
}

bool ConfigFields::boolean(const char* field, bool fallback) {
  const Json* value = find(field);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return fail(field, value, "true or false") != 0;
  return value->get<bool>();
}

std::string ConfigFields::string(const char* field, std::string fallback) {
  const Json* value = find(field);
  if (value == nullptr) return fallback;
  if (!value->is_string()) {
    fail(field, value, "a string");
    return fallback;
  }
  return value->get<std::string>();
}

const Json* ConfigFields::list(const char* field, const char* expected) {
  const Json* value = find(field);
  if (value == nullptr) return nullptr;
  if (value->is_array()) return value;
  fail(field, value, expected);
  return nullptr;
}

std::vector<int64_t> ConfigFields::integers(const char* field, int64_t lowest, int64_t highest) {
  std::vector<int64_t> values;
  const Json* items = list(field, "a list of integers");
  if (items == nullptr) return values;
  for (const Json& item : *items) {
    if (!is_integer_within(item, lowest, highest)) {
      fail(field, &item, fmt::format("integers from {} to {}", lowest, highest));
      return {};
    }
    values.push_back(item.get<int64_t>());
  }
  return values;
}

std::vector<double> ConfigFields::numbers(const char* field, double lowest, double highest) {
  std::vector<double> values;
  const Json* items = list(field, "a list of numbers");
  if (items == nullptr) return values;
  for (const Json& item : *items) {
    if (!is_number_within(item, lowest, highest)) {
      fail(field, &item, fmt::format("numbers from {} to {}", lowest, highest));
      return {};
    }
    values.push_back(item.get<double>());
  }
  return values;
}

std::vector<std::string> ConfigFields::strings(const char* field) {
  std::vector<std::string> values;
  const Json* items = list(field, "a list of strings");
  if (items == nullptr) return values;
  for (const Json& item : *items) {
    if (!item.is_string()) {
      fail(field, &item, "strings");
      return {};
    }
    values.push_back(item.get<std::string>());
  }
  return values;
}

int ConfigFields::fail(const char* field, const Json* value, const std::string& expected) {
  if (status_) {
    status_ = value == nullptr
                  ? error(ErrorCode::corrupt_data, "{}: field {} is missing; expected {}", source_,
                          field, expected)
                  : error(ErrorCode::corrupt_data, "{}: field {} is {}; expected {}", source_,
                          field, dump_json(*value).substr(0, 80), expected);
  }
  return 1;
}

}  // namespace tw
