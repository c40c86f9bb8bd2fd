// `tilewright evaluate`: perplexity of a text, and the distance to a reference model; what a
// quantization costs.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "apps/commands.h"
#include "apps/logit_comparison.h"
#include "apps/model_session.h"
#include "core/json.h"
#include "core/log.h"
#include "core/progress.h"
#include "core/text_file.h"

namespace tw {
namespace {

struct EvaluateOptions {
  ModelOptions model;
  std::string reference_path;
  std::string text_path;
  int32_t window = 512;
  int32_t max_tokens = 8192;
  bool json = false;
};

// One sequence at a time, from its first token on, the logits of all its tokens.
class WindowRunner {
 public:
  WindowRunner(Model& model, int32_t window, int32_t page_size, int32_t chunk)
      : model_(model), window_(window), page_size_(page_size), chunk_(chunk) {}

  Status prepare() {
    const int32_t num_pages = (window_ + page_size_ - 1) / page_size_;
    for (int32_t page = 0; page < num_pages; ++page) pages_.push_back(page);
    for (int32_t i = 0; i < window_; ++i) positions_.push_back(i);
    return model_.prepare(num_pages, page_size_, chunk_, 1);
  }

  // Logits [count, vocab_size] behind tokens [begin, begin + count) of the window, whose earlier
  // tokens were run before; valid until the next call.
  Matrix<const float> run(std::span<const int32_t> window, int32_t begin, int32_t count) {
    const int32_t starts[] = {0, count}, lens[] = {begin + count};
    const int32_t table_starts[] = {0, static_cast<int32_t>(pages_.size())};
    const std::span<const int32_t> numbers = positions_;
    const auto first = static_cast<size_t>(begin), size = static_cast<size_t>(count);
    // Pages lie in order, so the slot of a position is its number.
    return model_.forward({window.subspan(first, size), numbers.subspan(first, size), starts, lens,
                           numbers.subspan(first, size), pages_, table_starts,
                           numbers.first(size)});
  }

