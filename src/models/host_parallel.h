// A model that several hosts compute together (docs/parallelism.md).
//
// Every host has its ranks' part of it. The first has the engine: before each step it sends the
// others the batch, and all replay their plans, which meet in collectives. The others follow().
#pragma once

#include <memory>

#include "models/model.h"
#include "parallel/host_link.h"

namespace tw {

// `model` is this host's part, whose collectives go over the link, which must outlive it. All hosts
// must make this model, and call the same members of it until one fails or they are prepared.
std::unique_ptr<Model> make_host_parallel(std::unique_ptr<Model> model, HostLink& link);

}  // namespace tw
