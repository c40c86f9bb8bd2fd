// Models on disk as huggingface_hub keeps them, so that both use each other's downloads:
//
//   models--Qwen--Qwen3-0.6B/
//     refs/main                        the commit that a revision stood for when last asked
//     blobs/ETAG                       a file's bytes, under what the hub calls its content
//     blobs/ETAG.incomplete            the beginning of one
//     snapshots/COMMIT/config.json     a link to a blob
//   .locks/models--Qwen--Qwen3-0.6B/ETAG.lock
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"

namespace tw {

class HubCache {
 public:
  HubCache(const std::filesystem::path& cache, const std::string& repository);

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path snapshot(const std::string& commit) const;
  std::filesystem::path blob(const std::string& etag) const { return folder_ / "blobs" / etag; }
  std::filesystem::path incomplete(const std::string& etag) const;
  std::filesystem::path lock_file(const std::string& etag) const;

  // The commit of a revision: as last asked, or the revision itself where it is one with a
  // snapshot.
  std::optional<std::string> commit_of(const std::string& revision) const;
  Status remember(const std::string& revision, const std::string& commit) const;

  bool has(const std::string& commit, const std::string& file) const;
  // All files of a snapshot, links whose blob is missing left out.
  std::vector<std::string> files(const std::string& commit) const;
  // Makes the snapshot's file a link to the blob.
  Status link(const std::string& commit, const std::string& file, const std::string& etag) const;

 private:
  std::filesystem::path cache_;
  std::filesystem::path folder_;
};

// Held while a blob is written, by programs of all kinds. Waits.
class HubLock {
 public:
  static Expected<HubLock> acquire(const std::filesystem::path& path);
  ~HubLock();
  HubLock(HubLock&& other) noexcept;
  HubLock& operator=(HubLock&&) = delete;

 private:
  explicit HubLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

}  // namespace tw
