// The OpenAPI document tells the truth: its paths are the router's, its examples are answered, what
// it requires is required.
#include "http/access.h"
#include "server/routes.h"
#include "server/server_fixture.h"

namespace tw {
namespace {

using OpenApiTest = ServerTest;

TEST_F(OpenApiTest, EveryRouteIsDescribed) {
  start();
  const Json document = *parse_json(exchange("GET", "/openapi.json").body, "document");
  EXPECT_EQ(document["paths"].size(), all_routes().size());
  for (const Route& route : all_routes()) {
    const std::string path = std::string(route.path) + (route.is_prefix ? "{id}" : "");
    ASSERT_TRUE(document["paths"].contains(path)) << path;
    EXPECT_EQ(document["paths"][path].contains("get"), allows(route.methods, "GET")) << path;
    EXPECT_EQ(document["paths"][path].contains("post"), allows(route.methods, "POST")) << path;
  }
}

TEST_F(OpenApiTest, ExamplesAreAnsweredAndWhatIsRequiredIsRequired) {
  start();
  const Json document = *parse_json(exchange("GET", "/openapi.json").body, "document");
  int num_examples = 0;
  for (const auto& [path, methods] : document["paths"].items()) {
    if (!methods.contains("post") || !methods["post"].contains("requestBody")) continue;
    const Json& content = methods["post"]["requestBody"]["content"]["application/json"];
    if (!content.contains("example")) continue;
    ++num_examples;
    const Json& example = content["example"];
    EXPECT_EQ(post(path, example).status, 200) << path;
    Json schema = content["schema"];
    if (schema.contains("allOf")) schema = Json(schema["allOf"].back());
    // The alternative that the example is of.
    if (schema.contains("anyOf")) schema.update(Json(schema["anyOf"].front()), true);
    for (const auto& [name, value] : example.items()) {
      const Json property = schema["properties"].value(name, Json::object());
      Json wrong = example;
      // Anything but the type that it must have.
      wrong[name] = property.value("type", Json()).dump().find("object") != std::string::npos
                        ? Json(5)
                        : Json({{"x", 1}});
      if (!property.contains("type")) continue;
      EXPECT_EQ(post(path, wrong).status, 400) << path << " with a wrong " << name;
      // Null means absent, for what may be.
      wrong[name] = nullptr;
      const bool may_be = property["type"].dump().find("null") != std::string::npos;
      EXPECT_EQ(post(path, wrong).status, may_be ? 200 : 400) << path << " with null as " << name;
    }
    for (const Json& name : schema.value("required", Json::array())) {
      Json without = example;
      without.erase(name.get<std::string>());
      EXPECT_EQ(post(path, without).status, 400) << path << " without " << name;
    }
  }
  EXPECT_GE(num_examples, 10);
}

}  // namespace
}  // namespace tw
