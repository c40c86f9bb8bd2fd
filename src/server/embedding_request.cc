#include "server/embedding_request.h"

#include <bit>
#include <charconv>
#include <cmath>

#include "server/base64.h"
#include "server/prompt_inputs.h"

namespace tw {
namespace {

// The number whose shortest decimal is that of the float: 0.1 instead of 0.10000000149011612.
double shortest(float value) {
  char text[32];
  const auto written = std::to_chars(std::begin(text), std::end(text), value);
  double number = 0;
  std::from_chars(text, written.ptr, number);
  return number;
}

}  // namespace

ApiExpected<EmbeddingRequest> parse_embedding_request(const Json& body, int64_t hidden_size) {
  RequestFields fields(body);
  EmbeddingRequest request;
  std::string format = "float";
  read_prompts(fields, "input", kMaxPrompts, request.inputs);
  fields.read("model", request.model);
  fields.read("rid", request.rid);
  if (fields.read("encoding_format", format) && format != "float" && format != "base64") {
    fields.fail("encoding_format", format, "\"float\" or \"base64\"");
  }
  request.base64 = format == "base64";
  fields.read("dimensions", request.dimensions, {.min = 1, .max = hidden_size});
  if (fields.failed()) return tl::unexpected(fields.take_error());
  return request;
}

void finish_embedding(std::vector<float>& embedding, std::optional<int32_t> dimensions) {
  if (dimensions) embedding.resize(static_cast<size_t>(*dimensions));
  double sum = 0;
  for (const float value : embedding) sum += static_cast<double>(value) * value;
  if (sum == 0) return;
  const double length = std::sqrt(sum);
  for (float& value : embedding) value = static_cast<float>(value / length);
}

Json embedding_json(std::span<const float> embedding, bool base64) {
  static_assert(std::endian::native == std::endian::little);
  if (base64) return encode_base64(std::as_bytes(embedding));
  Json numbers = Json::array();
  for (const float value : embedding) numbers.push_back(shortest(value));
  return numbers;
}

}  // namespace tw
