// Requests without a socket are answered as over one.
#include "server/in_process.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "server/fake_engine.h"
#include "text/byte_tokenizer.h"

namespace tw {
namespace {

// What came of an answer.
class Received {
 public:
  InProcessServer::Sink sink() {
    return [this](int status, std::optional<std::string> piece) {
      std::lock_guard lock(mutex_);
      status_ = status;
      ended_ = !piece;
      if (piece) {
        body_ += *piece;
        ++num_pieces_;
      }
      changed_.notify_all();
    };
  }

  // The whole body, once it is there.
  std::string body() {
    wait([this] { return ended_; });
    return body_;
  }
  int status() {
    wait([this] { return ended_; });
    return status_;
  }
  void wait_for_pieces(int count) {
    wait([this, count] { return num_pieces_ >= count; });
  }

 private:
  template <typename Condition>
  void wait(Condition condition) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(40), condition));
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string body_;
  int status_ = 0;
  int num_pieces_ = 0;
  bool ended_ = false;
};

class InProcessTest : public ::testing::Test {
 protected:
  InProcessTest() {
    ServerConfig config;
    config.api_key = "of clients outside";
    service_ = std::make_unique<Service>(config,
                                         ServedModel{.name = "test-model",
                                                     .path = "/m",
                                                     .tokenizer = tokenizer_,
                                                     .chat_template_problem = "",
                                                     .architecture = "fake"},
                                         engine_);
    server_ = std::make_unique<InProcessServer>(*service_);
  }

  std::shared_ptr<InProcessExchange> post(const std::string& path, const std::string& body,
                                          Received& received) {
    return server_->start("POST", path, body, received.sink());
  }

  Tokenizer tokenizer_ = byte_tokenizer();
  FakeEngine engine_{"Hello, world."};
  std::unique_ptr<Service> service_;
  std::unique_ptr<InProcessServer> server_;
};

TEST_F(InProcessTest, WholeAnswersAndStreams) {
  Received whole, stream;
  post("/generate", R"({"text": "Once"})", whole);
  EXPECT_EQ(whole.status(), 200);
  EXPECT_EQ((*parse_json(whole.body(), "body"))["text"], "Hello, world.");
  post("/generate", R"({"text": "Once", "stream": true})", stream);
  EXPECT_EQ(stream.status(), 200);
  EXPECT_TRUE(stream.body().ends_with("data: [DONE]\n\n"));
}

TEST_F(InProcessTest, ErrorsHaveTheirStatus) {
  Received bad, unknown, wrong_method;
  post("/generate", "{", bad);
  EXPECT_EQ(bad.status(), 400);
  EXPECT_NE(bad.body().find("not valid JSON"), std::string::npos);
  post("/none", "{}", unknown);
  EXPECT_EQ(unknown.status(), 404);
  server_->start("GET", "/generate", "", wrong_method.sink());
  EXPECT_EQ(wrong_method.status(), 405);
}

TEST_F(InProcessTest, CancelledAnswersEnd) {
  engine_.set_step_time(std::chrono::milliseconds(1));
  Received received;
  const auto exchange = post("/generate",
                             R"({"text": "a", "stream": true,
                                 "sampling_params": {"max_new_tokens": 400, "ignore_eos": true}})",
                             received);
  received.wait_for_pieces(3);
  exchange->cancel();
  received.body();
  Received next;
  post("/generate", R"({"text": "Once"})", next);
  EXPECT_EQ(next.status(), 200);
  EXPECT_EQ(engine_.num_aborted(), 1);
}

TEST_F(InProcessTest, TheEndEndsWhatRuns) {
  engine_.hold();
  Received first, second;
  const auto exchange = post("/generate", R"({"text": "a"})", first);
  post("/generate", R"({"text": "a", "stream": true})", second);
  for (int i = 0; i < 10'000 && engine_.num_running() < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  server_.reset();
  EXPECT_NE(first.body().find("abort"), std::string::npos);
  EXPECT_NE(second.body().find("abort"), std::string::npos);
  exchange->cancel();
}

}  // namespace
}  // namespace tw
