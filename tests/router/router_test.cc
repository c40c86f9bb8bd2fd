#include "router/router.h"

#include <gtest/gtest.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <deque>
#include <functional>

#include "core/json.h"
#include "core/log.h"
#include "http/http_server.h"
#include "server/raw_client.h"

namespace tw {
namespace {

using namespace std::chrono_literals;

// An application that is served on a free port until it is stopped.
class Served {
 public:
  explicit Served(Application& application) : Served(application, bind(application)) {}
  ~Served() { stop(); }

  uint16_t port() const { return server_->port(); }
  void begin_drain() { server_->stop(); }
  void stop() {
    if (!thread_.joinable()) return;
    server_->stop();
    server_->stop();
    thread_.join();
  }

 private:
  Served(Application& application, BoundAddress address)
      : server_(std::move(*HttpServer::create(application, std::move(address)))),
        thread_([this] { server_->run(); }) {}
  static BoundAddress bind(Application& application) {
    const HttpConfig& config = application.http_config();
    return std::move(*BoundAddress::bind(config.host, config.port));
  }

  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

// Answers as the test says, and notes what it was asked.
class FakeWorker final : public Application {
 public:
  using Behaviour =
      std::function<asio::awaitable<void>(const HttpRequest& request, Responder& responder)>;

  explicit FakeWorker(uint16_t port = 0) {
    config_.port = port;
    served_ = std::make_unique<Served>(*this);
  }
  ~FakeWorker() override { served_->stop(); }

