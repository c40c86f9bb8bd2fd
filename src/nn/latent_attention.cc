#include "nn/latent_attention.h"

#include <algorithm>

#include "core/check.h"
#include "nn/attention_work_list.h"

namespace tw {

using kernels::LatentAttentionArguments;
using kernels::LatentAttentionKernels;
using kernels::LatentStoreArguments;

namespace {

struct Offsets {
  size_t queries, absorbed, latents, output, partials;
};

// Normalizes the latents, rotates queries and keys, and writes rows of the cache.
class StoreLatentsStep final : public Step {
 public:
  StoreLatentsStep(const LatentAttentionKernels& kernels, const kernels::NormKernels& norm,
                   const LatentAttentionLayer& layer, const Offsets& offsets)
      : kernels_(kernels), norm_kernels_(norm), layer_(layer), offsets_(offsets) {
    arguments_.rope = layer.rope->view();
    arguments_.interleaved = layer.interleaved_rope;
    arguments_.layout = layer.shape.layout;
    arguments_.num_heads = layer.shape.num_heads;
    arguments_.rope_stride = layer.nope_dim + layer.shape.layout.rope_dim;
    arguments_.rows = layer.cache.rows();
  }

  std::string_view name() const override { return "store_latents"; }

  void run(const StepContext& context) const override {
    const kernels::LatentLayout& layout = arguments_.layout;
    const int64_t num_tokens = context.batch.num_tokens();
    const Range tokens = context.member.share(num_tokens);
    auto* latents = reinterpret_cast<float*>(context.arena + offsets_.latents);
    kernels::RmsNormArguments norm;
    norm.out = {latents, num_tokens, layout.latent_dim, layout.row_dim()};
    norm.x = {latents, num_tokens, layout.latent_dim, layout.row_dim()};
    norm.weight = layer_.latent_norm.data();
    norm.epsilon = layer_.epsilon;
    norm_kernels_.rms_norm(norm, tokens);

    LatentStoreArguments arguments = arguments_;
    const int64_t heads = layer_.shape.num_heads;
    const int64_t rope_dim = layout.rope_dim;
    const auto* queries = reinterpret_cast<const float*>(context.arena + offsets_.queries);
    arguments.q_rope = {queries + layer_.nope_dim, num_tokens, rope_dim,
                        heads * arguments.rope_stride};
    arguments.q = dense_matrix(reinterpret_cast<float*>(context.arena + offsets_.absorbed),
                               num_tokens, heads * layout.row_dim());
    arguments.latent = norm.x;
    arguments.k_rope = {latents + layout.latent_dim, num_tokens, rope_dim, layout.row_dim()};
    arguments.positions = context.batch.positions.data();
    arguments.kv_slots = context.batch.kv_slots.data();
    kernels_.store(arguments, tokens);
    arguments.num_heads = 0;  // the queries are rotated
    for (const KvCopy& copy : context.batch.kv_copies) {
      if (copy.token < tokens.begin || copy.token >= tokens.end) continue;
      arguments.latent.data = latents + copy.token * layout.row_dim();
      arguments.k_rope.data = arguments.latent.data + layout.latent_dim;
      arguments.positions = &context.batch.positions[static_cast<size_t>(copy.token)];
      arguments.kv_slots = &copy.slot;
      kernels_.store(arguments, {0, 1});
    }
  }

 private:
  const LatentAttentionKernels& kernels_;
  const kernels::NormKernels& norm_kernels_;
  LatentAttentionLayer layer_;
  Offsets offsets_;
  LatentStoreArguments arguments_;
};

// The two halves of attention, as in attention.cc.
template <typename WorkList>
class LatentAttentionStep : public Step {
 public:
  LatentAttentionStep(const LatentAttentionKernels& kernels, std::shared_ptr<WorkList> list,
                      const LatentAttentionLayer& layer, const Offsets& offsets)
      : kernels_(kernels), list_(std::move(list)), offsets_(offsets) {
    arguments_.shape = layer.shape;
    arguments_.rows = layer.cache.rows();
  }

 protected:
  LatentAttentionArguments bind(const StepContext& context) const {
    LatentAttentionArguments arguments = arguments_;
    const int64_t num_tokens = context.batch.num_tokens();
    const int64_t heads = arguments.shape.num_heads;
    const kernels::LatentLayout& layout = arguments.shape.layout;
    arguments.batch = attention_batch(context.batch);
    arguments.plan = &list_->plan;
    arguments.q = dense_matrix(reinterpret_cast<const float*>(context.arena + offsets_.absorbed),
                               num_tokens, heads * layout.row_dim());
    arguments.out = dense_matrix(reinterpret_cast<float*>(context.arena + offsets_.output),
                                 num_tokens, heads * layout.latent_dim);
    arguments.partials = reinterpret_cast<float*>(context.arena + offsets_.partials);
    return arguments;
  }

