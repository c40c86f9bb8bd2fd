#include "weights/packing.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"

namespace tw {
namespace {

using kernels::kTileN;
using kernels::PackedWeight;

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
    num_rows += matrix->rows();
    if (matrix->has_output_scales()) has_output_scales = true;
  }
  auto weight = PackedWeight::describe(first.format(), num_rows, first.columns());
  if (!weight) return forward_error(weight);
  Job job{matrices, std::move(*weight)};
  if (has_output_scales) job.output_scales.assign(static_cast<size_t>(num_rows), 1.0f);
  return job;
}

// Returns the matrix of the first scale that is no number, or null.
const StoredMatrix* pack_panel(Job& job, int64_t p) {
  std::byte* panel = job.weight.panel(p);
  // Padding channels and the padded end of K are zeros.
  std::memset(panel, 0, static_cast<size_t>(job.weight.layout().size));
  int64_t first_row = 0;
  for (const StoredMatrix* matrix : job.matrices) {
    const int64_t begin = std::max(p * kTileN, first_row);
    const int64_t end = std::min((p + 1) * kTileN, first_row + matrix->rows());
    bool all_finite = true;
    for (int64_t n = begin; n < end; ++n) {
      float* output_scale =
          matrix->has_output_scales() ? &job.output_scales[static_cast<size_t>(n)] : nullptr;
      matrix->pack_row(n - first_row, {panel, static_cast<int>(n % kTileN), job.weight.layout(),
                                       all_finite, output_scale});
    }
    if (!all_finite) return matrix;
    first_row += matrix->rows();
  }
  return nullptr;
}

// The team shares the panels of all jobs, whose weights have their memory.
Status pack_jobs(std::span<Job> jobs, ThreadTeam& team) {
  std::vector<int64_t> starts = {0};
  for (const Job& job : jobs) starts.push_back(starts.back() + job.weight.num_panels());
  std::vector<const StoredMatrix*> broken(static_cast<size_t>(team.size()));
  team.run([&](const TeamMember& member) {
    const StoredMatrix*& failed = broken[static_cast<size_t>(member.rank())];
    const Range mine = member.share(starts.back());
    for (int64_t p = mine.begin; p < mine.end && failed == nullptr; ++p) {
      const auto job = std::upper_bound(starts.begin(), starts.end(), p) - starts.begin() - 1;
      failed = pack_panel(jobs[static_cast<size_t>(job)], p - starts[static_cast<size_t>(job)]);
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
