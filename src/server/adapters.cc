#include "server/adapters.h"

#include <fmt/ranges.h>

#include "core/log.h"
#include "weights/lora_checkpoint.h"

namespace tw {

// Names stand behind the model's, with a colon between.
Status Adapters::check_name(const std::string& name) const {
  if (name.empty() || name.size() > 256 || name.find(':') != std::string::npos) {
    return error(ErrorCode::invalid_argument,
                 "adapter name \"{}\": must have 1 to 256 characters, none of them a colon", name);
  }
  std::lock_guard lock(mutex_);
  if (entries_.contains(name)) {
    return error(ErrorCode::invalid_argument, "adapter {}: is loaded already, from {}", name,
                 entries_.at(name).folder);
  }
  return {};
}

Status Adapters::load(const std::string& name, const std::string& folder) {
  if (Status status = check_name(name); !status) return status;
  auto checkpoint = LoraCheckpoint::open(folder);
  if (!checkpoint) return forward_error(checkpoint);
  auto adapter = engine_.load_adapter(*checkpoint);
  if (!adapter) return forward_error(adapter);
  // Another may have taken the name meanwhile.
  if (Status status = check_name(name); !status) return status;
  log::info("adapter {} loaded from {}: {} layers, rank {}, {:.1f} MiB", name, folder,
            checkpoint->modules().size(), checkpoint->max_rank(),
            static_cast<double>((*adapter)->size_bytes()) / (1 << 20));
  std::lock_guard lock(mutex_);
  entries_.emplace(name, Entry{folder, std::move(*adapter)});
  return {};
}

Status Adapters::unload(const std::string& name) {
  std::lock_guard lock(mutex_);
  if (entries_.erase(name) > 0) return {};
  std::vector<std::string> names;
  for (const auto& [known, entry] : entries_) names.push_back(known);
  return error(ErrorCode::not_found, "adapter {}: is not loaded; there are [{}]", name,
               fmt::join(names, ", "));
}

std::shared_ptr<const LoraAdapter> Adapters::find(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : found->second.adapter;
}

std::map<std::string, std::string> Adapters::list() const {
  std::lock_guard lock(mutex_);
  std::map<std::string, std::string> folders;
  for (const auto& [name, entry] : entries_) folders.emplace(name, entry.folder);
  return folders;
}

}  // namespace tw
