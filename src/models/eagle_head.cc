#include "models/eagle_head.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "kernels/gemm/packed_weight.h"
#include "nn/attention_block.h"
#include "nn/gated_ffn.h"
#include "nn/layers.h"

namespace tw {
namespace {

constexpr const char* kArchitecture = "LlamaForCausalLMEagle3";

// The head's tensors, for the team, the rank and the precision of the model's.
WeightLoader loader_of_head(const WeightLoader& of_model, const Scheme& scheme) {
  WeightLoader loader(*of_model.eagle_head, of_model.team, of_model);
  loader.scheme = &scheme;
  loader.on_progress = nullptr;
  loader.lora = nullptr;  // adapters change the model alone
  return loader;
}

}  // namespace

Expected<std::unique_ptr<EagleHead>> EagleHead::load(const WeightLoader& loader,
                                                     const DecoderParts& parts) {
  const Checkpoint& checkpoint = *loader.eagle_head;
  const std::string source = checkpoint.path().string();
  const auto architectures = ModelConfig::architectures_of(checkpoint.config());
  if (std::ranges::find(architectures, kArchitecture) == architectures.end()) {
    return error(ErrorCode::unsupported, "{}: architecture [{}] is no EAGLE-3 head; expected {}",
                 source, fmt::join(architectures, ", "), kArchitecture);
  }
  auto config = ModelConfig::parse(checkpoint.config(), source);
  if (!config) return forward_error(config);
  auto scheme = make_scheme(checkpoint.config(), source);
  if (!scheme) return forward_error(scheme);
  std::unique_ptr<EagleHead> head(new EagleHead(parts, std::move(*config)));
  if (Status status = head->read_config(); !status) return forward_error(status);
  if (Status status = head->load_weights(loader_of_head(loader, **scheme)); !status) {
    return forward_error(status);
  }
  return head;
}

Status EagleHead::read_config() {
  const ModelConfig& model = parts_.config;
  const auto must_equal = [&](const char* field, int64_t own, int64_t other) -> Status {
    if (own == other) return {};
    return error(ErrorCode::invalid_argument,
                 "{}: {} is {}, and {} in the model {}; the head must be one trained for the model",
                 config_.source, field, own, other, model.source);
  };
  for (const Status& status : {must_equal("hidden_size", config_.hidden_size, model.hidden_size),
                               must_equal("vocab_size", config_.vocab_size, model.vocab_size)}) {
    if (!status) return status;
  }
  ConfigFields fields = config_.fields();
  vocab_size_ = fields.integer("draft_vocab_size", 1, model.vocab_size, model.vocab_size);
  if (config_.num_hidden_layers != 1) {
    fields.fail("num_hidden_layers", fields.find("num_hidden_layers"),
                "1, as EAGLE-3's heads have");
  }
  const int64_t count = model.num_hidden_layers;
  layers_ = {2, count / 2, count - 3};
  static const Json kNone = Json::object();
  const Json* nested = fields.find("eagle_config");
  ConfigFields eagle(nested != nullptr && nested->is_object() ? *nested : kNone,
                     config_.source + ": eagle_config");
  constexpr const char* kLayerIds = "eagle_aux_hidden_state_layer_ids";
  if (eagle.has(kLayerIds)) {
    // Of layers whose output it sees: the next one's input.
    layers_ = eagle.integers(kLayerIds, 0, count - 2);
    for (int64_t& layer : layers_) ++layer;
  }
  std::ranges::sort(layers_);
  if (layers_.empty() || layers_.front() < 0 ||
      std::ranges::adjacent_find(layers_) != layers_.end()) {
    eagle.fail(kLayerIds, eagle.find(kLayerIds),
               fmt::format("different layers in [0, {}]", count - 2));
  }
  if (!fields.status()) return fields.status();
  return eagle.status();
}

Status EagleHead::load_weights(const WeightLoader& loader) {
  const int64_t hidden_size = config_.hidden_size;
  LoadSequence load(loader, "");
  const auto norm = [&](const char* name, std::vector<float>& weight) {
    load.norm_weight(name, hidden_size, 0.0f, weight);
  };
  const auto num_layers = static_cast<int64_t>(layers_.size());
  for (int64_t i = 0; i < num_layers; ++i) {
    load.linear({"fc"}, num_layers * hidden_size, {hidden_size}, false, projections_.emplace_back(),
                {}, {.columns = Range{i * hidden_size, (i + 1) * hidden_size}});
  }
  norm("midlayer.input_layernorm", embedding_norm_);
  norm("midlayer.hidden_norm", state_norm_);
  norm("midlayer.post_attention_layernorm", ffn_norm_);
  norm("norm", norm_);
  vocabulary_ = parts_.vocabulary;
  if (loader.checkpoint.find("lm_head.weight") != nullptr) {
    vocabulary_ = loader.shard.share(vocab_size_, kernels::kTileN);
    LinearSlice slice;
    if (parts_.communicator) slice.rows = {{vocabulary_}};
    load.linear({"lm_head"}, hidden_size, {vocab_size_}, false, lm_head_.emplace(), {}, slice);
  } else if (vocab_size_ != config_.vocab_size) {
    load.fail({ErrorCode::corrupt_data,
               fmt::format("{}: tensor lm_head.weight is missing, and draft_vocab_size is {}, less "
                           "than the model's vocabulary of {}",
                           config_.source, vocab_size_, config_.vocab_size)});
  }
  if (!load.status()) return load.status();

  AttentionConfig attention = AttentionConfig::from(config_);
  attention.input_size = 2 * hidden_size;
  auto attention_block = load_attention(loader, "midlayer.self_attn", attention);
  if (!attention_block) return forward_error(attention_block);
  attention_ = std::move(*attention_block);
  auto ffn = load_gated_ffn(loader, "midlayer.mlp", GatedFfnConfig::from(config_));
  if (!ffn) return forward_error(ffn);
  ffn_ = std::move(*ffn);
  add_cache_of(*attention_);
  return load_token_ids(loader.checkpoint);
}

Status EagleHead::load_token_ids(const Checkpoint& checkpoint) {
  if (vocab_size_ == config_.vocab_size && checkpoint.find("d2t") == nullptr) return {};
  auto tensor = checkpoint.require("d2t");
  if (!tensor) return forward_error(tensor);
  const StoredTensor& stored = **tensor;
  if (stored.type != StorageType::i64 || stored.shape != std::vector<int64_t>{vocab_size_}) {
    return error(ErrorCode::corrupt_data,
                 "{}: tensor d2t is {} of shape [{}], expected I64 of [{}]", config_.source,
                 traits(stored.type).name, fmt::join(stored.shape, ", "), vocab_size_);
  }
  for (int64_t i = 0; i < vocab_size_; ++i) {
    int64_t offset = 0;
    std::memcpy(&offset, stored.data.data() + static_cast<size_t>(i) * sizeof(offset),
                sizeof(offset));
    if (offset < -i || offset >= config_.vocab_size - i) {
      return error(ErrorCode::corrupt_data,
                   "{}: tensor d2t has {} at {}; their sum must be a token, in [0, {}]",
                   config_.source, offset, i, config_.vocab_size - 1);
    }
    token_ids_.push_back(static_cast<int32_t>(i + offset));
  }
  return {};
}

ValueId EagleHead::record_states(DecoderRecorder& recorder, std::span<const ValueId> states) const {
  PlanRecorder& plan = recorder.plan();
  const ValueId output = plan.add_value(RowKind::states, config_.hidden_size);
  for (size_t i = 0; i < states.size(); ++i) {
    projections_[i].record(plan, recorder.forward().prepared(), states[i], output,
                           i == 0 ? kernels::Epilogue::store : kernels::Epilogue::accumulate);
  }
  return output;
}

Expected<NextTokenPlan::Recorded> EagleHead::record(const ForwardLimits& limits) {
  DecoderRecorder recorder(parts_, limits, config_.rms_norm_eps);
  PlanRecorder& plan = recorder.plan();
  const auto add_rows = [&](int64_t columns) { return plan.add_value(RowKind::tokens, columns); };
  const int64_t hidden_size = config_.hidden_size;
  const ValueId embedded = add_rows(hidden_size), normed = add_rows(hidden_size);
  const ValueId normed_state = add_rows(hidden_size), joined = add_rows(2 * hidden_size);
  const ValueId hidden = add_rows(hidden_size);  // at first the state before
  recorder.embedding(embedded);
  recorder.norm(embedded, embedding_norm_, normed);
  recorder.norm(hidden, state_norm_, normed_state);
  record_concatenate(plan, normed, normed_state, joined);
  constexpr auto kAdd = kernels::Epilogue::accumulate;
  Status status = recorder.block(*attention_, joined, hidden, kAdd);
  if (!status) return forward_error(status);
  recorder.norm(hidden, ffn_norm_, normed);
  status = recorder.block(*ffn_, normed, hidden, kAdd);
  if (!status) return forward_error(status);
  DecoderRecorder::Outputs outputs;
  outputs.states = recorder.wanted_states(hidden);
  outputs.logits = recorder.logits(
      hidden, norm_,
      lm_head_ ? OutputMatrix{*lm_head_, vocabulary_, vocab_size_, 0.0f} : parts_.output_matrix());
  auto finished = plan.finish();
  if (!finished) return forward_error(finished);
  return Recorded{std::move(*finished), hidden, outputs};
}

}  // namespace tw
