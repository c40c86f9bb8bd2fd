// The layers that are no matrix product and no attention, recorded as steps of a plan.
#pragma once

#include <span>

#include "core/cpu.h"
#include "kernels/activation/activation.h"
#include "kernels/embedding/embedding.h"
#include "kernels/norm/norm.h"
#include "nn/plan.h"

namespace tw {

// The kernels of one machine for these layers.
struct LayerKernels {
  const kernels::NormKernels& norm;
  const kernels::ActivationKernels& activation;
  const kernels::EmbeddingKernels& embedding;

  static LayerKernels select(const CpuFeatures& features);
};

// output[token] = scale * table[token_id - first_id], and zeros for ids that the table has not (a
// rank's part of the vocabulary). `table` must outlive the plan.
void record_embedding(PlanRecorder& recorder, const LayerKernels& kernels,
                      const kernels::PackedWeight& table, float scale, ValueId output,
                      int64_t first_id = 0);

// output = RMSNorm(input) * weight; `weight` must outlive the plan.
void record_rms_norm(PlanRecorder& recorder, const LayerKernels& kernels, ValueId input,
                     std::span<const float> weight, float epsilon, ValueId output);

// output += RMSNorm(input) * weight; `weight` must outlive the plan.
void record_add_normed(PlanRecorder& recorder, const LayerKernels& kernels, ValueId input,
                       std::span<const float> weight, float epsilon, ValueId output);

// output = f(gate) * up, where gate and up are the halves of gate_up's columns.
void record_gated_activation(PlanRecorder& recorder, const LayerKernels& kernels,
                             kernels::Activation activation, ValueId gate_up, ValueId output);

// values *= f(gate), gate being columns of another value, from gate_column on.
void record_gate(PlanRecorder& recorder, const LayerKernels& kernels,
                 kernels::Activation activation, ValueId gate, int64_t gate_column, ValueId values);

// logits = cap * tanh(logits / cap), in place.
void record_soft_cap(PlanRecorder& recorder, const LayerKernels& kernels, float cap,
                     ValueId logits);

// output = [left, right], side by side.
void record_concatenate(PlanRecorder& recorder, ValueId left, ValueId right, ValueId output);

// From rows per token to those that are wanted: output[i] = input[batch.logit_tokens[i]], or of
// batch.state_tokens, as the output's kind of rows says.
void record_gather_rows(PlanRecorder& recorder, ValueId input, ValueId output);

}  // namespace tw
