// /v1/embeddings, /v1/score and /v1/rerank, over a socket, with a fake engine behind.
#include <cmath>

#include "server/base64.h"
#include "server/embedding_request.h"
#include "server/rerank_request.h"
#include "server/score_request.h"
#include "server/server_fixture.h"

namespace tw {
namespace {

class PromptEndpoints : public ServerTest {
 protected:
  // The error's message.
  std::string refusal(std::string_view path, const Json& body, int status = 400) {
    return post_json(path, body, status)["error"]["message"];
  }
};

TEST_F(PromptEndpoints, embeddings_are_of_length_one) {
  start();
  const Json answer = post_json("/v1/embeddings", {{"input", "four"}, {"model", "test-model"}});
  EXPECT_EQ(answer["object"], "list");
  EXPECT_EQ(answer["model"], "test-model");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 4);
  EXPECT_EQ(answer["usage"]["total_tokens"], 4);
  ASSERT_EQ(answer["data"].size(), 1u);
  EXPECT_EQ(answer["data"][0]["object"], "embedding");
  EXPECT_EQ(answer["data"][0]["index"], 0);
  // [4, 2, 4] / 6, in as few digits as tell the floats.
  EXPECT_EQ(answer["data"][0]["embedding"], Json::array({0.6666667, 0.33333334, 0.6666667}));
  EXPECT_EQ(engine().submitted().back().pooling, Pooling::last);
}

TEST_F(PromptEndpoints, inputs_of_all_forms) {
  start();
  const auto count = [&](const Json& input) {
    return post_json("/v1/embeddings", {{"input", input}})["data"].size();
  };
  EXPECT_EQ(count(Json::array({"a", "bc"})), 2u);
  EXPECT_EQ(count({1, 2, 3}), 1u);
  EXPECT_EQ(count(Json::array({{1, 2}, {3}})), 2u);
  EXPECT_EQ(engine().submitted().back().prompt, std::vector<TokenId>({3}));
}

TEST_F(PromptEndpoints, base64_and_fewer_dimensions) {
  start();
  const Json answer = post_json(
      "/v1/embeddings", {{"input", "xyzu"}, {"encoding_format", "base64"}, {"dimensions", 1}});
  EXPECT_EQ(answer["data"][0]["embedding"], "AACAPw==") << "1.0f, little-endian";
  EXPECT_NE(refusal("/v1/embeddings", {{"input", "x"}, {"dimensions", 4}}).find("[1, 3]"),
            std::string::npos);
  EXPECT_NE(refusal("/v1/embeddings", {{"input", "x"}, {"dimensions", 0}}).find("[1, 3]"),
            std::string::npos);
  EXPECT_NE(refusal("/v1/embeddings", {{"input", "x"}, {"encoding_format", "hex"}}).find("base64"),
            std::string::npos);
}

TEST_F(PromptEndpoints, long_lists_do_not_fill_the_queue) {
  start();
  Json input = Json::array();
  for (int i = 1; i <= 100; ++i) input.push_back(std::string(static_cast<size_t>(i), 'a'));
  const Json answer = post_json("/v1/embeddings", {{"input", input}});
  ASSERT_EQ(answer["data"].size(), 100u);
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(answer["data"][i]["index"], i);
    const double length = static_cast<double>(i + 1);
    EXPECT_NEAR(answer["data"][i]["embedding"][0].get<double>(),
                length / std::sqrt(length * length + 20), 1e-6);
  }
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 5050);
}

TEST_F(PromptEndpoints, bad_inputs_are_refused) {
  start();
  EXPECT_NE(refusal("/v1/embeddings", Json::object()).find("input"), std::string::npos);
  EXPECT_NE(refusal("/v1/embeddings", {{"input", ""}}).find("empty"), std::string::npos);
  EXPECT_NE(refusal("/v1/embeddings", {{"input", Json::array()}}).find("array of strings"),
            std::string::npos);
  EXPECT_NE(refusal("/v1/embeddings", {{"input", Json::array({"a", 1})}}).find("input[1]"),
            std::string::npos);
  EXPECT_NE(refusal("/v1/embeddings", {{"input", Json::array({"a", ""})}}).find("input[1]"),
            std::string::npos);
  EXPECT_NE(refusal("/v1/embeddings", {{"input", std::string(600, 'a')}}).find("512"),
            std::string::npos);
  EXPECT_NE(refusal("/v1/embeddings", {{"input", Json::array({"a"})}, {"model", "other"}}, 404)
                .find("other"),
            std::string::npos);
  Json many = Json::array();
  for (int i = 0; i < 2049; ++i) many.push_back("a");
  EXPECT_NE(refusal("/v1/embeddings", {{"input", many}}).find("at most 2048"), std::string::npos);
}

