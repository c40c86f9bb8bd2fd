// The generations of one HTTP request: submitted to the engine together, read as one stream of
// updates, cancelled together.
//
// The engine's sinks only move their output into a mailbox, which wakes the request's coroutine;
// detokenizing and the search for stop strings happen there, on an I/O thread. A mailbox is
// bounded: a request whose client reads too slowly is cancelled, the engine never waits.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "http/api_error.h"
#include "http/responder.h"
#include "server/generation_options.h"
#include "server/service.h"
#include "text/generation_text.h"

namespace tw {

// One generation to run: the choices of a request are expanded before.
struct GenerationTask {
  std::vector<TokenId> prompt;
  SamplingParams sampling;  // max_new_tokens resolved
  StopStrings stops;
  bool no_stop_trim = false;
  bool skip_special_tokens = true;
  bool return_logprob = false;
  bool return_prompt_logprob = false;
  int32_t num_top_logprobs = 0;
  std::string rid;
  std::shared_ptr<TokenConstraint> constraint;
  std::optional<Pooling> pooling = {};  // these two as in the engine's Request
  std::vector<TokenId> label_token_ids = {};
  std::shared_ptr<const LoraAdapter> adapter = {};
};

// The n choices that `options` asks for on one prompt. Seeds differ by choice. `grammar_start`:
// from where on the options' grammar holds; a grammar that is none is a 400.
ApiExpected<std::vector<GenerationTask>> make_tasks(Service& service, std::vector<TokenId> prompt,
                                                    const GenerationOptions& options,
                                                    const GrammarStart& grammar_start = {});

struct GenerationEnd {
  FinishReason reason = FinishReason::stop;  // never none or error
  std::optional<TokenId> matched_token;      // with stop
  std::string matched_string;                // with stop; empty for a token
};

// What happened to one generation since its last update.
struct GenerationUpdate {
  size_t index = 0;                 // of its task
  std::string text;                 // to show
  std::vector<TokenEvent> tokens;   // all that were sampled, a stop token included
  bool last_token_is_stop = false;  // and therefore not in the text
  std::optional<GenerationEnd> end;
  std::optional<Error> error;  // the generation failed; nothing more comes
  std::vector<TokenEvent> prompt_logprobs;
  std::vector<float> embedding;       // with the end, where asked for
  std::vector<float> label_logprobs;  // likewise
  int32_t num_prompt_tokens = 0;
  int32_t num_cached_tokens = 0;
  int32_t num_output_tokens = 0;
};

// Token counts of one or several generations. Prompts shared by choices count once.
struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
};

class GenerationGroup : public std::enable_shared_from_this<GenerationGroup> {
 public:
  // Submits all tasks or none. From then on, a client that vanishes ends them.
  static ApiExpected<std::shared_ptr<GenerationGroup>> start(Service& service, Responder& responder,
                                                             std::vector<GenerationTask> tasks);
  // Ends what still runs.
  ~GenerationGroup();

  // Waits for updates, at least one. Empty when all generations are complete, or cancelled() is
  // true.
  asio::awaitable<std::vector<GenerationUpdate>> next();

  // The client is gone or too slow: no answer is wanted any more.
  bool cancelled() const { return cancelled_; }
  size_t size() const;
  double seconds_since_start() const;

 private:
  class Mailbox;
  struct Choice {
    uint64_t engine_id = 0;
    std::string rid;
    bool no_stop_trim = false;
    bool finished = false;
    GenerationText text;
    std::chrono::steady_clock::time_point last_token;
    int32_t num_prompt_tokens = 0;
    int32_t num_output_tokens = 0;
  };

  GenerationGroup(Service& service, Responder& responder);
  void cancel();
  std::optional<GenerationUpdate> process(size_t index, EngineOutput&& output);
  void finish(Choice& choice);

  Service& service_;
  const std::string request_id_;
  asio::steady_timer wake_up_;
  std::shared_ptr<Mailbox> mailbox_;
  std::vector<Choice> choices_;
  size_t num_unfinished_ = 0;
  bool cancelled_ = false;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace tw
