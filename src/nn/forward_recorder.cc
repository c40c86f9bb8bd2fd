#include "nn/forward_recorder.h"

namespace tw {

ForwardRecorder::ForwardRecorder(const ForwardLimits& limits, const CpuFeatures& features)
    : limits_(limits),
      features_(features),
      plan_(limits.max_num_tokens),
      prepared_(plan_),
      kernels_(LayerKernels::select(features)),
      attention_(
          plan_, features,
          {limits.max_num_tokens, limits.max_num_seqs, limits.max_context, limits.num_threads}) {}

ValueId ForwardRecorder::shared_value(std::string_view role, int64_t columns) {
  for (const SharedValue& shared : values_) {
    if (shared.role == role && shared.size == columns) return shared.value;
  }
  const ValueId value = plan_.add_value(RowKind::tokens, columns);
  values_.push_back({std::string(role), columns, value});
  return value;
}

ValueId ForwardRecorder::shared_scratch(std::string_view role, size_t bytes) {
  const auto size = static_cast<int64_t>(bytes);
  for (const SharedValue& shared : scratches_) {
    if (shared.role == role && shared.size == size) return shared.value;
  }
  const ValueId value = plan_.add_scratch(bytes);
  scratches_.push_back({std::string(role), size, value});
  return value;
}

Expected<std::shared_ptr<const kernels::RopeTable>> ForwardRecorder::rope_table(
    kernels::RopeParameters parameters) {
  parameters.sequence_length = limits_.max_context;
  for (const SharedTable& shared : tables_) {
    if (shared.parameters == parameters) return shared.table;
  }
  auto table = kernels::RopeTable::build(parameters, limits_.max_context);
  if (!table) return forward_error(table);
  tables_.push_back({parameters, std::make_shared<kernels::RopeTable>(std::move(*table))});
  return tables_.back().table;
}

}  // namespace tw
