// A server on a free port, with a fake engine and a tokenizer whose tokens are bytes.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "core/json.h"
#include "http/http_server.h"
#include "server/fake_engine.h"
#include "server/raw_client.h"
#include "server/service.h"
#include "text/byte_tokenizer.h"

namespace tw {

// Waits until `condition` holds; false when it does not within ten seconds.
bool eventually(const std::function<bool()>& condition);

class ServerTest : public testing::Test {
 protected:
  ServerTest();
  ~ServerTest() override;

  // Tests change these before start().
  ServerConfig config;
  std::string reply = "Hello, world.";
  int64_t context_length = 512;
  Json generation_config = Json::object();
  const char* tool_parser = nullptr;  // names of formats
  const char* reasoning_parser = nullptr;

  void start();
  // Ends the drain, if any, and waits for run() to return.
  void stop();

  uint16_t port() const { return server_->port(); }
  FakeEngine& engine() { return *engine_; }
  Service& service() { return *service_; }
  HttpServer& server() { return *server_; }
  bool running() const { return !run_returned_; }

  // One request on a connection of its own.
  RawResponse exchange(std::string_view method, std::string_view target, std::string_view body = "",
                       std::string_view headers = "");
  RawResponse post(std::string_view target, const Json& body);
  // The answer's JSON; fails the test unless the status is as expected.
  Json post_json(std::string_view target, const Json& body, int status = 200);
  // The data of a stream's events; "[DONE]" as a string.
  static std::vector<Json> events_of(const std::string& body);

 private:
  std::optional<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> template_;
  std::unique_ptr<FakeEngine> engine_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<HttpServer> server_;
  std::atomic<bool> run_returned_{false};
  std::thread thread_;
};

}  // namespace tw
