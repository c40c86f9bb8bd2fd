// Division of a step's attention over threads.
//
// The work is a list of groups: a block of a sequence's query tokens times one KV head. Its cost is
// about the number of keys it visits times what a key costs: a fixed part (read and widened once)
// and a part per row. The list is cut into one contiguous piece per thread. Groups of few rows
// (decode) may be cut inside, at a border of chunks, so that a single long context keeps every
// thread busy; then at most num_threads - 1 groups are cut. Groups of many rows (prefill) are
// numerous, so they stay whole.
#include <algorithm>

#include "core/check.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/partial.h"

namespace tw::kernels {
namespace {

// Rows of a prefill block: enough that loading a chunk of keys and values into L2 is small beside
// computing with it.
constexpr int64_t kBlockRows = 192;
// Blocks shrink to this when there would be too few of them to balance.
constexpr int64_t kMinBlockRows = 24;
constexpr int64_t kBlocksPerThread = 8;
// Groups with more rows are not cut inside: their partials would take more memory than they save
// time.
constexpr int64_t kMaxSplitRows = 64;
// What a key costs beside its rows, in rows; and what a group costs before its first key, in keys.
constexpr int64_t kKeyCost = 8;
constexpr int64_t kGroupCost = 16;
// Partials take no more memory than this, unless one sequence of the greatest length needs more.
constexpr int64_t kMaxPartialBytes = int64_t{16} << 20;

struct Group {
  int32_t seq;
  int32_t kv_head;
  int32_t first_token;
  int32_t num_tokens;
  int64_t rows;
  int64_t first_key;  // that the first token sees
  int64_t end_key;    // one past the last token's position

  int64_t first_chunk() const { return first_key / kAttentionChunk; }
  int64_t end_chunk() const { return (end_key + kAttentionChunk - 1) / kAttentionChunk; }
  int64_t key_cost() const { return rows + kKeyCost; }
  // Of the keys before `chunk`, and what comes before the first key.
  int64_t cost_before(int64_t chunk) const {
    const int64_t keys = std::clamp(chunk * kAttentionChunk, first_key, end_key) - first_key;
    return (keys + kGroupCost) * key_cost();
  }
  int64_t cost() const { return cost_before(end_chunk()); }
};

template <typename Visit>
void for_each_group(const AttentionWork& work, const AttentionBatch& batch, int64_t block_tokens,
                    Visit visit) {
  for (int32_t seq = 0; seq < batch.num_seqs(); ++seq) {
    const int32_t begin = batch.seq_starts[static_cast<size_t>(seq)];
    const int32_t end = batch.seq_starts[static_cast<size_t>(seq) + 1];
    for (int32_t kv_head = 0; kv_head < work.num_kv_heads; ++kv_head) {
      for (int32_t token = begin; token < end;) {
        const auto count = static_cast<int32_t>(std::min<int64_t>(block_tokens, end - token));
        const int64_t first_position = batch.positions[static_cast<size_t>(token)];
        const int64_t first_key =
            first_visible(first_position, work.sliding_window, work.attention_chunk);
        visit(Group{seq, kv_head, token, count, int64_t{count} * work.group_size(),
                    std::max<int64_t>(first_key, 0), first_position + count});
        token += count;
      }
    }
  }
}

int64_t choose_block_tokens(const AttentionWork& work, const AttentionBatch& batch,
                            int32_t num_threads) {
  int64_t tokens = std::max<int64_t>(1, kBlockRows / work.group_size());
  const int64_t wanted = kBlocksPerThread * num_threads;
  while (tokens > 1 && tokens / 2 * work.group_size() >= kMinBlockRows) {
    int64_t blocks = 0;
    for (int32_t seq = 0; seq < batch.num_seqs(); ++seq) {
      const int64_t count = batch.seq_starts[static_cast<size_t>(seq) + 1] -
                            batch.seq_starts[static_cast<size_t>(seq)];
      blocks += (count + tokens - 1) / tokens * work.num_kv_heads;
    }
    if (blocks >= wanted) break;
    tokens /= 2;
  }
  return tokens;
}

// Hands groups out to threads in order, each up to its share of the cost.
class Divider {
 public:
  Divider(AttentionPlan& plan, int64_t total_cost) : plan_(plan), total_cost_(total_cost) {
    plan_.num_items = 0;
    plan_.num_merges = 0;
    plan_.num_partials = 0;
    plan_.thread_starts[0] = 0;
  }

