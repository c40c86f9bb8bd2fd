// GET / and GET /page/{file}: the web page. Its files hold no secrets and need no key; what they
// ask the server for does.
#include <algorithm>

#include "server/embedded_files.h"
#include "server/endpoints/endpoints.h"

namespace tw {
namespace {

// Nothing from elsewhere, nothing inline, no frame around it: should a model's text ever reach the
// document as markup, it still could not run or call out.
constexpr std::string_view kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::string_view content_type_of(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "application/octet-stream";
}

const EmbeddedFile* find_file(std::string_view name) {
  const auto files = page_files();
  const auto file = std::find_if(files.begin(), files.end(), [&](const EmbeddedFile& candidate) {
    return candidate.name == name;
  });
  return file == files.end() ? nullptr : &*file;
}

// If-None-Match is "*" or a list of tags; W/"x" is as good as "x" here.
bool client_has(std::string_view if_none_match, std::string_view etag) {
  return if_none_match == "*" || if_none_match.find(etag) != std::string_view::npos;
}

HttpResponse file_response(const EmbeddedFile& file, const HttpRequest& request) {
  HttpResponse response{.content_type = std::string(content_type_of(file.name))};
  response.headers = {// A copy may be kept, but another build of the server has another page.
                      {"Cache-Control", "no-cache"},
                      {"ETag", std::string(file.etag)},
                      {"Content-Security-Policy", std::string(kContentSecurityPolicy)},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"}};
  if (client_has(request.if_none_match, file.etag)) {
    response.status = 304;
  } else {
    response.body = file.bytes;
  }
  return response;
}

}  // namespace

asio::awaitable<void> page(Service& service, HttpRequest& request, Responder& responder) {
  constexpr std::string_view kFolder = "/page/";
  const bool in_folder = request.path.starts_with(kFolder);
  const std::string name = in_folder ? request.path.substr(kFolder.size()) : "index.html";
  const EmbeddedFile* file = find_file(name);
  if (!file) {
    auto response =
        to_response(ApiError{.status = 404,
                             .message = fmt::format("the page has no file {}", shorten(name, 200)),
                             .code = "not_found"});
    co_await responder.send(std::move(response));
  } else {
    co_await responder.send(file_response(*file, request));
  }
}

}  // namespace tw
