// Request ids and what the log says of requests.
#include <spdlog/sinks/ostream_sink.h>

#include <sstream>

#include "core/log.h"
#include "http/http_message.h"
#include "server/server_fixture.h"

namespace tw {
namespace {

class RequestLogTest : public ServerTest {
 protected:
  RequestLogTest() : previous_(spdlog::default_logger()) {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text_);
    auto logger = std::make_shared<spdlog::logger>("captured", sink);
    logger->set_formatter(make_log_formatter(false));
    spdlog::set_default_logger(logger);
  }
  ~RequestLogTest() override {
    stop();
    spdlog::set_default_logger(previous_);
  }

  // Everything logged until the server's end.
  std::string logged() {
    stop();
    return text_.str();
  }

 private:
  std::ostringstream text_;
  std::shared_ptr<spdlog::logger> previous_;
};

constexpr const char* kPrompt = "{\"text\": \"a secret\",\r\n\"sampling_params\": {}}";

TEST_F(RequestLogTest, clients_ids_come_back_and_are_logged) {
  start();
  const RawResponse response =
      exchange("POST", "/generate", kPrompt, "X-Request-Id: trace/1.a-B:2@c=d+e_f\r\n");
  EXPECT_EQ(response.headers.at("x-request-id"), "trace/1.a-B:2@c=d+e_f");
  EXPECT_EQ(exchange("GET", "/none", "", "X-Request-Id: lost\r\n").headers.at("x-request-id"),
            "lost");
  const std::string log = logged();
  EXPECT_NE(log.find("[trace/1.a-B:2@c=d+e_f]"), std::string::npos) << log;
  EXPECT_NE(log.find("404"), std::string::npos) << log;
  EXPECT_NE(log.find("[lost]"), std::string::npos) << log;
}

TEST_F(RequestLogTest, requests_without_an_id_get_one_each) {
  start();
  RawClient client(port());
  std::string before;
  for (const char* header : {"", "X-Request-Id: two words\r\n", "X-Request-Id: \"quoted\"\r\n"}) {
    client.request("POST", "/generate", R"({"text": "a", "stream": true})", header);
    const std::string id = client.response().headers.at("x-request-id");
    EXPECT_TRUE(id.starts_with("req-")) << id;
    EXPECT_NE(id, before);
    before = id;
  }
  EXPECT_TRUE(exchange("POST", "/generate", "{}", "Content-Length: x\r\n")
                  .headers.at("x-request-id")
                  .starts_with("req-"))
      << "unreadable requests have ids, too";
  EXPECT_NE(logged().find("[" + before + "]"), std::string::npos);
}

TEST_F(RequestLogTest, prompts_are_logged_only_when_asked_for) {
  start();
  exchange("POST", "/generate", kPrompt);
  EXPECT_EQ(logged().find("secret"), std::string::npos);
}

TEST_F(RequestLogTest, bodies_are_one_line_and_of_authorized_clients) {
  config.log_requests = true;
  config.api_key = "key";
  start();
  exchange("POST", "/generate", R"({"text": "of a stranger"})");
  exchange("POST", "/generate", kPrompt, "Authorization: Bearer key\r\nX-Request-Id: mine\r\n");
  const std::string log = logged();
  EXPECT_NE(log.find("POST /generate: {\"text\": \"a secret\",  \"sampling_params\": {}} [mine]\n"),
            std::string::npos)
      << log;
  EXPECT_EQ(log.find("stranger"), std::string::npos) << log;
  EXPECT_EQ(log.find("Bearer"), std::string::npos) << log;
}

TEST(RequestId, WhatCanBeTakenOver) {
  EXPECT_TRUE(is_request_id(std::string(128, 'a')));
  EXPECT_FALSE(is_request_id(std::string(129, 'a')));
  EXPECT_FALSE(is_request_id(""));
  EXPECT_FALSE(is_request_id("a\tb"));
  EXPECT_FALSE(is_request_id("\xc3\xa9"));
}

}  // namespace
}  // namespace tw
