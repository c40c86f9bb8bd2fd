#include "apps/host_fields.h"

#include <fmt/ranges.h>

#include "core/json.h"
#include "hub/sha256.h"

namespace tw {
namespace {

std::string digest(std::string_view text) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  return hash.hex_digest().substr(0, 16);
}

// Names, types and shapes: weights of the same size that differ would go unnoticed, but reading all
// of them on every host would take longer than loading its part.
std::string digest_of_tensors(const Checkpoint& checkpoint) {
  std::string text;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    text += fmt::format("{} {} {}\n", tensor.name, static_cast<int>(tensor.type),
                        fmt::join(tensor.shape, "x"));
  }
  return digest(text);
}

// The counts, whatever the file's name.
Expected<std::string> digest_of_expected_choices(const ExpertOptions& experts) {
  const auto choices = experts.expected_choices();
  if (!choices) return tl::unexpected(choices.error());
  std::string text;
  for (const auto& [layer, counts] : *choices) {
    text += fmt::format("{} {}\n", layer, fmt::join(counts, " "));
  }
  return text.empty() ? text : digest(text);
}

}  // namespace

Expected<std::vector<HostField>> fields_of_host(const ModelOptions& options,
                                                const CpuFeatures& features,
                                                const Checkpoint& checkpoint) {
  auto choices = digest_of_expected_choices(options.experts);
  if (!choices) return forward_error(choices);
  const EngineConfig& engine = options.engine;
  std::vector<HostField> fields = {
      {"the version", TW_VERSION},
      // Ranks repeat some computations, which must give the same bits.
      {"the processor's instruction set (see TILEWRIGHT_ISA)", features.describe()},
      {"the model's configuration (hash)", digest(dump_json(checkpoint.config()))},
      {"the list of the model's tensors (hash)", digest_of_tensors(checkpoint)},
      {"--init-expert-location (hash)", std::move(*choices)}};
  const auto add = [&fields](const char* flag, const auto& value) {
    fields.push_back({flag, fmt::format("{}", value)});
  };
  add("--tp", options.tensor_parallel_size);
  add("--ep", options.experts.parallel_size);
  add("--ep-num-redundant-experts", options.experts.num_redundant);
  add("--dtype", options.dtype);
  add("--kv-cache-dtype", options.kv_cache_dtype);
  add("--quantization", options.quantization.name);
  add("--dist-timeout", options.hosts.timeout_seconds);
  add("--context-length", options.context_length);
  add("--page-size", engine.page_size);
  add("--chunked-prefill-size", engine.chunked_prefill_size);
  add("--max-running-requests", engine.max_running_requests);
  add("--disable-radix-cache", engine.disable_radix_cache);
  add("--speculative-algorithm", engine.speculative_algorithm);
  return fields;
}

}  // namespace tw
