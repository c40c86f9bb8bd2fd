// What the hosts of a group must have in common (parallel/host_agreement.h).
#pragma once

#include <vector>

#include "apps/model_session.h"
#include "parallel/host_agreement.h"

namespace tw {

// The program, the machine, the model and every option that changes what is computed or sent. Fails
// where a file can't be read.
Expected<std::vector<HostField>> fields_of_host(const ModelOptions& options,
                                                const CpuFeatures& features,
                                                const Checkpoint& checkpoint);

}  // namespace tw
