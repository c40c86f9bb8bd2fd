// `tilewright chat`: a conversation in the terminal.
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "apps/commands.h"
#include "apps/interrupt.h"
#include "apps/model_session.h"
#include "apps/sampling_options.h"
#include "apps/terminal_generation.h"
#include "core/log.h"

namespace tw {
namespace {

struct ChatOptions {
  ModelOptions model;
  SamplingOptions sampling;
  std::string system_prompt;
};

constexpr const char* kHelp =
    "Type a message and press Enter. /clear forgets the conversation, /quit or Ctrl-D ends it,\n"
    "Ctrl-C stops an answer.\n";

class Conversation {
 public:
  Conversation(ModelSession& session, const ChatOptions& options)
      : session_(session),
        options_(options),
        sampling_(options.sampling.resolve(session.checkpoint->generation_config())) {
    clear();
  }

  void clear() {
    messages_ = Json::array();
    if (!options_.system_prompt.empty()) {
      messages_.push_back({{"role", "system"}, {"content", options_.system_prompt}});
    }
  }

  // Answers on stdout. A message that fails leaves the conversation as it was.
  Status answer(const std::string& text) {
    Json messages = messages_;
    messages.push_back({{"role", "user"}, {"content", text}});
    auto rendered = session_.chat_template->render(messages, nullptr, true);
    if (!rendered) return forward_error(rendered);
    auto prompt = session_.tokenizer->encode(*rendered, false);
    if (!prompt) return forward_error(prompt);
    const Interrupt interrupt;
    auto result = generate_in_terminal(
        session_, std::move(*prompt), sampling_, options_.sampling.stop,
        [](std::string_view piece) {
          std::fwrite(piece.data(), 1, piece.size(), stdout);
          std::fflush(stdout);
        },
        [&] { return interrupt.requested(); });
    if (!result) return forward_error(result);
    std::fputs("\n\n", stdout);
    messages.push_back({{"role", "assistant"}, {"content", result->text}});
    messages_ = std::move(messages);
    return {};
  }

 private:
  ModelSession& session_;
  const ChatOptions& options_;
  SamplingParams sampling_;
  Json messages_;
};

Status chat(const ChatOptions& options) {
  auto session = ModelSession::open(options.model);
  if (!session) return forward_error(session);
  if (!session->chat_template) {
    return error(ErrorCode::unsupported, "{}: {}", options.model.model_path,
                 session->chat_template_problem);
  }
  Conversation conversation(*session, options);
  std::fputs(kHelp, stdout);
  for (std::string line;;) {
    std::fputs("> ", stdout);
    std::fflush(stdout);
    if (!std::getline(std::cin, line) || line == "/quit") break;
    if (line.empty()) continue;
    if (line == "/help") {
      std::fputs(kHelp, stdout);
    } else if (line == "/clear") {
      conversation.clear();
    } else if (Status status = conversation.answer(line); !status) {
      report(status.error());
    }
  }
  std::fputc('\n', stdout);
  return {};
}

}  // namespace

void add_chat_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("chat", "Talk to a model in the terminal");
  auto options = std::make_shared<ChatOptions>();
  options->model.log.level = "warning";
  options->model.engine.max_running_requests = 1;
  options->sampling.max_new_tokens = 1024;
  options->model.add_to(*command);
  options->model.add_adapter_to(*command);
  options->sampling.add_to(*command);
  command->add_option("--system", options->system_prompt, "System message");
  command->callback([options, &exit_code] {
    if (Status status = configure_log(options->model.log); !status) {
      exit_code = report(status.error());
    } else if (status = chat(*options); !status) {
      exit_code = report(status.error());
    }
  });
}

}  // namespace tw
