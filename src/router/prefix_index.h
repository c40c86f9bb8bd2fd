// Which beginnings of texts a worker has seen, and so may still have in its prefix cache.
//
// A text is cut into blocks, and a block is known by the hash of everything up to its end: two
// texts share a prefix as far as they share such hashes. Needs 16 bytes and a node per block of
// text instead of the text, and a worker's share is bounded by forgetting what was not asked for
// longest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string_view>
#include <unordered_map>

namespace tw {

class PrefixIndex {
 public:
  static constexpr size_t kBlockBytes = 64;

  // Keeps about so many bytes of text.
  explicit PrefixIndex(size_t max_bytes) : max_blocks_(max_bytes / kBlockBytes) {}

  // How much of the text's beginning was seen, in bytes: a multiple of kBlockBytes.
  size_t match(std::string_view text) const;

  // The worker gets this text.
  void insert(std::string_view text);

  size_t size_bytes() const { return blocks_.size() * kBlockBytes; }

 private:
  const size_t max_blocks_;
  std::list<uint64_t> recent_;  // hashes, the one used last in front
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> blocks_;
};

}  // namespace tw
