// Collectives over hosts, which are threads here: 2 to 4 hosts with 1 or 2 ranks each, shapes from
// nothing to more than a block.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "parallel/communicator.h"
#include "parallel/host_agreement.h"
#include "parallel/host_staging.h"
#include "parallel/host_traffic.h"
#include "parallel/hosts_in_memory.h"
#include "parallel/summed_in_pairs.h"
#include "parallel/team_group.h"

namespace tw {
namespace {

using testing_support::HostsInMemory;
using testing_support::in_pairs;
using Values = std::vector<std::vector<float>>;  // of each rank
using Shape = std::pair<int64_t, int64_t>;

constexpr Shape kShapes[] = {{0, 5}, {1, 1}, {1, 17}, {7, 576}, {2, HostStaging::kBlock / 2 + 100}};

struct Layout {
  int num_hosts;
  int ranks_per_host;
};

// For the names of tests.
void PrintTo(const Layout& layout, std::ostream* out) {
  *out << layout.num_hosts << " hosts with " << layout.ranks_per_host << " ranks";
}

class HostCollectives : public ::testing::TestWithParam<Layout> {
 protected:
  int num_hosts() const { return GetParam().num_hosts; }
  int num_local() const { return GetParam().ranks_per_host; }
  int num_ranks() const { return num_hosts() * num_local(); }

  // Numbers whose sum depends on the order.
  Values make_operands(int64_t count) {
    std::uniform_real_distribution<float> mantissa(-1, 1);
    Values operands(static_cast<size_t>(num_ranks()));
    for (auto& operand : operands) {
      for (int64_t i = 0; i < count; ++i) {
        operand.push_back(std::ldexp(mantissa(random_), static_cast<int>(random_() % 24)));
      }
    }
    return operands;
  }

  Values of_hosts(const Values& operands) const {
    Values sums;
    for (int host = 0; host < num_hosts(); ++host) {
      const auto first = static_cast<size_t>(host * num_local());
      sums.push_back(
          in_pairs(std::span(operands).subspan(first, static_cast<size_t>(num_local()))));
    }
    return sums;
  }

  // body(communicator, member) on all members of all ranks of all hosts. Returns the links' states.
  template <typename Body>
  std::vector<Status> run(const Body& body, std::chrono::milliseconds timeout = kLong) {
    std::vector<Status> statuses(static_cast<size_t>(num_hosts()));
    std::vector<std::thread> hosts;
    for (int host = 0; host < num_hosts(); ++host) {
      hosts.emplace_back([&, host] {
        const auto link = memory_.link(host);
        link->set_step_timeout(timeout);
        link->begin_steps();
        std::vector<int> sizes(static_cast<size_t>(num_local()), 1);
        sizes.back() = 2;
        CommunicatorGroup group(sizes, link.get());
        TeamGroup teams(sizes);
        teams.run([&](int rank) {
          const Communicator communicator(group, rank);
          teams.team(rank).run([&](const TeamMember& member) { body(communicator, member); });
        });
        statuses[static_cast<size_t>(host)] = link->status();
        traffic_[static_cast<size_t>(host)] = link->traffic();
      });
    }
    for (std::thread& host : hosts) host.join();
    return statuses;
  }

  static Matrix<float> matrix(std::vector<float>& values, Shape shape) {
    return dense_matrix(values.data(), shape.first, shape.second);
  }

