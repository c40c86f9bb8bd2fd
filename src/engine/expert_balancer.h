// Moves experts between the ranks that share them while requests run (--enable-eplb).
//
// Every `interval` steps it looks at what was chosen since the last time; layers that other places
// would balance better get them, one layer between two steps: so no step waits for more than the
// copying of one layer's experts.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/expert_counts.h"
#include "models/model.h"

namespace tw {

// Of the engine thread.
class ExpertBalancer {
 public:
  // An interval of 0 looks every kObservedSteps and moves nothing.
  ExpertBalancer(Model& model, int32_t interval);

  // Between two steps.
  void after_step();

  // Of the last interval: the busiest group's share of choices by the mean, averaged over layers.
  // 1 where nothing is known or divided.
  double imbalance() const { return imbalance_; }
  int64_t num_moves() const { return num_moves_; }  // layers whose experts were moved

  static constexpr int32_t kObservedSteps = 1000;
  // A layer is worth the copying where the busiest group gets rid of this share of its work.
  static constexpr double kWorthwhile = 0.05;

 private:
  void observe();
  void move_next_layer();

  Model& model_;
  bool moves_;
  int32_t interval_;
  int32_t steps_ = 0;
  ExpertCounts seen_;  // at the last look
  std::vector<std::pair<size_t, ExpertPlacement>> pending_;
  double imbalance_ = 1;
  int64_t num_moves_ = 0;
};

}  // namespace tw
