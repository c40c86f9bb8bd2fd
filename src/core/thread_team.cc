#include "core/thread_team.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "core/check.h"
#include "core/topology.h"

namespace tw {
namespace {

// About 20 to 50 microseconds of spinning before a waiting member offers its CPU to others: the
// longest wait between two steps of balanced work, and short enough not to starve a server
// thread that shares the core.
constexpr int kSpinsBeforeYield = 2000;
// Between runs a member spins for about this many yields before it sleeps.
constexpr int kYieldsBeforeSleep = 200;

inline void pause_cpu() {
  __builtin_ia32_pause();
}

void pin_current_thread(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  // A failure (a container that forbids it) only costs locality.
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

}  // namespace

void TeamMember::barrier() const {
  if (size_ > 1) team_->wait_at_barrier();
}

ThreadTeam::ThreadTeam(int size, std::vector<int> cpus) : size_(size), cpus_(std::move(cpus)) {
  TW_CHECK(size >= 1);
  TW_CHECK(cpus_.empty() || static_cast<int>(cpus_.size()) >= size);
  workers_.reserve(static_cast<size_t>(size - 1));
  for (int rank = 1; rank < size; ++rank) {
    workers_.emplace_back([this, rank] { worker_loop(rank); });
  }
}

ThreadTeam::~ThreadTeam() {
  {
    std::lock_guard lock(mutex_);
    stopping_.store(true);
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadTeam::pin_caller() const {
  if (!cpus_.empty()) pin_current_thread(cpus_[0]);
}

void ThreadTeam::run_erased(Function function, const void* context) {
  if (size_ == 1) {
    function(context, TeamMember(this, 0, 1));
    return;
  }
  function_ = function;
  context_ = context;
  // seq_cst on both sides: either the worker sees the new generation before it sleeps, or this
  // thread sees the sleeper and wakes it.
  generation_.fetch_add(1);
  if (sleepers_.load() > 0) {
    std::lock_guard lock(mutex_);
    wake_.notify_all();
  }
  const TeamMember member(this, 0, size_);
  function(context, member);
  wait_at_barrier();
}

void ThreadTeam::wait_at_barrier() {
  const uint64_t phase = barrier_phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    barrier_phase_.store(phase + 1, std::memory_order_release);
    return;
  }
  int spins = 0;
  while (barrier_phase_.load(std::memory_order_acquire) == phase) {
    if (++spins < kSpinsBeforeYield) {
      pause_cpu();
    } else {
      sched_yield();
    }
  }
}

void ThreadTeam::worker_loop(int rank) {
  if (!cpus_.empty()) pin_current_thread(cpus_[static_cast<size_t>(rank)]);
  const TeamMember member(this, rank, size_);
  uint64_t seen = 0;
  for (;;) {
    int spins = 0;
    int yields = 0;
    while (generation_.load(std::memory_order_acquire) == seen) {
      if (++spins < kSpinsBeforeYield) {
        pause_cpu();
      } else if (++yields < kYieldsBeforeSleep) {
        sched_yield();
      } else {
        std::unique_lock lock(mutex_);
        sleepers_.fetch_add(1);
        wake_.wait(lock, [&] { return generation_.load() != seen; });
        sleepers_.fetch_sub(1);
      }
    }
    ++seen;
    if (stopping_.load()) return;
    function_(context_, member);
    wait_at_barrier();
  }
}

std::vector<int> usable_cpus() {
  std::vector<int> cpus = detect_topology().cores();
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

int usable_cpu_count() {
  const int count = static_cast<int>(usable_cpus().size());
  std::ifstream cpu_max("/sys/fs/cgroup/cpu.max");  // "QUOTA PERIOD" or "max PERIOD"
  std::string quota;
  double period = 0;
  if (!(cpu_max >> quota >> period) || quota == "max" || period <= 0) return count;
  const int allowed = static_cast<int>(std::floor(std::atof(quota.c_str()) / period));
  return std::clamp(allowed, 1, count);
}

}  // namespace tw
