// How often tokens chose each expert, between two moments that a client names. SGLang's recording
// of the expert distribution; what it gives places experts at the next start
// (--init-expert-location).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "engine/expert_counts.h"
#include "models/model.h"

namespace tw {

struct ExpertDistribution {
  struct Layer {
    std::string name;  // as in the checkpoint: "model.layers.3.mlp"
    std::vector<int64_t> choices;
    ExpertPlacement placement;  // of now
  };
  std::vector<Layer> layers;
};

// Of the engine thread.
class ExpertRecorder {
 public:
  explicit ExpertRecorder(Model& model) : model_(model) {}

  // Fails where a recording is under way, or the model has no experts.
  Status start();
  // Fails where none is.
  Status stop();
  // What was recorded so far. Fails where nothing ever was.
  Expected<ExpertDistribution> dump() const;

 private:
  Model& model_;
  ExpertCounts begin_;               // empty: never started
  std::optional<ExpertCounts> end_;  // none: it goes on
};

}  // namespace tw
