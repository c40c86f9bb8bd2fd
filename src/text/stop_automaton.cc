#include "text/stop_automaton.h"

#include <algorithm>

namespace tw {

StopAutomaton::StopAutomaton(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase(stops_, "");
  std::sort(stops_.begin(), stops_.end());
  stops_.erase(std::unique(stops_.begin(), stops_.end()), stops_.end());
  build_trie();
}

// A node is a range of the sorted stop strings that agree in their first `depth` bytes; its
// children are the sub-ranges that agree in one byte more.
void StopAutomaton::build_trie() {
  struct StringRange {
    uint32_t begin;
    uint32_t end;
  };
  std::vector<StringRange> ranges = {{0, static_cast<uint32_t>(stops_.size())}};
  std::vector<uint32_t> parents = {kRoot};
  nodes_.emplace_back();
  for (uint32_t index = 0; index < nodes_.size(); ++index) {
    auto [begin, end] = ranges[index];
    const uint32_t depth = nodes_[index].depth;
    if (begin < end && stops_[begin].size() == depth) {
      // Sorted: a string that ends here comes first in its range.
      nodes_[index].longest_match = begin;
      ++begin;
    }
    nodes_[index].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = stops_[begin][depth];
      const auto same = [&](const std::string& stop) { return stop[depth] == byte; };
      const auto child_end =
          std::partition_point(stops_.begin() + begin, stops_.begin() + end, same);
      const auto child_end_index = static_cast<uint32_t>(child_end - stops_.begin());
      nodes_.push_back({.depth = depth + 1, .byte = static_cast<uint8_t>(byte)});
      ranges.push_back({begin, child_end_index});
      parents.push_back(index);
      begin = child_end_index;
    }
    nodes_[index].num_children = static_cast<uint32_t>(nodes_.size()) - nodes_[index].first_child;
  }
  link_failures(parents);
}

void StopAutomaton::link_failures(const std::vector<uint32_t>& parents) {
  const Node& root = nodes_[kRoot];
  for (uint32_t index = root.first_child; index < root.first_child + root.num_children; ++index) {
    root_next_[nodes_[index].byte] = index;
  }
  // Breadth first: the links of shorter texts are there when longer ones need them.
  for (uint32_t index = root.first_child + root.num_children; index < nodes_.size(); ++index) {
    Node& node = nodes_[index];
    node.fail = next(nodes_[parents[index]].fail, node.byte);
    if (node.longest_match == kNone) node.longest_match = nodes_[node.fail].longest_match;
  }
}

uint32_t StopAutomaton::child(uint32_t state, uint8_t byte) const {
  const Node* begin = nodes_.data() + nodes_[state].first_child;
  const Node* end = begin + nodes_[state].num_children;
  const Node* found = std::lower_bound(
      begin, end, byte, [](const Node& node, uint8_t value) { return node.byte < value; });
  if (found == end || found->byte != byte) return kNone;
  return static_cast<uint32_t>(found - nodes_.data());
}

uint32_t StopAutomaton::next(uint32_t state, uint8_t byte) const {
  while (state != kRoot) {
    const uint32_t found = child(state, byte);
    if (found != kNone) return found;
    state = nodes_[state].fail;
  }
  return root_next_[byte];
}

}  // namespace tw
