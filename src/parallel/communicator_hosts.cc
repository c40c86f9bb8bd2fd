// The collectives of several hosts: this host's ranks meet in memory, one thread exchanges messages
// with the other hosts while the others wait for it, and all read what came.
#include <algorithm>
#include <array>

#include "core/check.h"
#include "parallel/communicator.h"
#include "parallel/host_staging.h"
#include "parallel/host_traffic.h"
#include "parallel/sum_in_pairs.h"

namespace tw {

namespace {

constexpr int64_t kFloatBytes = sizeof(float);

bool scatters_over_hosts(int num_hosts, int64_t count) {
  return num_hosts > 2 && count * kFloatBytes >= Communicator::kScatterBytes;
}

std::span<float> part_of_array(float* data, Range range) {
  return {data + range.begin, static_cast<size_t>(range.size())};
}

// The hosts' sums, in order; without data where a host has none.
using HostSums = std::array<const float*, CommunicatorGroup::kMaxRanks>;
std::span<const float* const> sums_of_hosts(const HostStaging& staging, const float* own,
                                            HostSums& room) {
  const auto num_hosts = static_cast<size_t>(staging.link().num_hosts());
  for (size_t host = 0; host < num_hosts; ++host) {
    const auto index = static_cast<int>(host);
    room[host] = index == staging.link().host() ? own : staging.received(index).data();
  }
  return std::span(room).first(num_hosts);
}

// out = the shares of all hosts side by side, or out += them. `own`: where this host's lies.
void join_shares(const HostStaging& staging, const float* own, int64_t size, Range wanted,
                 float* out, bool accumulate) {
  for (int host = 0; host < staging.link().num_hosts(); ++host) {
    const Range share = staging.share_of(host, size);
    const float* values = host == staging.link().host() ? own : staging.received(host).data();
    const int64_t begin = std::max(wanted.begin, share.begin);
    const int64_t end = std::min(wanted.end, share.end);
    for (int64_t i = begin; i < end && values != nullptr; ++i) {
      const float value = values[i - share.begin];
      out[i] = accumulate ? out[i] + value : value;
    }
  }
}

}  // namespace

// A block takes three barriers of this host: operands are there; their sum is; the others' sums
// are. Of a single rank the sum is its operand. Of more than two hosts, each adds its share of a
// large block, which takes another exchange, but no host sends all of its sum to all others.
void Communicator::all_reduce_over_hosts(const TeamMember& member, Matrix<float> operand,
                                         Matrix<float> out, bool accumulate) const {
  HostStaging& staging = *group_->staging_;
  const int64_t count = out.rows * out.cols;
  int64_t turn = 0;
  for (int64_t begin = 0; begin < count; begin += HostStaging::kBlock, ++turn) {
    const Range block{begin, std::min(begin + HostStaging::kBlock, count)};
    const uint64_t phase = exchange(member, operand);
    Operands local_room;
    const auto local = operands_of(phase, local_room);
    const float* own = nullptr;
    if (local.size() == 1) {
      if (local[0] != nullptr) own = local[0] + block.begin;
    } else if (std::ranges::any_of(local, [](const float* data) { return data != nullptr; })) {
      const Range part = part_of(member, block);
      const Range place{part.begin - block.begin, part.end - block.begin};
      sum_in_pairs(local, part.begin, part_of_array(staging.own(turn), place), false);
      own = staging.own(turn);
      exchange(member, operand);
    }
    const std::span<const float> sent(own, own == nullptr ? 0 : static_cast<size_t>(block.size()));
    const bool scatters = scatters_over_hosts(staging.link().num_hosts(), block.size());
    if (speaks(member)) scatters ? staging.scatter(sent) : staging.swap(sent);
    exchange(member, operand);
    HostSums room;
    const Range wanted = member.share(block.size(), kFloatsPerLine);
    float* const target = out.data + block.begin;
    if (!scatters) {
      sum_in_pairs(sums_of_hosts(staging, own, room), wanted.begin, part_of_array(target, wanted),
                   accumulate);
      continue;
    }
    const Range share = staging.share_of(staging.link().host(), block.size());
    const Range part = part_of(member, {0, share.size()});
    float* const mine = staging.own(turn) + share.begin;
    sum_in_pairs(sums_of_hosts(staging, own == nullptr ? nullptr : own + share.begin, room),
                 part.begin, part_of_array(mine, part), false);
    exchange(member, operand);
    if (speaks(member)) staging.swap(part_of_array(mine, {0, share.size()}));
    exchange(member, operand);
    join_shares(staging, mine, block.size(), wanted, target, accumulate);
  }
}

HostTraffic all_reduce_traffic(int num_hosts, int host, int64_t count) {
  HostTraffic traffic;
  const int64_t others = num_hosts - 1;
  for (int64_t begin = 0; begin < count; begin += HostStaging::kBlock) {
    const int64_t size = std::min(HostStaging::kBlock, count - begin);
    const int64_t share = HostStaging::share_of(host, num_hosts, size).size();
    const bool scatters = scatters_over_hosts(num_hosts, size);
    traffic.messages += scatters ? 2 * others : others;
    traffic.bytes += kFloatBytes * (scatters ? size - share + others * share : others * size);
  }
  return traffic;
}

// As many rows at a time as a block has room for.
void Communicator::all_gather_over_hosts(const TeamMember& member, Matrix<float> operand,
                                         Matrix<float> out) const {
  HostStaging& staging = *group_->staging_;
  TW_CHECK(out.cols <= HostStaging::kBlock);
  const bool first_host = staging.link().host() == 0;
  const int64_t rows_at_once = HostStaging::kBlock / std::max<int64_t>(1, out.cols);
  int64_t turn = 0;
  for (int64_t begin = 0; begin < out.rows; begin += rows_at_once, ++turn) {
    const Range rows{begin, std::min(begin + rows_at_once, out.rows)};
    const uint64_t phase = exchange(member, operand);
    int64_t own_cols = 0;
    for (int rank = 0; rank < group_->num_local(); ++rank) own_cols += operand_of(rank, phase).cols;
    if (!first_host) {
      // Any rank could; the first of each host does.
      const Matrix<float> own = dense_matrix(staging.own(turn), rows.size(), own_cols);
      if (local_ == 0) gather_local(member, phase, rows, own);
      exchange(member, operand);
      if (speaks(member)) {
        staging.collect({own.data, static_cast<size_t>(own.rows * own.cols)});
      }
      continue;
    }
    if (speaks(member)) staging.collect({});
    if (out.data != nullptr) {
      Matrix<float> there = out;
      there.data = out.row(begin);
      there.cols = own_cols;
      gather_local(member, phase, rows, there);
    }
    exchange(member, operand);
    if (out.data == nullptr) continue;
    int64_t column = own_cols;
    const Range wanted = member.share(out.cols, kFloatsPerLine);
    for (int host = 1; host < staging.link().num_hosts(); ++host) {
      const std::span<const float> theirs = staging.received(host);
      const int64_t cols = static_cast<int64_t>(theirs.size()) / rows.size();
      const int64_t first = std::max(wanted.begin, column);
      const int64_t last = std::min({wanted.end, column + cols, out.cols});
      for (int64_t row = 0; row < rows.size() && first < last; ++row) {
        std::copy_n(theirs.data() + row * cols + first - column, last - first,
                    out.row(begin + row) + first);
      }
      column += cols;
    }
  }
}

}  // namespace tw
