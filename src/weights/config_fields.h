// Reading fields of one JSON object with errors that name the field, the value found and what is
// valid. The first problem is kept and later reads return something harmless, so that a parser is
// a list of fields with one check of status() behind it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/status.h"

namespace tw {

class ConfigFields {
 public:
  // `source` stands before every message ("models/x/config.json"). `object` must outlive this.
  ConfigFields(const Json& object, std::string source)
      : object_(object), source_(std::move(source)) {}

  const Status& status() const { return status_; }
  const std::string& source() const { return source_; }

  // Null when the field is absent or null.
  const Json* find(const char* field) const;
  bool has(const char* field) const { return find(field) != nullptr; }

  // A number in [lowest, highest]; without a value, `fallback`, or an error if there is none.
  int64_t integer(const char* field, int64_t lowest, int64_t highest,
                  std::optional<int64_t> fallback = std::nullopt);
  double number(const char* field, double lowest, double highest,
                std::optional<double> fallback = std::nullopt);
  std::optional<double> optional_number(const char* field, double lowest, double highest);
  bool boolean(const char* field, bool fallback);
  std::string string(const char* field, std::string fallback);

  // Lists; empty when the field is absent.
  std::vector<int64_t> integers(const char* field, int64_t lowest, int64_t highest);
  std::vector<double> numbers(const char* field, double lowest, double highest);
  std::vector<std::string> strings(const char* field);

  // Notes a problem with a field; returns 1, a value that breaks no arithmetic after it.
  int fail(const char* field, const Json* value, const std::string& expected);

 private:
  // The items of a list, or nothing and a problem noted.
  const Json* list(const char* field, const char* expected);

  const Json& object_;
  std::string source_;
  Status status_;
};

}  // namespace tw
