// The module for MPI: two processes of mpirun run this program (tests/parallel/CMakeLists.txt).
#include <gtest/gtest.h>

#include <numeric>

#include "parallel/communicator.h"
#include "parallel/host_link.h"
#include "parallel/team_group.h"

namespace tw {
namespace {

std::unique_ptr<HostLink>& link() {
  static std::unique_ptr<HostLink> value;
  return value;
}

class Mpi : public ::testing::Test {
 protected:
  void SetUp() override {
    if (link()) return;
    auto connected = HostLink::connect(2);
    ASSERT_TRUE(connected) << connected.error().message;
    link() = std::move(*connected);
  }
};

TEST_F(Mpi, GathersTexts) {
  const auto texts = link()->all_gather(link()->host() == 0 ? "first" : "");
  ASSERT_TRUE(texts) << texts.error().message;
  EXPECT_EQ(*texts, (std::vector<std::string>{"first", ""}));
}

// Beyond what any transport sends at once, and nothing at all.
TEST_F(Mpi, MessagesArriveWholeAndInOrder) {
  const int other = 1 - link()->host();
  for (const size_t size : {size_t{0}, size_t{1}, size_t{70000}, size_t{4} << 20}) {
    std::vector<std::byte> sent(size, std::byte{static_cast<unsigned char>(link()->host() + 1)});
    std::vector<std::byte> room(size + 1);
    const HostSend send{other, sent};
    HostReceive receive{other, room};
    ASSERT_TRUE(link()->exchange(std::span(&send, 1), std::span(&receive, 1)));
    ASSERT_EQ(receive.size, size);
    if (size > 0) {
      EXPECT_EQ(room[size - 1], std::byte{static_cast<unsigned char>(other + 1)});
    }
    EXPECT_EQ(room[size], std::byte{0});
  }
}

TEST_F(Mpi, RanksOfBothHostsAreSummed) {
  const std::vector<int> sizes = {1, 1};
  CommunicatorGroup group(sizes, link().get());
  TeamGroup teams(sizes);
  std::vector<std::vector<float>> own(2, std::vector<float>(5000)), sums = own;
  for (int round = 0; round < 20; ++round) {
    for (size_t rank = 0; rank < 2; ++rank) {
      std::iota(own[rank].begin(), own[rank].end(),
                static_cast<float>(round + 10 * link()->host()) + static_cast<float>(rank));
    }
    teams.run([&](int rank) {
      const Communicator communicator(group, rank);
      const auto index = static_cast<size_t>(rank);
      teams.team(rank).run([&](const TeamMember& member) {
        communicator.all_reduce(member, dense_matrix(own[index].data(), 1, 5000),
                                dense_matrix(sums[index].data(), 1, 5000));
      });
    });
    for (const auto& sum : sums) {
      for (size_t i = 0; i < sum.size(); ++i) {
        ASSERT_EQ(sum[i], static_cast<float>(4 * (static_cast<int>(i) + round) + 22));
      }
    }
  }
}

}  // namespace
}  // namespace tw

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int code = RUN_ALL_TESTS();
  tw::link().reset();  // which all hosts leave together
  return code;
}
