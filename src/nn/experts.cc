#include "nn/experts.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "core/check.h"
#include "weights/packing.h"
#include "weights/sliced_matrix.h"

namespace tw {
namespace {

using kernels::ActivationPrecision;
using kernels::ExpertMatrix;
using kernels::ExpertWeights;
using kernels::PackedWeight;

using Matrices = std::vector<std::unique_ptr<StoredMatrix>>;

using SelectKernel = std::function<const kernels::GemmKernel&(kernels::WeightFormat)>;

// Whether the kernels read all matrices' activations in one format.
bool share_format(const Matrices& a, const Matrices& b, const SelectKernel& select) {
  const auto format_of = [&](const std::unique_ptr<StoredMatrix>& matrix) {
    return select(matrix->format()).activations;
  };
  const auto equals_first = [&](const std::unique_ptr<StoredMatrix>& matrix) {
    return format_of(matrix) == format_of(a.front());
  };
  return std::ranges::all_of(a, equals_first) && std::ranges::all_of(b, equals_first);
}

Status check_order(const WeightLoader& loader, const Matrices& matrices) {
  for (const auto& matrix : matrices) {
    if (matrix->input_order().empty()) continue;
    return error(ErrorCode::unsupported,
                 "{}: {} has its columns in another order (act-order), which is not supported for "
                 "experts; use a checkpoint quantized with desc_act false",
                 loader.checkpoint.path().string(), matrix->name());
  }
  return {};
}

// Leaves this rank's part of the intermediate size: rows of gate and up, columns of down.
Status keep_share(const WeightLoader& loader, ExpertMatrices& matrices) {
  if (loader.shard.is_whole()) return {};
  // Where formats differ, the coarsest decides.
  const auto& coarsest = *std::ranges::max_element(matrices.down, {}, [](const auto& matrix) {
    return SlicedColumns::column_block(matrix->format());
  });
  auto share = loader.share_of_columns(*coarsest);
  if (!share) return forward_error(share);
  if (share->empty()) {
    return error(ErrorCode::unsupported,
                 "{}: {} ({}) has {} columns in blocks of {}, too few for --tp {}",
                 loader.checkpoint.path().string(), coarsest->name(),
                 kernels::traits(coarsest->format()).name, coarsest->columns(),
                 SlicedColumns::column_block(coarsest->format()), loader.shard.size);
  }
  const auto keep_rows = [&](std::unique_ptr<StoredMatrix>& matrix) {
    matrix = std::make_unique<SlicedRows>(std::move(matrix), std::vector<Range>{*share});
  };
  std::ranges::for_each(matrices.gate, keep_rows);
  std::ranges::for_each(matrices.up, keep_rows);
  for (auto& matrix : matrices.down) {
    matrix = std::make_unique<SlicedColumns>(std::move(matrix), *share);
  }
  const auto keep_elements = [&](std::vector<float>& bias) {
    bias = {bias.begin() + share->begin, bias.begin() + share->end};
  };
  std::ranges::for_each(matrices.gate_bias, keep_elements);
  std::ranges::for_each(matrices.up_bias, keep_elements);
  // Ranks' outputs are added: one of them brings the bias.
  if (loader.shard.rank > 0) matrices.down_bias.clear();
  return {};
}

bool share_formats(const ExpertMatrices& matrices, const SelectKernel& select) {
  return share_format(matrices.gate, matrices.up, select) &&
         share_format(matrices.down, matrices.down, select);
}

struct KernelChoice {
  SelectKernel generated, prompts;  // by the class of rows
};

// Where experts are stored in different ways, all kernels are of the kind that reads floats.
KernelChoice choose_kernels(const WeightLoader& loader, const ExpertMatrices& matrices) {
  const auto select_with = [&loader](ActivationPrecision precision) -> SelectKernel {
    return [&loader, precision](kernels::WeightFormat format) -> const kernels::GemmKernel& {
      return kernels::select_gemm(format, precision, loader.features);
    };
  };
  KernelChoice choice;
  choice.generated = select_with(loader.precision);
  if (!share_formats(matrices, choice.generated)) {
    choice.generated = select_with(ActivationPrecision::f32);
  }
  choice.prompts = [&loader](kernels::WeightFormat format) -> const kernels::GemmKernel& {
    return loader.select_prefill_gemm(format);
  };
  if (!share_formats(matrices, choice.prompts)) choice.prompts = choice.generated;
  return choice;
}

// Leaves the experts of these slots.
void keep_slots(ExpertMatrices& matrices, std::span<const int32_t> slots) {
  if (slots.empty()) return;
  const auto keep = [&](auto& parts) {
    std::remove_reference_t<decltype(parts)> kept;
    for (const int32_t expert : slots) {
      if (!parts.empty()) kept.push_back(std::move(parts[static_cast<size_t>(expert)]));
    }
    parts = std::move(kept);
  };
  keep(matrices.gate);
  keep(matrices.up);
  keep(matrices.down);
  keep(matrices.gate_bias);
  keep(matrices.up_bias);
  keep(matrices.down_bias);
}

constexpr ExpertMatrix ExpertWeights::*kParts[] = {&ExpertWeights::gate, &ExpertWeights::up,
                                                   &ExpertWeights::down};

// A matrix like `source`, whose weight has no memory yet.
Expected<ExpertMatrix> describe_copy(const ExpertMatrix& source) {
  const PackedWeight& weight = source.weight;
  auto copy = PackedWeight::describe(weight.format(), weight.n(), weight.k());
  if (!copy) return forward_error(copy);
  const std::span<const float> scales = weight.output_scales();
  if (!scales.empty()) copy->set_output_scales(scales.first(static_cast<size_t>(weight.n())));
  return ExpertMatrix{std::move(*copy), source.kernel, source.prefill_kernel, source.bias};
}

// Tensors of all experts may be one and the same.
void release(const WeightLoader& loader, std::vector<const StoredTensor*> tensors) {
  std::sort(tensors.begin(), tensors.end());
  tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
  for (const StoredTensor* tensor : tensors) {
    if (loader.on_progress) loader.on_progress(static_cast<int64_t>(tensor->data.size()));
    loader.checkpoint.release(*tensor);
  }
}

}  // namespace

Expected<Experts> Experts::load(const WeightLoader& loader, ExpertMatrices matrices,
                                const kernels::ExpertActivation& activation,
                                std::span<const int32_t> slots) {
  for (const Matrices* part : {&matrices.gate, &matrices.up, &matrices.down}) {
    if (Status status = check_order(loader, *part); !status) return forward_error(status);
  }
  // Of all experts, not only of this rank's: they may move.
  const KernelChoice kernels = choose_kernels(loader, matrices);
  keep_slots(matrices, slots);
  if (Status status = keep_share(loader, matrices); !status) return forward_error(status);
  if (loader.checks_only) return Experts();
  Experts experts;
  experts.activation_ = activation;
  experts.weights_.resize(matrices.gate.size());
  std::vector<const StoredMatrix*> all;
  std::vector<const StoredTensor*> tensors;
  for (const Matrices* part : {&matrices.gate, &matrices.up, &matrices.down}) {
    for (const auto& matrix : *part) {
      all.push_back(matrix.get());
      tensors.insert(tensors.end(), matrix->tensors().begin(), matrix->tensors().end());
    }
  }
  auto packed = pack_each(all, loader.team);
  if (!packed) {
    return error(packed.error().code, "{}: {}", loader.checkpoint.path().string(),
                 packed.error().message);
  }
  experts.memory_ = std::move(packed->memory);
  experts.bytes_per_expert_ =
      static_cast<int64_t>(experts.memory_.size() / experts.weights_.size());
  release(loader, std::move(tensors));

  size_t next = 0;
  const auto take = [&](ExpertMatrix ExpertWeights::*member,
                        const std::vector<std::vector<float>>& biases) {
    for (size_t e = 0; e < experts.weights_.size(); ++e) {
      ExpertMatrix& matrix = experts.weights_[e].*member;
      matrix.weight = std::move(packed->weights[next++]);
      matrix.kernel = &kernels.generated(matrix.weight.format());
      matrix.prefill_kernel = &kernels.prompts(matrix.weight.format());
      if (!biases.empty()) matrix.bias = biases[e];
    }
  };
  take(&ExpertWeights::gate, matrices.gate_bias);
  take(&ExpertWeights::up, matrices.up_bias);
  take(&ExpertWeights::down, matrices.down_bias);
  return experts;
}

bool Experts::has_prefill_kernels() const {
  return std::ranges::any_of(weights_, [](const ExpertWeights& weights) {
    return std::ranges::any_of(kParts, [&](const auto part) {
      return (weights.*part).kernel != (weights.*part).prefill_kernel;
    });
  });
}

Status Experts::stage(std::span<const ExpertWeights* const> sources, ThreadTeam& team) {
  struct Copy {
    const PackedWeight* from;
    PackedWeight* to;
    size_t offset;
  };
  ArenaLayout layout;
  std::vector<Copy> copies;
  std::vector<ExpertWeights> staged(sources.size());
  for (size_t slot = 0; slot < sources.size(); ++slot) {
    for (const auto part : kParts) {
      const ExpertMatrix& source = sources[slot]->*part;
      auto copy = describe_copy(source);
      if (!copy) return forward_error(copy);
      staged[slot].*part = std::move(*copy);
      copies.push_back({&source.weight, &(staged[slot].*part).weight,
                        layout.reserve(source.weight.size_bytes())});
    }
  }
  auto memory = Buffer::allocate(layout.size());
  if (!memory) return forward_error(memory);
  for (const Copy& copy : copies) copy.to->place(memory->data() + copy.offset);
  team.run([&](const TeamMember& member) {
    for (const Copy& copy : copies) {
      const Range bytes = member.share(static_cast<int64_t>(copy.from->size_bytes()));
      std::memcpy(copy.to->panel(0) + bytes.begin, copy.from->panel(0) + bytes.begin,
                  static_cast<size_t>(bytes.size()));
    }
  });
  staged_ = std::move(staged);
  staged_memory_ = std::move(*memory);
  return {};
}

void Experts::commit() {
  TW_CHECK(staged_.size() == weights_.size());
  // Recorded steps hold where the weights lie: each is replaced in its place.
  std::ranges::move(staged_, weights_.begin());
  memory_ = std::move(staged_memory_);
  discard();
}

void Experts::discard() {
  staged_.clear();
  staged_memory_ = {};
}

Experts::Values Experts::add_values(ForwardRecorder& recorder, const std::string& role,
                                    int64_t rows_per_token) const {
  const int64_t inner = rows_per_token * intermediate_size();
  const int64_t max_rows = recorder.limits().max_num_tokens * rows_per_token;
  Values values;
  values.rows_per_token = rows_per_token;
  values.activated = recorder.shared_value(role + "_activated", inner);
  values.up = recorder.shared_value(role + "_up", inner);
  values.output = recorder.shared_value(role + "_output", rows_per_token * hidden_size());
  values.prepared = recorder.shared_scratch(
      role + "_prepared", two_classes_size(weights_.front().down.kernel->activations,
                                           weights_.front().down.prefill_kernel->activations,
                                           max_rows, intermediate_size()));
  return values;
}

Experts::Operands Experts::operands(const PlanRecorder& recorder, const Values& values) const {
  Operands operands;
  operands.weights = weights_;
  operands.activation = activation_;
  operands.activated = recorder.offset(values.activated);
  operands.up = recorder.offset(values.up);
  operands.prepared = recorder.offset(values.prepared);
  operands.output = recorder.offset(values.output);
  return operands;
}

kernels::ExpertSet Experts::Operands::at(std::byte* arena, bool prompts, Range rows,
                                         const int32_t* starts,
                                         const kernels::PreparedActivations& input) const {
  const ExpertWeights& first = weights.front();
  const int64_t inner = first.gate.weight.n(), hidden = first.gate.weight.k();
  const auto matrix = [&](size_t offset, int64_t columns) {
    auto* all = reinterpret_cast<float*>(arena + offset);
    return dense_matrix(all + rows.begin * columns, rows.size(), columns);
  };
  kernels::ExpertSet set;
  set.experts = weights;
  set.prompts = prompts;
  set.starts = starts;
  set.input = input;
  set.activation = activation;
  set.activated = matrix(activated, inner);
  set.up = matrix(up, inner);
  set.output = matrix(output, hidden);
  set.prepared =
      layout_class(first.down.kernel->activations, first.down.kernel_of(prompts).activations, rows,
                   inner, arena + prepared);
  return set;
}

}  // namespace tw
