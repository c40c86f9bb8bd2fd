// Work on experts of uneven numbers of rows, divided over threads.
//
// The panels of all experts form one line, each as long as it costs; a thread computes those that
// begin in its stretch. So each weight is read by one thread alone, an expert with many rows is
// shared by several, and threads differ by the cost of one panel at most.
#pragma once

#include <cstdint>

#include "core/thread_team.h"

namespace tw::kernels {

// Calls visit(index, panels) for each of `count` matrices of which this thread has panels.
// panels(i) is a matrix's number of panels, cost(i) what each of them costs; matrices that cost
// nothing are passed over.
template <typename Panels, typename Cost, typename Visit>
void for_each_share(int64_t count, int rank, int num_threads, Panels panels, Cost cost,
                    Visit visit) {
  int64_t total = 0;
  for (int64_t i = 0; i < count; ++i) total += panels(i) * cost(i);
  const Range mine = partition(total, rank, num_threads);
  int64_t begin = 0;
  for (int64_t i = 0; i < count && begin < mine.end; ++i) {
    const int64_t each = cost(i), all = panels(i);
    const int64_t end = begin + each * all;
    if (each > 0 && end > mine.begin) {
      // Panel p begins at begin + p * each.
      const auto first_at = [&](int64_t place) {
        const int64_t panel = place <= begin ? 0 : (place - begin + each - 1) / each;
        return panel < all ? panel : all;
      };
      const Range share{first_at(mine.begin), first_at(mine.end)};
      if (!share.empty()) visit(i, share);
    }
    begin = end;
  }
}

}  // namespace tw::kernels
