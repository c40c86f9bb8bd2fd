#include "models/next_token_plan.h"

#include <algorithm>

#include "core/check.h"

namespace tw {

Status NextTokenPlan::prepare(int64_t num_pages, int32_t page_size, int32_t max_num_tokens,
                              int32_t max_num_seqs) {
  const int64_t max_context =
      std::min(parts_.config.max_position_embeddings, num_pages * page_size);
  auto recorded =
      record({num_pages, page_size, max_context, max_num_tokens, max_num_seqs, parts_.team.size()});
  if (!recorded) return forward_error(recorded);
  recorded_ = std::move(*recorded);
  return {};
}

Matrix<const float> NextTokenPlan::forward(const Batch& batch, Matrix<const float> previous) {
  TW_CHECK(previous.rows == batch.num_tokens());
  const Matrix<float> rows = recorded_.plan.view(recorded_.previous, previous.rows);
  for (int64_t row = 0; row < rows.rows; ++row) {
    std::copy_n(previous.row(row), rows.cols, rows.row(row));
  }
  recorded_.plan.run(batch, parts_.team);
  num_states_ = batch.num_states();
  return read_only(recorded_.plan.view(recorded_.outputs.logits, batch.num_logits()));
}

void NextTokenPlan::copy_page(int64_t from, int64_t to) {
  for (Block* block : blocks_) block->copy_page(from, to);
}

Matrix<const float> NextTokenPlan::hidden_states() const {
  return read_only(recorded_.plan.view(recorded_.outputs.states, num_states_));
}

}  // namespace tw
