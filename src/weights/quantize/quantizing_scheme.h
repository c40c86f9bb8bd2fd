// Online quantization: linear layers of an unquantized checkpoint are quantized as they are opened.
#pragma once

#include <memory>
#include <string>

#include "core/thread_team.h"
#include "weights/quantize/quantizer.h"
#include "weights/schemes/scheme.h"

namespace tw {

// Beyond what is packed, memory for the quantized matrices of one linear layer is taken for the
// time of its loading. Fails for a checkpoint that is quantized already. `team` must outlive it.
Expected<std::unique_ptr<const Scheme>> make_quantizing_scheme(const Checkpoint& checkpoint,
                                                               const QuantizationOptions& options,
                                                               ThreadTeam& team);

}  // namespace tw