  static constexpr std::chrono::milliseconds kLong{60000};
  HostsInMemory memory_{GetParam().num_hosts};
  std::vector<HostTraffic> traffic_ =  // of the last run
      std::vector<HostTraffic>(static_cast<size_t>(GetParam().num_hosts));
  std::mt19937 random_{17};
};

TEST_P(HostCollectives, AllReduceSumsHostsInPairs) {
  for (const Shape& shape : kShapes) {
    for (const bool accumulate : {false, true}) {
      const Values operands = make_operands(shape.first * shape.second);
      std::vector<float> expected = in_pairs(of_hosts(operands));
      const bool as_on_one_host = num_local() == 1 || (num_hosts() & (num_hosts() - 1)) == 0;
      if (as_on_one_host) {
        ASSERT_EQ(expected, in_pairs(operands));
      }
      if (accumulate) {
        for (float& value : expected) value = 0.5f + value;
      }
      Values buffers = operands;
      Values outs(operands.size(), std::vector<float>(expected.size(), 0.5f));
      run([&](const Communicator& communicator, const TeamMember& member) {
        ASSERT_EQ(communicator.size(), num_ranks());
        const auto rank = static_cast<size_t>(communicator.rank());
        communicator.all_reduce(member, matrix(buffers[rank], shape), matrix(outs[rank], shape),
                                accumulate);
      });
      for (const auto& out : outs) ASSERT_EQ(out, expected) << shape.first << " x " << shape.second;
      for (int host = 0; host < num_hosts(); ++host) {
        const HostTraffic predicted =
            all_reduce_traffic(num_hosts(), host, shape.first * shape.second);
        EXPECT_EQ(traffic_[static_cast<size_t>(host)].messages, predicted.messages);
        EXPECT_EQ(traffic_[static_cast<size_t>(host)].bytes, predicted.bytes);
      }
    }
  }
}

TEST_P(HostCollectives, RanksWithoutAnOperandCountAsZeros) {
  const Shape kShape = {3, 40000};  // large enough to be scattered among hosts
  // All of the second host, and of the others every other one.
  const auto absent = [&](int rank) {
    const int host = rank / num_local();
    return host == 1 || (num_local() > 1 && rank % 2 == 1);
  };
  Values operands = make_operands(kShape.first * kShape.second);
  for (int rank = 0; rank < num_ranks(); ++rank) {
    if (absent(rank)) std::ranges::fill(operands[static_cast<size_t>(rank)], 0.0f);
  }
  const std::vector<float> expected = in_pairs(of_hosts(operands));
  Values outs(operands.size(), std::vector<float>(expected.size(), 1));
  run([&](const Communicator& communicator, const TeamMember& member) {
    const auto rank = static_cast<size_t>(communicator.rank());
    Matrix<float> operand = matrix(operands[rank], kShape);
    if (absent(communicator.rank())) operand.data = nullptr;
    communicator.all_reduce(member, operand, matrix(outs[rank], kShape));
  });
  for (const auto& out : outs) EXPECT_EQ(out, expected);
}

// With two buffers in turns, no barrier is needed between collectives, however hosts hurry.
TEST_P(HostCollectives, ManyAllReducesInTurnsOfTwoBuffers) {
  constexpr Shape kShape = {1, 37};
  Values buffers(2 * static_cast<size_t>(num_ranks()), std::vector<float>(37));
  Values outs(static_cast<size_t>(num_ranks()), std::vector<float>(37));
  std::atomic<int> wrong{0};
  run([&](const Communicator& communicator, const TeamMember& member) {
    const auto rank = static_cast<size_t>(communicator.rank());
    for (int step = 0; step < 50; ++step) {
      std::vector<float>& buffer = buffers[2 * rank + static_cast<size_t>(step % 2)];
      const Range share = member.share(kShape.second);
      for (auto i = static_cast<size_t>(share.begin); i < static_cast<size_t>(share.end); ++i) {
        buffer[i] = static_cast<float>(step * (communicator.rank() + 1));
      }
      communicator.all_reduce(member, matrix(buffer, kShape), matrix(outs[rank], kShape));
      member.barrier();
      const auto expected = static_cast<float>(step * num_ranks() * (num_ranks() + 1) / 2);
      for (const float value : outs[rank]) wrong += value != expected;
      member.barrier();
    }
  });
  EXPECT_EQ(wrong.load(), 0);
}

TEST_P(HostCollectives, AllGatherPutsColumnsSideBySideOnTheFirstRank) {
  for (const Shape& shape : kShapes) {
    Values operands;
    std::vector<Shape> shapes;
    int64_t columns = 0;
    for (int rank = 0; rank < num_ranks(); ++rank) {
      // Of one rank, none.
      shapes.emplace_back(shape.first, rank == 1 ? 0 : shape.second % 1000 + rank);
      auto& values = operands.emplace_back();
      for (int64_t i = 0; i < shapes.back().first * shapes.back().second; ++i) {
        values.push_back(static_cast<float>(random_() % 1000000));
      }
      columns += shapes.back().second;
    }
    std::vector<float> out(static_cast<size_t>(shape.first * columns), -1);
    run([&](const Communicator& communicator, const TeamMember& member) {
      const auto rank = static_cast<size_t>(communicator.rank());
      float* data = rank == 0 ? out.data() : nullptr;
      communicator.all_gather(member, matrix(operands[rank], shapes[rank]),
                              dense_matrix(data, shape.first, columns));
    });
    std::vector<float> expected;
    for (int64_t row = 0; row < shape.first; ++row) {
      for (size_t rank = 0; rank < operands.size(); ++rank) {
        const auto begin = operands[rank].begin() + row * shapes[rank].second;
        expected.insert(expected.end(), begin, begin + shapes[rank].second);
      }
    }
    ASSERT_EQ(out, expected);
  }
}

TEST_P(HostCollectives, EndWithAnErrorWhereAHostHangs) {
  memory_.silence(num_hosts() - 1);
  Values buffers(static_cast<size_t>(num_ranks()), std::vector<float>(64)), outs = buffers;
  const auto statuses = run(
      [&](const Communicator& communicator, const TeamMember& member) {
        const auto rank = static_cast<size_t>(communicator.rank());
        for (int i = 0; i < 20; ++i) {
          communicator.all_reduce(member, matrix(buffers[rank], {1, 64}),
                                  matrix(outs[rank], {1, 64}));
          communicator.barrier(member);
        }
      },
      std::chrono::milliseconds(50));
  ASSERT_FALSE(statuses.front());
  EXPECT_EQ(statuses.front().error().code, ErrorCode::unavailable);
  EXPECT_NE(statuses.front().error().message.find(fmt::format("host {}", num_hosts() - 1)),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Layouts, HostCollectives,
                         ::testing::Values(Layout{2, 1}, Layout{2, 2}, Layout{3, 2}, Layout{4, 1}));

TEST(HostLink, GathersTextsOfAllHosts) {
  HostsInMemory memory(3);
  std::vector<std::thread> hosts;
  std::atomic<int> right{0};
  for (int host = 0; host < 3; ++host) {
    hosts.emplace_back([&, host] {
      const auto link = memory.link(host);
      const auto texts = link->all_gather(std::string(static_cast<size_t>(host), 'x'));
      if (texts && *texts == std::vector<std::string>{"", "x", "xx"}) ++right;
      // Sizes, then texts, to two others.
      if (link->traffic().messages == 4 && link->traffic().bytes == 2 * (8 + host)) ++right;
    });
  }
  for (std::thread& host : hosts) host.join();
  EXPECT_EQ(right.load(), 6);
}

TEST(HostLink, StaysFailed) {
  HostsInMemory memory(2);
  const auto link = memory.link(0);
  link->set_step_timeout(std::chrono::milliseconds(1));
  link->begin_steps();
  std::byte room[4];
  HostReceive receive{1, room};
  EXPECT_FALSE(link->exchange({}, std::span(&receive, 1)));
  link->set_step_timeout(std::chrono::hours(1));
  link->begin_steps();
  EXPECT_FALSE(link->exchange({}, std::span(&receive, 1)));
  EXPECT_FALSE(link->status());
}

// What each of the hosts gets.
template <typename Body>
std::vector<Status> on_hosts(int num_hosts, const Body& body) {
  HostsInMemory memory(num_hosts);
  std::vector<Status> statuses(static_cast<size_t>(num_hosts));
  std::vector<std::thread> hosts;
  for (int host = 0; host < num_hosts; ++host) {
    hosts.emplace_back([&, host] {
      const auto link = memory.link(host);
      statuses[static_cast<size_t>(host)] = body(*link);
    });
  }
  for (std::thread& host : hosts) host.join();
  return statuses;
}

TEST(HostLink, AgreesOnTheFirstFailure) {
  for (const Status& status : on_hosts(3, [](HostLink& link) { return link.agree({}); })) {
    EXPECT_TRUE(status);
  }
  const auto statuses = on_hosts(3, [](HostLink& link) {
    return link.agree(link.host() == 0 ? Status()
                                       : error(ErrorCode::not_found, "no file {}", link.host()));
  });
  for (const Status& status : statuses) {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::not_found);
    EXPECT_EQ(status.error().message, "host 1: no file 1");
  }
}

TEST(HostAgreement, NamesHostAndField) {
  const auto compare = [](const char* dtype_of_last) {
    return on_hosts(3, [&](HostLink& link) {
      return compare_hosts(link, {{"version", "1"},
                                  {"--quantization", ""},
                                  {"--dtype", link.host() == 2 ? dtype_of_last : "auto"}});
    });
  };
  for (const Status& status : compare("auto")) EXPECT_TRUE(status);
  for (const Status& status : compare("float32")) {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
    EXPECT_EQ(status.error().message,
              "host 2 differs from host 0: --dtype is \"float32\" there and \"auto\" on host 0; "
              "all hosts must have the same");
  }
}

}  // namespace
}  // namespace tw
