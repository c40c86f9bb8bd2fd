// POST /start_profile and /stop_profile: a trace of what the engine does in between, as a file in
// --profile-dir, and the same summed up as a table.
//
// SGLang's names. Its `num_steps` bounds the recording; the file is written by /stop_profile all
// the same. Where files go is the operator's choice, not a client's: `output_dir` is refused.
#include "core/log.h"
#include "server/endpoints/endpoints.h"
#include "server/request_fields.h"

namespace tw {
namespace {

ApiError no_directory() {
  return {.message = "profiles have no folder to go to; start the server with --profile-dir DIR"};
}

ApiExpected<int64_t> read_num_steps(const std::string& body) {
  int64_t num_steps = 0;
  if (body.empty()) return num_steps;
  auto json = parse_body(body);
  if (!json) return tl::unexpected(json.error());
  RequestFields fields(*json);
  fields.read("num_steps", num_steps, {.min = 1});
  if (fields.failed()) return tl::unexpected(fields.take_error());
  if (fields.find("output_dir") != nullptr) {
    return tl::unexpected(bad_field(
        "output_dir", "output_dir: traces are written to the server's --profile-dir only"));
  }
  return num_steps;
}

// The trace's path and table.
Expected<Json> take_profile(Service& service) {
  auto profile = service.engine().stop_profile();
  if (!profile) return forward_error(profile);
  const std::string path =
      fmt::format("{}/{}.trace.json", service.config().profile_dir, service.make_id("tilewright-"));
  if (Status status = (*profile)->write_trace(path); !status) return forward_error(status);
  log::info("profile of {} steps written to {}", (*profile)->num_steps(), path);
  return Json{{"trace", path},
              {"num_steps", (*profile)->num_steps()},
              {"dropped_events", (*profile)->num_dropped()},
              {"summary", (*profile)->summary(service.model().limits)}};
}

}  // namespace

asio::awaitable<void> start_profile(Service& service, HttpRequest& request, Responder& responder) {
  auto num_steps = read_num_steps(request.body);
  if (num_steps && service.config().profile_dir.empty()) num_steps = tl::unexpected(no_directory());
  if (!num_steps) {
    co_await responder.send(to_response(num_steps.error()));
    co_return;
  }
  // The engine answers between two steps: not for an I/O thread to wait for.
  auto start = [&service, count = *num_steps] { return service.engine().start_profile(count); };
  const Status started = co_await service.on_worker(std::move(start));
  HttpResponse response{.content_type = "text/plain", .body = "Profiling started.\n"};
  if (!started) response = to_response(to_api_error(started.error()));
  co_await responder.send(std::move(response));
}

asio::awaitable<void> stop_profile(Service& service, HttpRequest& request, Responder& responder) {
  auto stop = [&service] { return take_profile(service); };
  const Expected<Json> taken = co_await service.on_worker(std::move(stop));
  HttpResponse response = taken ? json_response(*taken) : to_response(to_api_error(taken.error()));
  co_await responder.send(std::move(response));
}

}  // namespace tw