  void add(const Group& group) {
    const int64_t chunks = group.end_chunk() - group.first_chunk();
    const bool may_split = chunks > 1 && group.rows <= kMaxSplitRows &&
                           plan_.num_partials + chunks * group.rows <= plan_.max_partials &&
                           plan_.num_merges < plan_.max_merges;
    const int64_t group_begin = cost_;
    const int64_t group_end = cost_ + group.cost();
    int64_t chunk = group.first_chunk();
    int64_t first_partial = -1;
    while (!is_last_thread() && group_end > thread_end()) {
      const int64_t cut = may_split ? best_cut(group, group_begin) : whole_or_none(group);
      if (cut >= group.end_chunk()) break;
      if (cut > chunk) {
        if (first_partial < 0) first_partial = start_merge(group, chunks);
        add_item(group, chunk, cut, first_partial);
        chunk = cut;
      }
      next_thread();
    }
    add_item(group, chunk, group.end_chunk(), first_partial);
    cost_ = group_end;
    if (!is_last_thread() && cost_ >= thread_end()) next_thread();
  }

  void finish() {
    while (!is_last_thread()) next_thread();
    plan_.thread_starts[plan_.num_threads] = static_cast<int32_t>(plan_.num_items);
  }

 private:
  bool is_last_thread() const { return thread_ == plan_.num_threads - 1; }
  // Cost at which the present thread's share ends.
  int64_t thread_end() const { return total_cost_ * (thread_ + 1) / plan_.num_threads; }

  void next_thread() { plan_.thread_starts[++thread_] = static_cast<int32_t>(plan_.num_items); }

  // The border of chunks nearest to the end of the thread's share.
  int64_t best_cut(const Group& group, int64_t group_begin) const {
    const int64_t share = thread_end() - group_begin;
    const int64_t keys = share / group.key_cost() - kGroupCost;
    const int64_t border = (group.first_key + keys + kAttentionChunk / 2) / kAttentionChunk;
    return std::clamp(border, group.first_chunk(), group.end_chunk());
  }

  // All of a group if more than half of it lies within the thread's share.
  int64_t whole_or_none(const Group& group) const {
    return thread_end() - cost_ > group.cost() / 2 ? group.end_chunk() : group.first_chunk();
  }

  int64_t start_merge(const Group& group, int64_t chunks) {
    const int64_t first_partial = plan_.num_partials;
    plan_.merges[plan_.num_merges++] = {group.kv_head, group.first_token, group.num_tokens,
                                        static_cast<int32_t>(chunks),
                                        static_cast<int32_t>(first_partial)};
    plan_.num_partials += chunks * group.rows;
    return first_partial;
  }

  void add_item(const Group& group, int64_t first_chunk, int64_t end_chunk, int64_t first_partial) {
    TW_CHECK(plan_.num_items < plan_.max_items);
    if (first_partial >= 0) {
      first_partial += (first_chunk - group.first_chunk()) * group.rows;
    }
    plan_.items[plan_.num_items++] = {group.seq,
                                      group.kv_head,
                                      group.first_token,
                                      group.num_tokens,
                                      static_cast<int32_t>(first_chunk),
                                      static_cast<int32_t>(end_chunk),
                                      static_cast<int32_t>(first_partial)};
  }

