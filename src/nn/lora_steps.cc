#include "nn/lora_steps.h"

#include <algorithm>

#include "kernels/gemm/gemm.h"

namespace tw {
namespace {

using kernels::GemmArguments;
using kernels::GemmKernel;
using kernels::PreparedActivations;

// Calls body(weights of the rank's layers, rows) for each run of neighbouring tokens with the same
// adapter.
template <typename Body>
void for_each_run(const Batch& batch, int32_t shard_rank, const Body& body) {
  const auto count = batch.adapters.size();
  for (size_t begin = 0; begin < count;) {
    const LoraAdapter* adapter = batch.adapters[begin];
    size_t end = begin + 1;
    while (end < count && batch.adapters[end] == adapter) ++end;
    if (adapter != nullptr) {
      body(adapter->ranks[static_cast<size_t>(shard_rank)],
           Range{batch.seq_starts[begin], batch.seq_starts[end]});
    }
    begin = end;
  }
}

// A matrix product of some rows: one of those that a step consists of.
struct Product {
  const kernels::PackedWeight* weight = nullptr;
  size_t site_output = 0;  // of the site's
  Range rows;
};

// All of a step's products, and of each the member's share of the panels: the members divide the
// panels of all products among each other, since those of one may be fewer than the members.
template <typename Weight, typename Body>
void share_products(const StepContext& context, const LoraSite& site, const Weight& weight_of,
                    const Body& body) {
  const auto for_each_product = [&](const auto& visit) {
    for_each_run(context.batch, site.layers->shard_rank(), [&](const auto& layers, Range rows) {
      for (size_t i = 0; i < site.outputs.size(); ++i) {
        const kernels::PackedWeight& weight = weight_of(layers[site.outputs[i].index]);
        if (!weight.empty()) visit(Product{&weight, i, rows});
      }
    });
  };
  int64_t total = 0;
  for_each_product([&](const Product& product) { total += product.weight->num_panels(); });
  const Range share = context.member.share(total);
  int64_t first = 0;
  for_each_product([&](const Product& product) {
    const int64_t count = product.weight->num_panels();
    const Range panels = {std::clamp(share.begin - first, int64_t{0}, count),
                          std::clamp(share.end - first, int64_t{0}, count)};
    if (panels.begin < panels.end) body(product, panels);
    first += count;
  });
}

struct Operands {
  const LoraSite* site = nullptr;
  size_t input = 0;    // prepared, fp32
  size_t between = 0;  // A x of each of the site's outputs, prepared rows of the largest rank
  int64_t max_num_tokens = 0;
  size_t output = 0;
  int64_t output_columns = 0;

  const GemmKernel& kernel() const { return site->layers->kernel(); }

  PreparedActivations between_rows(const StepContext& context, const Product& product) const {
    const int64_t rank = site->layers->padded_rank();
    const auto area =
        kernels::prepared_activations_size(kernel().activations, max_num_tokens, rank);
    PreparedActivations a =
        kernels::layout_prepared_activations(kernel().activations, product.rows.size(), rank,
                                             context.arena + between + product.site_output * area);
    a.values += product.rows.begin * a.row_stride * static_cast<int64_t>(sizeof(float));
    return a;
  }
};

class LoraDownStep final : public Step {
 public:
  explicit LoraDownStep(const Operands& operands) : operands_(operands) {}
  std::string_view name() const override { return "lora_a"; }

  void run(const StepContext& context) const override {
    const Operands& o = operands_;
    share_products(
        context, *o.site, [](const LoraWeights& weights) -> auto& { return weights.a; },
        [&](const Product& product, Range panels) {
          GemmArguments arguments;
          arguments.weight = product.weight;
          arguments.a =
              kernels::layout_prepared_activations(o.kernel().activations, product.rows.size(),
                                                   product.weight->k(), context.arena + o.input);
          arguments.a.values +=
              product.rows.begin * arguments.a.row_stride * static_cast<int64_t>(sizeof(float));
          const PreparedActivations between = o.between_rows(context, product);
          arguments.c = {reinterpret_cast<float*>(between.values), product.rows.size(),
                         product.weight->n(), between.row_stride};
          o.kernel().run(arguments, panels);
        });
  }

 private:
  Operands operands_;
};

class LoraUpStep final : public Step {
 public:
  explicit LoraUpStep(const Operands& operands) : operands_(operands) {}
  std::string_view name() const override { return "lora_b"; }

  void run(const StepContext& context) const override {
    const Operands& o = operands_;
    share_products(
        context, *o.site, [](const LoraWeights& weights) -> auto& { return weights.b; },
        [&](const Product& product, Range panels) {
          GemmArguments arguments;
          arguments.weight = product.weight;
          arguments.a = o.between_rows(context, product);
          arguments.a.k = product.weight->k();
          auto* rows = reinterpret_cast<float*>(context.arena + o.output) +
                       product.rows.begin * o.output_columns +
                       o.site->outputs[product.site_output].column;
          arguments.c = {rows, product.rows.size(), product.weight->n(), o.output_columns};
          arguments.epilogue = kernels::Epilogue::accumulate;
          o.kernel().run(arguments, panels);
        });
  }

 private:
  Operands operands_;
};

}  // namespace

void record_lora(const LoraSite& site, PlanRecorder& recorder, PreparedInputs& prepared,
                 ValueId input, ValueId output) {
  const LoraLayers& layers = *site.layers;
  const ValueId prepared_input = prepared.prepare(input, layers.kernel()).scratch;
  const size_t area = kernels::prepared_activations_size(
      layers.kernel().activations, recorder.max_num_tokens(), layers.padded_rank());
  const ValueId between = prepared.scratch_of(site.outputs.size() * area);
  const Operands operands = {&site,
                             recorder.offset(prepared_input),
                             recorder.offset(between),
                             recorder.max_num_tokens(),
                             recorder.offset(output),
                             recorder.columns(output)};
  recorder.add(std::make_unique<LoraDownStep>(operands), {{prepared_input, Split::other}},
               {{between, Split::other}});
  recorder.add(std::make_unique<LoraUpStep>(operands), {{between, Split::other}},
               {{output, Split::other}});
}

}  // namespace tw
