// One streamed completion from any server with OpenAI's /v1/completions, with its times.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/status.h"

namespace tw {

struct LoadRequest {
  Json prompt;  // text, or token ids
  int32_t output_len = 0;
};

// Of one request; times in seconds since the client was made.
struct LoadTiming {
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  double sent = 0;
  std::vector<double> events;  // when each piece of text arrived
  double end = 0;
  std::string problem;  // empty: answered in full

  double ttft() const { return events.front() - sent; }
  double latency() const { return end - sent; }
  // Per output token after the first; none of an answer of one token.
  std::optional<double> tpot() const;
};

// May be used by several threads.
class LoadClient {
 public:
  // `base_url`: "http://host:port". `extra`: an object, fields for every request.
  LoadClient(std::string base_url, std::string api_key, Json extra);

  void set_model(std::string model) { model_ = std::move(model); }
  const std::string& model() const { return model_; }
  // The first of /v1/models.
  Expected<std::string> served_model() const;

  LoadTiming complete(const LoadRequest& request) const;
  double now() const;

 private:
  std::string base_url_;
  std::string api_key_;
  Json extra_;
  std::string model_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace tw
