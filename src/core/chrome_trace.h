// Writes a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open: the "Trace Event
// Format", JSON, complete events ("ph": "X") on named tracks.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "core/json.h"
#include "core/status.h"

namespace tw {

class ChromeTraceWriter {
 public:
  // Creates the file; an existing one is replaced when close() succeeds.
  static Expected<ChromeTraceWriter> create(const std::string& path);
  ChromeTraceWriter(ChromeTraceWriter&&) noexcept = default;
  ChromeTraceWriter& operator=(ChromeTraceWriter&&) noexcept = default;
  // Removes what was written, unless close() came before.
  ~ChromeTraceWriter();

  // Tracks are shown in order of their numbers.
  void name_track(int track, std::string_view name);
  // `arguments`: an object, shown with the event; null for none.
  void add(int track, std::string_view name, int64_t begin_ns, int64_t end_ns,
           const Json& arguments = nullptr);

  // Fails where anything could not be written.
  Status close();

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  ChromeTraceWriter(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  std::string part_path() const { return path_ + ".part"; }
  void write(const Json& event);

  std::string path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  bool is_first_ = true;
};

}  // namespace tw
