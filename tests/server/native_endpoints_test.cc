// SGLang's native endpoints and those of operation, over a socket, with a fake engine behind.
#include <filesystem>

#include "server/server_fixture.h"

namespace tw {
namespace {

class NativeTest : public ServerTest {};

TEST_F(NativeTest, generate_text) {
  start();
  const Json answer = post_json("/generate", {{"text", "Once"}, {"rid", "mine"}});
  EXPECT_EQ(answer["text"], "Hello, world.");
  const Json& meta = answer["meta_info"];
  EXPECT_EQ(meta["id"], "mine");
  EXPECT_EQ(meta["prompt_tokens"], 4);
  EXPECT_EQ(meta["completion_tokens"], 14);
  EXPECT_EQ(meta["cached_tokens"], 3);
  EXPECT_EQ(meta["finish_reason"], Json({{"type", "stop"}, {"matched", 256}}));
  EXPECT_GE(meta["e2e_latency"].get<double>(), 0);
}

TEST_F(NativeTest, generate_batch_of_ids) {
  start();
  const Json answers =
      post_json("/generate",
                {{"input_ids", Json::array({{1, 2}, {3, 4, 5}})},
                 {"sampling_params", Json::array({{{"max_new_tokens", 2}}, {{"stop", "wor"}}})}});
  ASSERT_TRUE(answers.is_array());
  EXPECT_EQ(answers[0]["text"], "He");
  EXPECT_EQ(answers[0]["meta_info"]["finish_reason"], Json({{"type", "length"}, {"length", 2}}));
  EXPECT_EQ(answers[1]["text"], "Hello, ");
  EXPECT_EQ(answers[1]["meta_info"]["finish_reason"], Json({{"type", "stop"}, {"matched", "wor"}}));
  EXPECT_EQ(answers[1]["meta_info"]["prompt_tokens"], 3);
}

TEST_F(NativeTest, stream_is_cumulative) {
  start();
  const auto events = events_of(post("/generate", {{"text", "Once"}, {"stream", true}}).body);
  EXPECT_EQ(events.back(), "[DONE]");
  std::string before;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const std::string text = events[i]["text"];
    EXPECT_TRUE(text.starts_with(before));
    EXPECT_EQ(events[i]["meta_info"]["finish_reason"].is_null(), i + 2 < events.size());
    before = text;
  }
  EXPECT_EQ(before, "Hello, world.");
}

TEST_F(NativeTest, logprobs) {
  start();
  const Json answer = post_json("/generate", {{"text", "abc"},
                                              {"sampling_params", {{"max_new_tokens", 2}}},
                                              {"return_logprob", true},
                                              {"logprob_start_len", 0},
                                              {"top_logprobs_num", 2},
                                              {"return_text_in_logprobs", true}});
  const Json& meta = answer["meta_info"];
  EXPECT_EQ(meta["input_token_logprobs"],
            Json::array({Json::array({nullptr, 97, "a"}), Json::array({-0.5, 98, "b"}),
                         Json::array({-0.5, 99, "c"})}));
  EXPECT_EQ(meta["output_token_logprobs"],
            Json::array({Json::array({-0.5, 72, "H"}), Json::array({-0.5, 101, "e"})}));
  EXPECT_EQ(meta["input_top_logprobs"][0], nullptr);
  EXPECT_EQ(meta["output_top_logprobs"][0],
            Json::array({Json::array({-0.5, 72, "H"}), Json::array({-1.5, 98, "b"})}));
}

TEST_F(NativeTest, logprobs_from_a_position_or_of_the_output_alone) {
  start();
  Json answer =
      post_json("/generate", {{"text", "abc"}, {"return_logprob", true}, {"logprob_start_len", 2}});
  EXPECT_EQ(answer["meta_info"]["input_token_logprobs"],
            Json::array({Json::array({-0.5, 99, nullptr})}));
  answer = post_json("/generate", {{"text", "abc"}, {"return_logprob", true}});
  EXPECT_EQ(answer["meta_info"]["input_token_logprobs"], Json::array());
  EXPECT_FALSE(engine().submitted().back().return_prompt_logprob);
}

TEST_F(NativeTest, abort_by_request_id) {
  start();
  engine().hold();
  RawClient client(port());
  client.request("POST", "/generate", R"({"text": "a", "rid": "victim"})");
  ASSERT_TRUE(eventually([&] { return engine().num_running() == 1; }));
  EXPECT_EQ(post("/abort_request", {{"rid", "another"}}).status, 200);
  EXPECT_EQ(post("/abort_request", {{"rid", "victim"}}).status, 200);
  const RawResponse response = client.response();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ((*parse_json(response.body, "test"))["meta_info"]["finish_reason"]["type"], "abort");
  EXPECT_EQ(post("/abort_request", Json::object()).status, 400);
}

TEST_F(NativeTest, flush_cache) {
  start();
  EXPECT_EQ(exchange("GET", "/flush_cache").status, 200);
  EXPECT_EQ(exchange("POST", "/flush_cache").status, 200);
  engine().hold();
  RawClient client(port());
  client.request("POST", "/generate", R"({"text": "a"})");
  ASSERT_TRUE(eventually([&] { return engine().num_running() == 1; }));
  EXPECT_EQ(exchange("POST", "/flush_cache").status, 400);
}

TEST_F(NativeTest, expert_distributions_are_given_out_by_layer) {
  start();
  const RawResponse refused = exchange("POST", "/start_expert_distribution_record");
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("no experts"), std::string::npos);
  EXPECT_EQ(exchange("POST", "/stop_expert_distribution_record").status, 200);
  const RawResponse response = exchange("POST", "/dump_expert_distribution_record");
  ASSERT_EQ(response.status, 200);
  const Json layer = (*parse_json(response.body, "test"))["layers"]["model.layers.0.mlp"];
  EXPECT_EQ(layer["choices"], Json({3, 1}));
  EXPECT_EQ(layer["experts_of_group"], Json({Json::array({0}), Json::array({1})}));
  EXPECT_EQ(layer["imbalance"], 1.5);
  EXPECT_EQ(exchange("GET", "/dump_expert_distribution_record").status, 405);
}

