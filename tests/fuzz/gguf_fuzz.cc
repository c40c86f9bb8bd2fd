// A GGUF file of any bytes: refused with a message, or every tensor lies inside it and can be
// decoded, and its configuration, tokenizer and template can be asked for.
#include "fuzz/memory_file.h"
#include "weights/gguf_checkpoint.h"
#include "weights/model_config.h"
#include "weights/tokenizer_source.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tw;
  const testing_support::MemoryFile file(data, size);
  const auto opened = open_gguf_checkpoint(file.path());
  if (!opened) {
    TW_CHECK(!opened.error().message.empty());
    return 0;
  }
  const Checkpoint& checkpoint = **opened;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    const StorageTypeTraits& t = traits(tensor.type);
    const auto blocks = static_cast<int64_t>(tensor.data.size()) / t.block_bytes;
    std::vector<float> values(static_cast<size_t>(t.block_elements));
    if (blocks > 0) {
      dequantize(tensor.type, tensor.data.data() + (blocks - 1) * t.block_bytes, t.block_elements,
                 values.data());
    }
    const int64_t rows = tensor.shape[0];
    TW_CHECK(tensor.row_order.stored_row(rows - 1, rows) < rows);
  }
  const auto config = ModelConfig::parse(checkpoint.config(), "fuzz");
  TW_CHECK(config || !config.error().message.empty());
  const auto source = checkpoint.tokenizer_source();
  TW_CHECK(source || !source.error().message.empty());
  checkpoint.chat_template();
  return 0;
}
