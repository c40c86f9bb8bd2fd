// A layer of experts, as those see it who decide where experts lie (parallel/expert_placement.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/status.h"
#include "parallel/expert_placement.h"

namespace tw {

class ExpertLayer {
 public:
  virtual ~ExpertLayer() = default;

  // As in the checkpoint: "model.layers.3.mlp".
  virtual const std::string& name() const = 0;
  // How often each expert was chosen by a token since the model was loaded: [num_experts]. Between
  // two steps.
  virtual std::vector<int64_t> choices() const = 0;
  virtual const ExpertSlots& slots() const = 0;
  virtual const ExpertPlacement& placement() const = 0;

  // Copies experts to where `placement` has them, beside those that are there, on this rank's
  // team. `peers`: the layer on the ranks that hold the same part of experts, one per group, in
  // order of the groups. Fails where memory does not suffice; nothing has changed then.
  virtual Status stage(const ExpertPlacement& placement, std::span<ExpertLayer* const> peers) = 0;
  // Puts what was staged in place, after all ranks have staged and before the next step.
  virtual void commit() = 0;
  // Forgets what was staged.
  virtual void discard() = 0;
};

}  // namespace tw
