#include "nn/head_share.h"

#include <numeric>

namespace tw {

Expected<HeadShare> HeadShare::of(const WeightLoader& loader, const std::string& prefix,
                                  const AttentionConfig& config) {
  if (loader.shard.is_whole() || config.num_heads <= 0 || config.num_kv_heads <= 0 ||
      config.head_dim <= 0 || config.num_heads % config.num_kv_heads != 0) {
    return HeadShare{};  // what is wrong with such numbers is for AttentionShape::validate to say
  }
  if (config.qk_norm == QkNormKind::projection) {
    return error(ErrorCode::unsupported,
                 "{}: {}: queries and keys are normalized over all heads, which --tp can't divide "
                 "yet; use --tp 1",
                 loader.checkpoint.path().string(), prefix);
  }
  const int64_t head_dim = config.head_dim;
  const int64_t group = config.num_heads / config.num_kv_heads;
  auto columns = loader.share_of_columns(prefix + "." + config.output_name, config.hidden_size,
                                         config.num_heads * head_dim, {group * head_dim, head_dim});
  if (!columns) return forward_error(columns);
  return of({columns->begin / head_dim, columns->end / head_dim}, config.num_heads,
            config.num_kv_heads);
}

HeadShare HeadShare::of(Range heads, int64_t num_heads, int64_t num_kv_heads) {
  HeadShare share;
  share.is_whole = false;
  share.heads = heads;
  const int64_t group = num_heads / num_kv_heads;
  // The longest run of queries, of one KV head each, that the share is made of.
  const int64_t run = std::gcd(group, std::gcd(heads.begin, heads.end));
  for (int64_t head = heads.begin; head < heads.end; head += run) {
    share.kv_heads.push_back(head / group);
  }
  return share;
}

LinearSlice HeadShare::qkv_slice(const AttentionConfig& config) const {
  if (is_whole) return {};
  const int64_t head_dim = config.head_dim;
  const auto rows = [&](int64_t first_head, int64_t end_head) {
    return Range{first_head * head_dim, end_head * head_dim};
  };
  std::vector<std::vector<Range>> qkv(3);
  qkv[0] = {rows(heads.begin, heads.end)};
  for (const int64_t head : kv_heads) {
    qkv[1].push_back(rows(head, head + 1));
    qkv[2].push_back(rows(head, head + 1));
  }
  if (config.qkv_names.size() == 3) return {.rows = qkv};
  // One tensor of queries, keys and values.
  std::vector<Range> all;
  int64_t first_head = 0;
  for (size_t part = 0; part < 3; ++part) {
    for (const Range& range : qkv[part]) {
      all.push_back({first_head * head_dim + range.begin, first_head * head_dim + range.end});
    }
    first_head += part == 0 ? config.num_heads : config.num_kv_heads;
  }
  return {.rows = {all}};
}

LinearSlice HeadShare::output_slice(const AttentionConfig& config) const {
  if (is_whole) return {};
  return {.columns = Range{heads.begin * config.head_dim, heads.end * config.head_dim}};
}

void HeadShare::keep_own(std::vector<float>& values) const {
  if (is_whole) return;
  values = {values.begin() + heads.begin, values.begin() + heads.end};
}

}  // namespace tw
