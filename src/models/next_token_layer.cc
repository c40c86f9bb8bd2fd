#include "models/next_token_layer.h"

namespace tw {

NextTokenLayer::NextTokenLayer(const DecoderParts& parts, LoadSequence& load,
                               const std::string& prefix)
    : NextTokenPlan(parts) {
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
  add_cache_of(*block.block);
  blocks_.push_back(std::move(block));
}

Expected<NextTokenPlan::Recorded> NextTokenLayer::record(const ForwardLimits& limits) {
  DecoderRecorder recorder(parts_, limits);
  PlanRecorder& plan = recorder.plan();
  const auto add_rows = [&] { return plan.add_value(RowKind::tokens, parts_.config.hidden_size); };
  const ValueId embedded = add_rows(), normed = add_rows(), hidden = add_rows(),
                previous = add_rows();
  recorder.embedding(embedded);
  recorder.norm(embedded, embedding_norm_, normed);
  of_embedding_.record(plan, recorder.forward().prepared(), normed, hidden);
  recorder.norm(previous, state_norm_, normed);
  of_state_.record(plan, recorder.forward().prepared(), normed, hidden,
                   kernels::Epilogue::accumulate);
  if (Status status = recorder.blocks(blocks_, hidden); !status) return forward_error(status);
  const DecoderRecorder::Outputs outputs = recorder.outputs(hidden, norm_);
  auto finished = plan.finish();
  if (!finished) return forward_error(finished);
  return Recorded{std::move(*finished), previous, outputs};
}

}  // namespace tw
