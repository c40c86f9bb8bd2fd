// One file of a repository: what the hub says of it, and its bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/status.h"
#include "hub/http_client.h"
#include "hub/hub_cache.h"

namespace tw {

struct RemoteFile {
  std::string name;
  std::string url;
  std::string etag;   // names its content; of LFS files, the SHA-256 of it
  int64_t size = -1;  // -1: not told

  bool has_sha256() const { return etag.size() == 64; }
};

// Asks the hub for `file`'s etag and size.
Expected<RemoteFile> look_up(HttpClient& client, const std::string& name, const std::string& url);

// Gets the file into the cache's blobs, going on where an earlier try ended; what is wrong at its
// end (size, SHA-256) is thrown away. `advance` hears of bytes that are there, also of those that
// were already. Broken connections are tried again, some times in a row without progress.
Status download_blob(HttpClient& client, const HubCache& cache, const RemoteFile& file,
                     const std::function<void(int64_t)>& advance);

// The error that an answer stands for, if it is none of success: what is missing, who may not.
Status check_answer(const HttpAnswer& answer, const std::string& what, bool has_token);

}  // namespace tw
