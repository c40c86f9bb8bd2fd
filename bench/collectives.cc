// How long do the collectives between teams take, and how near do they come to what moving the same
// bytes costs? Messages of decode (8 KiB: a token of a hidden size of 2048) to prefill (4 MiB).
//
// The ratio compares an all-reduce with memcpy, on as many threads, of the bytes that it has to
// move: each rank reads all ranks' operands and writes its result.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <vector>

#include "core/buffer.h"
#include "core/json.h"
#include "core/measure.h"
#include "parallel/communicator.h"
#include "parallel/team_group.h"

namespace tw::bench {
namespace {

// Enough repetitions that the run's own start does not count.
constexpr int kRepetitions = 50;

int run(bool as_json, const PlacementOptions& options, double seconds) {
  const auto placement = place_teams(detect_topology(), options);
  if (!placement) {
    fmt::print(stderr, "{}\n", placement.error().message);
    return 2;
  }
  TeamGroup teams(*placement);
  teams.adopt_caller();
  std::vector<int> sizes;
  for (const TeamPlace& place : placement->teams) sizes.push_back(place.num_threads);
  CommunicatorGroup group(sizes);

  // body(rank, communicator, member, repetition) on everyone.
  const auto time = [&](auto body) {
    const Timing timing = measure(seconds, 3, [&] {
      teams.run([&](int rank) {
        const Communicator communicator(group, rank);
        teams.team(rank).run([&](const TeamMember& member) {
          for (int i = 0; i < kRepetitions; ++i) {
            body(static_cast<size_t>(rank), communicator, member, i);
          }
        });
      });
    });
    return timing.median / kRepetitions;
  };

  Json rows = Json::array();
  const double barrier = time([](size_t, const Communicator& communicator, const TeamMember& member,
                                 int) { communicator.barrier(member); });
  if (!as_json) {
    fmt::print("{}\nbarrier {:.2f} us\n", placement->describe(), barrier * 1e6);
    fmt::print("{:>10} {:>16} {:>16} {:>8}\n", "bytes", "all-reduce us", "memcpy us", "ratio");
  }
  for (int64_t bytes = 8 << 10; bytes <= 4 << 20; bytes *= 2) {
    // Two operands in turns, the result, and a target of the copies.
    std::vector<Buffer> buffers;
    for (int i = 0; i < 4 * teams.num_ranks(); ++i) {
      auto buffer = Buffer::allocate(static_cast<size_t>(bytes));
      if (!buffer) return 2;
      buffers.push_back(std::move(*buffer));
    }
    const int64_t count = bytes / static_cast<int64_t>(sizeof(float));
    const auto matrix = [&](size_t rank, int which) {
      return dense_matrix(buffers[4 * rank + static_cast<size_t>(which)].as<float>(), 1, count);
    };
    const double reduced =
        time([&](size_t rank, const Communicator& communicator, const TeamMember& member, int i) {
          communicator.all_reduce(member, matrix(rank, i % 2), matrix(rank, 2));
        });
    const double copied =
        time([&](size_t rank, const Communicator&, const TeamMember& member, int) {
          // Half of the bytes are read, half written: as many copies as operands and results,
          // halved.
          const Range share = member.share(count);
          const int copies = (teams.num_ranks() + 2) / 2;
          for (int copy = 0; copy < copies; ++copy) {
            std::memcpy(matrix(rank, 2 + copy % 2).data + share.begin,
                        matrix(rank, copy % 2).data + share.begin,
                        static_cast<size_t>(share.size()) * sizeof(float));
          }
        });
    rows.push_back({{"bytes", bytes}, {"all_reduce_s", reduced}, {"memcpy_s", copied}});
    if (!as_json) {
      fmt::print("{:10} {:16.2f} {:16.2f} {:8.2f}\n", bytes, reduced * 1e6, copied * 1e6,
                 reduced / copied);
    }
  }
  if (as_json) {
    fmt::print(
        "{}\n",
        dump_json({{"teams", placement->describe()}, {"barrier_s", barrier}, {"sizes", rows}}, 2));
  }
  return 0;
}

}  // namespace
}  // namespace tw::bench

int main(int argc, char** argv) {
  CLI::App app("Times collectives between thread teams");
  bool as_json = false;
  double seconds = 0.2;
  tw::PlacementOptions options;
  options.num_ranks = 2;
  app.add_flag("--json", as_json, "Write JSON instead of a table");
  app.add_option("--tp", options.num_ranks, "Teams")->check(CLI::Range(1, 64));
  app.add_option("--numa", options.numa, "As in tilewright serve")->capture_default_str();
  app.add_option("--seconds", seconds, "Time for each figure")->check(CLI::Range(0.01, 60.0));
  CLI11_PARSE(app, argc, argv);
  return tw::bench::run(as_json, options, seconds);
}
