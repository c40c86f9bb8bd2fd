#include "models/decoder.h"

#include <algorithm>
#include <optional>

#include "kernels/gemm/packed_weight.h"
#include "nn/collective_steps.h"
#include "nn/forward_recorder.h"

namespace tw {

class Decoder final : public Model {
 public:
  // hidden += norm_after(block(norm_before(hidden)))
  struct ResidualBlock {
    std::vector<float> norm_before;  // [hidden_size] or empty: no norm
    std::unique_ptr<Block> block;
    std::vector<float> norm_after;  // [hidden_size] or empty: no norm
  };

  Decoder(const ModelConfig& config, const DecoderOptions& options, const WeightLoader& loader)
      : config_(config), options_(options), team_(loader.team), features_(loader.features) {
    if (loader.communicator != nullptr) communicator_ = *loader.communicator;
    vocabulary_ = loader.shard.share(config.vocab_size, kernels::kTileN);
    limits_.vocab_size = config.vocab_size;
    limits_.max_position_embeddings = config.max_position_embeddings;
    limits_.hidden_size = config.hidden_size;
  }

  const ModelLimits& limits() const override { return limits_; }

  Status prepare(int64_t num_pages, int32_t page_size, int32_t max_num_tokens,
                 int32_t max_num_seqs) override {
    const int64_t max_context = std::min(limits_.max_position_embeddings, num_pages * page_size);
    auto plan =
        record({num_pages, page_size, max_context, max_num_tokens, max_num_seqs, team_.size()});
    if (!plan) return forward_error(plan);
    plan_ = std::move(*plan);
    return {};
  }

  void adopt_caller() override { team_.pin_caller(); }

  Matrix<const float> forward(const Batch& batch) override {
    plan_.run(batch, team_, trace_);
    num_states_ = batch.num_states();
    return read_only(plan_.view(logits_, batch.num_logits()));
  }

  Matrix<const float> hidden_states() const override {
    return read_only(plan_.view(states_, num_states_));
  }

  int num_threads() const override { return team_.size(); }

  LinearSlice vocabulary_slice() const {
    if (!communicator_) return {};
    return {.rows = {{vocabulary_}}};
  }
  void set_trace(StepTrace* trace) override { trace_ = trace; }

 private:
  friend class DecoderLoader;

  static Matrix<const float> read_only(const Matrix<float>& matrix) {
    return {matrix.data, matrix.rows, matrix.cols, matrix.row_stride};
  }

  Expected<Plan> record(const ForwardLimits& limits) {
    ForwardRecorder recorder(limits, features_);
    PlanRecorder& plan = recorder.plan();
    const LayerKernels& kernels = recorder.kernels();
    const float epsilon = config_.rms_norm_eps;
    const int64_t hidden_size = config_.hidden_size;

    const ValueId hidden = plan.add_value(RowKind::tokens, hidden_size);  // the residual stream
    record_summed(recorder, hidden, kernels::Epilogue::store, BlockShare::part,
                  [&](ValueId output, kernels::Epilogue) -> Status {
                    record_embedding(plan, kernels, embed_tokens_.table(), options_.embedding_scale,
                                     output, vocabulary_.begin);
                    return {};
                  });
    for (const ResidualBlock& residual : blocks_) {
      ValueId input = hidden;
      if (!residual.norm_before.empty()) {
        input = recorder.shared_value("normed", hidden_size);
        record_rms_norm(plan, kernels, hidden, residual.norm_before, epsilon, input);
      }
      const bool adds = residual.norm_after.empty();
      const ValueId output = adds ? hidden : recorder.shared_value("delta", hidden_size);
      const auto epilogue = adds ? kernels::Epilogue::accumulate : kernels::Epilogue::store;
      Status status =
          record_summed(recorder, output, epilogue, residual.block->share(),
                        [&](ValueId summand, kernels::Epilogue summand_epilogue) {
                          return residual.block->record(recorder, input, summand, summand_epilogue);
                        });
      if (!status) return forward_error(status);
      if (!adds) record_add_normed(plan, kernels, output, residual.norm_after, epsilon, hidden);
    }

    // Before the logits' rows: they need the same barrier.
    const ValueId wanted = plan.add_value(RowKind::states, hidden_size);
    states_ = plan.add_value(RowKind::states, hidden_size);
    record_gather_rows(plan, hidden, wanted);
    record_rms_norm(plan, kernels, wanted, norm_, epsilon, states_);
    const ValueId last = plan.add_value(RowKind::logits, hidden_size);
    const ValueId last_normed = plan.add_value(RowKind::logits, hidden_size);
    const ValueId own_logits = plan.add_value(RowKind::logits, vocabulary_.size());
    record_gather_rows(plan, hidden, last);
    record_rms_norm(plan, kernels, last, norm_, epsilon, last_normed);
    const Linear& head = lm_head_ ? *lm_head_ : embed_tokens_;
    head.record(plan, recorder.prepared(), last_normed, own_logits);
    if (options_.logit_soft_cap > 0) {
      record_soft_cap(plan, kernels, options_.logit_soft_cap, own_logits);
    }
    logits_ = own_logits;
    if (communicator_) {
      // The first rank's are those that the engine sees.
      std::optional<ValueId> all;
      if (communicator_->rank() == 0) {
        logits_ = plan.add_value(RowKind::logits, config_.vocab_size);
        all = logits_;
      }
      record_all_gather(plan, *communicator_, own_logits, all);
    }
    return plan.finish();
  }

