// Writes small adapters in PEFT's layout: valid ones, and ones that lie.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "core/json.h"
#include "weights/gguf_writer.h"

namespace tw::testing_support {

class LoraFolder {
 public:
  struct Tensor {
    std::string name;
    std::string shape;  // "2,4"
    size_t elements;
  };

  explicit LoraFolder(const std::string& name) : folder_(name) {}

  // A [2, 4] and B [6, 2].
  static std::vector<Tensor> pair_of(const std::string& layer) {
    return {{layer + ".lora_A.weight", "2,4", 8}, {layer + ".lora_B.weight", "6,2", 12}};
  }

  // All numbers are zero. Returns the folder.
  std::filesystem::path write(const Json& config, const std::vector<Tensor>& tensors) const {
    std::string header = "{";
    size_t bytes = 0;
    for (const Tensor& tensor : tensors) {
      header += fmt::format(R"({}"{}":{{"dtype":"F32","shape":[{}],"data_offsets":[{},{}]}})",
                            bytes == 0 ? "" : ",", tensor.name, tensor.shape, bytes,
                            bytes + 4 * tensor.elements);
      bytes += 4 * tensor.elements;
    }
    header += "}";
    const uint64_t size = header.size();
    std::string file(reinterpret_cast<const char*>(&size), sizeof(size));
    file += header + std::string(bytes, '\0');
    folder_.write("adapter_model.safetensors", file);
    return folder_.write("adapter_config.json", dump_json(config)).parent_path();
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace tw::testing_support
