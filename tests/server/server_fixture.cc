#include "server/server_fixture.h"

#include "core/log.h"

namespace tw {

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
  service_ = std::make_unique<Service>(
      config,
      ServedModel{
          .name = "test-model",
          .path = "/models/test",
          .tokenizer = *tokenizer_,
          .chat_template = &*template_,
          .chat_template_problem = "",
          .generation_config = generation_config,
          .architecture = "fake",
          .tool_format = tool_parser ? find_tool_format(tool_parser) : nullptr,
          .reasoning_format = reasoning_parser ? find_reasoning_format(reasoning_parser) : nullptr,
          .limits = {{.node = 2, .limits = {.read_bandwidth = 1e10, .dpbusd_avx512 = 1e12}},
                     {.node = -1, .limits = {.read_bandwidth = 2e10, .fma_avx2 = 1e11}}}},
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
