#include "engine/speculative/suffix_automaton.h"

#include <algorithm>

namespace tw {
namespace {

// How many contexts of a place are counted, the longest first. Only within long repetitions has a
// place more of them, and there the shorter ones tell nothing new.
constexpr int kCountedContexts = 32;
// How much of a sequence is looked for again after a restart.
constexpr size_t kSearchedContext = 32;

}  // namespace

SuffixAutomaton::SuffixAutomaton(int32_t capacity) : capacity_(std::max(capacity, 2)) {
  clear();
}

void SuffixAutomaton::clear() {
  text_.clear();
  states_.assign(1, {});
  edges_.clear();
  slots_.assign(64, kNone);
  last_ = 0;
  ++restarts_;
}

void SuffixAutomaton::append(TokenId token) {
  if (num_tokens() == capacity_) {
    const std::vector<TokenId> younger(text_.begin() + capacity_ / 2, text_.end());
    clear();
    for (const TokenId kept : younger) extend(kept);
  }
  extend(token);
}

void SuffixAutomaton::extend(TokenId token) {
  text_.push_back(token);
  if (token == kSeparator) {
    last_ = 0;
    return;
  }
  // What comes behind a separator may be known already.
  const int32_t known = find_edge(last_, token);
  last_ =
      known == kNone ? add_last_state(last_, token) : target_of_length(known, at(last_).length + 1);
  count_place();
}

// For a context that never was: from all suffixes of `before` that never went on by the token.
int32_t SuffixAutomaton::add_last_state(int32_t before, TokenId token) {
  const auto added = static_cast<int32_t>(states_.size());
  states_.push_back({.length = at(before).length + 1, .link = 0});
  int32_t edge = kNone;
  while (before != kNone && (edge = find_edge(before, token)) == kNone) {
    add_edge(before, token, added);
    before = at(before).link;
  }
  if (before != kNone) {
    const int32_t link = target_of_length(edge, at(before).length + 1);
    at(added).link = link;
  }
  return added;
}

// Where the edge leads, if that is a context of the length; else its suffix of the length, split
// off as a state of its own: from now on it ends at more places than the rest.
int32_t SuffixAutomaton::target_of_length(int32_t edge, int32_t length) {
  const int32_t target = edge_at(edge).target;
  if (at(target).length == length) return target;
  const auto split = static_cast<int32_t>(states_.size());
  const TokenId token = edge_at(edge).token;
  int32_t source = edge_at(edge).state;
  State suffix = at(target);
  suffix.length = length;
  suffix.first_edge = kNone;
  states_.push_back(suffix);
  for (int32_t i = at(target).first_edge; i != kNone; i = edge_at(i).next) {
    add_edge(split, edge_at(i).token, edge_at(i).target);
  }
  at(target).link = split;
  for (; source != kNone; source = at(source).link) {
    const int32_t other = find_edge(source, token);
    if (other == kNone || edge_at(other).target != target) break;
    edges_[static_cast<size_t>(other)].target = split;
  }
  return split;
}

void SuffixAutomaton::count_place() {
  int32_t state = last_;
  for (int i = 0; i < kCountedContexts && state > 0; ++i, state = at(state).link) {
    ++at(state).count;
    at(state).last_end = num_tokens();
  }
}

size_t SuffixAutomaton::slot_of(int32_t state, TokenId token) const {
  const uint64_t key = uint64_t{static_cast<uint32_t>(state)} << 32 | static_cast<uint32_t>(token);
  const size_t mask = slots_.size() - 1;
  size_t slot = (key * 0x9e3779b97f4a7c15u >> 32) & mask;
  const auto is_other = [&](int32_t edge) {
    return edge != kNone && (edge_at(edge).state != state || edge_at(edge).token != token);
  };
  while (is_other(slots_[slot])) slot = (slot + 1) & mask;
  return slot;
}

int32_t SuffixAutomaton::find_edge(int32_t state, TokenId token) const {
  return slots_[slot_of(state, token)];
}

void SuffixAutomaton::add_edge(int32_t state, TokenId token, int32_t target) {
  if (2 * (edges_.size() + 1) > slots_.size()) {
    slots_.assign(2 * slots_.size(), kNone);
    for (size_t i = 0; i < edges_.size(); ++i) {
      slots_[slot_of(edges_[i].state, edges_[i].token)] = static_cast<int32_t>(i);
    }
  }
  const auto edge = static_cast<int32_t>(edges_.size());
  edges_.push_back({state, token, target, at(state).first_edge});
  at(state).first_edge = edge;
  slots_[slot_of(state, token)] = edge;
}

SuffixAutomaton::Match SuffixAutomaton::advance(Match match, std::span<const TokenId> before,
                                                TokenId token) const {
  if (match.restarts != restarts_) {
    match = {.state = 0, .length = 0, .restarts = restarts_};
    const std::span<const TokenId> last = before.last(std::min(before.size(), kSearchedContext));
    for (size_t i = 0; i < last.size(); ++i) match = advance(match, last.first(i), last[i]);
  }
  // A state of which a suffix was split off leaves that suffix's contexts to it.
  while (match.state != 0 && match.length <= at(at(match.state).link).length) {
    match.state = at(match.state).link;
  }
  int32_t edge = kNone;
  while ((edge = find_edge(match.state, token)) == kNone) {
    if (match.state == 0) return {.state = 0, .length = 0, .restarts = restarts_};
    match.state = at(match.state).link;
    match.length = at(match.state).length;
  }
  return {edge_at(edge).target, match.length + 1, restarts_};
}

SuffixAutomaton::Match SuffixAutomaton::last_repetition() const {
  if (last_ == 0) return {.state = 0, .length = 0, .restarts = restarts_};
  const int32_t state = at(last_).count > 1 ? last_ : at(last_).link;
  return {state, at(state).length, restarts_};
}

void SuffixAutomaton::continue_from(const Match& match, int32_t count,
                                    std::vector<TokenId>& tokens) const {
  int32_t state = match.state;
  while (count > 0 && at(state).length >= kShortestMatch) {
    const int32_t edge = best_edge(state);
    if (edge == kNone) {
      state = at(state).link;
      continue;
    }
    tokens.push_back(edge_at(edge).token);
    state = edge_at(edge).target;
    --count;
  }
}

int32_t SuffixAutomaton::best_edge(int32_t state) const {
  int32_t best = at(state).first_edge;
  const auto rank = [this](int32_t edge) {
    const State& target = at(edge_at(edge).target);
    return std::pair(target.count, target.last_end);
  };
  for (int32_t edge = best; edge != kNone; edge = edge_at(edge).next) {
    if (rank(edge) > rank(best)) best = edge;
  }
  return best;
}

}  // namespace tw
