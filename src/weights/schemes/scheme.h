// How a checkpoint stores the weights of its linear layers.
//
// A quantization scheme is what "quantization_config" of config.json names: it says which tensors
// stand for the matrix of a linear layer ("<module>.weight" and "<module>.weight_scale_inv", say),
// and each scheme is one file of this folder. The way of a matrix:
//
//   make_scheme   once per checkpoint; refuses what is not supported
//   open          per linear layer: finds its tensors and checks them - presence, type, shape,
//                 finite scales - before any memory is committed
//   pack          (weights/packing.h) several opened matrices of one format -> one PackedWeight
//
// To add a scheme: a file with a class derived from Scheme and one from StoredMatrix, and a row in
// scheme.cc.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/status.h"
#include "kernels/gemm/packed_weight.h"
#include "weights/checkpoint.h"
#include "weights/schemes/channel_writer.h"

namespace tw {

// The matrix W[rows, columns] of one linear layer in a checkpoint, checked and ready to be packed.
// Refers to the checkpoint's tensors; owns what it had to compute, such as expanded scales.
class StoredMatrix {
 public:
  virtual ~StoredMatrix() = default;

  const std::string& name() const { return tensors_.front()->name; }
  kernels::WeightFormat format() const { return format_; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  // Everything it is read from, for progress and for giving memory back once it is packed.
  std::span<const StoredTensor* const> tensors() const { return tensors_; }

  // Whether the channels have output scales (packed_weight.h).
  virtual bool has_output_scales() const { return false; }
  // Where the columns come from, [columns], if they are packed in another order than that of the
  // activations: column i of the packed weight meets activation input_order()[i]. Empty otherwise.
  virtual std::span<const int32_t> input_order() const { return {}; }

  // Where this is columns [first_column(), first_column() + columns()) of another matrix, that one:
  // it is packed, and the columns are taken from its panels. Null otherwise.
  virtual const StoredMatrix* wider() const { return nullptr; }
  virtual int64_t first_column() const { return 0; }

  // Writes one output channel, counted in Hugging Face's order whatever the file's. The panel is
  // zero before. Called by several threads at once, for different rows.
  virtual void pack_row(int64_t row, const ChannelWriter& channel) const = 0;

 protected:
  // The first tensor gives the matrix its name.
  StoredMatrix(std::vector<const StoredTensor*> tensors, kernels::WeightFormat format, int64_t rows,
               int64_t columns)
      : tensors_(std::move(tensors)), format_(format), rows_(rows), columns_(columns) {}

 private:
  std::vector<const StoredTensor*> tensors_;
  kernels::WeightFormat format_;
  int64_t rows_;
  int64_t columns_;
};

class Scheme {
 public:
  virtual ~Scheme() = default;

  // The matrix of a linear layer (or embedding), which must be [rows, columns]. `module` is the
  // name without ".weight": "model.layers.0.mlp.up_proj". An error names the file, the tensor, what
  // it has and what is valid. `checkpoint` must outlive the matrix.
  virtual Expected<std::unique_ptr<StoredMatrix>> open(const Checkpoint& checkpoint,
                                                       const std::string& module, int64_t rows,
                                                       int64_t columns) const = 0;
};

// The scheme of a checkpoint with this config.json. `source` names it in errors. Unsupported
// methods are named, with the known ones.
Expected<std::unique_ptr<const Scheme>> make_scheme(const Json& config, const std::string& source);

// For the files of this folder.

// A tensor of exactly this shape, or an error that names it and the shape it has.
Expected<const StoredTensor*> require_shape(const Checkpoint& checkpoint, const std::string& name,
                                            const std::vector<int64_t>& shape);

}  // namespace tw
