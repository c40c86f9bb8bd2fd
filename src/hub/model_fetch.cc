#include "hub/model_fetch.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/json.h"
#include "core/log.h"
#include "core/progress.h"
#include "hub/blob_download.h"
#include "hub/file_selection.h"
#include "hub/hub_cache.h"
#include "hub/model_id.h"

namespace tw {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxConnections = 6;

// A repository's commit and its files.
struct Listing {
  std::string commit;
  std::vector<std::string> files;
};

class ModelFetch {
 public:
  ModelFetch(ModelId id, std::string revision, const HubSettings& settings)
      : id_(std::move(id)),
        revision_(std::move(revision)),
        settings_(settings),
        cache_(settings.cache, id_.repository) {}

  Expected<fs::path> run();

 private:
  Expected<Listing> ask_hub();
  Expected<fs::path> from_cache(const std::string& why);
  Expected<fs::path> from_hub(const Listing& listing);
  Status download(const std::string& commit, std::vector<std::string> missing);
  Status check_space(const std::vector<RemoteFile>& files) const;
  fs::path path_of(const std::string& commit, const FileSelection& selection) const {
    return cache_.snapshot(commit) / selection.entry;
  }

  const ModelId id_;
  const std::string revision_;
  const HubSettings& settings_;
  const HubCache cache_;
};

// body(client, index) for each index, on several threads with a connection each; the first error.
Status for_each_in_parallel(size_t count, const HubSettings& settings,
                            const std::function<Status(HttpClient&, size_t)>& body) {
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  Status first;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < std::min(count, kMaxConnections); ++i) {
    threads.emplace_back([&] {
      HttpClient client(settings.token, settings.certificates);
      for (size_t index = next++; index < count && !failed; index = next++) {
        Status status = body(client, index);
        if (status) continue;
        failed = true;
        std::lock_guard lock(mutex);
        if (first) first = std::move(status);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return first;
}

Expected<Listing> ModelFetch::ask_hub() {
  HttpClient client(settings_.token, settings_.certificates);
  const std::string url = fmt::format("{}/api/models/{}/revision/{}", settings_.endpoint,
                                      id_.repository, escape_path(revision_));
  const auto answer = client.get_text(url);
  if (!answer) return tl::unexpected(answer.error());
  if (Status status = check_answer(*answer, id_.repository, !settings_.token.empty()); !status) {
    return forward_error(status);
  }
  const auto json = parse_json(answer->body, url);
  if (!json) return tl::unexpected(json.error());
  Listing listing;
  const auto unusable = [&](const char* what) {
    return error(ErrorCode::corrupt_data, "{}: the hub's answer has {}", url, what);
  };
  if (!json->is_object() || !json->contains("sha") || !(*json)["sha"].is_string() ||
      !json->contains("siblings") || !(*json)["siblings"].is_array()) {
    return unusable("no sha and siblings");
  }
  listing.commit = (*json)["sha"];
  if (!is_safe_relative_path(listing.commit) || listing.commit.find('/') != std::string::npos) {
    return unusable("a sha that is none");
  }
  for (const Json& entry : (*json)["siblings"]) {
    const auto name = entry.is_object() ? entry.find("rfilename") : entry.end();
    if (!entry.is_object() || name == entry.end() || !name->is_string()) {
      return unusable("a sibling without rfilename");
    }
    if (!is_safe_relative_path(name->get<std::string>())) {
      return unusable("the name of a file that leads out of the folder");
    }
    listing.files.push_back(*name);
  }
  return listing;
}

Expected<fs::path> ModelFetch::from_cache(const std::string& why) {
  const auto commit = cache_.commit_of(revision_);
  if (!commit) {
    return error(ErrorCode::not_found, "{} at {} is not in the cache {} and {}", id_.repository,
                 revision_, settings_.cache.string(), why);
  }
  const auto selection = select_files(id_, cache_.files(*commit));
  if (!selection) {
    return error(ErrorCode::not_found, "{}: {} has not all that is needed ({}) and {}",
                 id_.repository, cache_.snapshot(*commit).string(), selection.error().message, why);
  }
  return path_of(*commit, *selection);
}

// All or nothing, before hours of it.
Status ModelFetch::check_space(const std::vector<RemoteFile>& files) const {
  int64_t needed = 0;
  std::error_code failure;
  for (const RemoteFile& file : files) {
    needed += std::max<int64_t>(0, file.size);
    const auto there = fs::file_size(cache_.incomplete(file.etag), failure);
    if (!failure) needed -= static_cast<int64_t>(there);
  }
  fs::path folder = cache_.folder();
  while (!fs::exists(folder, failure) && folder.has_relative_path()) folder = folder.parent_path();
  const fs::space_info space = fs::space(folder, failure);
  if (failure || needed <= static_cast<int64_t>(space.available)) return {};
  return error(
      ErrorCode::resource_exhausted,
      "{}: {:.1f} GB are to be downloaded; {} has {:.1f} GB free (HF_HOME says where models "
      "are kept)",
      id_.repository, static_cast<double>(needed) * 1e-9, folder.string(),
      static_cast<double>(space.available) * 1e-9);
}

Status ModelFetch::download(const std::string& commit, std::vector<std::string> missing) {
  std::vector<RemoteFile> files(missing.size());
  Status status =
      for_each_in_parallel(missing.size(), settings_, [&](HttpClient& client, size_t i) -> Status {
        auto file = look_up(client, missing[i],
                            fmt::format("{}/{}/resolve/{}/{}", settings_.endpoint, id_.repository,
                                        commit, escape_path(missing[i])));
        if (!file) return forward_error(file);
        files[i] = std::move(*file);
        return {};
      });
  if (!status) return status;
  std::vector<RemoteFile> wanted;
  std::error_code ignored;
  for (const RemoteFile& file : files) {
    if (!fs::is_regular_file(cache_.blob(file.etag), ignored)) wanted.push_back(file);
  }
  if (status = check_space(wanted); !status) return status;
  // The largest first: the others fit in beside it.
  std::ranges::sort(wanted, std::greater(), &RemoteFile::size);
  int64_t total = 0;
  for (const RemoteFile& file : wanted) total += std::max<int64_t>(0, file.size);
  if (!wanted.empty()) {
    log::info("downloading {} at {} ({:.1f} MB) from {}", id_.repository, revision_,
              static_cast<double>(total) * 1e-6, settings_.endpoint);
  }
  ProgressBar progress("downloading " + id_.repository, total >> 20, "MiB");
  std::mutex mutex;
  int64_t done = 0;
  status = for_each_in_parallel(wanted.size(), settings_, [&](HttpClient& client, size_t i) {
    return download_blob(client, cache_, wanted[i], [&](int64_t bytes) {
      std::lock_guard lock(mutex);
      const int64_t before = done >> 20;
      done += bytes;
      progress.advance((done >> 20) - before);
    });
  });
  if (!status) return status;
  for (const RemoteFile& file : files) {
    if (status = cache_.link(commit, file.name, file.etag); !status) return status;
  }
  return {};
}

Expected<fs::path> ModelFetch::from_hub(const Listing& listing) {
  const auto selection = select_files(id_, listing.files);
  if (!selection) return tl::unexpected(selection.error());
  std::vector<std::string> missing;
  for (const std::string& file : selection->files) {
    if (!cache_.has(listing.commit, file)) missing.push_back(file);
  }
  if (Status status = download(listing.commit, std::move(missing)); !status) {
    return forward_error(status);
  }
  // Last: a revision in the cache is a complete one.
  if (Status status = cache_.remember(revision_, listing.commit); !status) {
    return forward_error(status);
  }
  return path_of(listing.commit, *selection);
}

Expected<fs::path> ModelFetch::run() {
  if (!is_safe_relative_path(revision_)) {
    return error(ErrorCode::invalid_argument,
                 "--revision {}: not the name of a branch, tag or commit", revision_);
  }
  if (settings_.offline) return from_cache("HF_HUB_OFFLINE forbids to ask the hub");
  const auto listing = ask_hub();
  if (listing) return from_hub(*listing);
  if (listing.error().code != ErrorCode::unavailable) return tl::unexpected(listing.error());
  auto cached = from_cache("the hub cannot be asked: " + listing.error().message);
  if (cached) log::warn("{}; using the cached files", listing.error().message);
  return cached;
}

}  // namespace

Expected<fs::path> fetch_model(const std::string& model, const std::string& revision,
                               const HubSettings& settings) {
  std::error_code ignored;
  const auto id = parse_model_id(model);
  if (!id || fs::exists(model, ignored)) return fs::path(model);
  return ModelFetch(*id, revision, settings).run();
}

}  // namespace tw