TEST_F(PromptEndpoints, failures_and_aborts_are_errors) {
  start();
  engine().fail_next({ErrorCode::internal, "no numbers"});
  EXPECT_EQ(refusal("/v1/embeddings", {{"input", "a"}}, 500), "no numbers");
  engine().hold();
  RawClient client(port());
  client.request("POST", "/v1/embeddings", R"({"input": "a", "rid": "victim"})");
  ASSERT_TRUE(eventually([&] { return engine().num_running() == 1; }));
  post("/abort_request", {{"rid", "victim"}});
  EXPECT_EQ(client.response().status, 503);
}

TEST_F(PromptEndpoints, a_vanished_client_ends_its_embeddings) {
  start();
  engine().hold();
  {
    RawClient client(port());
    client.request("POST", "/v1/embeddings", R"({"input": ["a", "b"]})");
    ASSERT_TRUE(eventually([&] { return engine().num_running() == 2; }));
  }
  EXPECT_TRUE(eventually([&] { return engine().num_aborted() == 2; }));
}

TEST_F(PromptEndpoints, scores_are_probabilities_of_labels) {
  start();
  const Json answer = post_json(
      "/v1/score",
      {{"query", "Is it? "}, {"items", Json::array({"yes", "no"})}, {"label_token_ids", {1, 3}}});
  EXPECT_EQ(answer["object"], "scoring");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 10 + 9);
  ASSERT_EQ(answer["scores"].size(), 2u);
  EXPECT_NEAR(answer["scores"][0][0].get<double>(), 1.0 / 2, 1e-6);
  EXPECT_NEAR(answer["scores"][1][1].get<double>(), 1.0 / 4, 1e-6);
  const auto submitted = engine().submitted();
  const std::string text = "Is it? no";
  EXPECT_EQ(submitted.back().prompt, std::vector<TokenId>(text.begin(), text.end()));
}

TEST_F(PromptEndpoints, scores_of_ids_item_first_as_shares) {
  start();
  const Json answer = post_json("/v1/score", {{"query", {7, 8}},
                                              {"items", Json::array({{1}, {2, 3}})},
                                              {"label_token_ids", {1, 3}},
                                              {"apply_softmax", true},
                                              {"item_first", true}});
  EXPECT_NEAR(answer["scores"][0][0].get<double>(), 2.0 / 3, 1e-6);
  EXPECT_NEAR(answer["scores"][0][1].get<double>(), 1.0 / 3, 1e-6);
  EXPECT_EQ(engine().submitted().back().prompt, std::vector<TokenId>({2, 3, 7, 8}));
}

TEST_F(PromptEndpoints, bad_scores_are_refused) {
  start();
  const Json good = {{"query", "q"}, {"items", Json::array({"a"})}, {"label_token_ids", {1}}};
  const auto with = [&](const char* name, const Json& value) {
    Json body = good;
    body[name] = value;
    return refusal("/v1/score", body);
  };
  EXPECT_NE(with("label_token_ids", {1, 257}).find("[0, 256]"), std::string::npos);
  EXPECT_NE(with("label_token_ids", Json::array()).find("1 to 1024"), std::string::npos);
  EXPECT_NE(with("items", {1, 2}).find("array of arrays"), std::string::npos);
  EXPECT_NE(with("items", Json::array({{1, 2}})).find("where query is text"), std::string::npos);
  EXPECT_NE(with("query", 5).find("query: 5"), std::string::npos);
  EXPECT_NE(with("query", nullptr).find("query"), std::string::npos);
  Json huge = {
      {"query", std::string(1 << 20, 'q')}, {"items", Json::array()}, {"label_token_ids", {1}}};
  for (int i = 0; i < 100; ++i) huge["items"].push_back("a");
  EXPECT_NE(refusal("/v1/score", huge).find("67108864"), std::string::npos);
}

