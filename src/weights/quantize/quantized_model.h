// A whole checkpoint, quantized into a folder in compressed-tensors' layout, which other engines
// read too.
#pragma once

#include <cstdint>
#include <memory>

#include "core/json.h"
#include "core/status.h"
#include "core/thread_team.h"
#include "weights/checkpoint.h"
#include "weights/quantize/quantizer.h"
#include "weights/safetensors_writer.h"

namespace tw {

// What will be written. Nothing is quantized before a part is; the checkpoint and the team must
// outlive it.
struct QuantizedModel {
  std::unique_ptr<const Quantizer> quantizer;  // of the parts
  SafetensorsParts parts;
  Json config;              // config.json, with quantization_config
  int64_t num_modules = 0;  // that are quantized
};

// The linear layers of is_quantized_by_default() quantized, everything else as it is: what
// make_quantizing_scheme() computes with, bit for bit. Fails, before any work, for a checkpoint
// that is no folder of safetensors, is quantized already, or has columns that the groups do not
// divide.
Expected<QuantizedModel> plan_quantized_model(const Checkpoint& checkpoint,
                                              const QuantizationOptions& options, ThreadTeam& team);

}  // namespace tw
