#include "engine/speculative/make_drafter.h"

#include "core/check.h"
#include "engine/speculative/draft_model.h"
#include "engine/speculative/ngram.h"

namespace tw {

Expected<std::unique_ptr<Drafter>> make_drafter(const EngineConfig& config, Model& model,
                                                std::unique_ptr<Model> draft_model,
                                                const CpuFeatures& features) {
  const std::string& algorithm = config.speculative_algorithm;
  TW_CHECK(!draft_model || algorithm == "STANDALONE");
  const int64_t vocab_size = model.limits().vocab_size;
  const bool draws_trees = config.speculative_eagle_topk > 1;
  if (algorithm.empty()) return nullptr;
  const bool has_states = model.limits().state_bytes_per_sequence > 0;
  if (has_states || (draft_model && draft_model->limits().state_bytes_per_sequence > 0)) {
    return error(
        ErrorCode::unsupported,
        "--speculative-algorithm {}: the {}model has recurrent states, which can't take back "
        "what wrong guesses did to them; leave it out",
        algorithm, has_states ? "" : "draft ");
  }
  if (algorithm == "NGRAM") {
    if (draws_trees) {
      return error(ErrorCode::invalid_argument,
                   "--speculative-eagle-topk {}: NGRAM guesses one token for each place; leave it "
                   "out, or use STANDALONE, NEXTN or EAGLE3",
                   config.speculative_eagle_topk);
    }
    return std::make_unique<NgramDrafter>(!config.disable_radix_cache);
  }
  if (algorithm == "STANDALONE") {
    if (!draft_model) {
      return error(ErrorCode::invalid_argument,
                   "--speculative-algorithm STANDALONE guesses with a smaller model: give it with "
                   "--speculative-draft-model-path");
    }
    return std::make_unique<DraftModel>(std::make_unique<StandaloneGuesser>(std::move(draft_model)),
                                        vocab_size, draws_trees, features);
  }
  if (algorithm == "NEXTN" || algorithm == "EAGLE3") {
    NextTokenModel* layer = model.next_token_model();
    TW_CHECK(layer != nullptr);
    return std::make_unique<DraftModel>(std::make_unique<NextTokenGuesser>(*layer, model.limits()),
                                        vocab_size, draws_trees, features);
  }
  return error(ErrorCode::invalid_argument,
               "--speculative-algorithm {}: unknown; there are NGRAM, STANDALONE, NEXTN and EAGLE3",
               algorithm);
}

}  // namespace tw
