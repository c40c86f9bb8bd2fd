// The drafters by the names of --speculative-algorithm.
#pragma once

#include <memory>

#include "core/cpu.h"
#include "core/status.h"
#include "engine/engine.h"
#include "engine/speculative/drafter.h"
#include "models/model.h"

namespace tw {

// Null where the configuration wants no drafts. The model must outlive the drafter; see
// Engine::create for the draft model. Errors name the flag.
Expected<std::unique_ptr<Drafter>> make_drafter(const EngineConfig& config, Model& model,
                                                std::unique_ptr<Model> draft_model,
                                                const CpuFeatures& features);

}  // namespace tw
