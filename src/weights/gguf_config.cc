#include "weights/gguf_config.h"

#include <algorithm>

#include "weights/gguf_architectures.h"
#include "weights/gguf_rope.h"

namespace tw {
namespace {

constexpr const char* kSpecialTokens[][2] = {{"bos_token", "tokenizer.ggml.bos_token_id"},
                                             {"eos_token", "tokenizer.ggml.eos_token_id"},
                                             {"unk_token", "tokenizer.ggml.unknown_token_id"},
                                             {"pad_token", "tokenizer.ggml.padding_token_id"}};

const StoredTensor* find_tensor(std::span<const StoredTensor> tensors, std::string_view name) {
  for (const StoredTensor& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

// A number per layer is accepted where all layers agree.
std::optional<int64_t> layer_integer(const GgufFile& gguf, const std::string& key) {
  if (const auto value = gguf.integer(key)) return value;
  const GgufArray* array = gguf.array(key);
  if (array == nullptr || array->items.empty()) return std::nullopt;
  const auto first = as_integer(array->items.front());
  for (const GgufValue& item : array->items) {
    if (as_integer(item) != first) return std::nullopt;
  }
  return first;
}

std::string token_text(const GgufFile& gguf, int64_t id) {
  const GgufArray* tokens = gguf.array("tokenizer.ggml.tokens");
  if (tokens == nullptr || id < 0 || id >= static_cast<int64_t>(tokens->items.size())) return "";
  const auto* text = std::get_if<std::string_view>(&tokens->items[static_cast<size_t>(id)]);
  return text == nullptr ? "" : std::string(*text);
}

}  // namespace

Expected<Json> gguf_model_config(const GgufFile& gguf, std::span<const StoredTensor> tensors) {
  const std::string file = gguf.file().path().string();
  const auto architecture = gguf.string("general.architecture");
  if (!architecture) {
    return error(ErrorCode::corrupt_data, "{}: metadata lacks general.architecture", file);
  }
  const GgufArchitecture* row = find_gguf_architecture(*architecture);
  if (row == nullptr) {
    return Json{{"architectures", {std::string(*architecture)}},
                {"model_type", std::string(*architecture)}};
  }
  const GgufModel model{gguf, tensors, std::string(*architecture) + "."};
  const std::string& prefix = model.prefix;
  Json config = {{"architectures", {std::string(row->hugging_face)}},
                 {"model_type", std::string(row->model_type)}};
  const auto require = [&](const char* field, const std::string& key) -> Status {
    const auto value = layer_integer(gguf, key);
    if (!value) {
      return error(ErrorCode::corrupt_data, "{}: metadata lacks an integer {}", file, key);
    }
    config[field] = *value;
    return {};
  };
  for (const auto& [field, key] : std::initializer_list<std::pair<const char*, const char*>>{
           {"hidden_size", "embedding_length"},
           {"intermediate_size", "feed_forward_length"},
           {"num_hidden_layers", "block_count"},
           {"num_attention_heads", "attention.head_count"},
           {"max_position_embeddings", "context_length"}}) {
    if (Status status = require(field, prefix + key); !status) return forward_error(status);
  }
  const int64_t num_heads = config["num_attention_heads"].get<int64_t>();
  config["num_key_value_heads"] =
      layer_integer(gguf, prefix + "attention.head_count_kv").value_or(num_heads);
  if (const auto head_dim = gguf.integer(prefix + "attention.key_length")) {
    config["head_dim"] = *head_dim;
  } else if (num_heads > 0) {
    config["head_dim"] = config["hidden_size"].get<int64_t>() / num_heads;
  }
  config["hidden_act"] = "silu";
  config["rms_norm_eps"] = gguf.number(prefix + "attention.layer_norm_rms_epsilon").value_or(1e-5);
  const double theta = gguf.number(prefix + "rope.freq_base").value_or(10000.0);
  config["rope_theta"] = theta;
  const auto head_dim = config.value("head_dim", int64_t{0});
  const auto rotary_dim = gguf.integer(prefix + "rope.dimension_count");
  if (rotary_dim && head_dim > 0 && *rotary_dim < head_dim) {
    config["partial_rotary_factor"] =
        static_cast<double>(*rotary_dim) / static_cast<double>(head_dim);
  }
  auto scaling = gguf_rope_scaling(model, theta, head_dim);
  if (!scaling) return forward_error(scaling);
  config["rope_scaling"] = std::move(*scaling);
  const StoredTensor* embeddings = find_tensor(tensors, "model.embed_tokens.weight");
  const GgufArray* tokens = gguf.array("tokenizer.ggml.tokens");
  if (embeddings != nullptr && embeddings->shape.size() == 2) {
    config["vocab_size"] = embeddings->shape[0];
  } else if (tokens != nullptr) {
    config["vocab_size"] = tokens->items.size();
  }
  config["tie_word_embeddings"] = find_tensor(tensors, "lm_head.weight") == nullptr;
  config["attention_bias"] =
      find_tensor(tensors, "model.layers.0.self_attn.q_proj.bias") != nullptr;
  config["mlp_bias"] = find_tensor(tensors, "model.layers.0.mlp.gate_proj.bias") != nullptr;
  config["torch_dtype"] = "bfloat16";
  if (row->complete != nullptr) row->complete(model, config);
  config.update(gguf_generation_config(gguf));
  return config;
}

Json gguf_generation_config(const GgufFile& gguf) {
  Json config = Json::object();
  for (const auto& [field, key] : std::initializer_list<std::pair<const char*, const char*>>{
           {"bos_token_id", "tokenizer.ggml.bos_token_id"},
           {"pad_token_id", "tokenizer.ggml.padding_token_id"}}) {
    if (const auto id = gguf.integer(key)) config[field] = *id;
  }
  // Chat models end a turn with a token of its own beside the end of the text.
  std::vector<int64_t> ends;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    const auto id = gguf.integer(key);
    if (id && std::find(ends.begin(), ends.end(), *id) == ends.end()) ends.push_back(*id);
  }
  if (ends.size() == 1) config["eos_token_id"] = ends.front();
  if (ends.size() > 1) config["eos_token_id"] = ends;
  return config;
}

Json gguf_tokenizer_config(const GgufFile& gguf) {
  Json config = Json::object();
  for (const auto& [name, key] : kSpecialTokens) {
    const auto id = gguf.integer(key);
    if (!id) continue;
    if (std::string text = token_text(gguf, *id); !text.empty()) config[name] = std::move(text);
  }
  for (const char* field : {"add_bos_token", "add_eos_token"}) {
    if (const auto value = gguf.boolean(std::string("tokenizer.ggml.") + field)) {
      config[field] = *value;
    }
  }
  const std::string architecture(gguf.string("general.architecture").value_or(""));
  if (const auto length = gguf.integer(architecture + ".context_length")) {
    config["model_max_length"] = *length;
  }
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  return config;
}

Expected<GgufVocabulary> gguf_vocabulary(const GgufFile& gguf) {
  const std::string file = gguf.file().path().string();
  const auto model = gguf.string("tokenizer.ggml.model");
  const GgufArray* tokens = gguf.array("tokenizer.ggml.tokens");
  if (!model || tokens == nullptr) {
    return error(ErrorCode::corrupt_data,
                 "{}: no tokenizer (tokenizer.ggml.model or tokenizer.ggml.tokens missing)", file);
  }
  GgufVocabulary vocabulary;
  vocabulary.model = *model;
  vocabulary.pre = gguf.string("tokenizer.ggml.pre").value_or("");
  const auto strings = [&](const char* key, std::vector<std::string>& out) -> Status {
    const GgufArray* array = gguf.array(key);
    if (array == nullptr) return {};
    out.reserve(array->items.size());
    for (const GgufValue& item : array->items) {
      const auto* text = std::get_if<std::string_view>(&item);
      if (text == nullptr) {
        return error(ErrorCode::corrupt_data, "{}: {} holds something that is no string", file,
                     key);
      }
      out.emplace_back(*text);
    }
    return {};
  };
  if (Status status = strings("tokenizer.ggml.tokens", vocabulary.tokens); !status) {
    return forward_error(status);
  }
  if (Status status = strings("tokenizer.ggml.merges", vocabulary.merges); !status) {
    return forward_error(status);
  }
  if (const GgufArray* scores = gguf.array("tokenizer.ggml.scores")) {
    for (const GgufValue& item : scores->items) {
      vocabulary.scores.push_back(static_cast<float>(as_number(item).value_or(0)));
    }
  }
  if (const GgufArray* types = gguf.array("tokenizer.ggml.token_type")) {
    for (const GgufValue& item : types->items) {
      vocabulary.token_types.push_back(static_cast<int32_t>(as_integer(item).value_or(1)));
    }
  }
  const auto id = [&](const char* key) -> std::optional<int32_t> {
    const auto value = gguf.integer(key);
    const auto size = static_cast<int64_t>(vocabulary.tokens.size());
    if (!value || *value < 0 || *value >= size) return std::nullopt;
    return static_cast<int32_t>(*value);
  };
  vocabulary.bos_token_id = id("tokenizer.ggml.bos_token_id");
  vocabulary.eos_token_id = id("tokenizer.ggml.eos_token_id");
  vocabulary.unk_token_id = id("tokenizer.ggml.unknown_token_id");
  vocabulary.pad_token_id = id("tokenizer.ggml.padding_token_id");
  vocabulary.add_bos_token = gguf.boolean("tokenizer.ggml.add_bos_token");
  vocabulary.add_eos_token = gguf.boolean("tokenizer.ggml.add_eos_token").value_or(false);
  vocabulary.add_space_prefix = gguf.boolean("tokenizer.ggml.add_space_prefix").value_or(true);
  return vocabulary;
}

}  // namespace tw
