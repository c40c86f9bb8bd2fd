// The connection's edges: bad requests, slow and vanishing clients, limits, keys, the drain.
#include <csignal>

#include "server/server_fixture.h"

namespace tw {
namespace {

using namespace std::chrono_literals;

class HttpTest : public ServerTest {
 protected:
  static constexpr const char* kChat = R"({"messages": [{"role": "user", "content": "Hi"}]})";
  static constexpr const char* kChatStream =
      R"({"messages": [{"role": "user", "content": "Hi"}], "stream": true})";
};

TEST_F(HttpTest, keep_alive_and_pipelining) {
  start();
  RawClient client(port());
  for (int i = 0; i < 3; ++i) {
    client.request("GET", "/health");
    EXPECT_EQ(client.response().status, 200);
  }
  client.send("GET /health HTTP/1.1\r\n\r\nGET /v1/models HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client.response().body, "OK\n");
  EXPECT_EQ(client.response().status, 200);
  client.request("GET", "/health", "", "Connection: close\r\n");
  EXPECT_EQ(client.response().headers.at("connection"), "close");
  EXPECT_TRUE(client.closed_within(5s));
}

TEST_F(HttpTest, requests_sent_during_a_generation_wait_their_turn) {
  start();
  engine().hold();
  RawClient client(port());
  client.request("POST", "/v1/chat/completions", kChat);
  ASSERT_TRUE(eventually([&] { return engine().num_running() == 1; }));
  client.request("GET", "/health");
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(engine().num_aborted(), 0);
  engine().release();
  EXPECT_NE(client.response().body.find("Hello, world."), std::string::npos);
  EXPECT_EQ(client.response().body, "OK\n");
}

TEST_F(HttpTest, unknown_paths_and_wrong_methods) {
  start();
  const RawResponse unknown = exchange("GET", "/no/such");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_NE(unknown.body.find("/v1/chat/completions"), std::string::npos) << "a hint";
  EXPECT_EQ(exchange("GET", "/v1/chat/completionsx").status, 404);
  const RawResponse response = exchange("GET", "/v1/chat/completions");
  EXPECT_EQ(response.status, 405);
  EXPECT_EQ(response.headers.at("allow"), "POST, OPTIONS");
  EXPECT_EQ(exchange("DELETE", "/health").status, 405);
  EXPECT_EQ(exchange("BREW", "/health").status, 405);
}

TEST_F(HttpTest, head_and_options) {
  start();
  const RawResponse head = exchange("HEAD", "/health");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-length"), "3");
  const RawResponse options = exchange("OPTIONS", "/v1/chat/completions", "",
                                       "Origin: http://x\r\n"
                                       "Access-Control-Request-Method: POST\r\n");
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.headers.at("access-control-allow-origin"), "*");
  EXPECT_NE(options.headers.at("access-control-allow-headers").find("Authorization"),
            std::string::npos);
}

TEST_F(HttpTest, api_key) {
  config.api_key = "secret";
  start();
  const auto status = [&](const char* path, const char* header) {
    return exchange("GET", path, "", header).status;
  };
  EXPECT_EQ(status("/v1/models", ""), 401);
  EXPECT_EQ(status("/v1/models", "Authorization: Bearer secre\r\n"), 401);
  EXPECT_EQ(status("/v1/models", "Authorization: Bearer secrets\r\n"), 401);
  EXPECT_EQ(status("/v1/models", "Authorization: Bearer \r\n"), 401);
  EXPECT_EQ(status("/v1/models", "Authorization: Basic secret\r\n"), 401);
  EXPECT_EQ(status("/v1/models", "Authorization: secret\r\n"), 401);
  EXPECT_EQ(status("/v1/models", "Authorization: Bearer secret\r\n"), 200);
  EXPECT_EQ(status("/v1/models", "authorization: bearer secret\r\n"), 200);
  EXPECT_EQ(status("/health", ""), 200);
  EXPECT_EQ(status("/metrics", ""), 200);
  const RawResponse response = exchange("GET", "/v1/models");
  EXPECT_EQ((*parse_json(response.body, "test"))["error"]["code"], "invalid_api_key");
}

TEST_F(HttpTest, malformed_requests_are_400_and_close) {
  start();
  for (const char* bytes :
       {"nonsense\r\n\r\n", "GET\r\n\r\n", "GET /health HTTP/9.9\r\n\r\n",
        "GET /health HTTP/1.1\r\nbroken header\r\n\r\n",
        "POST /generate HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        "POST /generate HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        "POST /generate HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n{}{}{}",
        "POST /generate HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "\x16\x03\x01\x02\x05\x01\x02\x03\r\n\r\n"}) {
    RawClient client(port());
    client.send(bytes);
    const RawResponse response = client.response();
    EXPECT_EQ(response.status, 400) << bytes;
    EXPECT_NE(response.body.find("\"error\""), std::string::npos);
    client.shutdown_sending();
    EXPECT_TRUE(client.closed_within(6s)) << bytes;
  }
  EXPECT_EQ(exchange("GET", "/health").status, 200);
}

TEST_F(HttpTest, huge_headers_are_431) {
  start();
  RawClient client(port());
  client.send("GET /health HTTP/1.1\r\nX: " + std::string(100'000, 'a') + "\r\n\r\n");
  EXPECT_EQ(client.response().status, 431);
  RawClient target(port());
  target.send("GET /" + std::string(100'000, 'a') + " HTTP/1.1\r\n\r\n");
  EXPECT_EQ(target.response().status, 431);
}

TEST_F(HttpTest, too_large_bodies_are_413) {
  config.max_request_bytes = 1000;
  start();
  const RawResponse response = exchange("POST", "/v1/chat/completions", std::string(8 << 20, 'x'));
  EXPECT_EQ(response.status, 413);
  EXPECT_NE(response.body.find("1000"), std::string::npos);
  RawClient chunked(port());
  chunked.send("POST /generate HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 20; ++i) {
    if (!chunked.send("64\r\n" + std::string(100, 'x') + "\r\n")) break;
  }
  EXPECT_EQ(chunked.response().status, 413);
  EXPECT_EQ(exchange("POST", "/generate", std::string(1000, 'x')).status, 400) << "not JSON";
}

TEST_F(HttpTest, bodies_of_all_connections_are_bounded_together) {
  config.max_buffered_bytes = 1 << 20;
  start();
  RawClient first(port());
  first.send("POST /generate HTTP/1.1\r\nContent-Length: 900000\r\n\r\n" +
             std::string(800'000, ' '));
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(exchange("POST", "/generate", std::string(800'000, ' ')).status, 503);
  first.send(std::string(100'000, ' '));
  EXPECT_EQ(first.response().status, 400);
  EXPECT_EQ(exchange("POST", "/generate", std::string(800'000, ' ')).status, 400);
}

TEST_F(HttpTest, expect_continue) {
  config.max_request_bytes = 1000;
  start();
  RawClient client(port());
  client.send("POST /v1/chat/completions HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: " +
              std::to_string(std::string_view(kChat).size()) + "\r\n\r\n");
  EXPECT_EQ(client.response().status, 100);
  client.send(kChat);
  EXPECT_EQ(client.response().status, 200);
  RawClient large(port());
  large.send("POST /generate HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1001\r\n\r\n");
  EXPECT_EQ(large.response().status, 413) << "without asking for the body";
}

TEST_F(HttpTest, chunked_request_bodies) {
  start();
  RawClient client(port());
  const std::string body = kChat;
  client.send("POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
  client.send(fmt::format("5\r\n{}\r\n", body.substr(0, 5)));
  client.send(fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", body.size() - 5, body.substr(5)));
  EXPECT_EQ(client.response().status, 200);
}

TEST_F(HttpTest, slow_headers_are_cut_off) {
  config.header_timeout = 300ms;
  start();
  RawClient slow(port());
  const auto begin = std::chrono::steady_clock::now();
  slow.send("GET /health HTTP/1.1\r\n");
  int sent = 0;
  // Each line alone would be in time.
  while (slow.send("X: y\r\n") && !slow.closed_within(50ms) && sent < 200) ++sent;
  EXPECT_LT(sent, 200);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 250ms);
  RawClient silent(port());
  silent.send("GET /hea");
  EXPECT_EQ(silent.response(5s).status, 408);
  EXPECT_EQ(exchange("GET", "/health").status, 200);
}

TEST_F(HttpTest, slow_bodies_are_cut_off) {
  config.body_timeout = 300ms;
  start();
  RawClient slow(port());
  slow.send("POST /generate HTTP/1.1\r\nContent-Length: 100000\r\n\r\n");
  for (int i = 0; i < 100 && slow.send("x"); ++i) {
    if (slow.closed_within(20ms)) break;
  }
  EXPECT_TRUE(slow.closed_within(6s));
  RawClient silent(port());
  silent.send("POST /generate HTTP/1.1\r\nContent-Length: 100000\r\n\r\nx");
  EXPECT_EQ(silent.response(5s).status, 408);
}

TEST_F(HttpTest, idle_connections_are_closed) {
  config.idle_timeout = 200ms;
  start();
  RawClient client(port());
  client.request("GET", "/health");
  client.response();
  EXPECT_TRUE(client.closed_within(5s));
  RawClient never(port());
  EXPECT_TRUE(never.closed_within(5s));
}

TEST_F(HttpTest, closing_cancels_a_stream) {
  reply = std::string(500, 'a');
  start();
  engine().set_step_time(20ms);
  RawClient client(port());
  client.request("POST", "/v1/chat/completions", kChatStream);
  client.read_until("\"a\"");
  client.close();
  EXPECT_TRUE(eventually([&] { return engine().num_aborted() == 1; }));
}

TEST_F(HttpTest, resetting_cancels_a_stream) {
  reply = std::string(500, 'a');
  start();
  engine().set_step_time(20ms);
  RawClient client(port());
  client.request("POST", "/v1/chat/completions", kChatStream);
  client.read_until("\"a\"");
  client.reset();
  EXPECT_TRUE(eventually([&] { return engine().num_aborted() == 1; }));
}

TEST_F(HttpTest, closing_cancels_whole_answers_and_queued_requests) {
  start();
  engine().hold();  // as if queued: nothing comes from the engine
  RawClient whole(port()), stream(port()), several(port()), reset(port());
  whole.request("POST", "/v1/chat/completions", kChat);
  stream.request("POST", "/v1/chat/completions", kChatStream);
  several.request("POST", "/generate", R"({"text": ["a", "b", "c"]})");
  reset.request("POST", "/generate", R"({"text": "a"})");
  ASSERT_TRUE(eventually([&] { return engine().num_running() == 6; }));
  whole.close();
  EXPECT_TRUE(eventually([&] { return engine().num_aborted() == 1; }));
  stream.close();
  EXPECT_TRUE(eventually([&] { return engine().num_aborted() == 2; }));
  several.close();
  EXPECT_TRUE(eventually([&] { return engine().num_aborted() == 5; }));
  reset.reset();
  EXPECT_TRUE(eventually([&] { return engine().num_aborted() == 6; }));
  EXPECT_EQ(engine().num_running(), 0u);
}

TEST_F(HttpTest, half_closing_counts_as_gone) {
  start();
  engine().hold();
  RawClient client(port());
  client.request("POST", "/v1/chat/completions", kChat);
  ASSERT_TRUE(eventually([&] { return engine().num_running() == 1; }));
  client.shutdown_sending();
  EXPECT_TRUE(eventually([&] { return engine().num_aborted() == 1; }));
}

TEST_F(HttpTest, clients_that_do_not_read_are_cancelled_and_others_go_on) {
  reply = std::string(200, 'a');
  context_length = 100'000'000;
  config.send_timeout = 300ms;
  start();
  RawClient client(port());
  client.request("POST", "/generate",
                 R"({"text": "a", "stream": true,
                     "sampling_params": {"ignore_eos": true, "max_new_tokens": 90000000}})");
  ASSERT_TRUE(eventually([&] { return engine().submitted().size() == 1; }));
  // The fake makes tokens as fast as it can; the sockets' buffers fill up.
  EXPECT_EQ(exchange("GET", "/health").status, 200);
  EXPECT_TRUE(eventually([&] { return engine().num_aborted() == 1; }));
  EXPECT_EQ(exchange("GET", "/health").status, 200);
}

TEST_F(HttpTest, a_stream_too_far_behind_is_cancelled) {
  reply = std::string(200, 'a');
  context_length = 100'000'000;
  config.max_stream_backlog = 20;
  start();
  RawClient client(port(), 4096);  // soon full, so that the stream has to wait
  client.request("POST", "/v1/completions",
                 R"({"prompt": "a", "stream": true, "ignore_eos": true, "max_tokens": 90000000})");
  EXPECT_TRUE(eventually([&] { return engine().num_aborted() == 1; }));
}

TEST_F(HttpTest, connections_are_limited) {
  config.max_connections = 2;
  start();
  RawClient first(port());
  first.request("GET", "/health");
  EXPECT_EQ(first.response().status, 200);
  auto second = std::make_unique<RawClient>(port());
  second->request("GET", "/health");
  EXPECT_EQ(second->response().status, 200);
  RawClient third(port());
  EXPECT_EQ(third.response().status, 503);
  second.reset();
  EXPECT_TRUE(eventually([&] { return exchange("GET", "/health").status == 200; }));
}

TEST_F(HttpTest, port_in_use) {
  start();
  const auto address = BoundAddress::bind("127.0.0.1", port());
  ASSERT_FALSE(address);
  EXPECT_EQ(address.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(address.error().message.find(std::to_string(port())), std::string::npos);
  EXPECT_FALSE(BoundAddress::bind("no.such.host.invalid", 0));
}

TEST_F(HttpTest, drain_lets_requests_finish) {
  start();
  engine().hold();
  RawClient busy(port()), idle(port()), partial(port());
  busy.request("POST", "/v1/chat/completions", kChatStream);
  idle.request("GET", "/health");
  EXPECT_EQ(idle.response().status, 200);
  ASSERT_TRUE(eventually([&] { return engine().num_running() == 1; }));
  server().stop();
  EXPECT_TRUE(idle.closed_within(5s)) << "idle connections have nothing to wait for";
  EXPECT_EQ(exchange("GET", "/health").status, 503);
  EXPECT_EQ(exchange("POST", "/v1/chat/completions", kChat).status, 503);
  EXPECT_TRUE(running());
  engine().release();
  const RawResponse response = busy.response();
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(events_of(response.body).back(), "[DONE]");
  EXPECT_TRUE(eventually([&] { return !running(); }));
}

TEST_F(HttpTest, a_signal_ends_an_idle_server) {
  start();
  server().stop_on_signals();
  EXPECT_EQ(exchange("GET", "/health", "", "Connection: close\r\n").status, 200);
  std::raise(SIGTERM);
  EXPECT_TRUE(eventually([&] { return !running(); }));
}

TEST_F(HttpTest, a_second_signal_ends_the_drain) {
  config.drain_timeout = 1h;
  start();
  server().stop_on_signals();
  engine().hold();
  RawClient client(port());
  client.request("POST", "/v1/chat/completions", kChat);
  ASSERT_TRUE(eventually([&] { return engine().num_running() == 1; }));
  std::raise(SIGINT);
  ASSERT_TRUE(eventually([&] { return service().draining(); }));
  EXPECT_TRUE(running());
  std::raise(SIGINT);
  EXPECT_TRUE(eventually([&] { return !running(); }));
}

TEST_F(HttpTest, drain_ends_at_its_timeout) {
  config.drain_timeout = 200ms;
  start();
  engine().hold();
  RawClient client(port());
  client.request("POST", "/v1/chat/completions", kChat);
  ASSERT_TRUE(eventually([&] { return engine().num_running() == 1; }));
  server().stop();
  const RawResponse response = client.response();
  EXPECT_EQ(response.status, 200);
  EXPECT_NE(response.body.find("\"abort\""), std::string::npos) << response.body;
  EXPECT_TRUE(eventually([&] { return !running(); }));
}

TEST_F(HttpTest, a_second_stop_ends_the_drain) {
  config.drain_timeout = 1h;
  start();
  engine().hold();
  RawClient client(port());
  client.request("POST", "/v1/chat/completions", kChat);
  ASSERT_TRUE(eventually([&] { return engine().num_running() == 1; }));
  server().stop();
  std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(running());
  server().stop();
  EXPECT_TRUE(eventually([&] { return !running(); }));
}

TEST_F(HttpTest, many_clients_at_once) {
  config.io_threads = 3;
  start();
  std::vector<std::thread> threads;
  std::atomic<int> answered{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 25; ++round) {
        RawClient client(port());
        client.request("POST", "/v1/chat/completions", i % 2 ? kChat : kChatStream);
        if (round % 5 == 4) continue;  // gone at once
        const RawResponse response = client.response();
        answered += response.status == 200 && response.complete;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answered, 8 * 20);
  EXPECT_TRUE(eventually([&] { return engine().num_running() == 0; }));
}

}  // namespace
}  // namespace tw