  const HttpConfig& http_config() const override { return config_; }
  asio::awaitable<Answered> answer(HttpRequest& request, Responder& responder) override {
    if (request.path == "/health") {
      HttpResponse response{.status = health_status};
      co_await responder.send(std::move(response));
      co_return Answered{"/health"};
    }
    {
      std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    co_await behaviour(request, responder);
    co_return Answered{"any"};
  }
  void count_request(std::string_view, int) override {}
  void set_connections(int) override {}
  void abort_all() override {}
  void shutdown() override {}

  uint16_t port() const { return served_->port(); }
  WorkerAddress address() const {
    return *WorkerAddress::parse(fmt::format("127.0.0.1:{}", port()));
  }
  void stop() { served_->stop(); }
  size_t num_requests() {
    std::lock_guard lock(mutex_);
    return requests_.size();
  }
  HttpRequest last_request() {
    std::lock_guard lock(mutex_);
    return requests_.back();
  }

  std::atomic<int> health_status{200};
  Behaviour behaviour = [](const HttpRequest&, Responder& responder) -> asio::awaitable<void> {
    HttpResponse response{.body = R"({"answer": 1})"};
    response.headers.emplace_back("ETag", "\"tag\"");
    co_await responder.send(std::move(response));
  };

 private:
  HttpConfig config_;
  std::mutex mutex_;
  std::deque<HttpRequest> requests_;
  std::unique_ptr<Served> served_;
};

FakeWorker::Behaviour refuse_with(int status) {
  return [status](const HttpRequest&, Responder& responder) -> asio::awaitable<void> {
    HttpResponse response{.status = status, .body = R"({"error": {"message": "busy"}})"};
    response.headers.emplace_back("Retry-After", "7");
    co_await responder.send(std::move(response));
  };
}

bool eventually(const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + 40s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

class RouterTest : public testing::Test {
 protected:
  RouterTest() {
    spdlog::set_level(spdlog::level::off);
    config_.port = 0;
    config_.health_check_interval = 20ms;
    config_.health = {.failures = 2, .successes = 1};
    config_.policy.name = "round_robin";
  }
  ~RouterTest() override {
    if (served_) served_->stop();
  }

  void start(size_t num_healthy = 2) {
    config_.workers = {one_.address(), two_.address()};
    auto router = Router::create(config_);
    ASSERT_TRUE(router) << router.error().message;
    router_ = std::move(*router);
    served_ = std::make_unique<Served>(*router_);
    ASSERT_TRUE(eventually([&] { return router_->workers().healthy().size() == num_healthy; }));
  }

  RawResponse ask(std::string_view method, std::string_view target, std::string_view body = "",
                  std::string_view headers = "") {
    RawClient client(served_->port());
    client.request(method, target, body, headers);
    return client.response(20s, method == "HEAD");
  }
  RawResponse complete(std::string_view body = R"({"prompt": "Once"})") {
    return ask("POST", "/v1/completions", body);
  }

  RouterConfig config_;
  FakeWorker one_, two_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<Served> served_;
};

TEST_F(RouterTest, PassesRequestsAndAnswersOn) {
  start();
  const RawResponse response = ask("POST", "/v1/completions?x=1", R"({"prompt": "Once"})",
                                   "Authorization: Bearer K\r\nX-Request-Id: mine\r\n");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, R"({"answer": 1})");
  EXPECT_EQ(response.headers.at("content-type"), "application/json");
  EXPECT_EQ(response.headers.at("etag"), "\"tag\"");
  const HttpRequest seen = (one_.num_requests() > 0 ? one_ : two_).last_request();
  EXPECT_EQ(seen.method, "POST");
  EXPECT_EQ(seen.target, "/v1/completions?x=1");
  EXPECT_EQ(seen.body, R"({"prompt": "Once"})");
  EXPECT_EQ(seen.authorization, "Bearer K");
  EXPECT_EQ(seen.id, "mine");
}

TEST_F(RouterTest, TakesTurns) {
  start();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(complete().status, 200);
  EXPECT_EQ(one_.num_requests(), 3u);
  EXPECT_EQ(two_.num_requests(), 3u);
}

TEST_F(RouterTest, KeepsConversationsOnAWorkerThatHasThem) {
  config_.policy.name = "cache_aware";
  start();
  const std::string system =
      R"({"messages": [{"role": "system", "content": ")" + std::string(1000, 'x') + R"("})";
  for (int i = 0; i < 4; ++i) {
    complete(system + fmt::format(R"(, {{"role": "user", "content": "{}"}}]}})", i));
  }
  EXPECT_EQ(std::max(one_.num_requests(), two_.num_requests()), 4u);
}

TEST_F(RouterTest, StreamsAsThePiecesCome) {
  std::atomic<bool> go_on{false};
  const auto stream = [&](const HttpRequest&, Responder& responder) -> asio::awaitable<void> {
    std::string type = "text/event-stream";
    co_await responder.begin_stream(std::move(type));
    std::string first = "data: 1\n\n", second = "data: 2\n\n";
    co_await responder.write(std::move(first));
    while (!go_on) {
      asio::steady_timer timer(responder.executor(), 1ms);
      co_await timer.async_wait(asio::use_awaitable);
    }
    co_await responder.write(std::move(second));
    co_await responder.end_stream();
  };
  one_.behaviour = two_.behaviour = stream;
  start();
  RawClient client(served_->port());
  client.request("POST", "/v1/completions", R"({"stream": true, "prompt": "Once"})");
  const std::string begin = client.read_until("data: 1\n\n");
  EXPECT_NE(begin.find("data: 1\n\n"), std::string::npos);
  EXPECT_NE(begin.find("text/event-stream"), std::string::npos);
  EXPECT_EQ(begin.find("data: 2"), std::string::npos);
  go_on = true;
  EXPECT_NE(client.read_until("0\r\n\r\n").find("data: 2\n\n"), std::string::npos);
}

TEST_F(RouterTest, ABusyWorkerCostsOnlyTheWay) {
  one_.behaviour = refuse_with(429);
  start();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(complete().status, 200);
  EXPECT_GE(two_.num_requests(), 4u);
}

TEST_F(RouterTest, WhenAllAreBusyTheClientHearsIt) {
  one_.behaviour = two_.behaviour = refuse_with(429);
  start();
  const RawResponse response = complete();
  EXPECT_EQ(response.status, 429);
  EXPECT_EQ(response.headers.at("retry-after"), "7");
  EXPECT_EQ(one_.num_requests() + two_.num_requests(), 2u);
}

TEST_F(RouterTest, OtherRefusalsAreTheAnswer) {
  one_.behaviour = two_.behaviour = refuse_with(400);
  start();
  EXPECT_EQ(complete().status, 400);
  EXPECT_EQ(one_.num_requests() + two_.num_requests(), 1u);
}

TEST_F(RouterTest, WithoutRetriesTheFirstAnswerCounts) {
  config_.max_retries = 0;
  one_.behaviour = two_.behaviour = refuse_with(503);
  start();
  EXPECT_EQ(complete().status, 503);
  EXPECT_EQ(one_.num_requests() + two_.num_requests(), 1u);
}

TEST_F(RouterTest, AWorkerThatDiesIsReplacedBeforeTheClientNotices) {
  config_.health_check_interval = 1h;  // no check tells the router
  start();
  one_.stop();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(complete().status, 200);
  EXPECT_EQ(two_.num_requests(), 4u);
  EXPECT_TRUE(eventually([&] { return router_->workers().healthy().size() == 1; }));
}

TEST_F(RouterTest, AnAnswerThatBreaksOffIsAskedForAgain) {
  // Closes without an answer.
  one_.behaviour = [](const HttpRequest&, Responder&) -> asio::awaitable<void> { co_return; };
  config_.timeouts.silence = 200ms;
  start();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(complete().status, 200);
  EXPECT_EQ(two_.num_requests(), 2u);
}

TEST_F(RouterTest, AStreamThatBreaksOffEndsWithAnError) {
  const auto stall = [](const HttpRequest&, Responder& responder) -> asio::awaitable<void> {
    std::string type = "text/event-stream", first = "data: 1\n\n";
    co_await responder.begin_stream(std::move(type));
    co_await responder.write(std::move(first));
    asio::steady_timer timer(responder.executor(), 2s);
    co_await timer.async_wait(asio::use_awaitable);
  };
  one_.behaviour = two_.behaviour = stall;
  config_.timeouts.silence = 200ms;
  start();
  const RawResponse response = complete();
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.complete);
  const size_t event = response.body.find("data: {\"error\"");
  ASSERT_NE(event, std::string::npos) << response.body;
  EXPECT_NE(response.body.find("no answer in time", event), std::string::npos) << response.body;
}

TEST_F(RouterTest, AClientThatGoesTakesItsRequestAlong) {
  std::atomic<bool> gone{false};
  const auto wait = [&](const HttpRequest&, Responder& responder) -> asio::awaitable<void> {
    const auto timer = std::make_shared<asio::steady_timer>(responder.executor(), 30s);
    responder.watch_client([&gone, timer] {
      gone = true;
      timer->cancel();
    });
    boost::system::error_code cancelled;
    co_await timer->async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
  };
  one_.behaviour = two_.behaviour = wait;
  start();
  RawClient client(served_->port());
  client.request("POST", "/v1/completions", R"({"prompt": "Once"})");
  ASSERT_TRUE(eventually([&] { return one_.num_requests() + two_.num_requests() == 1; }));
  client.close();
  EXPECT_TRUE(eventually([&] { return gone.load(); }));
  EXPECT_TRUE(eventually([&] {
    const auto workers = router_->workers().all();
    return workers[0]->num_running() + workers[1]->num_running() == 0;
  }));
}

TEST_F(RouterTest, SickWorkersGetNothingUntilTheyAreWell) {
  start();
  one_.health_status = 503;
  ASSERT_TRUE(eventually([&] { return router_->workers().healthy().size() == 1; }));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(complete().status, 200);
  EXPECT_EQ(one_.num_requests(), 0u);
  two_.health_status = 503;
  ASSERT_TRUE(eventually([&] { return router_->workers().healthy().empty(); }));
  EXPECT_EQ(ask("GET", "/health").status, 503);
  const RawResponse refused = complete();
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.body.find("no worker takes requests"), std::string::npos);
  one_.health_status = 200;
  ASSERT_TRUE(eventually([&] { return router_->workers().healthy().size() == 1; }));
  EXPECT_EQ(complete().status, 200);
  EXPECT_EQ(ask("GET", "/health").status, 200);
}

TEST_F(RouterTest, WorkersComeAndGo) {
  start();
  FakeWorker three;
  const std::string url = three.address().url;
  EXPECT_EQ(ask("POST", "/add_worker?url=" + url).status, 200);
  EXPECT_EQ(ask("POST", "/add_worker?url=" + url).status, 400);
  EXPECT_TRUE(eventually([&] { return router_->workers().healthy().size() == 3; }));
  const auto listed = parse_json(ask("GET", "/list_workers").body, "workers");
  ASSERT_TRUE(listed);
  EXPECT_EQ((*listed)["urls"].size(), 3u);
  EXPECT_EQ((*listed)["urls"][2], url);
  EXPECT_EQ((*listed)["workers"][2]["is_healthy"], true);
  EXPECT_EQ(ask("POST", "/remove_worker?url=" + url).status, 200);
  EXPECT_EQ(ask("POST", "/remove_worker?url=" + url).status, 404);
  EXPECT_EQ(router_->workers().all().size(), 2u);
  for (const char* target : {"/add_worker", "/add_worker?url=", "/add_worker?url=https://x:1",
                             "/remove_worker?worker=http://x:1"}) {
    EXPECT_EQ(ask("POST", target).status, 400) << target;
  }
  EXPECT_EQ(ask("GET", "/add_worker?url=" + url).status, 405);
}

TEST_F(RouterTest, WhatConcernsAllGoesToAll) {
  start();
  const RawResponse response = ask("POST", "/flush_cache");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(one_.num_requests(), 1u);
  EXPECT_EQ(two_.num_requests(), 1u);
  const auto json = parse_json(response.body, "answer");
  ASSERT_TRUE(json);
  EXPECT_EQ((*json)["workers"][one_.address().url]["body"]["answer"], 1);
  two_.behaviour = refuse_with(400);
  const RawResponse failed = ask("POST", "/flush_cache");
  EXPECT_EQ(failed.status, 502);
  EXPECT_NE(failed.body.find(two_.address().url), std::string::npos);
}

TEST_F(RouterTest, AsksForTheKeyItself) {
  config_.api_key = "secret";
  start();
  EXPECT_EQ(complete().status, 401);
  EXPECT_EQ(ask("POST", "/add_worker?url=http://x:1").status, 401);
  EXPECT_EQ(ask("GET", "/list_workers").status, 401);
  EXPECT_EQ(ask("GET", "/health").status, 200);
  EXPECT_EQ(one_.num_requests() + two_.num_requests(), 0u);
  const char* key = "Authorization: Bearer secret\r\n";
  EXPECT_EQ(ask("POST", "/v1/completions", "{}", key).status, 200);
  EXPECT_EQ(ask("OPTIONS", "/v1/completions").status, 204);
}

TEST_F(RouterTest, MetricsSayWhoAnswered) {
  one_.behaviour = refuse_with(503);
  start();
  for (int i = 0; i < 2; ++i) complete();
  EXPECT_EQ(ask("GET", "/anything/else").status, 200);
  const std::string metrics = ask("GET", "/metrics").body;
  const auto has = [&](const std::string& line) {
    EXPECT_NE(metrics.find(line), std::string::npos) << line << "\n" << metrics;
  };
  has(fmt::format("tilewright_router_worker_answers_total{{status=\"200\",worker=\"{}\"}} 3",
                  two_.address().url));
  has(fmt::format("tilewright_router_worker_healthy{{worker=\"{}\"}} 1", one_.address().url));
  has("tilewright_router_retries_total 3");
  has("tilewright_router_http_requests_total{endpoint=\"/v1/completions\",status=\"200\"} 2");
  // What clients make up is no label.
  has("tilewright_router_http_requests_total{endpoint=\"other\",status=\"200\"} 1");
  EXPECT_EQ(metrics.find("/anything"), std::string::npos);
}

TEST_F(RouterTest, DrainsBeforeItStops) {
  std::atomic<bool> go_on{false};
  const auto slow = [&](const HttpRequest&, Responder& responder) -> asio::awaitable<void> {
    while (!go_on) {
      asio::steady_timer timer(responder.executor(), 1ms);
      co_await timer.async_wait(asio::use_awaitable);
    }
    HttpResponse response{.body = "{}"};
    co_await responder.send(std::move(response));
  };
  one_.behaviour = two_.behaviour = slow;
  start();
  RawClient client(served_->port());
  client.request("POST", "/v1/completions", R"({"prompt": "Once"})");
  ASSERT_TRUE(eventually([&] { return one_.num_requests() + two_.num_requests() == 1; }));
  served_->begin_drain();
  ASSERT_TRUE(eventually([&] { return ask("GET", "/health").status == 503; }));
  EXPECT_EQ(complete().status, 503);
  go_on = true;
  EXPECT_EQ(client.response().status, 200);
}

TEST_F(RouterTest, ADrainThatIsOverEndsWhatRuns) {
  const auto stuck = [](const HttpRequest&, Responder& responder) -> asio::awaitable<void> {
    asio::steady_timer timer(responder.executor(), 3s);
    co_await timer.async_wait(asio::use_awaitable);
  };
  one_.behaviour = two_.behaviour = stuck;
  config_.drain_timeout = 50ms;
  start();
  RawClient client(served_->port());
  client.request("POST", "/v1/completions", R"({"prompt": "Once"})");
  ASSERT_TRUE(eventually([&] { return one_.num_requests() + two_.num_requests() == 1; }));
  served_->begin_drain();
  EXPECT_EQ(client.response().status, 503);
  EXPECT_EQ(one_.num_requests() + two_.num_requests(), 1u);  // and is not begun anew elsewhere
}

TEST(RouterConfiguration, AWorkerNamedTwiceIsRefused) {
  RouterConfig config;
  config.workers = {*WorkerAddress::parse("node1:1"), *WorkerAddress::parse("http://node1:1/")};
  const auto router = Router::create(config);
  ASSERT_FALSE(router);
  EXPECT_NE(router.error().message.find("http://node1:1"), std::string::npos);
}

}  // namespace
}  // namespace tw
