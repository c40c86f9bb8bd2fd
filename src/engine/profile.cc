#include "engine/profile.h"

#include <algorithm>

#include "core/chrome_trace.h"

namespace tw {
namespace {

// A step of the engine holds some hundred of the model.
constexpr int64_t kMaxEngineSteps = kMaxProfileEvents / 64;
constexpr int kEngineTrack = 0;
constexpr int kFirstThreadTrack = 1;

double ratio(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

Json arguments_of(const StepEvent& event) {
  Json arguments = {{"wait_us", static_cast<double>(event.begin_ns - event.arrival_ns) * 1e-3}};
  // Per nanosecond is giga per second.
  const auto duration = static_cast<double>(std::max<int64_t>(1, event.end_ns - event.begin_ns));
  if (event.cost.bytes > 0) {
    arguments["GB/s"] = static_cast<double>(event.cost.bytes) / duration;
  }
  if (event.cost.operations > 0) {
    arguments["GOP/s"] = static_cast<double>(event.cost.operations) / duration;
  }
  return arguments;
}

}  // namespace

EngineProfile::EngineProfile(int num_threads, int64_t max_steps)
    : max_steps_(max_steps), model_steps_(num_threads, kMaxProfileEvents / num_threads) {
  engine_steps_.reserve(static_cast<size_t>(kMaxEngineSteps));
}

void EngineProfile::add(const EngineStepEvent& event) {
  ++num_steps_;
  schedule_ns_ += event.scheduled_ns - event.begin_ns;
  forward_ns_ += event.forwarded_ns - event.scheduled_ns;
  sample_ns_ += event.end_ns - event.forwarded_ns;
  if (engine_steps_.size() < engine_steps_.capacity()) engine_steps_.push_back(event);
}

int64_t EngineProfile::num_dropped() const {
  return model_steps_.num_dropped() + num_steps_ - static_cast<int64_t>(engine_steps_.size());
}

void write_step_events(const StepTrace& steps, ChromeTraceWriter& writer) {
  for (int rank = 0; rank < steps.num_members(); ++rank) {
    const int track = kFirstThreadTrack + rank;
    writer.name_track(track, fmt::format("compute thread {}", rank));
    for (const StepEvent& event : steps.events(rank)) {
      if (event.begin_ns > event.arrival_ns) {
        writer.add(track, "wait", event.arrival_ns, event.begin_ns);
      }
      writer.add(track, event.name, event.begin_ns, event.end_ns,
                 rank == 0 ? arguments_of(event) : Json(nullptr));
    }
  }
}

Status EngineProfile::write_trace(const std::string& path) const {
  auto writer = ChromeTraceWriter::create(path);
  if (!writer) return forward_error(writer);
  writer->name_track(kEngineTrack, "engine");
  for (const EngineStepEvent& event : engine_steps_) {
    writer->add(kEngineTrack, "schedule", event.begin_ns, event.scheduled_ns);
    writer->add(kEngineTrack, "forward", event.scheduled_ns, event.forwarded_ns,
                {{"tokens", event.num_tokens}, {"sequences", event.num_seqs}});
    writer->add(kEngineTrack, "sample", event.forwarded_ns, event.end_ns);
  }
  write_step_events(model_steps_, *writer);
  return writer->close();
}

std::string EngineProfile::summary(std::span<const RankLimits> limits) const {
  const auto total = static_cast<double>(schedule_ns_ + forward_ns_ + sample_ns_);
  std::string text =
      fmt::format("{} steps, {:.3f} ms each: schedule {:.1f}%, forward {:.1f}%, sample {:.1f}%\n",
                  num_steps_, ratio(total, static_cast<double>(num_steps_)) * 1e-6,
                  100 * ratio(static_cast<double>(schedule_ns_), total),
                  100 * ratio(static_cast<double>(forward_ns_), total),
                  100 * ratio(static_cast<double>(sample_ns_), total));
  text += step_table(model_steps_);
  for (size_t rank = 0; rank < limits.size(); ++rank) {
    text += fmt::format("this machine{} at most: {:.2f} GB/s, {:.1f} GOP/s\n",
                        limits.size() > 1 ? fmt::format(", rank {},", rank) : "",
                        limits[rank].limits.read_bandwidth * 1e-9,
                        limits[rank].limits.operations() * 1e-9);
  }
  if (num_dropped() > 0) {
    text += fmt::format("{} events are not in the trace: it was full\n", num_dropped());
  }
  return text;
}

std::string step_table(const StepTrace& steps) {
  double total = 0;
  for (const StepTiming& timing : steps.totals()) total += timing.seconds;
  std::string text = fmt::format("{:<28} {:>8} {:>8} {:>8} {:>10} {:>10} {:>10}\n", "step", "calls",
                                 "share", "waits", "us/call", "GB/s", "GOP/s");
  for (const StepTiming& timing : steps.totals()) {
    text += fmt::format("{:<28} {:>8} {:>7.1f}% {:>7.1f}% {:>10.1f} {:>10.2f} {:>10.1f}\n",
                        timing.name, timing.calls, 100 * ratio(timing.seconds, total),
                        100 * ratio(timing.wait_seconds, total),
                        1e6 * ratio(timing.seconds, static_cast<double>(timing.calls)),
                        1e-9 * ratio(static_cast<double>(timing.cost.bytes), timing.seconds),
                        1e-9 * ratio(static_cast<double>(timing.cost.operations), timing.seconds));
  }
  return text;
}

}  // namespace tw
