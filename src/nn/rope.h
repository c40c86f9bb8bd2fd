// From a checkpoint's rope configuration to the parameters of the rotation's table.
#pragma once

#include "kernels/rope/rope_table.h"
#include "weights/model_config.h"

namespace tw {

kernels::RopeParameters rope_parameters(const ModelConfig& config);

}  // namespace tw
