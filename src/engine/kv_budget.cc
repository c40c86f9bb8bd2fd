#include "engine/kv_budget.h"

#include <algorithm>
#include <limits>

namespace tw {
namespace {

double gib(int64_t bytes) {
  return static_cast<double>(bytes) / (int64_t{1} << 30);
}

}  // namespace

Expected<int32_t> kv_pages(const EngineConfig& config, const KvBudgetInput& input) {
  const int64_t page_bytes = input.kv_bytes_per_token * config.page_size;
  const char* limit = input.memory.limited_by_cgroup ? "this container's limit" : "this machine's";
  int64_t pages = 0;
  const int64_t available = input.memory.available - input.state_bytes;
  if (available < 0) {
    return error(
        ErrorCode::resource_exhausted,
        "--max-running-requests {} needs {:.2f} GiB for the model's recurrent states; {:.2f} "
        "GiB of {} {:.2f} GiB are free; lower it",
        config.max_running_requests, gib(input.state_bytes), gib(input.memory.available), limit,
        gib(input.memory.total));
  }
  if (config.max_total_tokens > 0) {
    pages = (config.max_total_tokens + config.page_size - 1) / config.page_size;
    if (pages > available / page_bytes) {
      return error(
          ErrorCode::resource_exhausted,
          "--max-total-tokens {} needs {:.2f} GiB for the KV cache ({} bytes a token); {:.2f} "
          "GiB of {} {:.2f} GiB are free; lower it, or leave it out",
          config.max_total_tokens,
          static_cast<double>(pages) * static_cast<double>(page_bytes) /
              static_cast<double>(int64_t{1} << 30),
          input.kv_bytes_per_token, gib(available), limit, gib(input.memory.total));
    }
  } else {
    const auto allowed =
        static_cast<int64_t>(config.mem_fraction_static * static_cast<double>(input.memory.total));
    const int64_t left = std::min(allowed - input.resident_bytes - input.state_bytes, available);
    if (left < page_bytes) {
      return error(
          ErrorCode::resource_exhausted,
          "no memory is left for the KV cache: --mem-fraction-static {} of {} {:.2f} GiB "
          "allows {:.2f} GiB, the loaded model and recurrent states take {:.2f} GiB, {:.2f} "
          "GiB are free, and "
          "a page needs {:.4f} GiB; raise the fraction, or use a smaller model",
          config.mem_fraction_static, limit, gib(input.memory.total), gib(allowed),
          gib(input.resident_bytes + input.state_bytes), gib(available), gib(page_bytes));
    }
    const int64_t useful = config.max_running_requests *
                           ((input.context_length + config.page_size - 1) / config.page_size);
    pages = std::min(left / page_bytes, useful);
  }
  return static_cast<int32_t>(
      std::min<int64_t>(pages, std::numeric_limits<int32_t>::max() / config.page_size));
}

}  // namespace tw
