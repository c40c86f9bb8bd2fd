#include "models/next_token_layer.h"

#include <algorithm>

#include "core/check.h"

namespace tw {

NextTokenLayer::NextTokenLayer(const DecoderParts& parts, LoadSequence& load,
                               const std::string& prefix)
    : parts_(parts) {
  const int64_t hidden_size = parts.config.hidden_size;
  const auto norm = [&](const char* name, std::vector<float>& weight) {
    load.norm_weight(prefix + name, hidden_size, parts.options.norm_weight_offset, weight);
  };
  norm("enorm", embedding_norm_);
  norm("hnorm", state_norm_);
  const auto half = [&](Range columns, Linear& linear) {
    load.linear({prefix + "eh_proj"}, 2 * hidden_size, {hidden_size}, false, linear, {},
                {.columns = columns});
  };
  half({0, hidden_size}, of_embedding_);
  half({hidden_size, 2 * hidden_size}, of_state_);
  norm("shared_head.norm", norm_);
}

void NextTokenLayer::add(ResidualBlock block) {
  kv_bytes_per_token_ += block.block->cache_bytes_per_token();
  blocks_.push_back(std::move(block));
}

Status NextTokenLayer::prepare(int64_t num_pages, int32_t page_size, int32_t max_num_tokens,
                               int32_t max_num_seqs) {
  const int64_t max_context =
      std::min(parts_.config.max_position_embeddings, num_pages * page_size);
  auto plan =
      record({num_pages, page_size, max_context, max_num_tokens, max_num_seqs, parts_.team.size()});
  if (!plan) return forward_error(plan);
  plan_ = std::move(*plan);
  return {};
}

Expected<Plan> NextTokenLayer::record(const ForwardLimits& limits) {
  DecoderRecorder recorder(parts_, limits);
  PlanRecorder& plan = recorder.plan();
  const auto add_rows = [&] { return plan.add_value(RowKind::tokens, parts_.config.hidden_size); };
  const ValueId embedded = add_rows(), normed = add_rows(), hidden = add_rows();
  previous_ = add_rows();
  recorder.embedding(embedded);
  recorder.norm(embedded, embedding_norm_, normed);
  of_embedding_.record(plan, recorder.forward().prepared(), normed, hidden);
  recorder.norm(previous_, state_norm_, normed);
  of_state_.record(plan, recorder.forward().prepared(), normed, hidden,
                   kernels::Epilogue::accumulate);
  if (Status status = recorder.blocks(blocks_, hidden); !status) return forward_error(status);
  outputs_ = recorder.outputs(hidden, norm_);
  return plan.finish();
}

Matrix<const float> NextTokenLayer::forward(const Batch& batch, Matrix<const float> previous) {
  TW_CHECK(previous.rows == batch.num_tokens());
  const Matrix<float> rows = plan_.view(previous_, previous.rows);
  for (int64_t row = 0; row < rows.rows; ++row) {
    std::copy_n(previous.row(row), rows.cols, rows.row(row));
  }
  plan_.run(batch, parts_.team);
  num_states_ = batch.num_states();
  return read_only(plan_.view(outputs_.logits, batch.num_logits()));
}

Matrix<const float> NextTokenLayer::hidden_states() const {
  return read_only(plan_.view(outputs_.states, num_states_));
}

}  // namespace tw
