#include "server/server_fixture.h"

#include "core/log.h"

namespace tw {
namespace {

void append_utf8(std::string& text, uint32_t code_point) {
  if (code_point < 0x80) {
    text += static_cast<char>(code_point);
  } else {
    text += static_cast<char>(0xC0 | code_point >> 6);
    text += static_cast<char>(0x80 | (code_point & 0x3F));
  }
}

}  // namespace

Tokenizer byte_tokenizer() {
  Json vocabulary = Json::object();
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    std::string spelling;
    append_utf8(spelling, printable ? byte : next++);
    vocabulary[spelling] = byte;
  }
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", false}};
  const Json json = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", Json::array({{{"id", 256},
                                                    {"content", "<|end|>"},
                                                    {"single_word", false},
                                                    {"lstrip", false},
                                                    {"rstrip", false},
                                                    {"normalized", false},
                                                    {"special", true}}})},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", byte_level},
                     {"post_processor", nullptr},
                     {"decoder", byte_level},
                     {"model",
                      {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"vocab", vocabulary},
                       {"merges", Json::array()}}}};
  auto tokenizer = Tokenizer::from_json(dump_json(json), "byte tokenizer");
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return *tokenizer;
}

bool eventually(const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(40);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

ServerTest::ServerTest() {
  config.port = 0;
  spdlog::set_level(spdlog::level::off);
}

ServerTest::~ServerTest() {
  stop();
}

void ServerTest::start() {
  tokenizer_ = byte_tokenizer();
  auto compiled = ChatTemplate::compile(
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
      "{% if tools %}tools: {{ tools | length }}\n{% endif %}"
      "{% if add_generation_prompt %}assistant: {% endif %}",
      Json::object());
  ASSERT_TRUE(compiled) << compiled.error().message;
  template_ = *compiled;
  engine_ = std::make_unique<FakeEngine>(reply, context_length);
  service_ = std::make_unique<Service>(config,
                                       ServedModel{.name = "test-model",
                                                   .path = "/models/test",
                                                   .tokenizer = *tokenizer_,
                                                   .chat_template = &*template_,
                                                   .chat_template_problem = "",
                                                   .generation_config = generation_config,
                                                   .architecture = "fake"},
                                       *engine_);
  auto address = BoundAddress::bind(config.host, config.port);
  ASSERT_TRUE(address) << address.error().message;
  auto server = HttpServer::create(*service_, std::move(*address));
  ASSERT_TRUE(server) << server.error().message;
  server_ = std::move(*server);
  thread_ = std::thread([this] {
    server_->run();
    run_returned_ = true;
  });
}

void ServerTest::stop() {
  if (!thread_.joinable()) return;
  server_->stop();
  server_->stop();
  thread_.join();
}

RawResponse ServerTest::exchange(std::string_view method, std::string_view target,
                                 std::string_view body, std::string_view headers) {
  RawClient client(port());
  client.request(method, target, body, headers);
  return client.response(std::chrono::seconds(20), method == "HEAD");
}

RawResponse ServerTest::post(std::string_view target, const Json& body) {
  return exchange("POST", target, dump_json(body));
}

Json ServerTest::post_json(std::string_view target, const Json& body, int status) {
  const RawResponse response = post(target, body);
  EXPECT_EQ(response.status, status) << response.body;
  auto json = parse_json(response.body, "the answer");
  EXPECT_TRUE(json) << response.body;
  return json ? *json : Json();
}

std::vector<Json> ServerTest::events_of(const std::string& body) {
  std::vector<Json> events;
  for (size_t begin = 0; begin < body.size();) {
    const size_t end = body.find("\n\n", begin);
    EXPECT_NE(end, std::string::npos) << "an event without its end";
    if (end == std::string::npos) break;
    const std::string event = body.substr(begin, end - begin);
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    const std::string data = event.substr(6);
    if (data == "[DONE]") {
      events.emplace_back(data);
    } else {
      auto json = parse_json(data, "an event");
      EXPECT_TRUE(json) << data;
      if (json) events.push_back(*json);
    }
    begin = end + 2;
  }
  return events;
}

}  // namespace tw