  // Records what gives `output` or, of several ranks, this one's summand of it and their sum.
  template <typename Record>
  Status record_summed(ForwardRecorder& recorder, ValueId output, kernels::Epilogue epilogue,
                       BlockShare share, const Record& record) {
    if (!communicator_) return record(output, epilogue);
    std::optional<ValueId> summand;
    if (share != BlockShare::none) {
      summand = recorder.shared_value(num_sums_ % 2 == 0 ? "even_summand" : "odd_summand",
                                      recorder.plan().columns(output));
      if (Status status = record(*summand, kernels::Epilogue::store); !status) return status;
    }
    ++num_sums_;
    record_all_reduce(recorder.plan(), *communicator_, summand, output, epilogue);
    return {};
  }

  const ModelConfig config_;
  const DecoderOptions options_;
  ThreadTeam& team_;
  const CpuFeatures features_;
  ModelLimits limits_;
  std::optional<Communicator> communicator_;  // of several ranks
  Range vocabulary_;                          // of this rank
  int64_t num_sums_ = 0;                      // recorded so far

  Linear embed_tokens_;  // [this rank's vocabulary, hidden_size]
  std::vector<ResidualBlock> blocks_;
  std::vector<float> norm_;        // [hidden_size]
  std::optional<Linear> lm_head_;  // absent when tied to embed_tokens

  Plan plan_;
  ValueId logits_;
  ValueId states_;
  int64_t num_states_ = 0;  // of the last batch
  StepTrace* trace_ = nullptr;
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
      options_(options),
      prefix_(text_prefix(loader.checkpoint)),
      decoder_(std::make_unique<Decoder>(config, options_, loader)) {
  load_.linear({prefix_ + "embed_tokens"}, config.hidden_size, {config.vocab_size}, false,
               decoder_->embed_tokens_, {}, decoder_->vocabulary_slice());
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
  Decoder::ResidualBlock residual;
  residual.block = std::move(*block);
  const auto norm = [&](const std::string& name, std::vector<float>& weight) {
    if (name.empty()) return;
    load_.norm_weight(layer_prefix(index) + name, decoder_->config_.hidden_size,
                      options_.norm_weight_offset, weight);
  };
  norm(norms.before, residual.norm_before);
  norm(norms.after, residual.norm_after);
  decoder_->limits_.kv_bytes_per_token += residual.block->cache_bytes_per_token();
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
  const ModelConfig& config = decoder_->config_;
  load_.norm_weight(prefix_ + "norm", config.hidden_size, options_.norm_weight_offset,
                    decoder_->norm_);
  check_tied(config);
  if (!config.tie_word_embeddings) {
    load_.linear({lm_head_name(loader_.checkpoint)}, config.hidden_size, {config.vocab_size}, false,
                 decoder_->lm_head_.emplace(), {}, decoder_->vocabulary_slice());
  }
  if (Status status = load_.status(); !status) return forward_error(status);
  return std::move(decoder_);
}

}  // namespace tw