 private:
  Model& model_;
  int32_t window_, page_size_, chunk_;
  std::vector<int32_t> pages_, positions_;
};

constexpr int32_t kChunk = 128;

// Adds what the model says of a window's tokens behind the first.
void evaluate_window(std::span<const int32_t> window, WindowRunner& runner, WindowRunner* reference,
                     ThreadTeam& team, PredictionQuality& quality) {
  const auto last = static_cast<int32_t>(window.size()) - 1;
  for (int32_t begin = 0; begin < last; begin += kChunk) {
    const int32_t count = std::min(kChunk, last - begin);
    const Matrix<const float> logits = runner.run(window, begin, count);
    const Matrix<const float> expected =
        reference == nullptr ? Matrix<const float>{} : reference->run(window, begin, count);
    const auto width = static_cast<size_t>(logits.cols);
    std::vector<Prediction> predictions(static_cast<size_t>(count));
    team.run([&](const TeamMember& member) {
      const Range rows = member.share(count);
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        std::span<const float> expected_row;
        if (reference != nullptr) expected_row = {expected.row(row), width};
        predictions[static_cast<size_t>(row)] = compare_logits(
            {logits.row(row), width}, expected_row, window[static_cast<size_t>(begin + row + 1)]);
      }
    });
    for (const Prediction& prediction : predictions) quality.add(prediction);
  }
}

Expected<std::vector<int32_t>> read_tokens(const EvaluateOptions& options,
                                           const Checkpoint& checkpoint) {
  const auto text = read_text_file(options.text_path);
  if (!text) return error(ErrorCode::not_found, "--text {}: cannot read", options.text_path);
  auto tokenizer = load_tokenizer(checkpoint);
  if (!tokenizer) return forward_error(tokenizer);
  auto ids = tokenizer->encode(*text, false);
  if (!ids) return forward_error(ids);
  const auto most = static_cast<size_t>(options.max_tokens);
  if (ids->size() > most) ids->resize(most);
  ids->resize(ids->size() / static_cast<size_t>(options.window) *
              static_cast<size_t>(options.window));
  if (!ids->empty()) return ids;
  return error(ErrorCode::invalid_argument, "--text {}: shorter than a window of {} tokens",
               options.text_path, options.window);
}

void print_quality(const EvaluateOptions& options, const PredictionQuality& quality) {
  Json result = {{"model", options.model.model_path},
                 {"quantization", options.model.quantization.name},
                 {"tokens", quality.num_tokens},
                 {"perplexity", quality.perplexity()}};
  if (!options.reference_path.empty()) {
    result["reference"] = options.reference_path;
    result["mean_kl_divergence"] = quality.mean_kl_divergence();
    result["top1_agreement"] = quality.agreement();
    result["largest_logit_error"] = quality.largest_logit_error;
  }
  if (options.json) {
    std::printf("%s\n", dump_json(result).c_str());
    return;
  }
  std::printf("%lld tokens: perplexity %.4f\n", static_cast<long long>(quality.num_tokens),
              quality.perplexity());
  if (options.reference_path.empty()) return;
  std::printf(
      "against %s: mean KL divergence %.5f nats, same best token %.2f%%, largest logit error "
      "%.2e\n",
      options.reference_path.c_str(), quality.mean_kl_divergence(), 100 * quality.agreement(),
      quality.largest_logit_error);
}

Status evaluate(const EvaluateOptions& options) {
  auto session = ModelSession::load(options.model);
  if (!session) return forward_error(session);
  auto ids = read_tokens(options, *session->checkpoint);
  if (!ids) return forward_error(ids);
  const int32_t page_size = options.model.engine.page_size;
  WindowRunner runner(*session->model, options.window, page_size, kChunk);
  if (Status status = runner.prepare(); !status) return status;

  std::optional<ModelSession> reference;
  std::optional<WindowRunner> reference_runner;
  if (!options.reference_path.empty()) {
    ModelOptions reference_options = options.model;
    reference_options.model_path = options.reference_path;
    reference_options.quantization = {};
    reference_options.kv_cache_dtype = "auto";
    auto loaded = ModelSession::load(reference_options);
    if (!loaded) return forward_error(loaded);
    reference = std::move(*loaded);
    if (reference->model->limits().vocab_size != session->model->limits().vocab_size) {
      return error(ErrorCode::invalid_argument, "--reference {}: has {} tokens, the model has {}",
                   options.reference_path, reference->model->limits().vocab_size,
                   session->model->limits().vocab_size);
    }
    reference_runner.emplace(*reference->model, options.window, page_size, kChunk);
    if (Status status = reference_runner->prepare(); !status) return status;
  }

  PredictionQuality quality;
  const std::span<const int32_t> tokens = *ids;
  const auto window = static_cast<size_t>(options.window);
  ProgressBar progress("evaluating", static_cast<int64_t>(tokens.size()), "tokens");
  for (size_t begin = 0; begin < tokens.size(); begin += window) {
    evaluate_window(tokens.subspan(begin, window), runner,
                    reference_runner ? &*reference_runner : nullptr, session->teams->team(0),
                    quality);
    progress.advance(options.window);
  }
  print_quality(options, quality);
  return {};
}

}  // namespace

void add_evaluate_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "evaluate", "Perplexity of a text, and how far a model is from a reference");
  auto options = std::make_shared<EvaluateOptions>();
  options->model.log.level = "warning";
  options->model.add_to(*command);
  command->add_option("--text", options->text_path, "File with the text to predict")->required();
  command->add_option("--reference", options->reference_path,
                      "Model to compare the predictions with, such as the unquantized checkpoint; "
                      "neither --quantization nor --kv-cache-dtype applies to it");
  command
      ->add_option("--window", options->window,
                   "Tokens that are predicted from each other; windows are independent")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command->add_option("--max-tokens", options->max_tokens, "Tokens of the text that are read")
      ->check(CLI::Range(2, 1 << 30))
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object instead of text");
  command->callback([options, &exit_code] {
    if (Status status = configure_log(options->model.log); !status) {
      exit_code = report(status.error());
    } else if (status = evaluate(*options); !status) {
      exit_code = report(status.error());
    }
  });
}

}  // namespace tw
