#include "engine/pooling.h"

namespace tw {
namespace {

struct NamedPooling {
  std::string_view name;
  Pooling pooling;
};

constexpr NamedPooling kPoolings[] = {
    {"last", Pooling::last}, {"mean", Pooling::mean}, {"cls", Pooling::cls}};

}  // namespace

std::optional<Pooling> find_pooling(std::string_view name) {
  for (const NamedPooling& entry : kPoolings) {
    if (entry.name == name) return entry.pooling;
  }
  return std::nullopt;
}

std::string pooling_names() {
  std::string names;
  for (const NamedPooling& entry : kPoolings) {
    if (!names.empty()) names += ", ";
    names += entry.name;
  }
  return names;
}

bool is_pooled(Pooling pooling, int32_t position, int32_t num_tokens) {
  switch (pooling) {
    case Pooling::last:
      return position == num_tokens - 1;
    case Pooling::mean:
      return true;
    case Pooling::cls:
      return position == 0;
  }
  return false;
}

void PooledStates::add(std::span<const float> state) {
  sum_.resize(state.size());
  for (size_t i = 0; i < state.size(); ++i) sum_[i] += static_cast<double>(state[i]);
  ++count_;
}

std::vector<float> PooledStates::mean() const {
  std::vector<float> mean(sum_.size());
  for (size_t i = 0; i < sum_.size(); ++i) {
    mean[i] = static_cast<float>(sum_[i] / static_cast<double>(count_));
  }
  return mean;
}

void PooledStates::clear() {
  sum_.clear();
  count_ = 0;
}

}  // namespace tw
