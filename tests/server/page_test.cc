// The web page's endpoint.
#include "server/embedded_files.h"
#include "server/server_fixture.h"

namespace tw {
namespace {

class PageTest : public ServerTest {};

std::string_view file_named(std::string_view name) {
  for (const EmbeddedFile& file : page_files()) {
    if (file.name == name) return file.bytes;
  }
  return {};
}

TEST_F(PageTest, the_root_is_the_page) {
  start();
  const RawResponse response = exchange("GET", "/");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_EQ(response.body, file_named("index.html"));
  EXPECT_TRUE(response.body.starts_with("<!doctype html>")) << response.body.substr(0, 40);
  EXPECT_TRUE(response.body.ends_with("</html>\n"));
}

TEST_F(PageTest, files_have_their_types_and_bytes) {
  start();
  const std::pair<std::string, std::string> kTypes[] = {
      {"app.js", "text/javascript; charset=utf-8"},
      {"chat.css", "text/css; charset=utf-8"},
      {"icon.svg", "image/svg+xml"}};
  for (const auto& [name, type] : kTypes) {
    const RawResponse response = exchange("GET", "/page/" + name);
    EXPECT_EQ(response.status, 200) << name;
    EXPECT_EQ(response.headers.at("content-type"), type);
    EXPECT_EQ(response.headers.at("x-content-type-options"), "nosniff");
    EXPECT_FALSE(response.body.empty());
    EXPECT_EQ(response.body, file_named(name));
  }
}

// What stands between `begin` and the next quote, wherever `begin` occurs.
std::vector<std::string> quoted_after(std::string_view text, std::string_view begin) {
  std::vector<std::string> found;
  for (size_t at = text.find(begin); at != std::string_view::npos; at = text.find(begin, at)) {
    at += begin.size();
    found.emplace_back(text.substr(at, text.find('"', at) - at));
  }
  return found;
}

TEST_F(PageTest, what_the_page_refers_to_is_there) {
  int found = 0;
  for (const EmbeddedFile& file : page_files()) {
    for (const char* begin : {"src=\"page/", "href=\"page/", "from \"./"}) {
      for (const std::string& name : quoted_after(file.bytes, begin)) {
        EXPECT_FALSE(file_named(name).empty()) << name << " in " << file.name;
        ++found;
      }
    }
  }
  EXPECT_GT(found, 10);
}

TEST_F(PageTest, the_policy_allows_nothing_inline_and_nothing_from_elsewhere) {
  start();
  const std::string policy = exchange("GET", "/").headers.at("content-security-policy");
  EXPECT_TRUE(policy.starts_with("default-src 'none'; script-src 'self'; ")) << policy;
  EXPECT_EQ(policy.find("unsafe"), std::string::npos);
  EXPECT_EQ(policy.find("http"), std::string::npos);
  for (const EmbeddedFile& file : page_files()) {
    for (const char* refused :
         {"src=\"http", "href=\"http", "src=\"//", "href=\"//", "@import", "url(", "<style",
          "<script>", " onclick=", " onload=", "innerHTML"}) {
      EXPECT_EQ(file.bytes.find(refused), std::string_view::npos) << refused << " in " << file.name;
    }
  }
}

TEST_F(PageTest, a_copy_that_is_current_is_not_sent_again) {
  start();
  const std::string etag = exchange("GET", "/").headers.at("etag");
  EXPECT_EQ(etag.size(), 18u) << etag;
  for (const std::string& known : {etag, "W/" + etag, "\"other\", " + etag, std::string("*")}) {
    const RawResponse response = exchange("GET", "/", "", "If-None-Match: " + known + "\r\n");
    EXPECT_EQ(response.status, 304) << known;
    EXPECT_TRUE(response.body.empty());
    EXPECT_EQ(response.headers.at("etag"), etag);
  }
  EXPECT_EQ(exchange("GET", "/", "", "If-None-Match: \"other\"\r\n").status, 200);
}

TEST_F(PageTest, head_has_no_body) {
  start();
  const RawResponse response = exchange("HEAD", "/");
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.body.empty());
  EXPECT_EQ(response.headers.at("content-length"), std::to_string(file_named("index.html").size()));
}

TEST_F(PageTest, needs_no_key_though_its_calls_do) {
  config.api_key = "secret";
  start();
  EXPECT_EQ(exchange("GET", "/").status, 200);
  EXPECT_EQ(exchange("GET", "/page/app.js").status, 200);
  EXPECT_EQ(exchange("GET", "/v1/models").status, 401);
}

TEST_F(PageTest, unknown_files_are_not_found) {
  start();
  for (const char* path : {"/page/none.js", "/page/../router.cc", "/page/%2e%2e/router.cc"}) {
    EXPECT_EQ(exchange("GET", path).status, 404) << path;
  }
  EXPECT_EQ(exchange("POST", "/", "{}").status, 405);
}

}  // namespace
}  // namespace tw
