// Prometheus metrics of the server, all named tilewright_*.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "server/grammar_constraint.h"

namespace tw {

class Metrics {
 public:
  // `limits`: of each rank of the model; empty: not measured.
  explicit Metrics(const std::string& model_name, std::vector<RankLimits> limits = {});
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // `endpoint` is a route, never what the client sent: label values stay few.
  void count_http_request(std::string_view endpoint, int status);
  void set_connections(int count);

  // Of one generation, in seconds.
  void observe_time_to_first_token(double seconds);
  void observe_inter_token_latency(double seconds);
  void observe_request(double seconds, int num_prompt_tokens, int num_output_tokens);

  // The text format, with the engine's and the grammars' counters as of now.
  std::string render(const EngineStats& stats, const MaskCosts& masks);

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace tw
