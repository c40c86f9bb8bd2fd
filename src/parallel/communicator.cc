#include "parallel/communicator.h"

#include <sched.h>

#include <algorithm>

#include "core/check.h"

namespace tw {
namespace {

constexpr int64_t kLine = 16;            // floats of a cache line
constexpr int kSpinsBeforeYield = 2000;  // as a team's barrier does

int64_t elements_of(const Matrix<float>& matrix) {
  return matrix.rows * matrix.cols;
}

bool is_dense(const Matrix<float>& matrix) {
  return matrix.data == nullptr || matrix.rows <= 1 || matrix.row_stride == matrix.cols;
}

}  // namespace

CommunicatorGroup::CommunicatorGroup(const std::vector<int>& team_sizes)
    : ranks_(team_sizes.size()) {
  TW_CHECK(!team_sizes.empty() && team_sizes.size() <= kMaxRanks);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) ranks_[rank].team_size = team_sizes[rank];
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
    if (group_->arrived_ranks_.fetch_add(1, std::memory_order_acq_rel) == size() - 1) {
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

void Communicator::sum(uint64_t phase, Range elements, float* out, bool accumulate) const {
  const float* operands[CommunicatorGroup::kMaxRanks];
  int num_operands = 0;
  for (int rank = 0; rank < size(); ++rank) {
    const float* values = operand_of(rank, phase).data;
    if (values != nullptr) operands[num_operands++] = values;
  }
  // Small enough to stay in the nearest cache while ranks are added.
  constexpr int64_t kBlock = 256;
  float total[kBlock];
  for (int64_t begin = elements.begin; begin < elements.end; begin += kBlock) {
    const int64_t count = std::min(kBlock, elements.end - begin);
    if (num_operands == 0) {
      std::fill_n(total, count, 0.0f);
    } else if (num_operands == 1) {
      std::copy_n(operands[0] + begin, count, total);
    } else {
      const float *first = operands[0] + begin, *second = operands[1] + begin;
      for (int64_t i = 0; i < count; ++i) total[i] = first[i] + second[i];
    }
    for (int n = 2; n < num_operands; ++n) {
      const float* values = operands[n] + begin;
      for (int64_t i = 0; i < count; ++i) total[i] += values[i];
    }
    if (accumulate) {
      for (int64_t i = 0; i < count; ++i) out[begin + i] += total[i];
    } else {
      std::copy_n(total, count, out + begin);
    }
  }
}

void Communicator::all_reduce(const TeamMember& member, Matrix<float> operand, Matrix<float> out,
                              bool accumulate) const {
  TW_CHECK(is_dense(operand) && is_dense(out));
  const int64_t count = elements_of(out);
  uint64_t phase = exchange(member, operand);
  const auto has_data = [&](int rank) { return operand_of(rank, phase).data != nullptr; };
  bool all_have_data = true;
  for (int rank = 0; rank < size(); ++rank) all_have_data = all_have_data && has_data(rank);
  const bool scatters =
      size() > 2 && all_have_data && count * static_cast<int64_t>(sizeof(float)) >= kScatterBytes;
  if (!scatters) {
    sum(phase, member.share(count, kLine), out.data, accumulate);
    return;
  }
  // Each rank sums its share in place: no other reads that part of its operand meanwhile.
  const Range mine = share_of(rank_, count);
  const Range part = member.share(mine.size(), kLine);
  sum(phase, {mine.begin + part.begin, mine.begin + part.end}, operand.data, false);
  phase = exchange(member, operand);
  const Range wanted = member.share(count, kLine);
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
  return partition(elements, rank, size(), kLine);
}

void Communicator::reduce_scatter(const TeamMember& member, Matrix<float> operand,
                                  Matrix<float> out) const {
  TW_CHECK(is_dense(operand) && is_dense(out));
  const uint64_t phase = exchange(member, operand);
  const Range mine = share_of(rank_, elements_of(out));
  const Range part = member.share(mine.size(), kLine);
  sum(phase, {mine.begin + part.begin, mine.begin + part.end}, out.data, false);
}

void Communicator::all_gather(const TeamMember& member, Matrix<float> operand,
                              Matrix<float> out) const {
  const uint64_t phase = exchange(member, operand);
  if (out.data == nullptr) return;
  // Members divide columns, of which there are many even for one row.
  const Range wanted = member.share(out.cols, kLine);
  int64_t column = 0;
  for (int rank = 0; rank < size(); ++rank) {
    const Matrix<float> theirs = operand_of(rank, phase);
    const int64_t begin = std::max(wanted.begin, column);
    const int64_t end = std::min(wanted.end, column + theirs.cols);
    for (int64_t row = 0; row < theirs.rows && begin < end; ++row) {
      std::copy_n(theirs.row(row) + begin - column, end - begin, out.row(row) + begin);
    }
    column += theirs.cols;
  }
}

void Communicator::broadcast(const TeamMember& member, int root, Matrix<float> operand,
                             Matrix<float> out) const {
  const uint64_t phase = exchange(member, operand);
  const Matrix<float> source = operand_of(root, phase);
  const Range wanted = member.share(source.cols, kLine);
  for (int64_t row = 0; row < source.rows && !wanted.empty(); ++row) {
    std::copy_n(source.row(row) + wanted.begin, wanted.size(), out.row(row) + wanted.begin);
  }
}

}  // namespace tw
