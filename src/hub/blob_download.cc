#include "hub/blob_download.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "core/log.h"
#include "hub/sha256.h"

namespace tw {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxTries = 5;  // in a row that bring nothing
constexpr std::chrono::milliseconds kFirstPause{200};

std::string header_of(const HttpAnswer& answer, const char* name) {
  const auto found = answer.headers.find(name);
  return found == answer.headers.end() ? "" : found->second;
}

// W/"abc" -> abc.
std::string unquoted(std::string etag) {
  if (etag.starts_with("W/")) etag = etag.substr(2);
  std::erase(etag, '"');
  return etag;
}

bool is_file_name(const std::string& text) {
  return !text.empty() && text.size() <= 128 && text.front() != '.' &&
         std::ranges::all_of(text, [](unsigned char c) {
           return std::isalnum(c) || c == '-' || c == '_' || c == '.';
         });
}

// A try later may be answered otherwise.
bool is_passing(int status) {
  return status == 408 || status == 429 || status >= 500;
}

// The file that grows, with the digest of what it holds.
class GrowingFile {
 public:
  GrowingFile(fs::path path, std::function<void(int64_t)> advance)
      : path_(std::move(path)), advance_(std::move(advance)) {}

  int64_t size() const { return size_; }
  std::string digest() { return sha_.hex_digest(); }

  // Takes over what is there.
  Status open() {
    if (Status status = reopen("ab+"); !status) return status;
    std::rewind(file_.get());
    std::vector<std::byte> buffer(1 << 20);
    while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), file_.get())) {
      count_in({buffer.data(), count});
    }
    return {};
  }

  Status restart() {
    advance_(-size_);
    size_ = 0;
    sha_ = Sha256();
    return reopen("wb");
  }

  Status append(std::span<const std::byte> bytes) {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) {
      return cannot_write();
    }
    count_in(bytes);
    return {};
  }

  Status close() { return std::fclose(file_.release()) == 0 ? Status() : cannot_write(); }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  Status reopen(const char* mode) {
    file_.reset(std::fopen(path_.c_str(), mode));
    return file_ ? Status() : cannot_write();
  }

  Status cannot_write() const {
    return error(errno == ENOSPC ? ErrorCode::resource_exhausted : ErrorCode::internal,
                 "{}: cannot write: {}", path_.string(), std::strerror(errno));
  }

  void count_in(std::span<const std::byte> bytes) {
    sha_.update(bytes);
    size_ += static_cast<int64_t>(bytes.size());
    advance_(static_cast<int64_t>(bytes.size()));
  }

  const fs::path path_;
  const std::function<void(int64_t)> advance_;
  std::unique_ptr<std::FILE, Close> file_;
  int64_t size_ = 0;
  Sha256 sha_;
};

Status check_content(GrowingFile& file, const RemoteFile& remote) {
  if (remote.size >= 0 && file.size() != remote.size) {
    return error(ErrorCode::corrupt_data, "{}: {} bytes came; the hub says that it has {}",
                 remote.url, file.size(), remote.size);
  }
  if (!remote.has_sha256()) return {};
  const std::string digest = file.digest();
  if (digest == remote.etag) return {};
  return error(ErrorCode::corrupt_data,
               "{}: the bytes that came have the SHA-256 {}; the hub says {}", remote.url, digest,
               remote.etag);
}

// Until all is there: the loop of tries.
Status receive(HttpClient& client, const RemoteFile& remote, GrowingFile& file) {
  auto pause = kFirstPause;
  for (int tries = 1;; ++tries) {
    if (remote.size >= 0 && file.size() == remote.size && remote.size > 0) return {};
    const int64_t before = file.size();
    Status written;
    const auto answer = client.download(
        remote.url, before,
        [&](int64_t begin) -> Status {
          return begin == 0 && before > 0 ? file.restart() : Status();
        },
        [&](std::span<const std::byte> bytes) { return written = file.append(bytes); });
    if (!written) return written;
    if (answer && (answer->status == 200 || answer->status == 206)) return {};
    if (answer && answer->status == 416) {  // there is more than the hub has
      if (Status status = file.restart(); !status) return status;
    } else if (answer && !is_passing(answer->status)) {
      return check_answer(*answer, remote.url, true);
    }
    if (file.size() > before) {
      tries = 0;
      pause = kFirstPause;
    }
    const std::string reason =
        answer ? fmt::format("{}: the hub answers {}", remote.url, answer->status)
               : answer.error().message;
    if (tries == kMaxTries) {
      return error(ErrorCode::unavailable, "{}; {} tries; started again, it goes on where it ended",
                   reason, kMaxTries);
    }
    log::debug("{}; trying again", reason);
    std::this_thread::sleep_for(pause);
    pause *= 2;
  }
}

}  // namespace

