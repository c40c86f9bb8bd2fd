#include "text/reasoning_parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/tool_parsers/block_parser.h"
#include "text/tool_parsers/tool_parser.h"

namespace tw {
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n";

// SGLang's names.
constexpr ReasoningFormat kFormats[] = {
    {"deepseek-r1", "<think>", "</think>", true},
    {"deepseek-v3", "<think>", "</think>", false},
    {"glm45", "<think>", "</think>", false},
    {"gpt-oss", "<|channel|>analysis<|message|>", "<|channel|>final<|message|>", false, true},
    {"kimi", "◁think▷", "◁/think▷", false},
    {"kimi_k2", "<think>", "</think>", false},
    {"minimax", "<think>", "</think>", true},
    {"qwen3", "<think>", "</think>", false},
    {"qwen3-thinking", "<think>", "</think>", true},
    {"step3", "<think>", "</think>", true},
};

class ReasoningParser final : public TextParser {
 public:
  ReasoningParser(const ReasoningFormat& format, bool starts_inside)
      : begin_(format.begin),
        end_(format.end),
        state_(starts_inside ? State::before_reasoning : State::before_begin) {}

  void push(std::string_view piece, ParsedText& out) override {
    pending_ += piece;
    while (step(out)) {
    }
  }

  void finish(ParsedText& out) override {
    if (state_ == State::before_begin) {
      out.content += pending_;
    } else if (state_ == State::reasoning) {
      out.reasoning += pending_;
    }
    pending_.clear();
  }

 private:
  enum class State {
    before_begin,      // white space and perhaps the mark
    before_reasoning,  // white space and, from some models, the mark
    reasoning,
    before_content,  // white space
    content,
  };

  bool step(ParsedText& out) {
    switch (state_) {
      case State::before_begin:
        return take_mark(State::content, out);
      case State::before_reasoning:
        return take_mark(State::reasoning, out);
      case State::reasoning:
        return take_reasoning(out);
      case State::before_content:
        pending_.erase(0, pending_.find_first_not_of(kWhiteSpace));
        if (pending_.empty()) return false;
        state_ = State::content;
        return true;
      case State::content:
        out.content += pending_;
        pending_.clear();
        return false;
    }
    return false;
  }

  // The opening mark, where there is one; `otherwise` where there is none.
  bool take_mark(State otherwise, ParsedText& out) {
    const size_t first = pending_.find_first_not_of(kWhiteSpace);
    if (first == std::string::npos) return false;
    const std::string_view rest = std::string_view(pending_).substr(first);
    if (rest.size() < begin_.size() && begin_.starts_with(rest)) return false;
    if (rest.starts_with(begin_)) {
      pending_.erase(0, first + begin_.size());
      // White space after it goes, too, and no second mark is expected.
      skip_space_ = true;
      state_ = State::reasoning;
    } else {
      if (otherwise == State::reasoning) pending_.erase(0, first);
      state_ = otherwise;
    }
    return true;
  }

  bool take_reasoning(ParsedText& out) {
    if (skip_space_) {
      pending_.erase(0, pending_.find_first_not_of(kWhiteSpace));
      if (pending_.empty()) return false;
      skip_space_ = false;
    }
    const size_t end = pending_.find(end_);
    if (end != std::string::npos) {
      const size_t last = std::string_view(pending_).substr(0, end).find_last_not_of(kWhiteSpace);
      out.reasoning += pending_.substr(0, last == std::string::npos ? 0 : last + 1);
      pending_.erase(0, end + end_.size());
      state_ = State::before_content;
      return true;
    }
    // What may be the mark, and the white space before it.
    size_t decided = pending_.size() - length_of_beginning(pending_, end_);
    const size_t last = std::string_view(pending_).substr(0, decided).find_last_not_of(kWhiteSpace);
    decided = last == std::string::npos ? 0 : last + 1;
    out.reasoning += pending_.substr(0, decided);
    pending_.erase(0, decided);
    return false;
  }

  const std::string_view begin_;
  const std::string_view end_;
  State state_;
  bool skip_space_ = false;
  std::string pending_;
};

}  // namespace

const ReasoningFormat* find_reasoning_format(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kFormats), std::end(kFormats),
                   [name](const ReasoningFormat& format) { return format.name == name; });
  return found == std::end(kFormats) ? nullptr : found;
}

std::string reasoning_format_names() {
  std::string names;
  for (const ReasoningFormat& format : kFormats) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", format.name);
  }
  return names;
}

ReasoningStart reasoning_start(const ReasoningFormat& format, std::string_view prompt) {
  const std::string_view end =
      trim(prompt.substr(prompt.size() - std::min<size_t>(prompt.size(), 256)));
  if (format.is_harmony) return ReasoningStart::unknown;
  if (end.ends_with(format.begin)) return ReasoningStart::inside;
  if (end.ends_with(format.end)) return ReasoningStart::outside;
  return format.starts_inside ? ReasoningStart::inside : ReasoningStart::unknown;
}

std::unique_ptr<TextParser> make_reasoning_parser(const ReasoningFormat& format,
                                                  ReasoningStart start) {
  if (format.is_harmony) return make_harmony_parser(nullptr);
  if (start == ReasoningStart::outside) return nullptr;
  return std::make_unique<ReasoningParser>(format, start == ReasoningStart::inside);
}

}  // namespace tw
