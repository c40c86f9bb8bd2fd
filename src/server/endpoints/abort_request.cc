// POST /abort_request {"rid": "..."} or {"abort_all": true}. Ids that are not running are no error.
#include "server/endpoints/endpoints.h"

namespace tw {
namespace {

ApiExpected<void> abort_as_asked(Service& service, const std::string& body) {
  const auto json = parse_body(body);
  if (!json) return tl::unexpected(json.error());
  RequestFields fields(*json);
  std::string rid;
  bool abort_all = false;
  fields.read("rid", rid);
  fields.read("abort_all", abort_all);
  if (rid.empty() && !abort_all) fields.fail("rid", rid, "the rid of a request");
  if (fields.failed()) return tl::unexpected(fields.take_error());
  if (abort_all) {
    service.engine().abort_all();
  } else {
    service.abort_request(rid);
  }
  return {};
}

}  // namespace

asio::awaitable<void> abort_request(Service& service, HttpRequest& request, Responder& responder) {
  const auto done = abort_as_asked(service, request.body);
  HttpResponse response = done ? HttpResponse{.body = "{}"} : to_response(done.error());
  co_await responder.send(std::move(response));
}

}  // namespace tw