Status check_answer(const HttpAnswer& answer, const std::string& what, bool has_token) {
  if (answer.status >= 200 && answer.status < 300) return {};
  const std::string code = header_of(answer, "x-error-code");
  if (answer.status == 403 || code == "GatedRepo") {
    return error(
        ErrorCode::not_found,
        "{}: the hub refuses access ({}): the model is gated or private. Accept its terms on "
        "the hub's page and set HF_TOKEN to a token of yours",
        what, answer.status);
  }
  if (answer.status == 401) {
    return error(ErrorCode::not_found, "{}: there is no such model, or it is private{}", what,
                 has_token ? " and the token may not see it (401)"
                           : "; for a private one, set HF_TOKEN (401)");
  }
  if (answer.status == 404) {
    const char* missing = code == "RevisionNotFound" ? "no such revision (--revision)"
                          : code == "EntryNotFound"  ? "no such file"
                                                     : "no such model or revision on the hub";
    return error(ErrorCode::not_found, "{}: {} (404)", what, missing);
  }
  return error(ErrorCode::unavailable, "{}: the hub answers {}", what, answer.status);
}

Expected<RemoteFile> look_up(HttpClient& client, const std::string& name, const std::string& url) {
  RemoteFile file{.name = name, .url = url, .etag = {}, .size = -1};
  auto pause = kFirstPause;
  for (int tries = 1;; ++tries) {
    const auto answer = client.head(url);
    const bool redirects = answer && answer->status >= 300 && answer->status < 400;
    if (answer && (redirects || answer->status < 300)) {
      file.etag = header_of(*answer, "x-linked-etag");
      if (file.etag.empty()) file.etag = header_of(*answer, "etag");
      file.etag = unquoted(file.etag);
      std::string size = header_of(*answer, "x-linked-size");
      if (size.empty() && !redirects) size = header_of(*answer, "content-length");
      std::from_chars(size.data(), size.data() + size.size(), file.size);
      if (is_file_name(file.etag)) return file;
      return error(ErrorCode::unavailable, "{}: the hub's answer has no usable ETag: \"{}\"", url,
                   file.etag);
    }
    if (answer && !is_passing(answer->status)) {
      const Status status = check_answer(*answer, url, true);
      return tl::unexpected(status.error());
    }
    if (tries == kMaxTries) {
      return answer ? error(ErrorCode::unavailable, "{}: the hub answers {}", url, answer->status)
                    : tl::unexpected(answer.error());
    }
    std::this_thread::sleep_for(pause);
    pause *= 2;
  }
}

Status download_blob(HttpClient& client, const HubCache& cache, const RemoteFile& file,
                     const std::function<void(int64_t)>& advance) {
  const auto lock = HubLock::acquire(cache.lock_file(file.etag));
  if (!lock) return tl::unexpected(lock.error());
  std::error_code failure;
  const fs::path blob = cache.blob(file.etag), incomplete = cache.incomplete(file.etag);
  if (fs::is_regular_file(blob, failure)) {  // by another program, meanwhile
    advance(std::max<int64_t>(0, file.size));
    return {};
  }
  fs::create_directories(blob.parent_path(), failure);
  GrowingFile growing(incomplete, advance);
  Status status = growing.open();
  if (status) status = receive(client, file, growing);
  if (!status) return status;
  if (status = growing.close(); !status) return status;
  if (status = check_content(growing, file); !status) {
    fs::remove(incomplete, failure);
    return status;
  }
  fs::rename(incomplete, blob, failure);
  if (failure) {
    return error(ErrorCode::internal, "{}: cannot rename: {}", incomplete.string(),
                 failure.message());
  }
  return {};
}

}  // namespace tw
