// A text's suffix automaton: the longest suffix of what was said that was said before, and what
// followed it, in a few look-ups for each new token.
//
// A state stands for contexts that end at the same places of the text: the longest, of `length`
// tokens, and its suffixes down to one token more than the state behind `link` has. It is built
// token by token (Blumer et al., "The smallest automaton recognizing the subwords of a text",
// 1985), of several texts where separators are (Mohri et al., 2009); Hu et al., "SAM Decoding"
// (2024), draft with it.
//
// Memory is bounded: at `capacity` tokens it starts again from the younger half of the text. A
// token takes about 100 bytes, and never more than twice that.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"

namespace tw {

class SuffixAutomaton {
 public:
  // Stands between texts that have nothing to do with each other.
  static constexpr TokenId kSeparator = -1;
  // Fewer tokens in common say nothing about what follows.
  static constexpr int32_t kShortestMatch = 2;

  explicit SuffixAutomaton(int32_t capacity);

  void append(TokenId token);
  void clear();

  // The longest suffix of a sequence that the text has.
  struct Match {
    int32_t state = 0;
    int32_t length = 0;    // tokens
    int64_t restarts = 0;  // of the automaton, before this
  };
  // Of the sequence `before` that goes on by `token`, which need not be a part of the text. `match`
  // is that of `before`; where it is none of the present automaton it is made again.
  Match advance(Match match, std::span<const TokenId> before, TokenId token) const;
  // Of the text itself, which came before in it.
  Match last_repetition() const;

  // Appends what may follow a match: at most `count` tokens, each the one that followed its context
  // most often, the youngest of equals. Behind the text's end it goes on as shorter contexts did.
  void continue_from(const Match& match, int32_t count, std::vector<TokenId>& tokens) const;

  int32_t num_tokens() const { return static_cast<int32_t>(text_.size()); }
  size_t num_bytes() const {
    return states_.size() * sizeof(State) + edges_.size() * sizeof(Edge) +
           slots_.size() * sizeof(int32_t) + text_.size() * sizeof(TokenId);
  }

 private:
  static constexpr int32_t kNone = -1;

  struct State {
    int32_t length = 0;
    int32_t link = kNone;
    int32_t first_edge = kNone;
    int32_t count = 0;     // places where its contexts ended ...
    int32_t last_end = 0;  // ... and the youngest of them
  };
  struct Edge {
    int32_t state;
    TokenId token;
    int32_t target;
    int32_t next;  // of the same state
  };

  void extend(TokenId token);
  int32_t add_last_state(int32_t before, TokenId token);
  int32_t target_of_length(int32_t edge, int32_t length);
  void count_place();
  size_t slot_of(int32_t state, TokenId token) const;
  int32_t find_edge(int32_t state, TokenId token) const;
  void add_edge(int32_t state, TokenId token, int32_t target);
  int32_t best_edge(int32_t state) const;
  const State& at(int32_t state) const { return states_[static_cast<size_t>(state)]; }
  State& at(int32_t state) { return states_[static_cast<size_t>(state)]; }
  const Edge& edge_at(int32_t edge) const { return edges_[static_cast<size_t>(edge)]; }

  const int32_t capacity_;
  std::vector<TokenId> text_;
  std::vector<State> states_;  // the root is 0
  std::vector<Edge> edges_;
  std::vector<int32_t> slots_;  // edges by (state, token), open addressing; kNone: free
  int32_t last_ = 0;            // the state of the text's end
  int64_t restarts_ = 0;
};

}  // namespace tw
