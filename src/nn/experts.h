// Experts of equal sizes: their packed weights, and the memory that a step computes them in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "kernels/moe/expert_products.h"
#include "nn/forward_recorder.h"
#include "nn/loader.h"
#include "weights/expert_matrices.h"

namespace tw {

// Memory for prepared rows of both classes, each in the format of its kernels: those of generated
// tokens, then those of prompts.
inline size_t two_classes_size(kernels::ActivationFormat generated,
                               kernels::ActivationFormat prompts, int64_t max_rows, int64_t k) {
  return std::max(kernels::prepared_activations_size(generated, max_rows, k),
                  kernels::prepared_activations_size(prompts, max_rows, k));
}
// Rows of one class, behind rows.begin rows of generated tokens.
inline kernels::PreparedActivations layout_class(kernels::ActivationFormat generated,
                                                 kernels::ActivationFormat format, Range rows,
                                                 int64_t k, std::byte* memory) {
  return kernels::layout_prepared_activations(
      format, rows.size(), k,
      memory + kernels::prepared_activations_size(generated, rows.begin, k));
}

class Experts {
 public:
  Experts() = default;

  // Packs all matrices, in parallel over all of them. A rank of tensor parallelism keeps its part
  // of every expert's intermediate size. `slots`: the experts that are kept, in this order; empty:
  // all.
  static Expected<Experts> load(const WeightLoader& loader, ExpertMatrices matrices,
                                const kernels::ExpertActivation& activation,
                                std::span<const int32_t> slots = {});

  bool empty() const { return weights_.empty(); }
  int64_t num_experts() const { return static_cast<int64_t>(weights_.size()); }
  int64_t hidden_size() const { return weights_.front().gate.weight.k(); }
  int64_t intermediate_size() const { return weights_.front().gate.weight.n(); }
  // All kernels of gates and ups for this class of rows read activations of this one's format.
  const kernels::GemmKernel& input_kernel(bool prompts) const {
    return weights_.front().gate.kernel_of(prompts);
  }
  // Whether rows of prompts have kernels of their own.
  bool has_prefill_kernels() const;
  int64_t bytes_per_expert() const { return bytes_per_expert_; }
  const kernels::ExpertWeights& weights(size_t slot) const { return weights_[slot]; }

  // Copies what each slot will hold, which may be another's, by the team whose memory it shall be;
  // commit() puts the copies in place of what is there.
  Status stage(std::span<const kernels::ExpertWeights* const> sources, ThreadTeam& team);
  void commit();
  void discard();

  // Arena memory for `rows_per_token` rows of each token, shared by layers under the same role.
  struct Values {
    int64_t rows_per_token = 0;
    ValueId activated, up, prepared, output;
  };
  Values add_values(ForwardRecorder& recorder, const std::string& role,
                    int64_t rows_per_token) const;

  // What a step computes with. Valid while this lives.
  struct Operands {
    std::span<const kernels::ExpertWeights> weights;
    kernels::ExpertActivation activation;
    size_t activated = 0, up = 0, prepared = 0, output = 0;  // offsets in the arena

    // `rows`: those of the class, of all that there are; starts as in ExpertSet.
    kernels::ExpertSet at(std::byte* arena, bool prompts, Range rows, const int32_t* starts,
                          const kernels::PreparedActivations& input) const;
  };
  Operands operands(const PlanRecorder& recorder, const Values& values) const;

 private:
  std::vector<kernels::ExpertWeights> weights_;
  Buffer memory_;  // of the weights
  std::vector<kernels::ExpertWeights> staged_;
  Buffer staged_memory_;
  kernels::ExpertActivation activation_;
  int64_t bytes_per_expert_ = 0;
};

}  // namespace tw
