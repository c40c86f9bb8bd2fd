// Collectives against sums and copies by hand: 1 to 5 ranks with teams of different sizes, shapes
// from nothing to larger than the size from which sums are scattered.
#include "parallel/communicator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <tuple>

#include "parallel/summed_in_pairs.h"
#include "parallel/team_group.h"

namespace tw {
namespace {

using testing_support::in_pairs;
using Shape = std::pair<int64_t, int64_t>;

std::vector<int> team_sizes(int num_ranks) {
  std::vector<int> sizes;
  for (int rank = 0; rank < num_ranks; ++rank) sizes.push_back(1 + rank % 2);
  return sizes;
}

class Collectives : public ::testing::TestWithParam<int> {
 protected:
  static constexpr int kRounds = 3;

  Collectives() : sizes_(team_sizes(GetParam())), teams_(sizes_), group_(sizes_) {}

  int num_ranks() const { return GetParam(); }

  // Each rank's numbers, whose sum depends on the order.
  std::vector<std::vector<float>> make_operands(int64_t count) {
    std::uniform_real_distribution<float> mantissa(-1, 1);
    std::vector<std::vector<float>> operands(static_cast<size_t>(num_ranks()));
    for (auto& operand : operands) {
      for (int64_t i = 0; i < count; ++i) {
        operand.push_back(std::ldexp(mantissa(random_), static_cast<int>(random_() % 24)));
      }
    }
    return operands;
  }

  // body(communicator, member) on all members of all ranks.
  template <typename Body>
  void run(const Body& body) {
    teams_.run([&](int rank) {
      const Communicator communicator(group_, rank);
      teams_.team(rank).run([&](const TeamMember& member) { body(communicator, member); });
    });
  }

  static Matrix<float> matrix(std::vector<float>& values, Shape shape) {
    return dense_matrix(values.data(), shape.first, shape.second);
  }

  static constexpr Shape kShapes[] = {{0, 5},  {1, 1},   {1, 15},   {1, 16},     {1, 17},
                                      {3, 33}, {7, 576}, {1, 1000}, {129, 1031}, {2, 65536}};

  const std::vector<int> sizes_;
  TeamGroup teams_;
  CommunicatorGroup group_;
  std::mt19937 random_{17};
};

TEST_P(Collectives, AllReduceSumsRanksInPairs) {
  for (const Shape& shape : kShapes) {
    for (const bool accumulate : {false, true}) {
      const auto operands = make_operands(shape.first * shape.second);
      std::vector<float> expected = in_pairs(operands);
      if (accumulate) {
        for (float& value : expected) value = 0.5f + value;
      }
      auto buffers = operands;
      std::vector<std::vector<float>> outs(operands.size(),
                                           std::vector<float>(expected.size(), 0.5f));
      run([&](const Communicator& communicator, const TeamMember& member) {
        const auto rank = static_cast<size_t>(communicator.rank());
        communicator.all_reduce(member, matrix(buffers[rank], shape), matrix(outs[rank], shape),
                                accumulate);
      });
      for (const auto& out : outs) {
        const bool equal =  // memcmp must not see the null pointers of no rows
            out.empty() ||
            std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)) == 0;
        ASSERT_TRUE(equal) << shape.first << " x " << shape.second;
      }
    }
  }
}

// With two buffers in turns, no barrier is needed between collectives, however ranks hurry.
TEST_P(Collectives, ManyAllReducesInTurnsOfTwoBuffers) {
  constexpr Shape kShape = {1, 37};
  constexpr int kSteps = 200;
  std::vector<std::vector<float>> buffers(2 * static_cast<size_t>(num_ranks()),
                                          std::vector<float>(37));
  std::vector<std::vector<float>> outs(static_cast<size_t>(num_ranks()), std::vector<float>(37));
  std::atomic<int> wrong{0};
  run([&](const Communicator& communicator, const TeamMember& member) {
    const auto rank = static_cast<size_t>(communicator.rank());
    for (int step = 0; step < kSteps; ++step) {
      std::vector<float>& buffer = buffers[2 * rank + static_cast<size_t>(step % 2)];
      const Range share = member.share(kShape.second);
      for (auto i = static_cast<size_t>(share.begin); i < static_cast<size_t>(share.end); ++i) {
        buffer[i] = static_cast<float>(step * (communicator.rank() + 1));
      }
      communicator.all_reduce(member, matrix(buffer, kShape), matrix(outs[rank], kShape));
      member.barrier();
      const int ranks = communicator.size();
      const auto expected = static_cast<float>(step * ranks * (ranks + 1) / 2);
      for (const float value : outs[rank]) wrong += value != expected;
      member.barrier();
    }
  });
  EXPECT_EQ(wrong.load(), 0);
}

