#include "nn/gated_ffn.h"

#include "nn/forward_recorder.h"
#include "nn/load_sequence.h"

namespace tw {
namespace {

class GatedFfn final : public Block {
 public:
  static Expected<std::unique_ptr<Block>> load(const WeightLoader& loader,
                                               const std::string& prefix,
                                               const GatedFfnConfig& config) {
    auto activation = activation_of(config.hidden_act, loader.checkpoint.path().string());
    if (!activation) return forward_error(activation);
    auto block = std::unique_ptr<GatedFfn>(new GatedFfn(*activation));
    const int64_t size = config.intermediate_size;
    std::vector<int64_t> gate_up_sizes = {size, size};
    if (config.gate_up_names.size() == 1) gate_up_sizes = {2 * size};
    LinearSlice gate_up_slice, down_slice;
    if (!loader.shard.is_whole()) {
      auto share =
          loader.share_of_columns(prefix + "." + config.down_name, config.hidden_size, size);
      if (!share) return forward_error(share);
      block->share_ = share->empty() ? BlockShare::none : BlockShare::part;
      if (share->empty()) return block;
      const Range up = {size + share->begin, size + share->end};
      gate_up_slice.rows = {{*share}, {*share}};
      if (config.gate_up_names.size() == 1) gate_up_slice.rows = {{*share, up}};
      down_slice.columns = *share;
    }
    LoadSequence load(loader, prefix + ".");
    load.linear(config.gate_up_names, config.hidden_size, gate_up_sizes, config.bias,
                block->gate_up_proj_, {}, gate_up_slice);
    // Ranks' outputs are added: one of them brings the bias.
    load.linear({config.down_name}, size, {config.hidden_size},
                config.bias && loader.shard.rank == 0, block->down_proj_, {}, down_slice);
    if (Status status = load.status(); !status) return forward_error(status);
    return block;
  }

  BlockShare share() const override { return share_; }

  Status record(ForwardRecorder& recorder, ValueId input, ValueId output,
                kernels::Epilogue epilogue) override {
    const ValueId gate_up = recorder.shared_value("gate_up", gate_up_proj_.output_size());
    const ValueId activated = recorder.shared_value("activated", down_proj_.input_size());
    gate_up_proj_.record(recorder.plan(), recorder.prepared(), input, gate_up);
    record_gated_activation(recorder.plan(), recorder.kernels(), activation_, gate_up, activated);
    down_proj_.record(recorder.plan(), recorder.prepared(), activated, output, epilogue);
    return {};
  }

 private:
  explicit GatedFfn(kernels::Activation activation) : activation_(activation) {}

  kernels::Activation activation_;
  BlockShare share_ = BlockShare::part;
  Linear gate_up_proj_;  // hidden -> 2 x intermediate
  Linear down_proj_;     // intermediate -> hidden
};

}  // namespace

GatedFfnConfig GatedFfnConfig::from(const ModelConfig& config) {
  GatedFfnConfig ffn;
  ffn.hidden_size = config.hidden_size;
  ffn.intermediate_size = config.intermediate_size;
  ffn.hidden_act = config.hidden_act;
  ffn.bias = config.mlp_bias;
  return ffn;
}

Expected<std::unique_ptr<Block>> load_gated_ffn(const WeightLoader& loader,
                                                const std::string& prefix,
                                                const GatedFfnConfig& config) {
  return GatedFfn::load(loader, prefix, config);
}

Expected<kernels::Activation> activation_of(const std::string& hidden_act,
                                            const std::string& source) {
  using kernels::Activation;
  if (hidden_act == "silu" || hidden_act == "swish") return Activation::silu;
  if (hidden_act == "gelu") return Activation::gelu;
  if (hidden_act == "gelu_pytorch_tanh" || hidden_act == "gelu_new") return Activation::gelu_tanh;
  return error(ErrorCode::unsupported,
               "{}: hidden_act {} is not supported; known are silu, gelu, gelu_pytorch_tanh and "
               "gelu_new",
               source, hidden_act);
}

}  // namespace tw
