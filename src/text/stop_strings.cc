#include "text/stop_strings.h"

#include <algorithm>

#include "core/check.h"
#include "text/stop_automaton.h"
#include "text/utf8.h"

namespace tw {

Status validate_stop_strings(std::span<const std::string> stops) {
  size_t total = 0;
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty()) {
      return error(ErrorCode::invalid_argument, "stop[{}]: an empty stop string", i);
    }
    if (const auto bad = find_invalid_utf8(stops[i])) {
      return error(ErrorCode::invalid_argument, "stop[{}]: not valid UTF-8 (at byte {})", i, *bad);
    }
    total += stops[i].size();
    if (total > kMaxStopBytes) {
      return error(ErrorCode::invalid_argument,
                   "stop: the {} stop strings are longer than {} bytes together", stops.size(),
                   kMaxStopBytes);
    }
  }
  return {};
}

StopStrings::StopStrings(std::vector<std::string> stops, bool keep_stop_string)
    : keep_stop_string_(keep_stop_string) {
  const bool any = std::any_of(stops.begin(), stops.end(),
                               [](const std::string& stop) { return !stop.empty(); });
  if (any) automaton_ = std::make_shared<const StopAutomaton>(std::move(stops));
}

StopStrings::Result StopStrings::push(std::string_view piece) {
  if (stopped_) return {};
  if (!automaton_) return {.text = std::string(piece)};
  pending_.reserve(pending_.size() + piece.size());
  for (const char byte : piece) {
    pending_.push_back(byte);
    state_ = automaton_->next(state_, static_cast<uint8_t>(byte));
    const size_t candidate_begin = pending_.size() - automaton_->depth(state_);
    // Whatever can still match begins at candidate_begin or later.
    if (best_ && candidate_begin > best_->begin) return stop_at(*best_);
    const uint32_t found = automaton_->longest_match(state_);
    if (found == StopAutomaton::kNone) continue;
    const size_t begin = pending_.size() - automaton_->stop(found).size();
    if (!best_ || begin <= best_->begin) best_ = Match{begin, found};
    if (!automaton_->can_grow(state_)) return stop_at(*best_);
  }
  // Where a match waits for its decision, a candidate begins at it or before.
  const size_t safe = pending_.size() - automaton_->depth(state_);
  Result result{.text = pending_.substr(0, safe)};
  pending_.erase(0, safe);
  if (best_) best_->begin -= safe;
  return result;
}

StopStrings::Result StopStrings::finish() {
  if (stopped_) return {};
  if (best_) return stop_at(*best_);
  state_ = StopAutomaton::kRoot;
  return {.text = std::exchange(pending_, {})};
}

StopStrings::Result StopStrings::stop_at(const Match& match) {
  const std::string_view stop = automaton_->stop(match.stop);
  const size_t end = match.begin + (keep_stop_string_ ? stop.size() : 0);
  TW_CHECK(end <= pending_.size());
  Result result{.text = pending_.substr(0, end), .stopped = true, .matched = std::string(stop)};
  stopped_ = true;
  pending_.clear();
  best_.reset();
  return result;
}

}  // namespace tw
