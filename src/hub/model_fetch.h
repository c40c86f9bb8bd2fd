// From what a user calls a model to a path: a hub's model is fetched once and kept.
#pragma once

#include <filesystem>
#include <string>

#include "core/status.h"
#include "hub/hub_settings.h"

namespace tw {

// What exists as a file or folder is itself. "organization/name" is asked for at the hub, at a
// branch, tag or commit (`revision`): the files that a model needs come into the cache, several at
// a time, with a progress bar; the answer is their folder, or with ":TAG" (or of a repository of
// one GGUF file) the GGUF file. Without a connection, or with settings.offline, what is cached
// serves. Anything else is returned as it is, for the error of whoever opens it.
Expected<std::filesystem::path> fetch_model(const std::string& model, const std::string& revision,
                                            const HubSettings& settings);

}  // namespace tw
