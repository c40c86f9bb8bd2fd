// What the engine sees of a model family.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/status.h"
#include "core/tensor.h"
#include "nn/batch.h"
#include "nn/expert_layer.h"
#include "nn/lora_adapter.h"
#include "nn/plan.h"

namespace tw {

// Numbers that the engine needs to size its memory and check requests.
struct ModelLimits {
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;  // context length
  int64_t kv_bytes_per_token = 0;       // all layers, keys and values
  int64_t hidden_size = 0;              // of the states behind the logits
  // Recurrent states of all layers, of a sequence in Batch::state_slots; 0: it has none. They are
  // what all tokens so far made them: they can't be cut at a position.
  int64_t state_bytes_per_sequence = 0;
};

// What guesses a token further from a model's hidden states: a layer of the checkpoint, or a head
// that was trained for the model. It has a KV cache of its own, in
// pages like the model's.
class NextTokenModel {
 public:
  virtual ~NextTokenModel() = default;

  virtual int64_t kv_bytes_per_token() const = 0;
  // As Model::prepare().
  virtual Status prepare(int64_t num_pages, int32_t page_size, int32_t max_num_tokens,
                         int32_t max_num_seqs) = 0;

  // The token of each column of its logits; empty: the model's own.
  virtual std::span<const int32_t> token_ids() const { return {}; }

  // Row i of `previous` [num_tokens, hidden_size] is what Model::next_token_states() has of the
  // token before token i. Returns logits of what follows token i [num_logits, its vocabulary],
  // valid until the next call.
  virtual Matrix<const float> forward(const Batch& batch, Matrix<const float> previous) = 0;
  // As Model::copy_page().
  virtual void copy_page(int64_t from, int64_t to) = 0;
  // Of batch.state_tokens of the last forward(): stand in for the model's, to guess further still.
  virtual Matrix<const float> hidden_states() const = 0;
};

class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelLimits& limits() const = 0;

  // Allocates the KV pages and the activations, and records the plan. Called once, before the
  // first forward. Page p of the cache holds token slots [p * page_size, (p + 1) * page_size).
  virtual Status prepare(int64_t num_pages, int32_t page_size, int32_t max_num_tokens,
                         int32_t max_num_seqs) = 0;

  // Called by the thread that calls forward() from then on, before it does: it becomes a member of
  // the team, on a core of its own.
  virtual void adopt_caller() {}

  // Computes one step. Returns logits [batch.num_logits(), vocab_size] fp32, valid until the next
  // call. Allocates nothing. batch.num_tokens() <= max_num_tokens.
  virtual Matrix<const float> forward(const Batch& batch) = 0;

  // Makes page `to` of the cache a copy of page `from`, between two steps.
  virtual void copy_page(int64_t from, int64_t to) = 0;

  // What the last forward() computed for batch.state_tokens: [batch.num_states(), hidden_size]
  // fp32, after the final norm; valid until the next call.
  virtual Matrix<const float> hidden_states() const = 0;

  // Packs an adapter for this model, or says why it is none of its. May be called by any thread,
  // beside forward(). Batches may name it from then on.
  virtual Expected<LoraAdapter> load_adapter(const LoraCheckpoint& checkpoint) const;

  // What next_token_model() goes by, of the same tokens and as wide.
  virtual Matrix<const float> next_token_states() const { return hidden_states(); }
  // Null where the model has none, or it was not loaded.
  virtual NextTokenModel* next_token_model() { return nullptr; }

  // The layers that are mixtures of experts; of several ranks, as the first one has them.
  virtual std::vector<ExpertLayer*> expert_layers() { return {}; }
  // Moves the experts of one of these layers, between two steps. On failure they stay.
  virtual Status place_experts(size_t layer, const ExpertPlacement& placement) { return {}; }

  // Of several hosts (models/host_parallel.h), all of them: the pages that every host has room for,
  // where this one has it for `own`. Fails on all hosts if one has none.
  virtual Expected<int32_t> agree_on_pages(Expected<int32_t> own) { return own; }
  // Whether the last forward() computed anything: not if a host was gone. It stays so.
  virtual Status health() const { return {}; }
  // Called about every second while there is nothing to compute.
  virtual Status keep_alive() { return {}; }
  // On other hosts than the first, instead of forward(): computes what that one does until it
  // stops.
  virtual Status follow() { return {}; }

  // Ranks that hold a part of the model each, with threads and memory of their own.
  virtual int num_ranks() const { return 1; }
  // Adds what forward(batch) moves and computes on each of them: [num_ranks].
  virtual void add_costs(const Batch& batch, std::span<StepCost> costs) const {}
  // Threads that compute a step.
  virtual int num_threads() const { return 1; }
  // forward() records its steps there from now on, of num_threads() members from `first_member` on;
  // null: no more.
  virtual void set_trace(StepTrace* trace, int first_member = 0) {}
};

}  // namespace tw