TEST_P(Collectives, ARankWithoutAnOperandCountsAsZeros) {
  constexpr Shape kShape = {3, 40000};  // large enough to be scattered otherwise
  for (int absent = 0; absent < num_ranks(); ++absent) {
    auto operands = make_operands(kShape.first * kShape.second);
    auto with_zeros = operands;
    std::ranges::fill(with_zeros[static_cast<size_t>(absent)], 0.0f);
    const std::vector<float> expected = in_pairs(with_zeros);
    std::vector<std::vector<float>> outs(operands.size(), std::vector<float>(expected.size(), 1));
    run([&](const Communicator& communicator, const TeamMember& member) {
      const auto rank = static_cast<size_t>(communicator.rank());
      Matrix<float> operand = matrix(operands[rank], kShape);
      if (communicator.rank() == absent) operand.data = nullptr;
      communicator.all_reduce(member, operand, matrix(outs[rank], kShape));
    });
    for (const auto& out : outs) ASSERT_EQ(out, expected);
  }
}

TEST_P(Collectives, ReduceScatterGivesEachRankItsShare) {
  for (const Shape& shape : kShapes) {
    const int64_t count = shape.first * shape.second;
    auto operands = make_operands(count);
    const std::vector<float> expected = in_pairs(operands);
    std::vector<std::vector<float>> outs(operands.size(), std::vector<float>(expected.size(), -1));
    run([&](const Communicator& communicator, const TeamMember& member) {
      const auto rank = static_cast<size_t>(communicator.rank());
      communicator.reduce_scatter(member, matrix(operands[rank], shape), matrix(outs[rank], shape));
    });
    for (int rank = 0; rank < num_ranks(); ++rank) {
      const Range share = Communicator(group_, rank).share_of(rank, count);
      for (int64_t i = 0; i < count; ++i) {
        const bool mine = i >= share.begin && i < share.end;
        const auto at = static_cast<size_t>(i);
        ASSERT_EQ(outs[static_cast<size_t>(rank)][at], mine ? expected[at] : -1.0f);
      }
    }
  }
}

TEST_P(Collectives, AllGatherPutsColumnsSideBySide) {
  for (const Shape& shape : kShapes) {
    // Rank r has r more columns than the first; of one rank in three, none.
    std::vector<std::vector<float>> operands;
    std::vector<Shape> shapes;
    int64_t columns = 0;
    for (int rank = 0; rank < num_ranks(); ++rank) {
      shapes.emplace_back(shape.first, rank % 3 == 2 ? 0 : shape.second + rank);
      auto& values = operands.emplace_back();
      for (int64_t i = 0; i < shapes.back().first * shapes.back().second; ++i) {
        values.push_back(static_cast<float>(random_() % 1000000));
      }
      columns += shapes.back().second;
    }
    std::vector<std::vector<float>> outs(
        operands.size(), std::vector<float>(static_cast<size_t>(shape.first * columns), -1));
    run([&](const Communicator& communicator, const TeamMember& member) {
      const auto rank = static_cast<size_t>(communicator.rank());
      Matrix<float> out = dense_matrix(outs[rank].data(), shape.first, columns);
      if (rank == 1) out.data = nullptr;  // wants none
      communicator.all_gather(member, matrix(operands[rank], shapes[rank]), out);
    });
    for (size_t rank = 0; rank < outs.size(); ++rank) {
      int64_t column = 0;
      for (size_t from = 0; from < operands.size(); ++from) {
        for (int64_t row = 0; row < shape.first; ++row) {
          for (int64_t i = 0; i < shapes[from].second; ++i) {
            const float value = outs[rank][static_cast<size_t>(row * columns + column + i)];
            const float expected =
                rank == 1 ? -1.0f
                          : operands[from][static_cast<size_t>(row * shapes[from].second + i)];
            ASSERT_EQ(value, expected);
          }
        }
        column += shapes[from].second;
      }
    }
  }
}

TEST_P(Collectives, BroadcastCopiesTheRoots) {
  for (const Shape& shape : kShapes) {
    for (int root = 0; root < num_ranks(); ++root) {
      auto operands = make_operands(shape.first * shape.second);
      const auto expected = operands[static_cast<size_t>(root)];
      std::vector<std::vector<float>> outs(operands.size(), std::vector<float>(expected.size()));
      run([&](const Communicator& communicator, const TeamMember& member) {
        const auto rank = static_cast<size_t>(communicator.rank());
        communicator.broadcast(member, root, matrix(operands[rank], shape),
                               matrix(outs[rank], shape));
      });
      for (const auto& out : outs) ASSERT_EQ(out, expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, ::testing::Values(1, 2, 3, 5));

}  // namespace
}  // namespace tw
