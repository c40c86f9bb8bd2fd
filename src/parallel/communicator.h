// Collectives between the teams of one address space: a rank reads what another wrote.
//
// All members of all teams call each collective, in the same order. It begins with a barrier of all
// of them, so the caller needs none between writing its operand and the call; it ends without one:
// a member returns when its share is done, and what it wrote is for its team to order.
//
// Operands are read in place by other ranks. Whatever a rank passed must stay as it is until that
// rank's NEXT collective (or barrier) has returned: by then all others have left this one. Two
// buffers in turns, one barrier per collective.
//
// Sums run over ranks 0, 1, 2 ... for each element, whatever the algorithm and whatever the teams'
// sizes: all ranks get the same bits, at every run.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/tensor.h"
#include "core/thread_team.h"

namespace tw {

// What the ranks of a group share.
class CommunicatorGroup {
 public:
  static constexpr int kMaxRanks = 64;

  // Members of each rank's team.
  explicit CommunicatorGroup(const std::vector<int>& team_sizes);

  int size() const { return static_cast<int>(ranks_.size()); }

 private:
  friend class Communicator;
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
};

// One rank's end of a group, for all members of its team. `member` is the caller.
class Communicator {
 public:
  Communicator(CommunicatorGroup& group, int rank) : group_(&group), rank_(rank) {}

  int rank() const { return rank_; }
  int size() const { return group_->size(); }

  // Waits for all members of all ranks.
  void barrier(const TeamMember& member) const;

  // out = sum over ranks of their operands, or out += it. Operands are dense, of out's shape; one
  // without data counts as zeros. The operand may be overwritten.
  void all_reduce(const TeamMember& member, Matrix<float> operand, Matrix<float> out,
                  bool accumulate = false) const;

  // The rank's share of the sum: rows and columns counted through as one array, in whole lines,
  // as share_of() says. `out`: where the whole array would begin.
  void reduce_scatter(const TeamMember& member, Matrix<float> operand, Matrix<float> out) const;
  Range share_of(int rank, int64_t elements) const;

  // The ranks' columns side by side: operand [rows, any columns] of each rank, out [rows, all].
  // A rank whose `out` has no data gets none, but takes part.
  void all_gather(const TeamMember& member, Matrix<float> operand, Matrix<float> out) const;

  // out = the operand of rank `root`, the only one that needs one.
  void broadcast(const TeamMember& member, int root, Matrix<float> operand,
                 Matrix<float> out) const;

  // Sums of at least this many bytes are scattered and gathered where more than two ranks take
  // part: one barrier more, but no rank reads all of all operands. Where rates cross depends on the
  // machine; at this size a second barrier is a tenth of the reading that it saves.
  static constexpr int64_t kScatterBytes = 256 << 10;

 private:
  CommunicatorGroup::Rank& mine() const { return group_->ranks_[static_cast<size_t>(rank_)]; }
  // Publishes the operand, waits for all, and returns where the operands of this collective lie.
  uint64_t exchange(const TeamMember& member, Matrix<float> operand) const;
  Matrix<float> operand_of(int rank, uint64_t phase) const {
    return group_->ranks_[static_cast<size_t>(rank)].operands[phase % 2];
  }
  void wait(uint64_t phase) const;
  void sum(uint64_t phase, Range elements, float* out, bool accumulate) const;

  CommunicatorGroup* group_;
  int rank_;
};

}  // namespace tw
