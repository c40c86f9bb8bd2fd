// Times all-reduces between hosts, which are processes of mpirun: this engine's, which exchanges
// summands and adds them in a fixed order, and MPI_Allreduce.
//
//   mpirun -n 2 --bind-to core tw_bench_host_collectives
#include <fmt/format.h>
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <vector>

#include "core/thread_team.h"
#include "parallel/communicator.h"
#include "parallel/host_link.h"

namespace tw::bench {
namespace {

// The median over rounds of a call's microseconds, on this host.
template <typename Call>
double time(int rounds, const Call& call) {
  constexpr int kCalls = 20;
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    MPI_Barrier(MPI_COMM_WORLD);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) call(i);
    const std::chrono::duration<double, std::micro> elapsed =
        std::chrono::steady_clock::now() - begin;
    times.push_back(elapsed.count() / kCalls);
  }
  const auto middle = times.begin() + std::ssize(times) / 2;
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

int run(int num_hosts, int rounds) {
  auto connected = HostLink::connect(num_hosts);
  if (!connected) {
    fmt::print(stderr, "{}\n", connected.error().message);
    return 2;
  }
  HostLink& link = **connected;
  CommunicatorGroup group({1}, &link);
  const Communicator communicator(group, 0);
  ThreadTeam team(1);
  const bool prints = link.host() == 0;
  if (prints)
    fmt::print("{:>10} {:>12} {:>18} {:>8}\n", "bytes", "ours us", "MPI_Allreduce us", "ratio");
  for (int64_t bytes = 8 << 10; bytes <= 4 << 20; bytes *= 2) {
    const int64_t count = bytes / static_cast<int64_t>(sizeof(float));
    std::vector<float> operands[2], sum(static_cast<size_t>(count));
    for (auto& operand : operands) operand.resize(static_cast<size_t>(count), 1.0f);
    const double ours = time(rounds, [&](int i) {
      team.run([&](const TeamMember& member) {
        communicator.all_reduce(member, dense_matrix(operands[i % 2].data(), 1, count),
                                dense_matrix(sum.data(), 1, count));
      });
    });
    const double theirs = time(rounds, [&](int i) {
      MPI_Allreduce(operands[i % 2].data(), sum.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
    });
    if (prints) fmt::print("{:10} {:12.1f} {:18.1f} {:8.2f}\n", bytes, ours, theirs, theirs / ours);
  }
  return 0;
}

}  // namespace
}  // namespace tw::bench

int main(int argc, char** argv) {
  CLI::App app("Times all-reduces between hosts; start it with mpirun");
  int num_hosts = 2, rounds = 50;
  app.add_option("--nnodes", num_hosts, "Processes that mpirun started")->capture_default_str();
  app.add_option("--rounds", rounds, "Rounds for each figure")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return tw::bench::run(num_hosts, rounds);
}
