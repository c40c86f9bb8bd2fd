// A safetensors file of any bytes: refused with a message, or its tensors tile its data exactly.
#include "fuzz/memory_file.h"
#include "weights/safetensors_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tw;
  const testing_support::MemoryFile file(data, size);
  const auto opened = SafetensorsFile::open(file.path());
  if (!opened) {
    TW_CHECK(!opened.error().message.empty());
    return 0;
  }
  uint8_t sum = 0;
  for (const StoredTensor& tensor : opened->tensors()) {
    for (std::byte byte : tensor.data) sum ^= std::to_integer<uint8_t>(byte);
  }
  return sum == 1 && size == 0 ? 1 : 0;
}
