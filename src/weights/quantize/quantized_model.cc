#include "weights/quantize/quantized_model.h"

#include "weights/quantize/quantized_module.h"
#include "weights/quantize/selection.h"

namespace tw {
namespace {

class QuantizedPart final : public SafetensorsPart {
 public:
  QuantizedPart(const Checkpoint& checkpoint, std::string module, const StoredTensor& matrix,
                const Quantizer& quantizer, ThreadTeam& team)
      : SafetensorsPart(list(module, matrix, quantizer)),
        checkpoint_(checkpoint),
        module_(std::move(module)),
        matrix_(matrix),
        quantizer_(quantizer),
        team_(team) {}

  Status write(std::ostream& file) const override {
    const auto made = QuantizedModule::make(checkpoint_, module_, matrix_, quantizer_, team_);
    if (!made) return tl::unexpected(made.error());
    for (const StoredTensor& tensor : (*made)->tensors()) {
      file.write(reinterpret_cast<const char*>(tensor.data.data()),
                 static_cast<std::streamsize>(tensor.data.size()));
    }
    checkpoint_.release(matrix_);
    return {};
  }

 private:
  // Types and shapes do not depend on the weights.
  static std::vector<WrittenTensor> list(const std::string& module, const StoredTensor& matrix,
                                         const Quantizer& quantizer) {
    std::vector<WrittenTensor> tensors;
    for (const QuantizedTensor& tensor : quantizer.tensors(matrix.shape[0], matrix.shape[1], 0)) {
      tensors.push_back({module + "." + tensor.name, tensor.type, tensor.shape});
    }
    return tensors;
  }

  const Checkpoint& checkpoint_;
  std::string module_;
  const StoredTensor& matrix_;
  const Quantizer& quantizer_;
  ThreadTeam& team_;
};

// Other engines quantize every linear layer that is not named here.
bool is_unquantized_linear(std::string_view module) {
  return !module.empty() && !module.ends_with("embed_tokens");
}

}  // namespace

Expected<QuantizedModel> plan_quantized_model(const Checkpoint& checkpoint,
                                              const QuantizationOptions& options,
                                              ThreadTeam& team) {
  if (checkpoint.container() != std::string_view("safetensors")) {
    return error(ErrorCode::unsupported,
                 "{}: is {}; write it as a folder first (tilewright convert)",
                 checkpoint.path().string(), checkpoint.container());
  }
  if (Status status = require_unquantized(checkpoint); !status) return forward_error(status);
  auto quantizer = make_quantizer(options);
  if (!quantizer) return forward_error(quantizer);
  QuantizedModel model;
  model.quantizer = std::move(*quantizer);
  Json ignored = Json::array();
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    const std::string module(module_of(tensor.name));
    const bool is_matrix = is_float_matrix(tensor) && !module.empty();
    if (!is_matrix || !is_quantized_by_default(module)) {
      if (is_matrix && is_unquantized_linear(module)) ignored.push_back(module);
      model.parts.push_back(make_copied_part(tensor));
      continue;
    }
    if (Status status = check_columns(checkpoint, tensor, *model.quantizer); !status) {
      return forward_error(status);
    }
    model.parts.push_back(
        std::make_unique<QuantizedPart>(checkpoint, module, tensor, *model.quantizer, team));
    ++model.num_modules;
  }
  if (model.num_modules == 0) {
    return error(ErrorCode::unsupported,
                 "{}: has no linear layers of their own tensors to quantize",
                 checkpoint.path().string());
  }
  // A tied output matrix has no tensor, but is a linear layer to others.
  if (checkpoint.find("lm_head.weight") == nullptr) ignored.push_back("lm_head");
  model.config = checkpoint.config();
  model.config["quantization_config"] = model.quantizer->config();
  model.config["quantization_config"]["ignore"] = std::move(ignored);
  return model;
}

}  // namespace tw
