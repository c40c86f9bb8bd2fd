#include "apps/bench/load_client.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string_view>

namespace tw {
namespace {

constexpr long kTimeoutSeconds = 3600;
constexpr size_t kMaxQuoted = 300;  // bytes of a refusal

struct CloseHandle {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

size_t on_bytes(char* data, size_t size, size_t count, void* receiver) {
  (*static_cast<std::function<void(std::string_view)>*>(receiver))({data, size * count});
  return size * count;
}

// The status, or why there was no answer. Without a body, GET.
Expected<long> exchange(const std::string& url, const std::string& api_key,
                        const std::optional<std::string>& body,
                        std::function<void(std::string_view)> receiver) {
  const std::unique_ptr<CURL, CloseHandle> handle(curl_easy_init());
  curl_slist* list = curl_slist_append(nullptr, "Content-Type: application/json");
  if (!api_key.empty())
    list = curl_slist_append(list, ("Authorization: Bearer " + api_key).c_str());
  const std::unique_ptr<curl_slist, CloseHandle> headers(list);
  char problem[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(handle.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle.get(), CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(handle.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle.get(), CURLOPT_TIMEOUT, kTimeoutSeconds);
  curl_easy_setopt(handle.get(), CURLOPT_ERRORBUFFER, problem);
  curl_easy_setopt(handle.get(), CURLOPT_WRITEFUNCTION, on_bytes);
  curl_easy_setopt(handle.get(), CURLOPT_WRITEDATA, &receiver);
  if (body) {
    curl_easy_setopt(handle.get(), CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(body->size()));
    curl_easy_setopt(handle.get(), CURLOPT_POSTFIELDS, body->c_str());
  }
  const CURLcode code = curl_easy_perform(handle.get());
  if (code != CURLE_OK) {
    return error(ErrorCode::unavailable, "{}: {}", url,
                 problem[0] != '\0' ? problem : curl_easy_strerror(code));
  }
  long status = 0;
  curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &status);
  return status;
}

// Reads the events of a stream as they come.
class EventReader {
 public:
  EventReader(const LoadClient& client, LoadTiming& timing) : client_(client), timing_(timing) {}

  void push(std::string_view bytes) {
    for (size_t begin = 0; begin < bytes.size();) {
      const size_t end = bytes.find('\n', begin);
      line_ += bytes.substr(begin, end - begin);
      if (end == std::string_view::npos) return;
      on_line();
      line_.clear();
      begin = end + 1;
    }
  }

 private:
  void on_line() {
    constexpr std::string_view kData = "data: ";
    if (!line_.starts_with("data: {")) {
      if (!line_.empty() && !line_.starts_with("data:")) {
        refusal_ += line_.substr(0, kMaxQuoted);
      }
      return;
    }
    const double now = client_.now();
    const auto event = parse_json(std::string_view(line_).substr(kData.size()), "an event");
    if (!event) {
      timing_.problem = event.error().message;
    } else if (event->contains("error")) {
      timing_.problem = dump_json((*event)["error"]);
    } else {
      on_event(*event, now);
    }
  }

  void on_event(const Json& event, double now) {
    const Json choices = event.value("choices", Json());
    if (choices.is_array() && !choices.empty() &&
        !choices[0].value("text", Json("")).get_ref<const std::string&>().empty()) {
      timing_.events.push_back(now);
    }
    const Json usage = event.value("usage", Json());
    if (!usage.is_object()) return;
    timing_.prompt_tokens = usage.value("prompt_tokens", int64_t{0});
    timing_.output_tokens = usage.value("completion_tokens", int64_t{0});
  }

  const LoadClient& client_;
  LoadTiming& timing_;
  std::string line_;
  std::string refusal_;

 public:
  // What is no stream of events.
  std::string other_text() const { return refusal_ + line_.substr(0, kMaxQuoted); }
};

}  // namespace

std::optional<double> LoadTiming::tpot() const {
  if (output_tokens < 2) return std::nullopt;
  return (events.back() - events.front()) / static_cast<double>(output_tokens - 1);
}

LoadClient::LoadClient(std::string base_url, std::string api_key, Json extra)
    : base_url_(std::move(base_url)),
      api_key_(std::move(api_key)),
      extra_(std::move(extra)),
      begin_(std::chrono::steady_clock::now()) {
  while (base_url_.ends_with('/')) base_url_.pop_back();
  // Before threads need it.
  curl_global_init(CURL_GLOBAL_DEFAULT);
}

double LoadClient::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

Expected<std::string> LoadClient::served_model() const {
  const std::string url = base_url_ + "/v1/models";
  std::string body;
  const auto status = exchange(url, api_key_, std::nullopt, [&](std::string_view bytes) {
    if (body.size() < (1 << 20)) body += bytes;
  });
  if (!status) return tl::unexpected(status.error());
  if (*status != 200) {
    return error(ErrorCode::unavailable, "{}: HTTP {}: {}", url, *status,
                 body.substr(0, kMaxQuoted));
  }
  const auto models = parse_json(body, url);
  if (!models) return tl::unexpected(models.error());
  const Json data = models->is_object() ? models->value("data", Json()) : Json();
  if (!data.is_array() || data.empty() || !data[0].value("id", Json()).is_string()) {
    return error(ErrorCode::unavailable, "{}: lists no model; give --model", url);
  }
  return data[0]["id"].get<std::string>();
}

LoadTiming LoadClient::complete(const LoadRequest& request) const {
  Json body = {{"model", model_},
               {"prompt", request.prompt},
               {"max_tokens", request.output_len},
               {"temperature", 0},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}},
               {"ignore_eos", true}};
  body.update(extra_);
  LoadTiming timing;
  EventReader reader(*this, timing);
  const std::string text = dump_json(body);
  timing.sent = now();
  const auto status = exchange(base_url_ + "/v1/completions", api_key_, text,
                               [&](std::string_view bytes) { reader.push(bytes); });
  timing.end = now();
  if (!status) {
    timing.problem = status.error().message;
  } else if (*status != 200) {
    timing.problem = fmt::format("HTTP {}: {}", *status, reader.other_text());
  } else if (timing.problem.empty() && (timing.events.empty() || timing.output_tokens == 0)) {
    timing.problem = "the stream ended without text or without usage";
  }
  return timing;
}

}  // namespace tw
