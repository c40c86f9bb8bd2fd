// Adapters over HTTP: loaded, named by requests, unloaded; with a fake engine behind.
#include "nn/lora_adapter.h"
#include "server/server_fixture.h"
#include "weights/lora_folder.h"

namespace tw {
namespace {

using testing_support::LoraFolder;

class AdaptersTest : public ServerTest {
 protected:
  AdaptersTest()
      : path_(folder_.write({{"r", 2}, {"lora_alpha", 4}},
                            LoraFolder::pair_of("base_model.model.model.layers.0.mlp.up_proj"))) {}

  Json load(const std::string& name, int status = 200) {
    return post_json("/load_lora_adapter", {{"lora_name", name}, {"lora_path", path_.string()}},
                     status);
  }
  // The adapter that the last request was computed with; 0 for none.
  uint64_t last_adapter() {
    const auto& adapter = engine().submitted().back().adapter;
    return adapter ? adapter->id : 0;
  }
  Json chat(const std::string& model, int status = 200) {
    return post_json(
        "/v1/chat/completions",
        {{"model", model}, {"messages", Json::array({{{"role", "user"}, {"content", "Hi"}}})}},
        status);
  }

  LoraFolder folder_{"adapters_test"};
  std::filesystem::path path_;
};

TEST_F(AdaptersTest, requests_name_them_in_several_ways) {
  start();
  EXPECT_EQ(load("first")["loaded_adapters"], Json({{"first", path_.string()}}));
  EXPECT_EQ(load("second")["success"], true);
  chat("test-model");
  EXPECT_EQ(last_adapter(), 0u);
  chat("test-model:second");
  EXPECT_EQ(last_adapter(), 2u);
  chat("first");
  EXPECT_EQ(last_adapter(), 1u);
  post_json("/v1/completions", {{"prompt", "a"}, {"lora_path", "second"}});
  EXPECT_EQ(last_adapter(), 2u);
  post_json("/v1/responses", {{"input", "a"}, {"model", "test-model:first"}});
  EXPECT_EQ(last_adapter(), 1u);
  post_json("/v1/messages", {{"model", "second"},
                             {"max_tokens", 2},
                             {"messages", Json::array({{{"role", "user"}, {"content", "Hi"}}})}});
  EXPECT_EQ(last_adapter(), 2u);
  post_json("/v1/embeddings", {{"input", "a"}, {"model", "test-model:first"}});
  EXPECT_EQ(last_adapter(), 1u);
}

TEST_F(AdaptersTest, each_prompt_of_a_batch_has_its_own) {
  start();
  load("first");
  post_json("/generate",
            {{"text", {"a", "b", "c"}}, {"lora_path", Json::array({"first", nullptr, "first"})}});
  const auto submitted = engine().submitted();
  ASSERT_EQ(submitted.size(), 3u);
  EXPECT_TRUE(submitted[0].adapter);
  EXPECT_FALSE(submitted[1].adapter);
  EXPECT_EQ(submitted[2].adapter, submitted[0].adapter);
}

TEST_F(AdaptersTest, models_list_them) {
  start();
  load("first");
  const Json models = parse_json(exchange("GET", "/v1/models").body, "models").value()["data"];
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[1]["id"], "test-model:first");
  EXPECT_EQ(models[1]["parent"], "test-model");
  EXPECT_EQ(models[1]["root"], path_.string());
  const Json one = parse_json(exchange("GET", "/v1/models/test-model:first").body, "model").value();
  EXPECT_EQ(one["id"], "test-model:first");
}

TEST_F(AdaptersTest, unloaded_ones_are_gone_but_for_requests_under_way) {
  start();
  load("first");
  engine().hold();
  RawClient client(port());
  client.request("POST", "/generate", R"({"text": "a", "lora_path": "first"})");
  ASSERT_TRUE(eventually([&] { return engine().num_running() == 1; }));
  EXPECT_EQ(post_json("/unload_lora_adapter", {{"lora_name", "first"}})["loaded_adapters"],
            Json::object());
  EXPECT_EQ(chat("test-model:first", 404)["error"]["code"], "model_not_found");
  engine().release();
  EXPECT_EQ(client.response().status, 200);
  load("first");
  chat("first");
  EXPECT_EQ(last_adapter(), 2u) << "loaded anew";
}

TEST_F(AdaptersTest, what_cannot_be_is_refused) {
  start();
  load("first");
  const auto message = [](const Json& answer) {
    return answer["error"]["message"].get<std::string>();
  };
  EXPECT_NE(message(load("first", 400)).find("loaded already"), std::string::npos);
  EXPECT_NE(message(load("a:b", 400)).find("none of them a colon"), std::string::npos);
  EXPECT_NE(
      message(post_json("/load_lora_adapter", {{"lora_name", "x"}, {"lora_path", "/nowhere"}}, 400))
          .find("/nowhere/adapter_config.json"),
      std::string::npos);
  EXPECT_NE(
      message(post_json("/load_lora_adapter", {{"lora_path", "/nowhere"}}, 400)).find("lora_name"),
      std::string::npos);
  EXPECT_NE(message(post_json("/unload_lora_adapter", {{"lora_name", "x"}}, 404)).find("[first]"),
            std::string::npos);
  EXPECT_NE(message(chat("other:first", 404)).find("\"test-model:first\""), std::string::npos);
  EXPECT_NE(message(post_json("/v1/completions", {{"prompt", "a"}, {"lora_path", "x"}}, 404))
                .find("lora_path: \"x\""),
            std::string::npos);
  EXPECT_NE(
      message(post_json("/generate", {{"text", "a"}, {"lora_path", 5}}, 400)).find("lora_path"),
      std::string::npos);
}

}  // namespace
}  // namespace tw
