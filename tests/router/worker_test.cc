#include "router/worker.h"

#include <gtest/gtest.h>

namespace tw {
namespace {

std::string url_of(const std::string& text) {
  const auto address = WorkerAddress::parse(text);
  return address ? address->url : "refused: " + address.error().message;
}

TEST(WorkerAddress, HasHostAndPort) {
  EXPECT_EQ(url_of("http://node1:30000"), "http://node1:30000");
  EXPECT_EQ(url_of("http://node1:30000/"), "http://node1:30000");
  EXPECT_EQ(url_of("node1:30000"), "http://node1:30000");
  EXPECT_EQ(url_of("http://node1"), "http://node1:80");
  EXPECT_EQ(url_of("http://[fd00::1]:8000"), "http://[fd00::1]:8000");
  EXPECT_EQ(WorkerAddress::parse("http://[fd00::1]:8000")->host, "fd00::1");
  EXPECT_EQ(WorkerAddress::parse("http://[fd00::1]:8000")->port, 8000);
}

TEST(WorkerAddress, SaysWhatIsWrong) {
  for (const char* text :
       {"", "http://", "https://node1:30000", "http://node1:0", "http://node1:70000",
        "http://node1:x", "http://node1:", "http://[::1", "http://[::1]x", "http://node1:1/v1",
        "http://user@node1:1", "a b:1", "ftp://node1:21"}) {
    const auto address = WorkerAddress::parse(text);
    ASSERT_FALSE(address) << text;
    EXPECT_NE(address.error().message.find(fmt::format("\"{}\"", text)), std::string::npos);
    EXPECT_NE(address.error().message.find("http://HOST:PORT"), std::string::npos);
  }
}

TEST(Worker, HealthFollowsTheFirstGoodCheckAndThenTheThresholds) {
  Worker worker(*WorkerAddress::parse("node1:1"), {.failures = 3, .successes = 2});
  EXPECT_FALSE(worker.is_healthy());
  worker.count_check(false);  // it starts
  EXPECT_FALSE(worker.is_healthy());
  worker.count_check(true);
  EXPECT_TRUE(worker.is_healthy());
  worker.count_check(false);
  worker.count_check(false);
  worker.count_check(true);  // the failures are not in a row
  worker.count_check(false);
  worker.count_check(false);
  EXPECT_TRUE(worker.is_healthy());
  worker.count_check(false);
  EXPECT_FALSE(worker.is_healthy());
  worker.count_check(true);
  EXPECT_FALSE(worker.is_healthy());
  worker.count_check(true);
  EXPECT_TRUE(worker.is_healthy());
  worker.count_refusal();
  EXPECT_FALSE(worker.is_healthy());
}

TEST(Worker, LeasesCountWhatRuns) {
  const auto worker =
      std::make_shared<Worker>(*WorkerAddress::parse("node1:1"), HealthThresholds());
  {
    const Worker::Lease one(worker);
    Worker::Lease two(worker);
    EXPECT_EQ(worker->num_running(), 2);
    const Worker::Lease moved(std::move(two));
    EXPECT_EQ(worker->num_running(), 2);
  }
  EXPECT_EQ(worker->num_running(), 0);
}

TEST(WorkerPool, KnowsEachWorkerOnce) {
  WorkerPool pool({});
  const auto one = *WorkerAddress::parse("node1:1"), two = *WorkerAddress::parse("node2:1");
  EXPECT_TRUE(pool.add(one));
  EXPECT_TRUE(pool.add(two));
  EXPECT_FALSE(pool.add(one));
  EXPECT_EQ(pool.all().size(), 2u);
  EXPECT_TRUE(pool.healthy().empty());
  pool.all()[1]->count_check(true);
  ASSERT_EQ(pool.healthy().size(), 1u);
  EXPECT_EQ(pool.healthy()[0]->url(), two.url);
  EXPECT_TRUE(pool.remove(one));
  EXPECT_FALSE(pool.remove(one));
  EXPECT_EQ(pool.all().size(), 1u);
}

}  // namespace
}  // namespace tw
