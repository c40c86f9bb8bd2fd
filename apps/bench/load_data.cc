#include "apps/bench/load_data.h"
#include "core/text_file.h"

#include <algorithm>
#include <random>

namespace tw {
namespace {

// Neither bytes and specials at a vocabulary's begin nor its end.
constexpr int32_t kFirstToken = 1000, kLastToken = 20000;
constexpr size_t kCharactersPerToken = 4;

struct Turn {
  std::string question;
  std::string answer;
};

// Empty texts where the entry is no conversation.
Turn turn_of(const Json& entry) {
  const Json conversation = entry.is_object() ? entry.value("conversations", Json()) : Json();
  if (!conversation.is_array() || conversation.size() < 2) return {};
  const auto text = [&](size_t index) {
    const Json& part = conversation[index];
    const Json value = part.is_object() ? part.value("value", Json()) : Json();
    return value.is_string() ? value.get<std::string>() : std::string();
  };
  return {text(0), text(1)};
}

}  // namespace

std::vector<LoadRequest> random_requests(const RandomLoad& load) {
  std::mt19937_64 random(load.seed);
  const auto length = [&](int32_t longest) {
    const auto shortest = static_cast<int32_t>(longest * load.range_ratio);
    return std::uniform_int_distribution(std::max(1, shortest), longest)(random);
  };
  std::uniform_int_distribution token(kFirstToken, kLastToken);
  std::vector<LoadRequest> requests(static_cast<size_t>(load.num_prompts));
  for (LoadRequest& request : requests) {
    request.prompt = Json::array();
    for (int32_t i = length(load.input_len); i > 0; --i) request.prompt.push_back(token(random));
    request.output_len = length(load.output_len);
  }
  return requests;
}

Expected<std::vector<LoadRequest>> sharegpt_requests(const std::string& path, int32_t num_prompts,
                                                     int32_t output_len, uint64_t seed) {
  const auto text = read_text_file(path);
  if (!text) return error(ErrorCode::not_found, "--dataset-path {}: cannot open", path);
  const auto conversations = parse_json(*text, path);
  if (!conversations) return tl::unexpected(conversations.error());
  std::vector<Turn> turns;
  for (const Json& entry : conversations->is_array() ? *conversations : Json::array()) {
    Turn turn = turn_of(entry);
    if (!turn.question.empty() && !turn.answer.empty()) turns.push_back(std::move(turn));
  }
  if (turns.empty()) {
    return error(ErrorCode::invalid_argument,
                 "--dataset-path {}: no conversation with a question and an answer", path);
  }
  std::shuffle(turns.begin(), turns.end(), std::mt19937_64(seed));
  std::vector<LoadRequest> requests(static_cast<size_t>(num_prompts));
  for (size_t i = 0; i < requests.size(); ++i) {
    const Turn& turn = turns[i % turns.size()];
    const auto recorded = static_cast<int32_t>(turn.answer.size() / kCharactersPerToken);
    requests[i] = {turn.question, output_len > 0 ? output_len : std::max(1, recorded)};
  }
  return requests;
}

}  // namespace tw
