// Collectives between the teams of one address space, where a rank reads what another wrote, and of
// several hosts, whose address spaces exchange one message per pair of them.
//
// All members of all teams call each collective, in the same order. It begins with a barrier of all
// of this host's, so the caller needs none between writing its operand and the call; it ends
// without one: a member returns when its share is done, and what it wrote is for its team to order.
//
// Operands are read in place by other ranks. Whatever a rank passed must stay as it is until that
// rank's NEXT collective (or barrier) has returned: by then all others have left this one. Two
// buffers in turns, one barrier per collective.
//
// Sums are formed in pairs, whatever the algorithm and whatever the teams' sizes: the sum of ranks
// 0 to n - 1 is that of the first half, which has the one in the middle, plus that of the second.
// All ranks get the same bits, at every run. Hosts add their sums likewise: where they are a power
// of two in number, or have one rank each, these are the bits that one host with all the ranks
// gets.
//
// When a host is gone, collectives end all the same, with numbers that mean nothing:
// HostLink::status() tells.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "core/thread_team.h"

namespace tw {

class HostLink;
class HostStaging;

// What the ranks of a group share on one host.
class CommunicatorGroup {
 public:
  static constexpr int kMaxRanks = 64;  // of all hosts

  // Members of the teams of this host's ranks. `hosts`: there are as many ranks on each of them;
  // null: there is only this one.
  explicit CommunicatorGroup(const std::vector<int>& team_sizes, HostLink* hosts = nullptr);

  ~CommunicatorGroup();

  int size() const { return num_local() * num_hosts_; }

 private:
  friend class Communicator;
  int num_local() const { return static_cast<int>(ranks_.size()); }
  // Each rank's on lines of their own: its members poll them.
  struct alignas(64) Rank {
    int team_size = 1;
    alignas(64) std::atomic<int> arrived{0};
    alignas(64) std::atomic<uint64_t> phase{0};
    // Of the even and the odd collectives.
    alignas(64) Matrix<float> operands[2];
  };
  std::vector<Rank> ranks_;
  alignas(64) std::atomic<int> arrived_ranks_{0};
  int num_hosts_ = 1;
  std::unique_ptr<HostStaging> staging_;  // null where there is one host
};

// One rank's end of a group, for all members of its team. `member` is the caller.
class Communicator {
 public:
  // `local_rank`: counted on this host.
  Communicator(CommunicatorGroup& group, int local_rank) : group_(&group), local_(local_rank) {}

  int rank() const { return first_rank() + local_; }
  int size() const { return group_->size(); }

  // Waits for all members of all ranks of this host.
  void barrier(const TeamMember& member) const;

  // out = sum over ranks of their operands, or out += it. Operands are dense, of out's shape; one
  // without data counts as zeros. The operand may be overwritten.
  void all_reduce(const TeamMember& member, Matrix<float> operand, Matrix<float> out,
                  bool accumulate = false) const;

  // The rank's share of the sum: rows and columns counted through as one array, in whole lines,
  // as share_of() says. `out`: where the whole array would begin. Of one host alone.
  void reduce_scatter(const TeamMember& member, Matrix<float> operand, Matrix<float> out) const;
  Range share_of(int rank, int64_t elements) const;

  // The ranks' columns side by side: operand [rows, any columns] of each rank, out [rows, all].
  // A rank whose `out` has no data gets none, but takes part. Only ranks of the first host get any.
  void all_gather(const TeamMember& member, Matrix<float> operand, Matrix<float> out) const;

  // out = the operand of rank `root`, the only one that needs one. Of one host alone.
  void broadcast(const TeamMember& member, int root, Matrix<float> operand,
                 Matrix<float> out) const;

  // Sums of at least this many bytes are scattered and gathered where more than two ranks take
  // part: one barrier more, but no rank reads all of all operands. Where rates cross depends on the
  // machine; at this size a second barrier is a tenth of the reading that it saves.
  static constexpr int64_t kScatterBytes = 256 << 10;

 private:
  static constexpr int64_t kFloatsPerLine = 16;  // of the cache
  CommunicatorGroup::Rank& mine() const { return group_->ranks_[static_cast<size_t>(local_)]; }
  int first_rank() const;
  // The thread that speaks with other hosts.
  bool speaks(const TeamMember& member) const { return local_ == 0 && member.rank() == 0; }
  // Publishes the operand, waits for all of this host, and returns where the operands of this
  // collective lie.
  uint64_t exchange(const TeamMember& member, Matrix<float> operand) const;
  Matrix<float> operand_of(int local_rank, uint64_t phase) const {
    return group_->ranks_[static_cast<size_t>(local_rank)].operands[phase % 2];
  }
  void wait(uint64_t phase) const;
  // The operands' data, null where there is none; returns them as a part of `room`.
  using Operands = std::array<const float*, CommunicatorGroup::kMaxRanks>;
  std::span<const float* const> operands_of(uint64_t phase, Operands& room) const;
  // A member's part of a block that this host's ranks divide.
  Range part_of(const TeamMember& member, Range block) const;
  void all_reduce_over_hosts(const TeamMember& member, Matrix<float> operand, Matrix<float> out,
                             bool accumulate) const;
  void all_gather_over_hosts(const TeamMember& member, Matrix<float> operand,
                             Matrix<float> out) const;
  // Copies the local ranks' columns of some rows to `out`, which begins with the first of them.
  void gather_local(const TeamMember& member, uint64_t phase, Range rows, Matrix<float> out) const;

  CommunicatorGroup* group_;
  int local_;
};

}  // namespace tw
