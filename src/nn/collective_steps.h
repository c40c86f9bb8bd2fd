// Where the ranks of tensor parallelism meet, recorded as steps of each rank's plan. All ranks
// record the same collectives in the same order.
#pragma once

#include <optional>

#include "kernels/gemm/gemm.h"
#include "nn/plan.h"
#include "parallel/communicator.h"

namespace tw {

// output = the sum of all ranks' summands (store), or output += it (accumulate). `summand`: this
// rank's, [rows of output, columns of output]; none counts as zeros. The rank must not write it
// again before its next collective: use two in turns.
void record_all_reduce(PlanRecorder& recorder, const Communicator& communicator,
                       std::optional<ValueId> summand, ValueId output, kernels::Epilogue epilogue);

// output = the columns of all ranks side by side, `all_columns` together; a rank without `output`
// only gives its own.
void record_all_gather(PlanRecorder& recorder, const Communicator& communicator, ValueId columns,
                       int64_t all_columns, std::optional<ValueId> output);

}  // namespace tw