  const kernels::LatentAttentionShape& shape() const { return arguments_.shape; }

  const LatentAttentionKernels& kernels_;
  std::shared_ptr<WorkList> list_;

 private:
  LatentAttentionArguments arguments_;
  Offsets offsets_;
};

template <typename WorkList>
class AttendLatentsStep final : public LatentAttentionStep<WorkList> {
 public:
  using LatentAttentionStep<WorkList>::LatentAttentionStep;
  std::string_view name() const override { return "latent_attention"; }

  void run(const StepContext& context) const override {
    this->kernels_.attend(this->bind(context), this->list_->plan.items_of(context.member.rank()));
  }

  StepCost cost(const Batch& batch) const override {
    const AttentionCounts counts = count_attention(batch);
    const kernels::LatentAttentionShape& shape = this->shape();
    return {
        counts.cached * shape.layout.bytes_per_token(),
        2 * counts.scores * shape.num_heads * (shape.layout.row_dim() + shape.layout.latent_dim)};
  }
};

template <typename WorkList>
class MergeLatentsStep final : public LatentAttentionStep<WorkList> {
 public:
  using LatentAttentionStep<WorkList>::LatentAttentionStep;
  std::string_view name() const override { return "merge_attention"; }

  void run(const StepContext& context) const override {
    if (this->list_->plan.num_merges == 0) return;
    this->kernels_.merge(this->bind(context), context.member.share(context.batch.num_tokens()));
  }
};

}  // namespace

Expected<LatentCache> LatentCache::allocate(const kernels::LatentLayout& layout) {
  if (Status status = layout.validate(); !status) return forward_error(status);
  int64_t bytes = 0;
  if (__builtin_mul_overflow(layout.num_pages, layout.page_size * layout.bytes_per_token(),
                             &bytes)) {
    return error(ErrorCode::resource_exhausted, "KV cache of {} pages is too large",
                 layout.num_pages);
  }
  auto buffer = Buffer::allocate(static_cast<size_t>(bytes));
  if (!buffer) return forward_error(buffer);
  LatentCache cache;
  cache.layout_ = layout;
  cache.buffer_ = std::move(*buffer);
  return cache;
}

void LatentCache::copy_page(int64_t from, int64_t to) {
  const int64_t bytes = layout_.page_size * layout_.bytes_per_token();
  std::copy_n(buffer_.data() + from * bytes, bytes, buffer_.data() + to * bytes);
}

void AttentionRecorder::record_latent(const LatentAttentionLayer& layer,
                                      const LatentAttentionValues& values) {
  const kernels::LatentLayout& layout = layer.shape.layout;
  const int64_t heads = layer.shape.num_heads;
  TW_CHECK(recorder_.columns(values.queries) == heads * (layer.nope_dim + layout.rope_dim));
  TW_CHECK(recorder_.columns(values.absorbed) == heads * layout.row_dim());
  TW_CHECK(recorder_.columns(values.latents) == layout.row_dim());
  TW_CHECK(recorder_.columns(values.output) == heads * layout.latent_dim);
  const auto list = work_list(layer.shape.work());
  const Offsets offsets = {recorder_.offset(values.queries), recorder_.offset(values.absorbed),
                           recorder_.offset(values.latents), recorder_.offset(values.output),
                           recorder_.offset(list->partials)};
  const LatentAttentionKernels& kernels = kernels::select_latent_attention(features_, layout.type);
  recorder_.add(
      std::make_unique<StoreLatentsStep>(kernels, norm_kernels_, layer, offsets),
      {{values.queries, Split::rows}},
      {{values.absorbed, Split::rows}, {values.latents, Split::rows}, {pages_, Split::rows}});
  recorder_.add(
      std::make_unique<AttendLatentsStep<WorkList>>(kernels, list, layer, offsets),
      {{list->value, Split::other}, {values.absorbed, Split::other}, {pages_, Split::other}},
      {{values.output, Split::other}, {list->partials, Split::other}});
  recorder_.add(std::make_unique<MergeLatentsStep<WorkList>>(kernels, list, layer, offsets),
                {{list->partials, Split::other}}, {{values.output, Split::rows}});
}

}  // namespace tw
