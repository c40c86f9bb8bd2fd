// A decode step allocates nothing: proven by counting allocations while the real model runs.
#include <atomic>
#include <cstdlib>
#include <new>

#include "models/real_model.h"

namespace {

std::atomic<int64_t> allocations{0};
std::atomic<bool> counting{false};

void* counted(std::size_t size, std::size_t alignment) {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1);
  void* memory = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) {
  return counted(size, alignof(std::max_align_t));
}
void* operator new[](std::size_t size) {
  return counted(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return counted(size, alignof(std::max_align_t));
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace tw {
namespace {

class Allocation : public ::testing::TestWithParam<const char*> {};

TEST_P(Allocation, ADecodeStepAllocatesNothing) {
  const auto path = testing_support::real_model_path();
  const auto tiny = std::filesystem::path(TW_SOURCE_DIR) / ".cache/test-models" / GetParam();
  const bool is_real = path.filename() == GetParam();
  if (!is_real && !std::filesystem::exists(tiny)) GTEST_SKIP() << tiny << " is missing";
  auto loaded = testing_support::load(is_real ? path : tiny, 2, kernels::ActivationPrecision::bf16);
  ASSERT_NE(loaded.model, nullptr);
  constexpr int32_t kPages = 20, kPageSize = 16;
  ASSERT_TRUE(loaded.model->prepare(kPages, kPageSize, 64, 4));
  std::vector<int32_t> pages(kPages);
  for (int32_t i = 0; i < kPages; ++i) pages[static_cast<size_t>(i)] = i;
  const auto step = [&](int32_t position) {
    const int32_t token[1] = {position % 250}, slots[1] = {1}, positions[1] = {position},
                  starts[2] = {0, 1};
    const int32_t lens[1] = {position + 1}, tables[2] = {0, kPages}, logits[1] = {0};
    Batch batch{token, positions, starts, lens, positions, pages, tables, logits};
    batch.state_slots = slots;
    return loaded.model->forward(batch);
  };
  step(0);
  allocations = 0;
  counting = true;
  for (int32_t position = 1; position < 300; ++position) step(position);
  counting = false;
  EXPECT_EQ(allocations.load(), 0);
}

INSTANTIATE_TEST_SUITE_P(Models, Allocation,
                         ::testing::Values("SmolLM2-135M-Instruct.Q4_1.gguf", "tiny-qwen3-next"));

}  // namespace
}  // namespace tw
