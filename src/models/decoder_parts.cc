#include "models/decoder_parts.h"

#include "nn/collective_steps.h"
#include "nn/layers.h"

namespace tw {

DecoderRecorder::DecoderRecorder(const DecoderParts& parts, const ForwardLimits& limits,
                                 float norm_eps)
    : parts_(parts), forward_(limits, parts.features), norm_eps_(norm_eps) {}

void DecoderRecorder::embedding(ValueId output) {
  const auto record = [&](ValueId summand, kernels::Epilogue) -> Status {
    record_embedding(plan(), forward_.kernels(), parts_.embed_tokens.table(),
                     parts_.options.embedding_scale, summand, parts_.vocabulary.begin);
    return {};
  };
  // It cannot fail.
  static_cast<void>(summed(output, kernels::Epilogue::store, BlockShare::part, record));
}

void DecoderRecorder::norm(ValueId input, std::span<const float> weight, ValueId output) {
  record_rms_norm(plan(), forward_.kernels(), input, weight, norm_eps_, output);
}

Status DecoderRecorder::block(Block& block, ValueId input, ValueId output,
                              kernels::Epilogue epilogue) {
  return summed(output, epilogue, block.share(),
                [&](ValueId summand, kernels::Epilogue summand_epilogue) {
                  return block.record(forward_, input, summand, summand_epilogue);
                });
}

Status DecoderRecorder::blocks(std::span<const ResidualBlock> blocks, ValueId hidden) {
  const int64_t hidden_size = parts_.config.hidden_size;
  for (const ResidualBlock& residual : blocks) {
    ValueId input = hidden;
    if (!residual.norm_before.empty()) {
      input = forward_.shared_value("normed", hidden_size);
      norm(hidden, residual.norm_before, input);
    }
    const bool adds = residual.norm_after.empty();
    const ValueId output = adds ? hidden : forward_.shared_value("delta", hidden_size);
    const auto epilogue = adds ? kernels::Epilogue::accumulate : kernels::Epilogue::store;
    if (Status status = block(*residual.block, input, output, epilogue); !status) return status;
    if (!adds) {
      record_add_normed(plan(), forward_.kernels(), output, residual.norm_after, norm_eps_, hidden);
    }
  }
  return {};
}

DecoderRecorder::Outputs DecoderRecorder::outputs(ValueId hidden,
                                                  std::span<const float> norm_weight) {
  Outputs outputs;
  const ValueId wanted = wanted_states(hidden);
  outputs.states = plan().add_value(RowKind::states, parts_.config.hidden_size);
  norm(wanted, norm_weight, outputs.states);
  outputs.logits = logits(hidden, norm_weight, parts_.output_matrix());
  return outputs;
}

ValueId DecoderRecorder::wanted_states(ValueId hidden) {
  const ValueId wanted = plan().add_value(RowKind::states, plan().columns(hidden));
  record_gather_rows(plan(), hidden, wanted);
  return wanted;
}

ValueId DecoderRecorder::logits(ValueId hidden, std::span<const float> norm_weight,
                                const OutputMatrix& matrix) {
  const int64_t hidden_size = plan().columns(hidden);
  const ValueId last = plan().add_value(RowKind::logits, hidden_size);
  const ValueId last_normed = plan().add_value(RowKind::logits, hidden_size);
  const ValueId own_logits = plan().add_value(RowKind::logits, matrix.vocabulary.size());
  record_gather_rows(plan(), hidden, last);
  norm(last, norm_weight, last_normed);
  matrix.weights.record(plan(), forward_.prepared(), last_normed, own_logits);
  if (matrix.soft_cap > 0) {
    record_soft_cap(plan(), forward_.kernels(), matrix.soft_cap, own_logits);
  }
  if (!parts_.communicator) return own_logits;
  // The first rank's are those that the engine sees.
  std::optional<ValueId> all;
  if (parts_.communicator->rank() == 0) {
    all = plan().add_value(RowKind::logits, matrix.vocab_size);
  }
  record_all_gather(plan(), *parts_.communicator, own_logits, matrix.vocab_size, all);
  return all.value_or(own_logits);
}

// Records what gives `output` or, of several ranks, this one's summand of it and their sum.
template <typename Record>
Status DecoderRecorder::summed(ValueId output, kernels::Epilogue epilogue, BlockShare share,
                               const Record& record) {
  if (!parts_.communicator) return record(output, epilogue);
  std::optional<ValueId> summand;
  if (share != BlockShare::none) {
    summand = forward_.shared_value(num_sums_ % 2 == 0 ? "even_summand" : "odd_summand",
                                    plan().columns(output));
    if (Status status = record(*summand, kernels::Epilogue::store); !status) return status;
  }
  ++num_sums_;
  record_all_reduce(plan(), *parts_.communicator, summand, output, epilogue);
  return {};
}

}  // namespace tw
