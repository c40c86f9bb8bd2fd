#include "hub/hub_settings.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace tw {
namespace {

namespace fs = std::filesystem;

bool is_yes(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text == "1" || text == "true" || text == "yes" || text == "on";
}

std::string trim(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The first that is named, or that a distribution has.
std::string find_certificates(const std::string& for_requests, const std::string& for_openssl) {
  for (const std::string& named : {for_requests, for_openssl}) {
    if (!named.empty()) return named;
  }
  for (const char* path : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    std::error_code ignored;
    if (fs::exists(path, ignored)) return path;
  }
  return {};
}

}  // namespace

HubSettings HubSettings::from(const Variables& variables) {
  // A variable that is set to nothing counts as unset.
  const auto get = [&](const char* name) { return trim(variables(name).value_or(std::string())); };
  const auto path_or = [&](const char* name, const fs::path& otherwise) {
    const std::string value = get(name);
    if (value.empty()) return otherwise;
    return value.starts_with("~/") ? fs::path(get("HOME")) / value.substr(2) : fs::path(value);
  };
  const fs::path caches = path_or("XDG_CACHE_HOME", fs::path(get("HOME")) / ".cache");
  const fs::path home = path_or("HF_HOME", caches / "huggingface");
  HubSettings settings;
  settings.cache = path_or("HF_HUB_CACHE", home / "hub");
  settings.offline = is_yes(get("HF_HUB_OFFLINE"));
  if (const std::string endpoint = get("HF_ENDPOINT"); !endpoint.empty()) {
    settings.endpoint = endpoint;
    while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  }
  settings.certificates = find_certificates(get("REQUESTS_CA_BUNDLE"), get("SSL_CERT_FILE"));
  settings.token = get("HF_TOKEN");
  if (settings.token.empty()) {
    settings.token = trim(first_line(path_or("HF_TOKEN_PATH", home / "token")));
  }
  return settings;
}

HubSettings HubSettings::from_environment() {
  return from([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}

}  // namespace tw
