#include "parallel/host_agreement.h"

namespace tw {
namespace {

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> values;
  for (size_t end = text.find('\0'); end != std::string_view::npos; end = text.find('\0')) {
    values.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return values;
}

}  // namespace

Status compare_hosts(HostLink& link, const std::vector<HostField>& fields) {
  std::string own;
  for (const HostField& field : fields) own.append(field.value).push_back('\0');
  const auto texts = link.all_gather(own);
  if (!texts) return tl::unexpected(texts.error());
  const auto expected = split(texts->front());
  for (int host = 1; host < link.num_hosts(); ++host) {
    const auto actual = split((*texts)[static_cast<size_t>(host)]);
    for (size_t i = 0; i < fields.size() && i < expected.size() && i < actual.size(); ++i) {
      if (actual[i] == expected[i]) continue;
      return error(
          ErrorCode::invalid_argument,
          "host {} differs from host 0: {} is \"{}\" there and \"{}\" on host 0; all hosts "
          "must have the same",
          host, fields[i].name, actual[i], expected[i]);
    }
  }
  return {};
}

}  // namespace tw
