#include "weights/packing.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"

namespace tw {
namespace {

using kernels::kTileN;
using kernels::PackedWeight;
using kernels::PanelLayout;
using kernels::ScaleKind;
using kernels::WeightFormat;

// Matrices below each other that become one weight.
struct Job {
  std::span<const StoredMatrix* const> matrices;
  PackedWeight weight;
  std::vector<float> output_scales = {};  // [n] or empty
};

Expected<Job> describe(std::span<const StoredMatrix* const> matrices) {
  TW_CHECK(!matrices.empty());
  const StoredMatrix& first = *matrices.front();
  int64_t num_rows = 0;
  bool has_output_scales = false;
  for (const StoredMatrix* matrix : matrices) {
    TW_CHECK(matrix->columns() == first.columns() && matrix->format() == first.format());
    TW_CHECK(std::ranges::equal(matrix->input_order(), first.input_order()));
    TW_CHECK((matrix->wider() == nullptr) == (first.wider() == nullptr));
    TW_CHECK(matrix->first_column() == first.first_column());
    num_rows += matrix->rows();
    if (matrix->has_output_scales()) has_output_scales = true;
  }
  auto weight = PackedWeight::describe(first.format(), num_rows, first.columns());
  if (!weight) return forward_error(weight);
  Job job{matrices, std::move(*weight)};
  if (has_output_scales) job.output_scales.assign(static_cast<size_t>(num_rows), 1.0f);
  return job;
}

// Columns [first, first + weight.k()) of a panel of the same format over more columns. `first` lies
// on a border of SlicedColumns::column_block.
void copy_columns(const std::byte* from, const PanelLayout& wide, int64_t first,
                  const PackedWeight& weight, std::byte* to) {
  const kernels::WeightFormatTraits t = traits(weight.format());
  const PanelLayout& layout = weight.layout();
  const auto copy = [&](int64_t source, int64_t target, int64_t begin, int64_t count,
                        int64_t bytes) {
    std::memcpy(to + target, from + source + begin * kTileN * bytes,
                static_cast<size_t>(count * kTileN * bytes));
  };
  // Two positions of K at a time, the least that formats have in common. What lies behind the last
  // column in the wider panel belongs to others where the format is bf16, and is packed in blocks
  // that are this slice's own otherwise.
  const int64_t columns =
      weight.format() == WeightFormat::bf16 ? (weight.k() + 1) / 2 * 2 : weight.padded_k();
  std::memcpy(to, from + first * kTileN * t.bits / 8,
              static_cast<size_t>(columns * kTileN * t.bits / 8));
  if (t.scale_kind == ScaleKind::none) return;
  const int64_t groups = num_groups(t, weight.padded_k());
  const int64_t first_group = group_of(t, first);
  const int64_t scale_bytes = t.scale_kind == ScaleKind::f32   ? 4
                              : t.scale_kind == ScaleKind::f16 ? 2
                                                               : 1;
  const auto copy_scales = [&](int64_t PanelLayout::*scales, int64_t PanelLayout::*super_scales) {
    copy(wide.*scales, layout.*scales, first_group, groups, scale_bytes);
    if (t.scale_kind != ScaleKind::nested) return;
    copy(wide.*super_scales, layout.*super_scales, first / kernels::kSuperGroup,
         weight.padded_k() / kernels::kSuperGroup, 2);
  };
  copy_scales(&PanelLayout::scales, &PanelLayout::super_scales);
  if (t.has_minimum) copy_scales(&PanelLayout::minimums, &PanelLayout::super_minimums);
  if (t.has_zero_points) copy(wide.zero_points, layout.zero_points, first_group, groups, 1);
}

// Packs the rows of panel p. `layout`: that of the matrices, or of those that are wider. Returns
// the matrix of the first scale that is no number, or null.
const StoredMatrix* pack_rows(Job& job, int64_t p, const PanelLayout& layout, std::byte* panel) {
  // Padding channels and the padded end of K are zeros.
  std::memset(panel, 0, static_cast<size_t>(layout.size));
  int64_t first_row = 0;
  for (const StoredMatrix* matrix : job.matrices) {
    const StoredMatrix* source = matrix->wider() != nullptr ? matrix->wider() : matrix;
    const int64_t begin = std::max(p * kTileN, first_row);
    const int64_t end = std::min((p + 1) * kTileN, first_row + matrix->rows());
    bool all_finite = true;
    for (int64_t n = begin; n < end; ++n) {
      float* output_scale =
          matrix->has_output_scales() ? &job.output_scales[static_cast<size_t>(n)] : nullptr;
      source->pack_row(n - first_row,
                       {panel, static_cast<int>(n % kTileN), layout, all_finite, output_scale});
    }
    if (!all_finite) return matrix;
    first_row += matrix->rows();
  }
  return nullptr;
}

// `scratch`: of this thread, for panels of wider matrices.
const StoredMatrix* pack_panel(Job& job, int64_t p, std::vector<std::byte>& scratch) {
  const StoredMatrix& first = *job.matrices.front();
  if (first.wider() == nullptr) {
    return pack_rows(job, p, job.weight.layout(), job.weight.panel(p));
  }
  const int64_t alignment = traits(first.format()).k_alignment;
  const int64_t padded = (first.wider()->columns() + alignment - 1) / alignment * alignment;
  const PanelLayout wide = kernels::panel_layout(first.format(), padded);
  scratch.resize(static_cast<size_t>(wide.size));
  if (const StoredMatrix* failed = pack_rows(job, p, wide, scratch.data())) return failed;
  std::memset(job.weight.panel(p), 0, static_cast<size_t>(job.weight.layout().size));
  copy_columns(scratch.data(), wide, first.first_column(), job.weight, job.weight.panel(p));
  return nullptr;
}

// The team shares the panels of all jobs, whose weights have their memory.
Status pack_jobs(std::span<Job> jobs, ThreadTeam& team) {
  std::vector<int64_t> starts = {0};
  for (const Job& job : jobs) starts.push_back(starts.back() + job.weight.num_panels());
  std::vector<const StoredMatrix*> broken(static_cast<size_t>(team.size()));
  team.run([&](const TeamMember& member) {
    std::vector<std::byte> scratch;
    const StoredMatrix*& failed = broken[static_cast<size_t>(member.rank())];
    const Range mine = member.share(starts.back());
    for (int64_t p = mine.begin; p < mine.end && failed == nullptr; ++p) {
      const auto job = std::upper_bound(starts.begin(), starts.end(), p) - starts.begin() - 1;
      failed =
          pack_panel(jobs[static_cast<size_t>(job)], p - starts[static_cast<size_t>(job)], scratch);
    }
  });
  for (const StoredMatrix* matrix : broken) {
    if (matrix == nullptr) continue;
    return error(ErrorCode::corrupt_data,
                 "tensor {} ({}) has a scale that is infinite or no number", matrix->name(),
                 traits(matrix->tensors().front()->type).name);
  }
  for (Job& job : jobs) job.weight.set_output_scales(job.output_scales);
  return {};
}

}  // namespace

Expected<PackedWeight> pack(std::span<const StoredMatrix* const> matrices, ThreadTeam& team) {
  auto job = describe(matrices);
  if (!job) return forward_error(job);
  auto weight = PackedWeight::allocate(job->weight.format(), job->weight.n(), job->weight.k());
  if (!weight) return forward_error(weight);
  job->weight = std::move(*weight);
  if (Status status = pack_jobs({&*job, 1}, team); !status) return forward_error(status);
  return std::move(job->weight);
}

Expected<PackedWeights> pack_each(std::span<const StoredMatrix* const> matrices, ThreadTeam& team) {
  std::vector<Job> jobs;
  ArenaLayout layout;
  for (size_t i = 0; i < matrices.size(); ++i) {
    auto job = describe(matrices.subspan(i, 1));
    if (!job) return forward_error(job);
    layout.reserve(job->weight.size_bytes());
    jobs.push_back(std::move(*job));
  }
  PackedWeights packed;
  auto memory = Buffer::allocate(layout.size());
  if (!memory) return forward_error(memory);
  packed.memory = std::move(*memory);
  ArenaLayout places;
  for (Job& job : jobs) {
    job.weight.place(packed.memory.data() + places.reserve(job.weight.size_bytes()));
  }
  if (Status status = pack_jobs(jobs, team); !status) return forward_error(status);
  for (Job& job : jobs) packed.weights.push_back(std::move(job.weight));
  return packed;
}

}  // namespace tw
