// A model whose layers several ranks compute together, each with its part of the weights, its own
// KV cache, plan and thread team (docs/parallelism.md).
#pragma once

#include <memory>

#include "models/model.h"
#include "nn/loader.h"
#include "parallel/host_link.h"
#include "parallel/team_group.h"

namespace tw {

// Loads a rank's part on each team, all at the same time, or the whole model where there is one
// team. `loader` says everything but teams and shards; its team is not used. Fails where its groups
// of experts can't be formed of the ranks. The teams must outlive the model.
//
// `hosts`: each has as many ranks, and loads its own here at the same time; null: there is one
// host. Fails on all hosts where one fails. The link must outlive the model as well.
Expected<std::unique_ptr<Model>> load_model(const WeightLoader& loader, TeamGroup& teams,
                                            HostLink* hosts = nullptr);

}  // namespace tw
