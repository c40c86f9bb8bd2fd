#include "models/decoder.h"

#include <algorithm>
#include <optional>

#include "kernels/gemm/packed_weight.h"
#include "models/eagle_head.h"
#include "models/next_token_layer.h"

namespace tw {

class Decoder final : public Model {
 public:
  Decoder(const ModelConfig& config, const DecoderOptions& options, const WeightLoader& loader)
      : parts_{.config = config,
               .options = options,
               .team = loader.team,
               .features = loader.features,
               .communicator = {},
               .vocabulary = loader.shard.share(config.vocab_size, kernels::kTileN)} {
    lora_ = loader.lora;
    if (loader.communicator != nullptr) parts_.communicator = *loader.communicator;
    limits_.vocab_size = config.vocab_size;
    limits_.max_position_embeddings = config.max_position_embeddings;
    limits_.hidden_size = config.hidden_size;
  }

  const ModelLimits& limits() const override { return limits_; }

  Status prepare(int64_t num_pages, int32_t page_size, int32_t max_num_tokens,
                 int32_t max_num_seqs) override {
    const int64_t max_context = std::min(limits_.max_position_embeddings, num_pages * page_size);
    auto plan = record(
        {num_pages, page_size, max_context, max_num_tokens, max_num_seqs, parts_.team.size()});
    if (!plan) return forward_error(plan);
    plan_ = std::move(*plan);
    return {};
  }

  void adopt_caller() override { parts_.team.pin_caller(); }

  Matrix<const float> forward(const Batch& batch) override {
    plan_.run(batch, parts_.team, trace_, first_member_);
    num_states_ = batch.num_states();
    return read_only(plan_.view(outputs_.logits, batch.num_logits()));
  }

  Matrix<const float> hidden_states() const override {
    return read_only(plan_.view(outputs_.states, num_states_));
  }

  Expected<LoraAdapter> load_adapter(const LoraCheckpoint& checkpoint) const override {
    if (!lora_) return Model::load_adapter(checkpoint);
    // A rank may have no part of some layers; the first has one of each.
    if (lora_->shard_rank() == 0) {
      if (Status status = lora_->check(checkpoint); !status) return forward_error(status);
    }
    auto packed = lora_->pack(checkpoint);
    if (!packed) return forward_error(packed);
    LoraAdapter adapter;
    adapter.ranks.push_back(std::move(*packed));
    return adapter;
  }

  void copy_page(int64_t from, int64_t to) override {
    for (const ResidualBlock& residual : blocks_) residual.block->copy_page(from, to);
  }

  Matrix<const float> next_token_states() const override {
    return read_only(plan_.view(next_token_states_, num_states_));
  }
  NextTokenModel* next_token_model() override {
    if (eagle_) return eagle_.get();
    return next_token_.get();
  }

  std::vector<ExpertLayer*> expert_layers() override {
    std::vector<ExpertLayer*> layers;
    for (const ResidualBlock& residual : blocks_) {
      if (ExpertLayer* layer = residual.block->expert_layer()) layers.push_back(layer);
    }
    return layers;
  }

  void add_costs(const Batch& batch, std::span<StepCost> costs) const override {
    costs.front() += plan_.cost(batch);
  }
  int num_threads() const override { return parts_.team.size(); }
  void set_trace(StepTrace* trace, int first_member) override {
    trace_ = trace;
    first_member_ = first_member;
  }

 private:
  friend class DecoderLoader;

  Expected<Plan> record(const ForwardLimits& limits) {
    DecoderRecorder recorder(parts_, limits);
    // The residual stream.
    const ValueId hidden = recorder.plan().add_value(RowKind::tokens, parts_.config.hidden_size);
    recorder.embedding(hidden);
    std::span<const ResidualBlock> rest = blocks_;
    std::vector<ValueId> seen_by_head;
    if (eagle_) {
      for (const int64_t layer : eagle_->layers()) {
        const size_t first_block = first_blocks_[static_cast<size_t>(layer)];
        const size_t count = first_block - (blocks_.size() - rest.size());
        Status status = recorder.blocks(rest.first(count), hidden);
        if (!status) return forward_error(status);
        rest = rest.subspan(count);
        seen_by_head.push_back(recorder.wanted_states(hidden));
      }
    }
    if (Status status = recorder.blocks(rest, hidden); !status) return forward_error(status);
    outputs_ = recorder.outputs(hidden, norm_);
    next_token_states_ = eagle_ ? eagle_->record_states(recorder, seen_by_head) : outputs_.states;
    return recorder.plan().finish();
  }