TEST_F(PromptEndpoints, ranks_are_sorted_by_the_share_of_yes) {
  start();
  const Json answer = post_json("/v1/rerank", {{"query", "What is blue?"},
                                               {"documents", {"the sky", {{"text", "grass"}}}},
                                               {"instruct", "Find colours"}});
  ASSERT_EQ(answer["results"].size(), 2u);
  // The tokens are bytes: "y" and "n" stand for the words.
  const double yes = 1.0 / ('y' + 1), no = 1.0 / ('n' + 1);
  EXPECT_NEAR(answer["results"][0]["relevance_score"].get<double>(), yes / (yes + no), 1e-6);
  EXPECT_EQ(answer["results"][0]["index"], 0) << "equal scores stay in order";
  EXPECT_EQ(answer["results"][1]["document"]["text"], "grass");
  EXPECT_EQ(answer["model"], "test-model");
  const auto submitted = engine().submitted();
  const std::string prompt(submitted.back().prompt.begin(), submitted.back().prompt.end());
  EXPECT_TRUE(prompt.starts_with("system: Judge whether")) << prompt;
  EXPECT_TRUE(
      prompt.ends_with("user: <Instruct>: Find colours\n<Query>: What is blue?\n"
                       "<Document>: grass\nassistant: "))
      << prompt;
}

TEST_F(PromptEndpoints, the_best_ranks_alone) {
  start();
  const Json answer = post_json(
      "/v2/rerank",
      {{"query", "q"}, {"documents", {"a", "b"}}, {"top_n", 1}, {"return_documents", false}});
  ASSERT_EQ(answer["results"].size(), 1u);
  EXPECT_FALSE(answer["results"][0].contains("document"));
}

TEST_F(PromptEndpoints, bad_ranks_are_refused) {
  start();
  const auto with = [&](const char* name, const Json& value) {
    Json body = {{"query", "q"}, {"documents", {"a"}}};
    body[name] = value;
    return refusal("/v1/rerank", body);
  };
  EXPECT_NE(with("query", nullptr).find("query"), std::string::npos);
  EXPECT_NE(with("query", Json::array({"a"})).find("query"), std::string::npos);
  EXPECT_NE(with("documents", "a").find("documents"), std::string::npos);
  EXPECT_NE(with("documents", Json::array()).find("1 to 2048"), std::string::npos);
  EXPECT_NE(with("documents", Json::array({"a", 5})).find("documents[1]: 5"), std::string::npos);
  EXPECT_NE(with("documents", Json::array({{{"image", "a"}}})).find("documents[0]"),
            std::string::npos);
  EXPECT_NE(with("top_n", 0).find("top_n"), std::string::npos);
  EXPECT_NE(with("documents", Json::array({std::string(600, 'a')})).find("512"), std::string::npos);
}

TEST(RerankResults, BestFirst) {
  const RerankRequest request{.query = "q",
                              .documents = {"a", "b", "c"},
                              .instruction = "",
                              .top_n = 2,
                              .return_documents = true,
                              .model = "",
                              .rid = ""};
  const Json results = rerank_results(request, {0.25, 0.75, 0.5});
  EXPECT_EQ(results,
            Json::array({{{"index", 1}, {"relevance_score", 0.75}, {"document", {{"text", "b"}}}},
                         {{"index", 2}, {"relevance_score", 0.5}, {"document", {{"text", "c"}}}}}));
}

TEST(RerankPrompt, TemplatesWithoutSystemRole) {
  const auto strict = ChatTemplate::compile(
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
      "{% endif %}[{{ m.content }}]{% endfor %}",
      Json::object());
  ASSERT_TRUE(strict);
  RerankRequest request;
  request.query = "q";
  const auto prompt = rerank_prompt(*strict, request, "d");
  ASSERT_TRUE(prompt) << prompt.error().message;
  EXPECT_TRUE(prompt->starts_with("[Judge whether")) << *prompt;
  EXPECT_TRUE(prompt->ends_with("<Document>: d]")) << *prompt;
}

TEST(LabelScores, SharesOfUnlikelyLabels) {
  const float logprobs[] = {-1000.0f, -1000.0f};
  EXPECT_EQ(label_scores(logprobs, true), std::vector<double>({0.5, 0.5}));
  EXPECT_EQ(label_scores(logprobs, false), std::vector<double>({0, 0}));
}

TEST(FinishEmbedding, ZerosStay) {
  std::vector<float> zeros(3);
  finish_embedding(zeros, std::nullopt);
  EXPECT_EQ(zeros, std::vector<float>(3));
}

TEST(Base64, TestVectorsOfTheRfc) {
  const auto encoded = [](std::string_view text) {
    return encode_base64(std::as_bytes(std::span(text)));
  };
  EXPECT_EQ(encoded(""), "");
  EXPECT_EQ(encoded("f"), "Zg==");
  EXPECT_EQ(encoded("fo"), "Zm8=");
  EXPECT_EQ(encoded("foobar"), "Zm9vYmFy");
  EXPECT_EQ(encoded("\xfb\xff\xfe"), "+//+");
}

}  // namespace
}  // namespace tw
