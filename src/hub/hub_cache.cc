#include "hub/hub_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "hub/model_id.h"

namespace tw {
namespace {

namespace fs = std::filesystem;

std::string folder_name(const std::string& repository) {
  std::string name = "models--" + repository;
  name.replace(name.find('/'), 1, "--");
  return name;
}

Status make_folder(const fs::path& path) {
  std::error_code failure;
  fs::create_directories(path, failure);
  if (failure) {
    return error(ErrorCode::internal, "{}: cannot make the folder: {}", path.string(),
                 failure.message());
  }
  return {};
}

}  // namespace

HubCache::HubCache(const fs::path& cache, const std::string& repository)
    : cache_(cache), folder_(cache / folder_name(repository)) {}

fs::path HubCache::snapshot(const std::string& commit) const {
  return folder_ / "snapshots" / commit;
}

fs::path HubCache::incomplete(const std::string& etag) const {
  return folder_ / "blobs" / (etag + ".incomplete");
}

fs::path HubCache::lock_file(const std::string& etag) const {
  return cache_ / ".locks" / folder_.filename() / (etag + ".lock");
}

std::optional<std::string> HubCache::commit_of(const std::string& revision) const {
  if (!is_safe_relative_path(revision)) return std::nullopt;
  std::error_code ignored;
  std::ifstream file(folder_ / "refs" / revision);
  std::string commit;
  if (file >> commit && is_safe_relative_path(commit)) return commit;
  const bool is_commit =
      revision.find('/') == std::string::npos && fs::is_directory(snapshot(revision), ignored);
  return is_commit ? std::optional(revision) : std::nullopt;
}

Status HubCache::remember(const std::string& revision, const std::string& commit) const {
  const fs::path path = folder_ / "refs" / revision;
  if (revision == commit || commit_of(revision) == commit) return {};
  if (Status status = make_folder(path.parent_path()); !status) return status;
  std::ofstream file(path, std::ios::trunc);
  file << commit;
  file.close();
  if (!file) return error(ErrorCode::internal, "{}: cannot write", path.string());
  return {};
}

bool HubCache::has(const std::string& commit, const std::string& file) const {
  std::error_code ignored;
  return fs::is_regular_file(snapshot(commit) / file, ignored);
}

std::vector<std::string> HubCache::files(const std::string& commit) const {
  std::vector<std::string> files;
  const fs::path root = snapshot(commit);
  std::error_code failure;
  for (fs::recursive_directory_iterator entry(root, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    std::error_code ignored;
    if (entry->is_regular_file(ignored)) {
      files.push_back(entry->path().lexically_relative(root).generic_string());
    }
  }
  std::ranges::sort(files);
  return files;
}

Status HubCache::link(const std::string& commit, const std::string& file,
                      const std::string& etag) const {
  const fs::path path = snapshot(commit) / file;
  if (Status status = make_folder(path.parent_path()); !status) return status;
  std::error_code failure;
  fs::remove(path, failure);
  fs::create_symlink(fs::relative(blob(etag), path.parent_path(), failure), path, failure);
  if (failure && failure != std::errc::file_exists) {
    return error(ErrorCode::internal, "{}: cannot make the link: {}", path.string(),
                 failure.message());
  }
  return {};
}

Expected<HubLock> HubLock::acquire(const fs::path& path) {
  if (Status status = make_folder(path.parent_path()); !status) return forward_error(status);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    return error(ErrorCode::internal, "{}: cannot open: {}", path.string(), std::strerror(errno));
  }
  while (::flock(descriptor, LOCK_EX) != 0) {
    // File systems without locks have no other writers that could be kept out.
    if (errno != EINTR) break;
  }
  return HubLock(descriptor);
}

HubLock::HubLock(HubLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

HubLock::~HubLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace tw
