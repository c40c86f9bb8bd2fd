#include "server/generation_group.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <mutex>

#include "core/log.h"

namespace tw {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

// From the engine thread to the request's coroutine.
class GenerationGroup::Mailbox {
 public:
  struct Letter {
    size_t index;
    EngineOutput output;
    Clock::time_point arrival;
  };

  Mailbox(asio::any_io_executor executor, size_t limit)
      : executor_(std::move(executor)), limit_(limit) {}

  // Of the request's executor.
  void set_reader(std::weak_ptr<GenerationGroup> reader) { reader_ = std::move(reader); }

  // Engine thread. Wakes the reader when the box was empty: one wake-up for what piles up.
  void push(size_t index, EngineOutput&& output) {
    bool wake = false;
    {
      std::lock_guard lock(mutex_);
      if (letters_.size() >= limit_) {
        overflowed_ = true;
      } else {
        letters_.push_back({index, std::move(output), Clock::now()});
      }
      wake = !std::exchange(woken_, true);
    }
    if (!wake) return;
    asio::post(executor_, [reader = reader_] {
      if (const auto group = reader.lock()) group->wake_up_.cancel();
    });
  }

  // False when letters were lost.
  bool take(std::vector<Letter>& letters) {
    letters.clear();
    std::lock_guard lock(mutex_);
    letters.swap(letters_);
    woken_ = false;
    return !overflowed_;
  }

