// gpt-oss: messages of a channel each, perhaps to a recipient,
// <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>commentary
// to=functions.f <|constrain|>json<|message|>{...}<|call|>, and the final channel's at the end.
// The analysis is reasoning, a message to a function a call, all else content.
#include <algorithm>
#include <array>

#include "text/tool_parsers/block_parser.h"
#include "text/tool_parsers/json_calls.h"

namespace tw {
namespace {

constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kStart = "<|start|>";
constexpr std::string_view kChannel = "<|channel|>";
// What ends a message; the last two begin the next one's header.
constexpr std::array<std::string_view, 5> kEnds = {"<|end|>", "<|call|>", "<|return|>", kStart,
                                                   kChannel};
constexpr std::string_view kFunctions = "functions.";

// The word after `mark` in a header.
std::string_view word_after(std::string_view header, std::string_view mark) {
  const size_t begin = header.find(mark);
  if (begin == std::string_view::npos) return {};
  const std::string_view rest = header.substr(begin + mark.size());
  return rest.substr(0, rest.find_first_of(" \t\r\n<"));
}

class HarmonyParser final : public TextParser {
 public:
  void push(std::string_view piece, ParsedText& out) override {
    pending_ += piece;
    while (in_message_ ? take_message(out) : take_header(out)) {
    }
  }

  void finish(ParsedText& out) override {
    if (in_message_) {
      take_text(pending_.size(), out);
      end_message(out);
    } else {
      out.content += pending_;
    }
    pending_.clear();
  }

 private:
  enum class Kind { content, reasoning, call };

  bool take_header(ParsedText& out) {
    const std::string_view text = pending_;
    if (text.empty()) return false;
    const bool header = text.starts_with(kStart) || text.starts_with(kChannel);
    if (!header && (kStart.starts_with(text) || kChannel.starts_with(text))) return false;
    if (!header) {
      begin_message("");
      return true;
    }
    const size_t end = text.find(kMessage);
    if (end == std::string_view::npos) return false;
    begin_message(pending_.substr(0, end + kMessage.size()));
    pending_.erase(0, header_.size());
    return true;
  }

  void begin_message(std::string header) {
    header_ = std::move(header);
    body_.clear();
    in_message_ = true;
    const std::string_view recipient = word_after(header_, "to=");
    if (recipient.starts_with(kFunctions) && recipient.size() > kFunctions.size()) {
      kind_ = Kind::call;
      name_ = recipient.substr(kFunctions.size());
    } else {
      kind_ = word_after(header_, kChannel) == "analysis" ? Kind::reasoning : Kind::content;
    }
  }

  bool take_message(ParsedText& out) {
    size_t end = std::string::npos;
    std::string_view mark;
    size_t held = 0;
    for (const std::string_view candidate : kEnds) {
      const size_t found = pending_.find(candidate);
      if (found < end) {
        end = found;
        mark = candidate;
      }
      held = std::max(held, length_of_beginning(pending_, candidate));
    }
    if (end == std::string::npos) {
      take_text(pending_.size() - held, out);
      return false;
    }
    take_text(end, out);
    if (mark != kStart && mark != kChannel) {
      pending_.erase(0, mark.size());
      end_mark_ = mark;
    } else {
      end_mark_ = {};
    }
    end_message(out);
    return true;
  }

  void take_text(size_t size, ParsedText& out) {
    std::string& to = kind_ == Kind::call        ? body_
                      : kind_ == Kind::reasoning ? out.reasoning
                                                 : out.content;
    to += pending_.substr(0, size);
    pending_.erase(0, size);
  }

  void end_message(ParsedText& out) {
    in_message_ = false;
    if (kind_ != Kind::call) return;
    if (auto arguments = arguments_json(body_)) {
      out.calls.push_back({.name = name_, .arguments = std::move(*arguments)});
    } else {
      out.content += header_ + body_ + std::string(end_mark_);
    }
  }

  std::string pending_;
  bool in_message_ = false;
  Kind kind_ = Kind::content;
  std::string header_;
  std::string name_;  // of the function
  std::string body_;  // of a call
  std::string_view end_mark_;
};

}  // namespace

ToolParserPtr make_harmony_parser(ToolSchemasPtr tools) {
  return std::make_unique<HarmonyParser>();
}

}  // namespace tw
