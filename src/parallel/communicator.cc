#include "parallel/communicator.h"

#include <sched.h>

#include <algorithm>

#include "core/check.h"
#include "parallel/host_staging.h"
#include "parallel/sum_in_pairs.h"

namespace tw {
namespace {

constexpr int kSpinsBeforeYield = 2000;  // as a team's barrier does

int64_t elements_of(const Matrix<float>& matrix) {
  return matrix.rows * matrix.cols;
}

bool is_dense(const Matrix<float>& matrix) {
  return matrix.data == nullptr || matrix.rows <= 1 || matrix.row_stride == matrix.cols;
}

std::span<float> elements(const Matrix<float>& matrix, Range range) {
  return {matrix.data + range.begin, static_cast<size_t>(range.size())};
}

}  // namespace

CommunicatorGroup::CommunicatorGroup(const std::vector<int>& team_sizes, HostLink* hosts)
    : ranks_(team_sizes.size()) {
  if (hosts != nullptr) {
    num_hosts_ = hosts->num_hosts();
    staging_ = std::make_unique<HostStaging>(*hosts);
  }
  TW_CHECK(!team_sizes.empty() && size() <= kMaxRanks);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) ranks_[rank].team_size = team_sizes[rank];
}

CommunicatorGroup::~CommunicatorGroup() = default;

int Communicator::first_rank() const {
  return group_->staging_ ? group_->staging_->link().host() * group_->num_local() : 0;
}

void Communicator::barrier(const TeamMember& member) const {
  exchange(member, {});
}

// Members count themselves at their team, the last of a team counts the team, and the last of all
// releases each team by its own flag: between nodes go as many messages as there are teams, and
// nobody polls memory of another node.
void Communicator::wait(uint64_t phase) const {
  CommunicatorGroup::Rank& rank = mine();
  if (rank.arrived.fetch_add(1, std::memory_order_acq_rel) == rank.team_size - 1) {
    rank.arrived.store(0, std::memory_order_relaxed);
    if (group_->arrived_ranks_.fetch_add(1, std::memory_order_acq_rel) == group_->num_local() - 1) {
      group_->arrived_ranks_.store(0, std::memory_order_relaxed);
      for (CommunicatorGroup::Rank& each : group_->ranks_) {
        each.phase.store(phase + 1, std::memory_order_release);
      }
      return;
    }
  }
  int spins = 0;
  while (rank.phase.load(std::memory_order_acquire) == phase) {
    if (++spins < kSpinsBeforeYield) {
      __builtin_ia32_pause();
    } else {
      sched_yield();
    }
  }
}

uint64_t Communicator::exchange(const TeamMember& member, Matrix<float> operand) const {
  CommunicatorGroup::Rank& rank = mine();
  // Nobody is released before this member arrives, so all of them read the same phase.
  const uint64_t phase = rank.phase.load(std::memory_order_relaxed);
  if (member.rank() == 0) rank.operands[phase % 2] = operand;
  wait(phase);
  return phase;
}

std::span<const float* const> Communicator::operands_of(uint64_t phase, Operands& room) const {
  const auto count = static_cast<size_t>(group_->num_local());
  for (size_t rank = 0; rank < count; ++rank) {
    room[rank] = operand_of(static_cast<int>(rank), phase).data;
  }
  return std::span(room).first(count);
}

void Communicator::all_reduce(const TeamMember& member, Matrix<float> operand, Matrix<float> out,
                              bool accumulate) const {
  TW_CHECK(is_dense(operand) && is_dense(out));
  if (group_->staging_) return all_reduce_over_hosts(member, operand, out, accumulate);
  const int64_t count = elements_of(out);
  uint64_t phase = exchange(member, operand);
  Operands room;
  const auto operands = operands_of(phase, room);
  const bool all_have_data =
      std::ranges::none_of(operands, [](const float* data) { return data == nullptr; });
  const bool scatters =
      size() > 2 && all_have_data && count * static_cast<int64_t>(sizeof(float)) >= kScatterBytes;
  if (!scatters) {
    const Range share = member.share(count, kFloatsPerLine);
    sum_in_pairs(operands, share.begin, elements(out, share), accumulate);
    return;
  }
  // Each rank sums its share in place: no other reads that part of its operand meanwhile.
  const Range part = part_of(member, {0, count});
  sum_in_pairs(operands, part.begin, elements(operand, part), false);
  phase = exchange(member, operand);
  const Range wanted = member.share(count, kFloatsPerLine);
  for (int rank = 0; rank < size(); ++rank) {
    const Range theirs = share_of(rank, count);
    const float* values = operand_of(rank, phase).data;
    const int64_t begin = std::max(wanted.begin, theirs.begin);
    const int64_t end = std::min(wanted.end, theirs.end);
    for (int64_t i = begin; i < end; ++i) {
      out.data[i] = accumulate ? out.data[i] + values[i] : values[i];
    }
  }
}

Range Communicator::share_of(int rank, int64_t elements) const {
  return partition(elements, rank, group_->num_local(), kFloatsPerLine);
}

Range Communicator::part_of(const TeamMember& member, Range block) const {
  const Range mine = share_of(local_, block.size());
  const Range part = member.share(mine.size(), kFloatsPerLine);
  const int64_t begin = block.begin + mine.begin;
  return {begin + part.begin, begin + part.end};
}

void Communicator::reduce_scatter(const TeamMember& member, Matrix<float> operand,
                                  Matrix<float> out) const {
  TW_CHECK(is_dense(operand) && is_dense(out));
  TW_CHECK(!group_->staging_);
  const uint64_t phase = exchange(member, operand);
  Operands room;
  const Range part = part_of(member, {0, elements_of(out)});
  sum_in_pairs(operands_of(phase, room), part.begin, elements(out, part), false);
}

void Communicator::all_gather(const TeamMember& member, Matrix<float> operand,
                              Matrix<float> out) const {
  if (group_->staging_) return all_gather_over_hosts(member, operand, out);
  const uint64_t phase = exchange(member, operand);
  if (out.data != nullptr) gather_local(member, phase, {0, out.rows}, out);
}

void Communicator::gather_local(const TeamMember& member, uint64_t phase, Range rows,
                                Matrix<float> out) const {
  // Members divide columns, of which there are many even for one row.
  const Range wanted = member.share(out.cols, kFloatsPerLine);
  int64_t column = 0;
  for (int rank = 0; rank < group_->num_local(); ++rank) {
    const Matrix<float> theirs = operand_of(rank, phase);
    const int64_t begin = std::max(wanted.begin, column);
    const int64_t end = std::min(wanted.end, column + theirs.cols);
    for (int64_t row = rows.begin; row < rows.end && begin < end; ++row) {
      std::copy_n(theirs.row(row) + begin - column, end - begin, out.row(row - rows.begin) + begin);
    }
    column += theirs.cols;
  }
}

void Communicator::broadcast(const TeamMember& member, int root, Matrix<float> operand,
                             Matrix<float> out) const {
  TW_CHECK(!group_->staging_);
  const uint64_t phase = exchange(member, operand);
  const Matrix<float> source = operand_of(root, phase);
  const Range wanted = member.share(source.cols, kFloatsPerLine);
  for (int64_t row = 0; row < source.rows && !wanted.empty(); ++row) {
    std::copy_n(source.row(row) + wanted.begin, wanted.size(), out.row(row) + wanted.begin);
  }
}

}  // namespace tw
