// Runs a command on one host or several.
#pragma once

#include <functional>

#include "apps/model_session.h"

namespace tw {

// `command` on the only host (without a link) or on the first of several, which the processes of
// the others follow. Reports what fails and returns the exit code; a failure ends all hosts'
// processes.
int run_on_hosts(const ModelOptions& options, const std::function<Status(HostLink*)>& command);

}  // namespace tw
