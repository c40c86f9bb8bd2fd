#include "server/request_fields.h"

#include <cmath>

namespace tw {

std::optional<int64_t> exact_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    // Beyond 2^53 a double no longer says which integer was meant.
    if (std::trunc(number) == number && std::abs(number) <= 9007199254740992.0) {
      return static_cast<int64_t>(number);
    }
  }
  return std::nullopt;
}

std::string quote_json(const Json& value) {
  // Without serializing megabytes for 60 characters.
  if (value.is_object() && value.size() > 16) return fmt::format("an object of {}", value.size());
  if (value.is_array() && value.size() > 16) return fmt::format("an array of {}", value.size());
  if (value.is_string()) {
    return dump_json(Json(shorten(value.get_ref<const std::string&>().substr(0, 64), 60)));
  }
  return shorten(dump_json(value), 60);
}

RequestFields::RequestFields(const Json& object, std::string path)
    : object_(&object), path_(std::move(path)) {
  if (object.is_object()) return;
  const std::string what = path_.empty() ? "the request body" : path_;
  error_ = {.message = fmt::format("{}: {} is not valid; it must be a JSON object", what,
                                   quote_json(object))};
  if (!path_.empty()) error_->param = path_;
}

std::string RequestFields::full_name(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

const Json* RequestFields::find(std::string_view name) const {
  if (error_) return nullptr;
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

void RequestFields::fail(std::string_view name, const Json& found, std::string_view valid) {
  const std::string full = full_name(name);
  fail(bad_field(
      full, fmt::format("{}: {} is not valid; it must be {}", full, quote_json(found), valid)));
}

void RequestFields::fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

bool RequestFields::read(std::string_view name, bool& value) {
  const Json* found = find(name);
  if (!found) return false;
  if (!found->is_boolean()) return fail(name, *found, "true or false"), false;
  value = found->get<bool>();
  return true;
}

bool RequestFields::read(std::string_view name, std::string& value) {
  const Json* found = find(name);
  if (!found) return false;
  if (!found->is_string()) return fail(name, *found, "a string"), false;
  value = found->get_ref<const std::string&>();
  return true;
}

bool RequestFields::read(std::string_view name, float& value, NumberRange range) {
  const Json* found = find(name);
  if (!found) return false;
  const double number = found->is_number() ? found->get<double>() : 0;
  const bool above = range.min_allowed ? number >= range.min : number > range.min;
  if (!found->is_number() || !above || number > range.max || !std::isfinite(number) ||
      std::abs(number) > std::numeric_limits<float>::max()) {
    std::string valid = "a number";
    if (std::isfinite(range.min) && std::isfinite(range.max)) {
      valid =
          fmt::format("a number in {}{}, {}]", range.min_allowed ? '[' : '(', range.min, range.max);
    } else if (std::isfinite(range.min)) {
      valid = fmt::format("a number {} {}", range.min_allowed ? "of at least" : "above", range.min);
    }
    return fail(name, *found, valid), false;
  }
  value = static_cast<float>(number);
  return true;
}

std::optional<int64_t> RequestFields::read_integer(std::string_view name, IntegerRange range) {
  const Json* found = find(name);
  if (!found) return std::nullopt;
  const auto number = exact_integer(*found);
  if (number && *number >= range.min && *number <= range.max) return number;
  fail(name, *found, fmt::format("an integer in [{}, {}]", range.min, range.max));
  return std::nullopt;
}

bool RequestFields::read_seed(std::string_view name, std::optional<uint64_t>& value) {
  const Json* found = find(name);
  if (!found) return false;
  if (found->is_number_unsigned()) {
    value = found->get<uint64_t>();
  } else if (const auto number = exact_integer(*found)) {
    value = static_cast<uint64_t>(*number);
  } else {
    return fail(name, *found, "a 64-bit integer"), false;
  }
  return true;
}

bool RequestFields::read_strings(std::string_view name, std::vector<std::string>& values) {
  const Json* found = find(name);
  if (!found) return false;
  if (found->is_string()) {
    values = {found->get<std::string>()};
    return true;
  }
  if (!found->is_array()) return fail(name, *found, "a string or an array of strings"), false;
  values.clear();
  for (size_t i = 0; i < found->size(); ++i) {
    const Json& entry = (*found)[i];
    if (!entry.is_string()) return fail(fmt::format("{}[{}]", name, i), entry, "a string"), false;
    values.push_back(entry.get<std::string>());
  }
  return true;
}

ApiExpected<std::vector<TokenId>> token_ids_from_json(const Json& value, const std::string& field) {
  const auto refuse = [](const std::string& where, const Json& found, std::string_view valid) {
    return tl::unexpected(bad_field(
        where, fmt::format("{}: {} is not valid; it must be {}", where, quote_json(found), valid)));
  };
  if (!value.is_array()) return refuse(field, value, "an array of token ids");
  std::vector<TokenId> ids;
  ids.reserve(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    const auto id = exact_integer(value[i]);
    if (!id || *id < 0 || *id > std::numeric_limits<TokenId>::max()) {
      return refuse(fmt::format("{}[{}]", field, i), value[i], "a token id");
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

bool RequestFields::read_token_ids(std::string_view name, std::vector<TokenId>& values) {
  const Json* found = find(name);
  if (!found) return false;
  auto ids = token_ids_from_json(*found, full_name(name));
  if (!ids) return fail(std::move(ids.error())), false;
  values = std::move(*ids);
  return true;
}

bool RequestFields::read_object(std::string_view name, Json& value) {
  const Json* found = find(name);
  if (!found) return false;
  if (!found->is_object()) return fail(name, *found, "an object"), false;
  value = *found;
  return true;
}

bool RequestFields::read_array(std::string_view name, Json& value) {
  const Json* found = find(name);
  if (!found) return false;
  if (!found->is_array()) return fail(name, *found, "an array"), false;
  value = *found;
  return true;
}

}  // namespace tw
