#include "apps/bench/load_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace tw {
namespace {

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

void add_spread(const char* name, std::vector<double> seconds, Json& figures) {
  if (seconds.empty()) return;
  std::ranges::sort(seconds);
  const double average = mean(seconds);
  double squares = 0;
  for (const double value : seconds) squares += (value - average) * (value - average);
  const auto set = [&](const char* kind, double value) {
    figures[fmt::format("{}_{}_ms", kind, name)] = value * 1e3;
  };
  set("mean", average);
  set("median", percentile(seconds, 0.5));
  set("std", std::sqrt(squares / static_cast<double>(seconds.size())));
  set("p90", percentile(seconds, 0.9));
  set("p99", percentile(seconds, 0.99));
}

// What each kind of time is, of the requests that were answered.
struct Times {
  std::vector<double> latency, ttft, tpot, itl;
};

Times times_of(std::span<const LoadTiming> timings) {
  Times times;
  for (const LoadTiming& timing : timings) {
    if (!timing.problem.empty()) continue;
    times.latency.push_back(timing.latency());
    times.ttft.push_back(timing.ttft());
    if (const auto tpot = timing.tpot()) times.tpot.push_back(*tpot);
    for (size_t i = 1; i < timing.events.size(); ++i) {
      times.itl.push_back(timing.events[i] - timing.events[i - 1]);
    }
  }
  return times;
}

constexpr int kPanelWidth = 280, kPanelHeight = 200, kMargin = 40;

// A cumulative distribution, with its median and its ends as text.
std::string panel(int index, const char* name, std::vector<double> seconds) {
  const int left = kMargin + index * (kPanelWidth + kMargin), top = 60;
  std::string svg = fmt::format(
      "<rect x='{}' y='{}' width='{}' height='{}' fill='none' stroke='#888'/>"
      "<text x='{}' y='{}' class='name'>{}</text>\n",
      left, top, kPanelWidth, kPanelHeight, left, top - 8, name);
  if (seconds.empty()) return svg;
  std::ranges::sort(seconds);
  const double largest = std::max(seconds.back(), 1e-9);
  const auto x = [&](double value) { return left + value / largest * kPanelWidth; };
  const auto y = [&](double share) { return top + (1 - share) * kPanelHeight; };
  std::string points = fmt::format("{:.1f},{:.1f}", x(0), y(0));
  const auto count = static_cast<double>(seconds.size());
  for (size_t i = 0; i < seconds.size(); ++i) {
    points += fmt::format(" {:.1f},{:.1f} {:.1f},{:.1f}", x(seconds[i]),
                          y(static_cast<double>(i) / count), x(seconds[i]),
                          y(static_cast<double>(i + 1) / count));
  }
  svg +=
      fmt::format("<polyline points='{}' fill='none' stroke='#06c' stroke-width='2'/>\n", points);
  for (const double share : {0.5, 0.9, 0.99}) {
    const double value = percentile(seconds, share);
    svg += fmt::format(
        "<line x1='{0:.1f}' x2='{0:.1f}' y1='{1:.1f}' y2='{2}' stroke='#c60' "
        "stroke-dasharray='3'/>",
        x(value), y(share), top + kPanelHeight);
  }
  svg += fmt::format(
      "<text x='{}' y='{}'>p50 {:.1f} ms, p90 {:.1f} ms, p99 {:.1f} ms</text>"
      "<text x='{}' y='{}'>0</text><text x='{}' y='{}' text-anchor='end'>{:.1f} ms</text>\n",
      left, top + kPanelHeight + 36, percentile(seconds, 0.5) * 1e3, percentile(seconds, 0.9) * 1e3,
      percentile(seconds, 0.99) * 1e3, left, top + kPanelHeight + 16, left + kPanelWidth,
      top + kPanelHeight + 16, largest * 1e3);
  return svg;
}

std::string escape_xml(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '<') {
      escaped += "&lt;";
    } else if (c == '&') {
      escaped += "&amp;";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace

double percentile(std::span<const double> values, double share) {
  const double position = static_cast<double>(values.size() - 1) * share;
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (position - static_cast<double>(below));
}

Json load_figures(std::span<const LoadTiming> timings, double duration) {
  const Times times = times_of(timings);
  const auto completed = static_cast<int64_t>(times.latency.size());
  int64_t inputs = 0, outputs = 0;
  for (const LoadTiming& timing : timings) {
    if (!timing.problem.empty()) continue;
    inputs += timing.prompt_tokens;
    outputs += timing.output_tokens;
  }
  const auto per_second = [duration](int64_t count) {
    return static_cast<double>(count) / duration;
  };
  Json figures = {{"duration", duration},
                  {"completed", completed},
                  {"failed", static_cast<int64_t>(timings.size()) - completed},
                  {"total_input_tokens", inputs},
                  {"total_output_tokens", outputs},
                  {"request_throughput", per_second(completed)},
                  {"input_throughput", per_second(inputs)},
                  {"output_throughput", per_second(outputs)},
                  {"total_throughput", per_second(inputs + outputs)}};
  figures["concurrency"] =
      std::accumulate(times.latency.begin(), times.latency.end(), 0.0) / duration;
  add_spread("e2e_latency", times.latency, figures);
  add_spread("ttft", times.ttft, figures);
  add_spread("tpot", times.tpot, figures);
  add_spread("itl", times.itl, figures);
  return figures;
}

std::string load_table(const Json& figures) {
  std::string table;
  for (const auto& [name, value] : figures.items()) {
    std::string words = name;
    std::ranges::replace(words, '_', ' ');
    const std::string text = value.is_string()         ? value.get<std::string>()
                             : value.is_number_float() ? fmt::format("{:.2f}", value.get<double>())
                                                       : dump_json(value);
    table += fmt::format("{:28} {:>12}\n", words, text);
  }
  return table;
}

std::string load_plot(std::span<const LoadTiming> timings, const std::string& title) {
  const Times times = times_of(timings);
  return fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{0}' height='{1}' viewBox='0 0 {0} {1}'>\n"
      "<style>text {{ font: 12px sans-serif }} .name {{ font-weight: bold }}</style>\n"
      "<rect width='100%' height='100%' fill='white'/>\n<text x='{2}' y='24'>{3}</text>\n{4}{5}{6}"
      "</svg>\n",
      kMargin + 3 * (kPanelWidth + kMargin), kPanelHeight + 120, kMargin, escape_xml(title),
      panel(0, "time to first token", times.ttft), panel(1, "time per output token", times.tpot),
      panel(2, "whole request", times.latency));
}

}  // namespace tw