 private:
  const asio::any_io_executor executor_;
  const size_t limit_;
  std::weak_ptr<GenerationGroup> reader_;  // set before the first push
  std::mutex mutex_;
  std::vector<Letter> letters_;
  bool woken_ = false;
  bool overflowed_ = false;
};

ApiExpected<std::vector<GenerationTask>> make_tasks(Service& service, std::vector<TokenId> prompt,
                                                    const GenerationOptions& options,
                                                    const GrammarStart& grammar_start) {
  GenerationTask task{.prompt = std::move(prompt),
                      .sampling = options.sampling,
                      .stops = StopStrings(options.stops, options.no_stop_trim),
                      .no_stop_trim = options.no_stop_trim,
                      .skip_special_tokens = options.skip_special_tokens,
                      .rid = {},
                      .constraint = nullptr};
  const int64_t left =
      service.engine().limits().max_position_embeddings - static_cast<int64_t>(task.prompt.size());
  const int64_t wanted = options.max_new_tokens ? *options.max_new_tokens : left;
  task.sampling.max_new_tokens =
      static_cast<int32_t>(std::clamp<int64_t>(wanted, 0, std::numeric_limits<int32_t>::max()));
  std::vector<GenerationTask> tasks(static_cast<size_t>(options.n), task);
  for (size_t i = 0; options.sampling.seed && i < tasks.size(); ++i) {
    tasks[i].sampling.seed = *options.sampling.seed + i;
  }
  if (options.grammar) {
    auto constraints = service.grammars().start(*options.grammar, grammar_start, tasks.size());
    if (!constraints) {
      constraints.error().message = "grammar: " + constraints.error().message;
      return tl::unexpected(to_api_error(constraints.error()));
    }
    for (size_t i = 0; i < tasks.size(); ++i) tasks[i].constraint = std::move((*constraints)[i]);
  }
  return tasks;
}

GenerationGroup::GenerationGroup(Service& service, Responder& responder)
    : service_(service),
      request_id_(responder.request_id()),
      wake_up_(responder.executor()),
      mailbox_(
          std::make_shared<Mailbox>(responder.executor(), service.config().max_stream_backlog)),
      start_(Clock::now()) {}

ApiExpected<std::shared_ptr<GenerationGroup>> GenerationGroup::start(
    Service& service, Responder& responder, std::vector<GenerationTask> tasks) {
  std::shared_ptr<GenerationGroup> group(new GenerationGroup(service, responder));
  group->mailbox_->set_reader(group);
  group->choices_.reserve(tasks.size());
  for (size_t i = 0; i < tasks.size(); ++i) {
    GenerationTask& task = tasks[i];
    Request request;
    request.prompt = std::move(task.prompt);
    request.sampling = std::move(task.sampling);
    request.return_logprob = task.return_logprob;
    request.return_prompt_logprob = task.return_prompt_logprob;
    request.num_top_logprobs = task.num_top_logprobs;
    request.constraint = std::move(task.constraint);
    request.pooling = task.pooling;
    request.label_token_ids = std::move(task.label_token_ids);
    request.adapter = std::move(task.adapter);
    request.sink = [mailbox = group->mailbox_, i](EngineOutput&& output) {
      mailbox->push(i, std::move(output));
    };
    const auto id = service.engine().submit(std::move(request));
    // The group's destructor takes back those before.
    if (!id) return tl::unexpected(to_api_error(id.error()));
    group->choices_.push_back(
        {.engine_id = *id,
         .rid = std::move(task.rid),
         .no_stop_trim = task.no_stop_trim,
         .text = GenerationText(service.model().tokenizer, std::move(task.stops),
                                task.skip_special_tokens),
         .last_token = group->start_});
    ++group->num_unfinished_;
    const Choice& choice = group->choices_.back();
    if (!choice.rid.empty()) service.register_request(choice.rid, choice.engine_id);
  }
  responder.watch_client([weak = std::weak_ptr(group)] {
    if (const auto self = weak.lock()) self->cancel();
  });
  if (responder.client_gone()) group->cancel();
  return group;
}

GenerationGroup::~GenerationGroup() {
  cancel();
}

void GenerationGroup::cancel() {
  cancelled_ = true;
  for (Choice& choice : choices_) {
    if (choice.finished) continue;
    service_.engine().abort(choice.engine_id);
    finish(choice);
  }
  wake_up_.cancel();
}

void GenerationGroup::finish(Choice& choice) {
  if (!choice.rid.empty()) service_.forget_request(choice.rid, choice.engine_id);
  choice.finished = true;
  --num_unfinished_;
}

double GenerationGroup::seconds_since_start() const {
  return seconds_between(start_, Clock::now());
}

asio::awaitable<std::vector<GenerationUpdate>> GenerationGroup::next() {
  const auto self = shared_from_this();
  std::vector<Mailbox::Letter> letters;
  std::vector<GenerationUpdate> updates;
  for (;;) {
    if (cancelled_) co_return std::vector<GenerationUpdate>();
    if (!mailbox_->take(letters)) {
      const LogRequestScope about(request_id_);
      log::warn("a client reads too slowly: {} tokens behind, its request is cancelled",
                service_.config().max_stream_backlog);
      cancel();
      co_return std::vector<GenerationUpdate>();
    }
    for (Mailbox::Letter& letter : letters) {
      Choice& choice = choices_[letter.index];
      if (choice.finished) continue;
      Metrics& metrics = service_.metrics();
      if (!letter.output.tokens.empty()) {
        const double seconds = seconds_between(choice.last_token, letter.arrival);
        if (choice.num_output_tokens == 0) {
          metrics.observe_time_to_first_token(seconds);
        } else {
          metrics.observe_inter_token_latency(seconds);
        }
        choice.last_token = letter.arrival;
      }
      if (auto update = process(letter.index, std::move(letter.output))) {
        updates.push_back(std::move(*update));
      }
      if (choice.finished) {
        metrics.observe_request(seconds_between(start_, letter.arrival), choice.num_prompt_tokens,
                                choice.num_output_tokens);
      }
    }
    if (!updates.empty() || num_unfinished_ == 0) co_return updates;
    wake_up_.expires_at(asio::steady_timer::time_point::max());
    boost::system::error_code woken;
    co_await wake_up_.async_wait(asio::redirect_error(asio::use_awaitable, woken));
  }
}

std::optional<GenerationUpdate> GenerationGroup::process(size_t index, EngineOutput&& output) {
  Choice& choice = choices_[index];
  GenerationUpdate update;
  update.index = index;
  update.num_prompt_tokens = choice.num_prompt_tokens = output.num_prompt_tokens;
  update.num_cached_tokens = output.num_cached_tokens;
  update.num_output_tokens = choice.num_output_tokens = output.num_output_tokens;
  update.prompt_logprobs = std::move(output.prompt_logprobs);
  update.tokens = std::move(output.tokens);
  update.embedding = std::move(output.embedding);
  update.label_logprobs = std::move(output.label_logprobs);
  if (output.finish_reason == FinishReason::error) {
    finish(choice);
    update.error = output.error ? std::move(*output.error)
                                : Error{ErrorCode::internal, "the generation failed"};
    return update;
  }
  for (size_t i = 0; i < update.tokens.size() && !choice.text.stopped(); ++i) {
    const bool is_stop = output.matched_stop_token && i + 1 == update.tokens.size();
    if (is_stop && !choice.no_stop_trim) {
      update.last_token_is_stop = true;
    } else if (update.tokens[i].has_token) {
      update.text += choice.text.push(update.tokens[i].token);
    }
  }
  if (output.finish_reason != FinishReason::none) update.text += choice.text.finish();
  if (choice.text.stopped()) {
    if (output.finish_reason == FinishReason::none) service_.engine().abort(choice.engine_id);
    update.end = {.reason = FinishReason::stop,
                  .matched_token = {},
                  .matched_string = choice.text.matched_stop()};
  } else if (output.finish_reason != FinishReason::none) {
    update.end = {.reason = output.finish_reason,
                  .matched_token = output.matched_stop_token,
                  .matched_string = {}};
  }
  if (update.end) finish(choice);
  return update;
}

size_t GenerationGroup::size() const {
  return choices_.size();
}

}  // namespace tw