TEST_F(NativeTest, profiles_are_written_to_the_servers_folder) {
  const std::filesystem::path folder = ::testing::TempDir() + "/tw_profiles";
  std::filesystem::create_directories(folder);
  config.profile_dir = folder.string();
  start();
  EXPECT_EQ(exchange("POST", "/stop_profile").status, 400);
  EXPECT_EQ(post("/start_profile", {{"num_steps", 0}}).status, 400);
  EXPECT_EQ(post("/start_profile", {{"output_dir", "/etc"}}).status, 400);
  EXPECT_EQ(exchange("POST", "/start_profile").status, 200);
  EXPECT_EQ(post("/start_profile", {{"num_steps", 5}}).status, 400);
  const RawResponse response = exchange("POST", "/stop_profile");
  ASSERT_EQ(response.status, 200);
  const Json answer = *parse_json(response.body, "test");
  EXPECT_EQ(answer["num_steps"], 1);
  EXPECT_NE(answer["summary"].get<std::string>().find("forward 60.0%"), std::string::npos);
  const std::filesystem::path trace = answer["trace"].get<std::string>();
  EXPECT_EQ(trace.parent_path(), folder);
  EXPECT_TRUE(std::filesystem::exists(trace));
  std::filesystem::remove_all(folder);
}

TEST_F(NativeTest, profiles_need_a_folder) {
  start();
  const RawResponse response = exchange("POST", "/start_profile");
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("--profile-dir"), std::string::npos);
}

TEST_F(NativeTest, health_tells_when_the_engine_is_stuck) {
  config.watchdog_seconds = 10;
  start();
  EXPECT_EQ(exchange("GET", "/health").status, 200);
  EXPECT_EQ(exchange("GET", "/health_generate").status, 200);
  engine().set_seconds_since_progress(11);
  EXPECT_EQ(exchange("GET", "/health").status, 503);
  EXPECT_EQ(exchange("GET", "/health_generate").status, 503);
}

TEST_F(NativeTest, info) {
  start();
  const Json model = *parse_json(exchange("GET", "/get_model_info").body, "test");
  EXPECT_EQ(model["model_path"], "/models/test");
  EXPECT_EQ(model["context_length"], 512);
  const Json server = *parse_json(exchange("GET", "/get_server_info").body, "test");
  EXPECT_EQ(server["served_model_name"], "test-model");
  EXPECT_EQ(server["internal_states"][0]["num_running_reqs"], 0);
  EXPECT_FALSE(server.contains("api_key"));
}

TEST_F(NativeTest, metrics) {
  start();
  post_json("/generate", {{"text", "Once"}});
  exchange("GET", "/no/such/path");
  const RawResponse response = exchange("GET", "/metrics");
  EXPECT_TRUE(response.headers.at("content-type").starts_with("text/plain; version=0.0.4"));
  const auto has = [&](const std::string& line) {
    EXPECT_NE(response.body.find(line), std::string::npos) << line << "\n" << response.body;
  };
  // The order of labels is the metrics library's.
  const auto counted_once = [&](const std::string& endpoint, const std::string& status) {
    std::istringstream lines(response.body);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("tilewright_http_requests_total{") && line.ends_with("} 1") &&
          line.find("endpoint=\"" + endpoint + "\"") != std::string::npos &&
          line.find("status=\"" + status + "\"") != std::string::npos) {
        return true;
      }
    }
    return false;
  };
  EXPECT_TRUE(counted_once("/generate", "200")) << response.body;
  EXPECT_TRUE(counted_once("unknown", "404")) << response.body;
  has(R"(tilewright_time_to_first_token_seconds_count{model_name="test-model"} 1)");
  has(R"(tilewright_inter_token_latency_seconds_count{model_name="test-model"} 13)");
  has(R"(tilewright_e2e_request_latency_seconds_count{model_name="test-model"} 1)");
  has(R"(tilewright_generation_tokens_total{model_name="test-model"} 14)");
  has(R"(tilewright_draft_tokens_total{model_name="test-model"} 8)");
  has(R"(tilewright_accepted_draft_tokens_total{model_name="test-model"} 6)");
  has(R"(tilewright_num_requests_running{model_name="test-model"} 0)");
  has("# TYPE tilewright_kv_tokens_used gauge");
  has(R"(tilewright_forward_seconds_total{model_name="test-model"} 1.5)");
  // Of each rank, with its memory node where that is known.
  has(R"(tilewright_memory_bytes_total{model_name="test-model",node="2",rank="0"} 3000)");
  has(R"(tilewright_memory_bytes_total{model_name="test-model",rank="1"} 4000)");
  has(R"(tilewright_operations_total{model_name="test-model",rank="1"} 5000)");
  has(R"(tilewright_memory_bandwidth_limit_bytes{model_name="test-model",node="2",rank="0"} 1)");
  has(R"(tilewright_operations_limit{model_name="test-model",rank="1"} 1)");
}

}  // namespace
}  // namespace tw
