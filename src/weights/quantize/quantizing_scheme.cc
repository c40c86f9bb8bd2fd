#include "weights/quantize/quantizing_scheme.h"

#include "weights/quantize/quantized_module.h"
#include "weights/quantize/selection.h"
#include "weights/schemes/plain.h"

namespace tw {
namespace {

// A matrix that was quantized in memory. To those who report progress and give memory back, it is
// the tensor that it was made from.
class OnlineMatrix final : public StoredMatrix {
 public:
  OnlineMatrix(const StoredTensor& source, std::unique_ptr<QuantizedModule> module,
               std::unique_ptr<StoredMatrix> matrix)
      : StoredMatrix({&source}, matrix->format(), matrix->rows(), matrix->columns()),
        module_(std::move(module)),
        matrix_(std::move(matrix)) {}

  bool has_output_scales() const override { return matrix_->has_output_scales(); }
  void pack_row(int64_t row, const ChannelWriter& channel) const override {
    matrix_->pack_row(row, channel);
  }

 private:
  std::unique_ptr<QuantizedModule> module_;  // what matrix_ refers to
  std::unique_ptr<StoredMatrix> matrix_;
};

class QuantizingScheme final : public Scheme {
 public:
  QuantizingScheme(std::unique_ptr<const Quantizer> quantizer,
                   std::unique_ptr<const Scheme> quantized, ThreadTeam& team)
      : quantizer_(std::move(quantizer)), quantized_(std::move(quantized)), team_(team) {}

  Expected<std::unique_ptr<StoredMatrix>> open(const Checkpoint& checkpoint,
                                               const std::string& module, int64_t rows,
                                               int64_t columns) const override {
    auto plain = open_plain_matrix(checkpoint, module, rows, columns);
    if (!plain || !is_quantized_by_default(module)) return plain;
    const StoredTensor& source = *(*plain)->tensors().front();
    auto made = QuantizedModule::make(checkpoint, module, source, *quantizer_, team_);
    if (!made) return forward_error(made);
    auto matrix = quantized_->open(**made, module, rows, columns);
    if (!matrix) return matrix;
    return std::make_unique<OnlineMatrix>(source, std::move(*made), std::move(*matrix));
  }

 private:
  std::unique_ptr<const Quantizer> quantizer_;
  std::unique_ptr<const Scheme> quantized_;  // reads what the quantizer writes
  ThreadTeam& team_;
};

}  // namespace

Expected<std::unique_ptr<const Scheme>> make_quantizing_scheme(const Checkpoint& checkpoint,
                                                               const QuantizationOptions& options,
                                                               ThreadTeam& team) {
  auto quantizer = make_quantizer(options);
  if (!quantizer) return forward_error(quantizer);
  if (Status status = require_unquantized(checkpoint); !status) return forward_error(status);
  auto quantized = make_scheme(Json{{"quantization_config", (*quantizer)->config()}},
                               "--quantization " + options.name);
  if (!quantized) return forward_error(quantized);
  return std::make_unique<QuantizingScheme>(std::move(*quantizer), std::move(*quantized), team);
}

}  // namespace tw