  LinearSlice vocabulary_slice() const {
    if (!parts_.communicator) return {};
    return {.rows = {{parts_.vocabulary}}};
  }

  DecoderParts parts_;
  ModelLimits limits_;
  std::vector<ResidualBlock> blocks_;
  std::vector<float> norm_;                     // [hidden_size]
  std::vector<size_t> first_blocks_;            // of each layer, in blocks_
  std::unique_ptr<NextTokenLayer> next_token_;  // where it was wanted
  std::unique_ptr<EagleHead> eagle_;            // likewise
  std::shared_ptr<const LoraLayers> lora_;      // where adapters are

  Plan plan_;
  DecoderRecorder::Outputs outputs_;
  ValueId next_token_states_;
  int64_t num_states_ = 0;  // of the last batch
  StepTrace* trace_ = nullptr;
  int first_member_ = 0;  // of the trace
};

namespace {

// The text models inside of multimodal ones have their tensors behind one more name, which changed
// with transformers' versions.
constexpr const char* kPrefixes[] = {"model.", "language_model.model.", "model.language_model."};

std::string text_prefix(const Checkpoint& checkpoint) {
  for (const char* prefix : kPrefixes) {
    if (checkpoint.find(std::string(prefix) + "embed_tokens.weight") != nullptr) return prefix;
  }
  return kPrefixes[0];
}

std::string lm_head_name(const Checkpoint& checkpoint) {
  constexpr const char* kNested = "language_model.lm_head";
  return checkpoint.find(std::string(kNested) + ".weight") != nullptr ? kNested : "lm_head";
}

}  // namespace

DecoderLoader::DecoderLoader(const WeightLoader& loader, const ModelConfig& config,
                             DecoderOptions options)
    : loader_(loader),
      load_(loader, ""),
      prefix_(text_prefix(loader.checkpoint)),
      decoder_(std::make_unique<Decoder>(config, options, loader)) {
  load_.linear({prefix_ + "embed_tokens"}, config.hidden_size, {config.vocab_size}, false,
               decoder_->parts_.embed_tokens, {}, decoder_->vocabulary_slice());
}

DecoderLoader::~DecoderLoader() = default;

std::string DecoderLoader::layer_prefix(int64_t index) const {
  return fmt::format("{}layers.{}.", prefix_, index);
}

void DecoderLoader::attention(int64_t index, const BlockNorms& norms, const AttentionConfig& config,
                              const std::string& name) {
  if (!load_.status()) return;
  add(index, norms, load_attention(loader_, layer_prefix(index) + name, config));
}

void DecoderLoader::gated_delta(int64_t index, const BlockNorms& norms,
                                const GatedDeltaConfig& config, const std::string& name) {
  if (!load_.status()) return;
  add(index, norms, load_gated_delta(loader_, layer_prefix(index) + name, config));
}

void DecoderLoader::gated_ffn(int64_t index, const BlockNorms& norms, const GatedFfnConfig& config,
                              const std::string& name) {
  if (!load_.status()) return;
  add(index, norms, load_gated_ffn(loader_, layer_prefix(index) + name, config));
}

void DecoderLoader::mla(int64_t index, const BlockNorms& norms, const MlaConfig& config,
                        const std::string& name) {
  if (!load_.status()) return;
  add(index, norms, load_mla(loader_, layer_prefix(index) + name, config));
}

void DecoderLoader::moe(int64_t index, const BlockNorms& norms, const MoeConfig& config,
                        const std::string& name) {
  if (!load_.status()) return;
  add(index, norms, load_moe(loader_, layer_prefix(index) + name, config));
}

void DecoderLoader::begin_next_token_layer(int64_t index) {
  decoder_->next_token_ =
      std::make_unique<NextTokenLayer>(decoder_->parts_, load_, layer_prefix(index));
}

void DecoderLoader::add(int64_t index, const BlockNorms& norms,
                        Expected<std::unique_ptr<Block>> block) {
  if (!block) {
    load_.fail(std::move(block.error()));
    return;
  }
  if (!loader_.shard.is_whole() && (*block)->share() == BlockShare::whole) {
    load_.fail({ErrorCode::unsupported,
                fmt::format("{}: layer {} has a kind of block that --tp can't divide; use --tp 1",
                            loader_.checkpoint.path().string(), index)});
    return;
  }
  ResidualBlock residual;
  residual.block = std::move(*block);
  const auto norm = [&](const std::string& name, std::vector<float>& weight) {
    if (name.empty()) return;
    load_.norm_weight(layer_prefix(index) + name, decoder_->parts_.config.hidden_size,
                      decoder_->parts_.options.norm_weight_offset, weight);
  };
  norm(norms.before, residual.norm_before);
  norm(norms.after, residual.norm_after);
  if (decoder_->next_token_) {
    decoder_->next_token_->add(std::move(residual));
    return;
  }
  auto& first_blocks = decoder_->first_blocks_;
  if (index == std::ssize(first_blocks)) first_blocks.push_back(decoder_->blocks_.size());
  decoder_->limits_.kv_bytes_per_token += residual.block->cache_bytes_per_token();
  decoder_->limits_.state_bytes_per_sequence += residual.block->state_bytes_per_sequence();
  decoder_->blocks_.push_back(std::move(residual));
}

// A checkpoint whose configuration and tensors disagree about the output matrix is refused: which
// of the two it was trained with is anyone's guess. A copy of the embeddings is none.
void DecoderLoader::check_tied(const ModelConfig& config) {
  if (!load_.status()) return;
  const Checkpoint& checkpoint = loader_.checkpoint;
  const std::string head_name = lm_head_name(checkpoint);
  if (!config.tie_word_embeddings) {
    const bool has_head = std::ranges::any_of(checkpoint.tensors(), [&](const StoredTensor& t) {
      return t.name.starts_with(head_name + ".");
    });
    if (has_head) return;
    load_.fail({ErrorCode::corrupt_data,
                fmt::format("{}: tensor {}.weight is missing, and config.json does not say "
                            "tie_word_embeddings",
                            checkpoint.path().string(), head_name)});
    return;
  }
  const StoredTensor* head = checkpoint.find(head_name + ".weight");
  const StoredTensor* embeddings = checkpoint.find(prefix_ + "embed_tokens.weight");
  if (head == nullptr || embeddings == nullptr) return;
  if (head->type == embeddings->type && std::ranges::equal(head->data, embeddings->data)) return;
  load_.fail(
      {ErrorCode::corrupt_data,
       fmt::format("{}: config.json says tie_word_embeddings, but tensor {} is not a copy of "
                   "{}",
                   checkpoint.path().string(), head->name, embeddings->name)});
}

Expected<std::unique_ptr<Model>> DecoderLoader::finish() {
  const ModelConfig& config = decoder_->parts_.config;
  load_.norm_weight(prefix_ + "norm", config.hidden_size,
                    decoder_->parts_.options.norm_weight_offset, decoder_->norm_);
  check_tied(config);
  if (!config.tie_word_embeddings) {
    load_.linear({lm_head_name(loader_.checkpoint)}, config.hidden_size, {config.vocab_size}, false,
                 decoder_->parts_.lm_head.emplace(), {}, decoder_->vocabulary_slice());
  }
  if (wants_next_token_layer() && !decoder_->next_token_) {
    load_.fail({ErrorCode::unsupported,
                fmt::format("{}: has no layer that guesses a token further (nextn), or it is of a "
                            "family whose layer is not known; DeepSeek-V3 and GLM-4.5 have one",
                            loader_.checkpoint.path().string())});
  }
  if (loader_.experts.num_groups > 1 && decoder_->expert_layers().empty()) {
    load_.fail({ErrorCode::unsupported,
                fmt::format("{}: --ep {}: the model has no experts to divide; use --tp alone",
                            loader_.checkpoint.path().string(), loader_.experts.num_groups)});
  }
  if (Status status = load_.status(); !status) return forward_error(status);
  if (loader_.eagle_head != nullptr) {
    auto head = EagleHead::load(loader_, decoder_->parts_);
    if (!head) return forward_error(head);
    decoder_->eagle_ = std::move(*head);
  }
  return std::move(decoder_);
}

}  // namespace tw
