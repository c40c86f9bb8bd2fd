// The automaton that finds all stop strings at once (Aho and Corasick 1975); internal to
// stop_strings.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tw {

class StopAutomaton {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kRoot = 0;

  // Empty strings and repetitions are dropped. Linear in the total length, times a logarithm.
  explicit StopAutomaton(std::vector<std::string> stops);

  // A state stands for the longest end of the text so far that begins a stop string.
  uint32_t next(uint32_t state, uint8_t byte) const;
  // The length of that end.
  uint32_t depth(uint32_t state) const { return nodes_[state].depth; }
  // The longest stop string that the text so far ends with, or kNone.
  uint32_t longest_match(uint32_t state) const { return nodes_[state].longest_match; }
  // A longer stop string begins with the state's text.
  bool can_grow(uint32_t state) const { return nodes_[state].num_children > 0; }
  std::string_view stop(uint32_t index) const { return stops_[index]; }

 private:
  // Nodes lie in breadth-first order, so the children of one are neighbours.
  struct Node {
    uint32_t first_child = 0;
    uint32_t num_children = 0;
    uint32_t fail = kRoot;  // the state for the longest proper end of this one's text
    uint32_t depth = 0;
    uint32_t longest_match = kNone;
    uint8_t byte = 0;  // that leads here from the parent
  };
  uint32_t child(uint32_t state, uint8_t byte) const;
  void build_trie();
  void link_failures(const std::vector<uint32_t>& parents);

  std::vector<std::string> stops_;  // sorted, distinct
  std::vector<Node> nodes_;
  std::array<uint32_t, 256> root_next_{};  // most bytes begin no stop string
};

}  // namespace tw
