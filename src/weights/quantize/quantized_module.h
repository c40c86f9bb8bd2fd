// One linear layer's matrix, quantized in memory: a checkpoint of its tensors alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/thread_team.h"
#include "weights/checkpoint.h"
#include "weights/quantize/quantizer.h"

namespace tw {

// Everything but the tensors is the original checkpoint's, which must outlive it.
class QuantizedModule final : public Checkpoint {
 public:
  // Quantizes `matrix` [N, K] of f32, f16 or bf16 on the thread team. Fails with corrupt_data for
  // weights that are no finite numbers, and with unsupported for columns that the groups do not
  // divide, naming the tensor and what is valid. A scale of the whole matrix is that of all the
  // modules that fused_modules() names.
  static Expected<std::unique_ptr<QuantizedModule>> make(const Checkpoint& original,
                                                         const std::string& module,
                                                         const StoredTensor& matrix,
                                                         const Quantizer& quantizer,
                                                         ThreadTeam& team);

  const std::filesystem::path& path() const override { return original_.path(); }
  const char* container() const override { return original_.container(); }
  std::span<const StoredTensor> tensors() const override { return tensors_; }
  const Json& config() const override { return original_.config(); }
  const Json& generation_config() const override { return original_.generation_config(); }
  const Json& tokenizer_config() const override { return original_.tokenizer_config(); }
  std::optional<std::string> chat_template() const override { return original_.chat_template(); }
  Expected<TokenizerSource> tokenizer_source() const override;
  void release(const StoredTensor&) const override {}

 private:
  explicit QuantizedModule(const Checkpoint& original) : original_(original) {}

  const Checkpoint& original_;
  std::vector<std::vector<std::byte>> contents_;
  std::vector<StoredTensor> tensors_;
};

// Whether a tensor is a float matrix, not yet quantized.
bool is_float_matrix(const StoredTensor& tensor);

// An error, as above, for a matrix that the quantizer's groups do not divide.
Status check_columns(const Checkpoint& original, const StoredTensor& matrix,
                     const Quantizer& quantizer);

}  // namespace tw
