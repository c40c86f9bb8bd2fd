// From a checkpoint's rope configuration to the parameters of the rotation's table.
#pragma once

#include "kernels/rope/rope_table.h"
#include "weights/model_config.h"

namespace tw {

// `rope` is config.rope or the rotation of a kind of layers.
kernels::RopeParameters rope_parameters(const ModelConfig& config, const RopeConfig& rope);

}  // namespace tw
