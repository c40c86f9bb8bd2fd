#include "weights/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>

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

// What Llama 3.1's scaling divides frequency `index` by.
double llama3_divisor(double frequency, double factor, double low, double high, double original) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < original / high) return 1;
  if (wavelength > original / low) return factor;
  const double smooth = (original / wavelength - low) / (high - low);
  return 1 / ((1 - smooth) / factor + smooth);
}

// Llama 3.1 and later: converters replace the scaling's parameters by its result, a divisor per
// frequency. The parameters in use are few; the one that gives these divisors is the one.
Expected<Json> llama3_scaling(const StoredTensor& divisors, double theta, int64_t rotary_dim,
                              const std::string& file) {
  const auto count = static_cast<size_t>(divisors.shape.back());
  if (static_cast<int64_t>(count) != rotary_dim / 2 || divisors.type != StorageType::f32) {
    return error(ErrorCode::corrupt_data, "{}: tensor {} has {} {} values, expected {} F32", file,
                 divisors.name, count, traits(divisors.type).name, rotary_dim / 2);
  }
  std::vector<float> stored(count);
  dequantize(divisors.type, divisors.data.data(), divisors.shape.back(), stored.data());
  constexpr double kLow = 1, kHigh = 4, kOriginal = 8192;
  for (const double factor : {8.0, 32.0, 16.0, 4.0, 2.0}) {
    bool equal = true;
    for (size_t i = 0; i < count && equal; ++i) {
      const double frequency =
          std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
      const double expected = llama3_divisor(frequency, factor, kLow, kHigh, kOriginal);
      equal = std::abs(stored[i] - expected) <= 1e-3 * expected;
    }
    if (equal) {
      return Json{{"rope_type", "llama3"},
                  {"factor", factor},
                  {"low_freq_factor", kLow},
                  {"high_freq_factor", kHigh},
                  {"original_max_position_embeddings", static_cast<int64_t>(kOriginal)}};
    }
  }
  return error(
      ErrorCode::unsupported,
      "{}: tensor {} holds frequency divisors of no known scaling (Llama 3.1's with factor "
      "2 to 32)",
      file, divisors.name);
}

// rope.scaling.* of the metadata, or nothing.
Json metadata_scaling(const GgufFile& gguf, const std::string& prefix) {
  const auto type = gguf.string(prefix + "rope.scaling.type");
  const auto factor = gguf.number(prefix + "rope.scaling.factor");
  if (!type || *type == "none" || !factor) return nullptr;
  Json scaling = {{"rope_type", std::string(*type)}, {"factor", *factor}};
  if (const auto original = gguf.integer(prefix + "rope.scaling.original_context_length")) {
    scaling["original_max_position_embeddings"] = *original;
  }
  return scaling;
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
  if (*architecture != "llama") {
    return Json{{"architectures", {std::string(*architecture)}},
                {"model_type", std::string(*architecture)}};
  }
  const std::string prefix = "llama.";
  Json config = {{"architectures", {"LlamaForCausalLM"}}, {"model_type", "llama"}};
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
  if (const StoredTensor* divisors = find_tensor(tensors, "rope_freqs.weight")) {
    const int64_t rotary_dim = gguf.integer(prefix + "rope.dimension_count")
                                   .value_or(config.value("head_dim", int64_t{0}));
    auto scaling = llama3_scaling(*divisors, theta, rotary_dim, file);
    if (!scaling) return forward_error(scaling);
    config["rope_scaling"] = std::move(*scaling);
  } else {
    config["rope_scaling"] = metadata_scaling(gguf, prefix);
  }
  if (const auto window = gguf.integer(prefix + "attention.sliding_window"); window.value_or(0)) {
    config["sliding_window"] = *window;
    config["architectures"] = {"MistralForCausalLM"};
    config["model_type"] = "mistral";
  }
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
  if (const auto length = gguf.integer("llama.context_length")) {
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
