// Where models come from and where they are kept, by the variables that huggingface_hub reads:
// HF_ENDPOINT, HF_TOKEN (or the file HF_TOKEN_PATH, or token in HF_HOME), HF_HUB_CACHE, HF_HOME,
// XDG_CACHE_HOME and HF_HUB_OFFLINE; and REQUESTS_CA_BUNDLE or SSL_CERT_FILE for the certificates.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace tw {

struct HubSettings {
  std::string endpoint = "https://huggingface.co";
  std::string token;            // empty: none
  std::filesystem::path cache;  // holds models--ORGANIZATION--NAME folders
  bool offline = false;
  // File of the certificates that are trusted; empty: where libcurl was told to look when it was
  // built, which is another place than this distribution's where it came inside of a wheel.
  std::string certificates;

  using Variables = std::function<std::optional<std::string>(const char* name)>;
  static HubSettings from(const Variables& variables);
  static HubSettings from_environment();
};

}  // namespace tw
