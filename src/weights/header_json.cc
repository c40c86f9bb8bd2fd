#include "weights/header_json.h"

#include <unordered_set>
#include <vector>

namespace tw {
namespace {

// Reads a text without building anything from it, and stops at what must not be built.
class HeaderCheck final : public nlohmann::json_sax<HeaderJson> {
 public:
  explicit HeaderCheck(int max_depth) : max_depth_(static_cast<size_t>(max_depth)) {}

  const std::string& problem() const { return problem_; }

  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    if (open_keys_.back().insert(name).second) return true;
    problem_ = fmt::format("{} appears twice", name);
    return false;
  }
  bool parse_error(size_t, const std::string&,
                   const nlohmann::detail::exception& failure) override {
    problem_ = fmt::format("not valid JSON: {}", failure.what());
    return false;
  }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(binary_t&) override { return true; }

 private:
  bool open() {
    open_keys_.emplace_back();
    if (open_keys_.size() <= max_depth_) return true;
    problem_ = fmt::format("JSON nested more than {} levels deep", max_depth_);
    return false;
  }
  bool close() {
    open_keys_.pop_back();
    return true;
  }

  size_t max_depth_;
  std::string problem_;
  std::vector<std::unordered_set<std::string>> open_keys_;  // of each object or array around
};

}  // namespace

Expected<HeaderJson> parse_header_json(std::string_view text, const std::string& what,
                                       int max_depth) {
  HeaderCheck check(max_depth);
  if (!HeaderJson::sax_parse(text, &check)) {
    return error(ErrorCode::corrupt_data, "{}: {}", what, check.problem());
  }
  HeaderJson value = HeaderJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) {
    return error(ErrorCode::corrupt_data, "{}: expected a JSON object", what);
  }
  return value;
}

std::string dump_header_json(const HeaderJson& value, int indent) {
  return value.dump(indent, ' ', false, HeaderJson::error_handler_t::replace);
}

}  // namespace tw
