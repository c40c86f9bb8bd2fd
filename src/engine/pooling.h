// One vector for a prompt, of the model's final hidden states: its embedding.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tw {

// Of the last token, of all tokens (their mean), or of the first ("classification") token.
enum class Pooling : uint8_t { last, mean, cls };

// By the names of --pooling: "last", "mean", "cls".
std::optional<Pooling> find_pooling(std::string_view name);
std::string pooling_names();

// Whether the state at `position` of a prompt of `num_tokens` counts.
bool is_pooled(Pooling pooling, int32_t position, int32_t num_tokens);

// Takes the states that count, in order: what comes out does not depend on how the prompt was cut
// into chunks.
class PooledStates {
 public:
  void add(std::span<const float> state);
  std::vector<float> mean() const;
  // After preemption the prompt is computed again.
  void clear();

 private:
  std::vector<double> sum_;
  int64_t count_ = 0;
};

}  // namespace tw
