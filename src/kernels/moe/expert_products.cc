#include "kernels/moe/expert_products.h"

#include <algorithm>

#include "kernels/moe/work_split.h"

namespace tw::kernels {
namespace {

// Weights of gate and up that meet all rows before the next ones do: they, and the part of the
// results that the activation reads again, stay in L2.
constexpr int64_t kWeightBytes = 256 << 10;
constexpr int64_t kPanels = 4;   // a multiple of what kernels compute side by side
constexpr int64_t kFewRows = 4;  // whose results are too small to matter

// The time of a panel in bytes read: its weights come from memory once, and each row's products
// take about as long as reading one byte per weight.
int64_t panel_cost(const ExpertMatrix& matrix, int64_t rows) {
  if (rows == 0) return 0;
  return matrix.weight.layout().size + rows * matrix.weight.padded_k();
}

// An expert among those of all sets.
struct Place {
  const ExpertSet* set;
  int64_t expert;

  int64_t first_row() const { return set->starts[expert] - set->starts[0]; }
  int64_t num_rows() const { return set->starts[expert + 1] - set->starts[expert]; }
  const ExpertWeights& weights() const { return set->experts[static_cast<size_t>(expert)]; }
};

Place place_of(std::span<const ExpertSet> sets, int64_t index) {
  const ExpertSet* set = sets.data();
  while (index >= static_cast<int64_t>(set->experts.size())) {
    index -= static_cast<int64_t>(set->experts.size());
    ++set;
  }
  return {set, index};
}

int64_t count_experts(std::span<const ExpertSet> sets) {
  int64_t count = 0;
  for (const ExpertSet& set : sets) count += static_cast<int64_t>(set.experts.size());
  return count;
}

// Rows [first, first + count) of prepared activations.
PreparedActivations rows_of(PreparedActivations a, int64_t first, int64_t count) {
  a.m = count;
  a.values += first * a.row_stride * element_size(a.format);
  if (a.groups != nullptr) a.groups += first * a.group_stride;
  return a;
}

Matrix<float> rows_of(const Matrix<float>& matrix, int64_t first, int64_t count) {
  return {matrix.row(first), count, matrix.cols, matrix.row_stride};
}

void multiply(const ExpertMatrix& matrix, bool prompts, const PreparedActivations& a,
              const Matrix<float>& c, Range panels) {
  GemmArguments arguments;
  arguments.weight = &matrix.weight;
  arguments.a = a;
  arguments.c = c;
  arguments.bias = matrix.bias.empty() ? nullptr : matrix.bias.data();
  matrix.kernel_of(prompts).run(arguments, panels);
}

Matrix<float> columns_of(const Matrix<float>& matrix, Range columns) {
  return {matrix.data + columns.begin, matrix.rows, columns.size(), matrix.row_stride};
}

Matrix<const float> read_only(const Matrix<float>& matrix) {
  return {matrix.data, matrix.rows, matrix.cols, matrix.row_stride};
}

void gate_and_up(const Place& place, const ActivationKernels& kernels, Range panels) {
  const ExpertSet& set = *place.set;
  const ExpertWeights& weights = place.weights();
  const int64_t first = place.first_row(), rows = place.num_rows();
  const PreparedActivations input = rows_of(set.input, first, rows);
  const Matrix<float> gate = rows_of(set.activated, first, rows);
  const Matrix<float> up = rows_of(set.up, first, rows);
  const float* scales = set.input_scales == nullptr ? nullptr : set.input_scales + first;
  const int64_t bytes = weights.gate.weight.layout().size + weights.up.weight.layout().size;
  const int64_t step = rows <= kFewRows
                           ? panels.size()
                           : std::max(kPanels, kWeightBytes / bytes / kPanels * kPanels);
  for (int64_t begin = panels.begin; begin < panels.end; begin += step) {
    const Range part{begin, std::min(begin + step, panels.end)};
    multiply(weights.gate, set.prompts, input, gate, part);
    multiply(weights.up, set.prompts, input, up, part);
    const Range columns{part.begin * kTileN, std::min(part.end * kTileN, gate.cols)};
    const Matrix<float> out = columns_of(gate, columns);
    const Matrix<const float> gates = read_only(out);
    const Matrix<const float> ups = read_only(columns_of(up, columns));
    if (set.activation.clamped) {
      kernels.clamped_swiglu({*set.activation.clamped, gates, ups, out}, {0, rows});
    } else {
      kernels.gated({set.activation.activation, gates, ups, out, scales}, {0, rows});
    }
  }
}

}  // namespace

void gate_and_up(std::span<const ExpertSet> sets, const ActivationKernels& kernels, int rank,
                 int num_threads) {
  for_each_share(
      count_experts(sets), rank, num_threads,
      [&](int64_t i) { return place_of(sets, i).weights().gate.weight.num_panels(); },
      [&](int64_t i) {
        const Place place = place_of(sets, i);
        return panel_cost(place.weights().gate, place.num_rows()) +
               panel_cost(place.weights().up, place.num_rows());
      },
      [&](int64_t i, Range panels) { gate_and_up(place_of(sets, i), kernels, panels); });
}

void prepare_activated(std::span<const ExpertSet> sets, int rank, int num_threads) {
  for (const ExpertSet& set : sets) {
    const Range rows = partition(set.num_rows(), rank, num_threads);
    const GemmKernel& kernel = set.experts.front().down.kernel_of(set.prompts);
    kernel.prepare(read_only(set.activated), rows, set.prepared);
  }
}

void down(std::span<const ExpertSet> sets, int rank, int num_threads) {
  for_each_share(
      count_experts(sets), rank, num_threads,
      [&](int64_t i) { return place_of(sets, i).weights().down.weight.num_panels(); },
      [&](int64_t i) {
        const Place place = place_of(sets, i);
        return panel_cost(place.weights().down, place.num_rows());
      },
      [&](int64_t i, Range panels) {
        const Place place = place_of(sets, i);
        const int64_t first = place.first_row(), rows = place.num_rows();
        multiply(place.weights().down, place.set->prompts,
                 rows_of(place.set->prepared, first, rows), rows_of(place.set->output, first, rows),
                 panels);
      });
}

}  // namespace tw::kernels
