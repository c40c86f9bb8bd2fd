// AutoRound: the layouts of GPTQ or AWQ under a name of its own.
#pragma once

#include "core/json.h"
#include "weights/schemes/scheme.h"

namespace tw {

Expected<std::unique_ptr<const Scheme>> make_auto_round_scheme(const Json& quantization_config,
                                                               const std::string& source);

}  // namespace tw
