// The adapters (LoRA) that requests can name. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "core/status.h"
#include "engine/engine.h"

namespace tw {

class Adapters {
 public:
  explicit Adapters(Engine& engine) : engine_(engine) {}

  // Reads and packs the adapter in `folder`; requests can name it when this returns. Takes as long
  // as that does. A name that is taken is invalid_argument.
  Status load(const std::string& name, const std::string& folder);
  // Requests can't name it any more; those under way keep it until their end.
  Status unload(const std::string& name);

  // Null where there is none of that name.
  std::shared_ptr<const LoraAdapter> find(const std::string& name) const;
  // Names and folders.
  std::map<std::string, std::string> list() const;

 private:
  struct Entry {
    std::string folder;
    std::shared_ptr<const LoraAdapter> adapter;
  };
  Status check_name(const std::string& name) const;

  Engine& engine_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

}  // namespace tw
