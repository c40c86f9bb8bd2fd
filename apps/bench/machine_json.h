// The machine's limits as JSON: what `bench machine --json` prints and `plan --machine` reads.
#pragma once

#include "core/json.h"
#include "core/status.h"

namespace tw {

// Measured with one thread and with `max_threads`, each figure for so many seconds: "cpu",
// "features", "memory bytes", "memory nodes", and for each number of threads "N threads" with
// bytes/s and operations/s by name; zero where the processor lacks the instruction.
Expected<Json> measure_machine_json(int max_threads, double seconds);

}  // namespace tw
