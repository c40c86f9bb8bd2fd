#include "hub/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <mutex>
#include <optional>

namespace tw {
namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 20;
constexpr size_t kMaxAnswerBytes = size_t{64} << 20;  // of lists of files
constexpr long kConnectSeconds = 20;
constexpr long kSilenceSeconds = 60;
constexpr int kMaxRelativeRedirects = 5;

void initialize_curl() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool has_host(const std::string& url) {
  return url.starts_with("http://") || url.starts_with("https://") || url.starts_with("//");
}

// "https://host:1" of "https://host:1/path".
std::string origin_of(const std::string& url) {
  const size_t host = url.find("://");
  return host == std::string::npos ? url : url.substr(0, url.find('/', host + 3));
}

}  // namespace

struct HttpClient::Handle {
  CURL* curl = nullptr;
  curl_slist* headers = nullptr;
  char failure[CURL_ERROR_SIZE] = {};

  Handle() {
    initialize_curl();
    curl = curl_easy_init();
  }
  ~Handle() {
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
};

struct HttpClient::Transfer {
  bool head = false;
  bool follow = true;
  int64_t offset = 0;
  size_t max_text_bytes = kMaxTextBytes;
  const std::function<Status(int64_t)>* begin = nullptr;
  const Sink* sink = nullptr;

  HttpAnswer answer;
  CURL* curl = nullptr;
  bool begun = false;
  bool too_long = false;
  Status status;

  bool is_content() const { return sink && (answer.status == 200 || answer.status == 206); }

  // A header line of an answer; redirects and "100 Continue" bring several answers.
  void take_header(std::string_view line) {
    if (line.starts_with("HTTP/")) {
      answer.headers.clear();
      return;
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return;
    const size_t begin_value = line.find_first_not_of(" \t", colon + 1);
    const size_t end = line.find_last_not_of(" \t\r\n");
    if (begin_value == std::string_view::npos || end < begin_value) return;
    answer.headers[lower(std::string(line.substr(0, colon)))] =
        line.substr(begin_value, end - begin_value + 1);
  }

  // False ends the transfer.
  bool take_body(std::span<const std::byte> bytes) {
    long code = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code);
    answer.status = static_cast<int>(code);
    if (!is_content()) {
      const size_t room = max_text_bytes - std::min(max_text_bytes, answer.body.size());
      too_long = bytes.size() > room;
      answer.body.append(reinterpret_cast<const char*>(bytes.data()), std::min(room, bytes.size()));
      return !too_long;
    }
    if (!begun) {
      begun = true;
      status = (*begin)(answer.status == 206 ? offset : 0);
    }
    if (status) status = (*sink)(bytes);
    return status.has_value();
  }
};

HttpClient::HttpClient(std::string token, std::string certificates)
    : token_(std::move(token)),
      certificates_(std::move(certificates)),
      handle_(std::make_unique<Handle>()) {}

HttpClient::~HttpClient() = default;

Expected<HttpAnswer> HttpClient::perform(const std::string& url, Transfer& transfer) {
  CURL* curl = handle_->curl;
  if (curl == nullptr) return error(ErrorCode::internal, "libcurl: no memory");
  curl_easy_reset(curl);
  transfer.curl = curl;
  curl_slist_free_all(handle_->headers);
  handle_->headers = nullptr;
  if (!token_.empty()) {
    // curl leaves this header out when a redirect leads to another host.
    handle_->headers = curl_slist_append(nullptr, ("Authorization: Bearer " + token_).c_str());
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, handle_->headers);
  }
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "tilewright");
  if (!certificates_.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, certificates_.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, handle_->failure);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, kSilenceSeconds);
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, transfer.follow ? 1L : 0L);
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 10L);
  curl_easy_setopt(curl, CURLOPT_NOBODY, transfer.head ? 1L : 0L);
  if (transfer.offset > 0) {
    curl_easy_setopt(curl, CURLOPT_RANGE, fmt::format("{}-", transfer.offset).c_str());
  }
  using Write = size_t (*)(char*, size_t, size_t, void*);
  const Write on_header = [](char* data, size_t, size_t size, void* self) {
    static_cast<Transfer*>(self)->take_header({data, size});
    return size;
  };
  const Write on_body = [](char* data, size_t, size_t size, void* self) {
    const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
    return static_cast<Transfer*>(self)->take_body(bytes) ? size : size_t{0};
  };
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  handle_->failure[0] = '\0';
  const CURLcode result = curl_easy_perform(curl);
  if (!transfer.status) return tl::unexpected(transfer.status.error());
  long code = 0;
  char* last_url = nullptr;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code);
  curl_easy_getinfo(curl, CURLINFO_EFFECTIVE_URL, &last_url);
  transfer.answer.status = static_cast<int>(code);
  transfer.answer.url = last_url != nullptr ? last_url : url;
  // What a refusal has to say beyond the first megabyte is not wanted.
  if (result != CURLE_OK && !(transfer.too_long && code >= 400)) {
    const char* reason = handle_->failure[0] ? handle_->failure : curl_easy_strerror(result);
    return error(ErrorCode::unavailable, "{}: {}", url, reason);
  }
  return std::move(transfer.answer);
}

Expected<HttpAnswer> HttpClient::get_text(const std::string& url) {
  Transfer transfer;
  transfer.max_text_bytes = kMaxAnswerBytes;
  return perform(url, transfer);
}

Expected<HttpAnswer> HttpClient::head(const std::string& url) {
  std::string target = url;
  for (int i = 0;; ++i) {
    Transfer transfer;
    transfer.head = true;
    transfer.follow = false;
    auto answer = perform(target, transfer);
    if (!answer || answer->status < 300 || answer->status >= 400) return answer;
    const auto location = answer->headers.find("location");
    const bool stays = location != answer->headers.end() && !has_host(location->second) &&
                       location->second.starts_with('/');
    if (!stays || i == kMaxRelativeRedirects) return answer;
    target = origin_of(target) + location->second;
  }
}

Expected<HttpAnswer> HttpClient::download(const std::string& url, int64_t offset,
                                          const std::function<Status(int64_t)>& begin,
                                          const Sink& sink) {
  Transfer transfer;
  transfer.offset = offset;
  transfer.begin = &begin;
  transfer.sink = &sink;
  return perform(url, transfer);
}

std::string escape_path(const std::string& path) {
  constexpr std::string_view kPlain = "-._~/";
  std::string escaped;
  for (const unsigned char c : path) {
    if (std::isalnum(c) || kPlain.find(static_cast<char>(c)) != std::string_view::npos) {
      escaped += static_cast<char>(c);
    } else {
      escaped += fmt::format("%{:02X}", c);
    }
  }
  return escaped;
}

}  // namespace tw
