// A folder whose model.safetensors.index.json is any bytes, beside a valid config and shard:
// refused with a message, or all its tensors are those of the shard.
#include <unistd.h>

#include <fstream>

#include "core/check.h"
#include "weights/checkpoint.h"

namespace tw {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// In memory, and gone with the process.
class Folder {
 public:
  Folder() : path_(fs::path("/dev/shm") / ("tw_index_fuzz_" + std::to_string(getpid()))) {
    fs::create_directories(path_);
    write(path_ / "config.json", "{}");
    const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    const uint64_t size = header.size();
    write(path_ / "one.safetensors",
          std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + header + "abcd");
  }
  ~Folder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace
}  // namespace tw

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tw;
  static const Folder folder;
  write(folder.path() / "model.safetensors.index.json",
        {reinterpret_cast<const char*>(data), size});
  const auto opened = Checkpoint::open(folder.path());
  if (!opened) {
    TW_CHECK(!opened.error().message.empty());
    return 0;
  }
  for (const StoredTensor& tensor : (*opened)->tensors()) {
    TW_CHECK(tensor.name == "a" && tensor.data.size() == 4);
  }
  return 0;
}
