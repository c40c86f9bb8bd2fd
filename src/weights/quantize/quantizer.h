// How float weights become those of a quantized checkpoint.
//
// A quantizer turns the matrix of a linear layer into the tensors that compressed-tensors' layout
// has for it, one output channel at a time, without data for calibration: scales come from the
// weights alone. Each format is one file of this folder. What it writes is read back by the
// checkpoint schemes (weights/schemes/), whether it went through a file (`tilewright quantize`) or
// not (--quantization): both are the same bits.
//
// To add a format: a file with a class derived from Quantizer, and a row in quantizer.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/status.h"
#include "weights/storage_type.h"

namespace tw {

// A tensor that stands for (a part of) the matrix of `<module>`: it is called "<module>.<name>".
struct QuantizedTensor {
  const char* name;
  StorageType type;
  std::vector<int64_t> shape;
  // What it holds, if that does not come row by row.
  std::vector<std::byte> content;
};

class Quantizer {
 public:
  virtual ~Quantizer() = default;

  // quantization_config of config.json, where "ignore" is still empty.
  virtual Json config() const = 0;
  // What the columns of a matrix must be a multiple of.
  virtual int64_t column_multiple() const { return 1; }
  // Whether rows are quantized by a scale that all of them share.
  virtual bool needs_largest_magnitude() const { return false; }

  // The tensors of a matrix [rows, columns]. The first two have a row for each output channel:
  // its quants, its scales. `largest`: magnitude among all weights, where it is needed.
  virtual std::vector<QuantizedTensor> tensors(int64_t rows, int64_t columns,
                                               float largest) const = 0;
  // Quantizes one channel of finite weights into its rows of the first two tensors. Called by
  // several threads at once.
  virtual void quantize_row(std::span<const float> weights, float largest, std::byte* quants,
                            std::byte* scales) const = 0;
};

// Groups of 32 cost nothing more than larger ones once they are packed, and lose least.
inline constexpr int64_t kDefaultGroupSize = 32;

struct QuantizationOptions {
  std::string name;        // as SGLang's --quantization has it: one of quantization_names()
  int64_t group_size = 0;  // of int4; 0: kDefaultGroupSize
};

// An unknown name is invalid_argument and lists the known ones, a group size that the format does
// not have names those that it has.
Expected<std::unique_ptr<const Quantizer>> make_quantizer(const QuantizationOptions& options);

// "fp8, int4, ..."
std::string quantization_names();

// The formats.
Expected<std::unique_ptr<const Quantizer>> make_int4_quantizer(int64_t group_size);
std::unique_ptr<const Quantizer> make_int8_quantizer();
std::unique_ptr<const Quantizer> make_fp8_quantizer();
std::unique_ptr<const Quantizer> make_mxfp4_quantizer();
std::unique_ptr<const Quantizer> make_nvfp4_quantizer();

// For the files of this folder: quantization_config with one group of all linear layers.
// `activations`: null where only weights are quantized.
Json compressed_tensors_config(const char* format, Json weights, Json activations);

}  // namespace tw
