// HTTP(S) requests of one thread, by libcurl.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "core/status.h"

namespace tw {

struct HttpAnswer {
  int status = 0;
  std::map<std::string, std::string> headers;  // of the last answer; names in lower case
  std::string body;                            // of get_text() and of refusals, cut after 1 MiB
  std::string url;                             // that answered, after redirects
};

class HttpClient {
 public:
  // `token`: sent to the host that is asked, not to those it redirects to; empty: none.
  // `certificates`: see HubSettings.
  explicit HttpClient(std::string token, std::string certificates = {});
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Each fails with `unavailable` when no answer comes (no connection, a broken one, silence for a
  // minute), and answers whatever its status is.
  Expected<HttpAnswer> get_text(const std::string& url);
  // The headers of `url` itself: redirects to other hosts are not followed, their answer is what
  // comes back; those without a host are.
  Expected<HttpAnswer> head(const std::string& url);
  // Gives the bytes from `offset` on to `sink`, in order. A server that ignores the offset answers
  // with status 200 instead of 206: the sink then gets all bytes, after `begin` was told 0. Fails
  // with the sink's error. Returns with status 416 when there is nothing at `offset`.
  using Sink = std::function<Status(std::span<const std::byte>)>;
  Expected<HttpAnswer> download(const std::string& url, int64_t offset,
                                const std::function<Status(int64_t)>& begin, const Sink& sink);

 private:
  struct Transfer;
  Expected<HttpAnswer> perform(const std::string& url, Transfer& transfer);

  std::string token_;
  std::string certificates_;
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

// Bytes of a path that URLs cannot have become %XX; slashes stay.
std::string escape_path(const std::string& path);

}  // namespace tw
