// A config.json of any bytes: refused with a message that names it, or numbers that fit together.
#include <string_view>

#include "core/check.h"
#include "weights/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tw;
  const auto json = parse_json({reinterpret_cast<const char*>(data), size}, "config.json");
  if (!json || !json->is_object()) return 0;
  const auto config = ModelConfig::parse(*json, "config.json");
  if (!config) {
    TW_CHECK(config.error().message.find("config.json") != std::string::npos);
    return 0;
  }
  TW_CHECK(config->hidden_size > 0 && config->head_dim > 0 && config->vocab_size > 0);
  TW_CHECK(config->num_attention_heads % config->num_key_value_heads == 0);
  TW_CHECK(config->rope.rope_theta >= 1);
  return 0;
}
