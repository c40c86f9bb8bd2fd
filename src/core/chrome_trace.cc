#include "core/chrome_trace.h"

#include <cerrno>
#include <cstring>

namespace tw {
namespace {

constexpr int kProcess = 1;

tl::unexpected<Error> cannot_write(const std::string& path) {
  return error(ErrorCode::invalid_argument, "cannot write the trace {}: {}", path,
               std::strerror(errno));
}

// The format counts in microseconds.
double microseconds(int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-3;
}

}  // namespace

Expected<ChromeTraceWriter> ChromeTraceWriter::create(const std::string& path) {
  ChromeTraceWriter writer(path, nullptr);
  writer.file_.reset(std::fopen(writer.part_path().c_str(), "w"));
  if (!writer.file_) return cannot_write(path);
  std::fputs("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n", writer.file_.get());
  return writer;
}

ChromeTraceWriter::~ChromeTraceWriter() {
  if (file_) std::remove(part_path().c_str());
}

void ChromeTraceWriter::write(const Json& event) {
  if (!is_first_) std::fputs(",\n", file_.get());
  is_first_ = false;
  const std::string text = dump_json(event);
  std::fwrite(text.data(), 1, text.size(), file_.get());
}

void ChromeTraceWriter::name_track(int track, std::string_view name) {
  for (const auto& [kind, arguments] :
       {std::pair("thread_name", Json{{"name", name}}),
        std::pair("thread_sort_index", Json{{"sort_index", track}})}) {
    write({{"ph", "M"}, {"name", kind}, {"pid", kProcess}, {"tid", track}, {"args", arguments}});
  }
}

void ChromeTraceWriter::add(int track, std::string_view name, int64_t begin_ns, int64_t end_ns,
                            const Json& arguments) {
  Json event = {{"ph", "X"},
                {"name", name},
                {"pid", kProcess},
                {"tid", track},
                {"ts", microseconds(begin_ns)},
                {"dur", microseconds(end_ns - begin_ns)}};
  if (!arguments.is_null()) event["args"] = arguments;
  write(event);
}

Status ChromeTraceWriter::close() {
  std::fputs("\n]}\n", file_.get());
  const bool failed = std::ferror(file_.get()) != 0;
  if (std::fclose(file_.release()) != 0 || failed ||
      std::rename(part_path().c_str(), path_.c_str()) != 0) {
    const auto failure = cannot_write(path_);
    std::remove(part_path().c_str());
    return failure;
  }
  return {};
}

}  // namespace tw