  AttentionPlan& plan_;
  int64_t total_cost_;
  int64_t cost_ = 0;  // of the groups handed out
  int32_t thread_ = 0;
};

struct Capacity {
  int64_t items;
  int64_t merges;
  int64_t partials;
};

Capacity capacity(const AttentionWork& work, const AttentionLimits& limits) {
  const int64_t cuts = limits.num_threads - 1;
  const int64_t heads = work.num_kv_heads;
  // Blocks of one token at the least, and each cut adds an item.
  const int64_t items = limits.max_num_tokens * heads + cuts;
  if (cuts == 0) return {items, 0, 0};
  const int64_t chunks = (limits.max_context_len + kAttentionChunk - 1) / kAttentionChunk;
  const int64_t one_sequence = work.num_heads * chunks;
  const int64_t rows = std::max<int64_t>(work.group_size(), kMaxSplitRows);
  const int64_t bytes_per_partial =
      partial_stride(work.value_dim) * static_cast<int64_t>(sizeof(float));
  const int64_t affordable = std::max(one_sequence, kMaxPartialBytes / bytes_per_partial);
  return {items, cuts, std::min(cuts * chunks * rows, affordable)};
}

template <typename T>
T* take(std::byte*& memory, int64_t count) {
  T* result = reinterpret_cast<T*>(memory);
  memory += (static_cast<size_t>(count) * sizeof(T) + 7) / 8 * 8;
  return result;
}

}  // namespace

Status AttentionShape::validate() const {
  if (auto valid = layout.validate(); !valid) return valid;
  if (num_heads <= 0 || num_heads % layout.num_kv_heads != 0) {
    return error(ErrorCode::invalid_argument,
                 "attention: {} heads over {} KV heads; a positive multiple is needed", num_heads,
                 layout.num_kv_heads);
  }
  if (group_size() > kMaxAttentionRows) {
    return error(ErrorCode::unsupported,
                 "attention: {} heads per KV head; at most {} are supported", group_size(),
                 kMaxAttentionRows);
  }
  if (sliding_window < 0 || attention_chunk < 0 || !(soft_cap >= 0.0f)) {
    return error(ErrorCode::invalid_argument,
                 "attention: sliding_window {}, attention_chunk {} and soft_cap {} must not be "
                 "negative",
                 sliding_window, attention_chunk, soft_cap);
  }
  return {};
}

size_t attention_plan_size(const AttentionWork& work, const AttentionLimits& limits) {
  std::byte* end = nullptr;
  const Capacity room = capacity(work, limits);
  take<AttentionItem>(end, room.items);
  take<AttentionMerge>(end, room.merges);
  take<int32_t>(end, limits.num_threads + 1);
  return reinterpret_cast<size_t>(end);
}

AttentionPlan layout_attention_plan(const AttentionWork& work, const AttentionLimits& limits,
                                    std::byte* memory) {
  const Capacity room = capacity(work, limits);
  AttentionPlan plan;
  plan.items = take<AttentionItem>(memory, room.items);
  plan.merges = take<AttentionMerge>(memory, room.merges);
  plan.thread_starts = take<int32_t>(memory, limits.num_threads + 1);
  plan.max_items = room.items;
  plan.max_merges = room.merges;
  plan.max_partials = room.partials;
  plan.num_threads = limits.num_threads;
  std::fill_n(plan.thread_starts, limits.num_threads + 1, 0);
  return plan;
}

size_t attention_partials_size(const AttentionWork& work, const AttentionLimits& limits) {
  return static_cast<size_t>(capacity(work, limits).partials * partial_stride(work.value_dim)) *
         sizeof(float);
}

void build_attention_plan(const AttentionWork& work, const AttentionBatch& batch,
                          AttentionPlan& plan) {
  const int64_t block_tokens = choose_block_tokens(work, batch, plan.num_threads);
  int64_t total_cost = 0;
  for_each_group(work, batch, block_tokens,
                 [&](const Group& group) { total_cost += group.cost(); });
  Divider divider(plan, total_cost);
  for_each_group(work, batch, block_tokens, [&](const Group& group) { divider.add(group); });
  divider.finish();
}

}  // namespace tw::kernels
