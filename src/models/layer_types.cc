#include "models/layer_types.h"

#include <algorithm>

#include "nn/rope.h"

namespace tw {

Expected<std::vector<bool>> sliding_layers(const ModelConfig& config,
                                           const std::function<bool(int64_t)>& rule) {
  std::vector<bool> sliding;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    if (config.layer_types.empty()) {
      sliding.push_back(rule(i));
    } else {
      const std::string& type = config.layer_types[static_cast<size_t>(i)];
      if (type != "full_attention" && type != "sliding_attention") {
        return error(ErrorCode::unsupported,
                     "{}: layer_types has {} for layer {}; known are full_attention and "
                     "sliding_attention",
                     config.source, type, i);
      }
      sliding.push_back(type == "sliding_attention");
    }
    if (sliding.back() && config.sliding_window == 0) {
      return error(ErrorCode::corrupt_data,
                   "{}: layer {} is of sliding_attention, but there is no sliding_window",
                   config.source, i);
    }
  }
  return sliding;
}

Expected<std::vector<bool>> rotating_layers(const ModelConfig& config) {
  ConfigFields fields = config.fields();
  const int64_t interval = fields.integer("no_rope_layer_interval", 1, 4096, 4);
  const std::vector<int64_t> given = fields.integers("no_rope_layers", 0, 1);
  const auto num_layers = static_cast<size_t>(config.num_hidden_layers);
  if (!given.empty() && given.size() < num_layers) {
    fields.fail("no_rope_layers", fields.find("no_rope_layers"),
                fmt::format("a list of at least num_hidden_layers = {}", num_layers));
  }
  if (!fields.status()) return tl::unexpected(fields.status().error());
  std::vector<bool> rotating;
  for (size_t i = 0; i < num_layers; ++i) {
    rotating.push_back(given.empty() ? static_cast<int64_t>(i + 1) % interval != 0 : given[i] == 1);
  }
  return rotating;
}

Expected<std::vector<bool>> sparse_layers(const ModelConfig& config) {
  ConfigFields fields = config.fields();
  const int64_t step = fields.integer("decoder_sparse_step", 1, 4096, 1);
  const auto dense = fields.integers("mlp_only_layers", 0, 4096);
  if (!fields.status()) return tl::unexpected(fields.status().error());
  std::vector<bool> sparse;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const bool is_dense = std::find(dense.begin(), dense.end(), i) != dense.end();
    sparse.push_back(!is_dense && (i + 1) % step == 0);
  }
  return sparse;
}

void set_layer_type(const ModelConfig& config, bool sliding, AttentionConfig& attention) {
  attention.sliding_window = sliding ? config.sliding_window : 0;
  const RopeConfig& rope = sliding && config.sliding_rope ? *config.sliding_rope : config.rope;
  attention.rope = rope_parameters(config, rope);
}

}  // namespace tw
