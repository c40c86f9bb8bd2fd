#include "apps/terminal_generation.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "text/generation_text.h"

namespace tw {
namespace {

using Clock = std::chrono::steady_clock;

// Outputs on their way from the engine thread to the terminal's.
class OutputQueue {
 public:
  void push(EngineOutput&& output) {
    {
      std::lock_guard lock(mutex_);
      outputs_.push_back(std::move(output));
    }
    ready_.notify_one();
  }

  std::optional<EngineOutput> pop(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    if (!ready_.wait_for(lock, patience, [this] { return !outputs_.empty(); })) return std::nullopt;
    EngineOutput output = std::move(outputs_.front());
    outputs_.pop_front();
    return output;
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<EngineOutput> outputs_;
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

Expected<GenerationResult> generate_in_terminal(
    ModelSession& session, std::vector<TokenId> prompt, const SamplingParams& sampling,
    const std::vector<std::string>& stop, const std::function<void(std::string_view)>& on_text,
    const std::function<bool()>& interrupted) {
  const auto begin = Clock::now();
  // Shared with the sink, which may still run once after an early return.
  const auto queue = std::make_shared<OutputQueue>();
  Request request;
  request.prompt = std::move(prompt);
  request.sampling = sampling;
  request.adapter = session.adapter;
  request.sink = [queue](EngineOutput&& output) { queue->push(std::move(output)); };
  const auto id = session.engine->submit(std::move(request));
  if (!id) return tl::unexpected(id.error());

  GenerationText generation(*session.tokenizer, {.stops = stop});
  GenerationResult result;
  const auto show = [&](std::string_view piece) {
    if (piece.empty()) return;
    result.text += piece;
    on_text(piece);
  };
  bool aborted = false;
  for (;;) {
    if (!aborted && interrupted()) {
      session.engine->abort(*id);
      aborted = true;
    }
    auto output = queue->pop(std::chrono::milliseconds(50));
    if (!output) continue;
    if (output->error) return tl::unexpected(*output->error);
    result.num_prompt_tokens = output->num_prompt_tokens;
    result.num_cached_tokens = output->num_cached_tokens;
    result.num_output_tokens = output->num_output_tokens;
    for (const TokenEvent& event : output->tokens) {
      if (result.seconds_to_first_token == 0) result.seconds_to_first_token = seconds_since(begin);
      if (event.has_token && !generation.stopped()) show(generation.push(event.token));
    }
    result.finish_reason = output->finish_reason;
    if (generation.stopped()) {
      session.engine->abort(*id);
      result.finish_reason = FinishReason::stop;
    }
    if (result.finish_reason != FinishReason::none) break;
  }
  if (!generation.stopped()) show(generation.finish());
  result.seconds = seconds_since(begin);
  return result;
}

}  // namespace tw
