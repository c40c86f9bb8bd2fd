// A fixed team of compute threads that work on one step together and meet at barriers.
//
// A decode step of a small model has hundreds of barriers, each a few microseconds apart, so the
// members spin between steps of one run and sleep only between runs. The caller of run() is the
// member of rank 0; the others are pinned to their CPUs when the team is made.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace tw {

// A half-open range of work items.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
};

// The share of `total` items that belongs to `rank` of `size`: contiguous, in multiples of
// `granularity`, sizes differing by at most one multiple. The last range takes the tail.
constexpr Range partition(int64_t total, int rank, int size, int64_t granularity = 1) {
  const int64_t units = (total + granularity - 1) / granularity;
  const int64_t begin = units * rank / size * granularity;
  const int64_t end = units * (rank + 1) / size * granularity;
  return {begin < total ? begin : total, end < total ? end : total};
}

// What a member of the team knows inside run().
class TeamMember {
 public:
  int rank() const { return rank_; }
  int size() const { return size_; }
  // Waits for all members. Every member must call it the same number of times.
  void barrier() const;
  Range share(int64_t total, int64_t granularity = 1) const {
    return partition(total, rank_, size_, granularity);
  }

 private:
  friend class ThreadTeam;
  TeamMember(class ThreadTeam* team, int rank, int size) : team_(team), rank_(rank), size_(size) {}
  class ThreadTeam* team_;
  int rank_;
  int size_;
};

class ThreadTeam {
 public:
  // `cpus`: the CPU of each member (rank 0 is the caller, pinned by pin_caller() if wanted);
  // an empty list leaves placement to the system.
  explicit ThreadTeam(int size, std::vector<int> cpus = {});
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return size_; }

  // Runs body(member) on every member and returns when all have finished. Neither allocates nor
  // locks while the members are awake. Only one thread may call run() at a time; not reentrant.
  template <typename Body>
  void run(const Body& body) {
    run_erased([](const void* context,
                  const TeamMember& member) { (*static_cast<const Body*>(context))(member); },
               &body);
  }

  void pin_caller() const;

 private:
  friend class TeamMember;
  using Function = void (*)(const void* context, const TeamMember& member);
  void run_erased(Function function, const void* context);
  void worker_loop(int rank);
  void wait_at_barrier();

  const int size_;
  const std::vector<int> cpus_;
  Function function_ = nullptr;
  const void* context_ = nullptr;
  // Each on a line of its own: they are written by one core and polled by the others.
  alignas(64) std::atomic<uint64_t> generation_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint64_t> barrier_phase_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
};

// CPUs this process may run on (affinity mask), in order; one per physical core where the
// machine shows hyperthreads.
std::vector<int> usable_cpus();

// The number of CPUs that the cgroup's quota allows, at least 1 and at most usable_cpus().size().
int usable_cpu_count();

}  // namespace tw
