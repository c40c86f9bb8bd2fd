// `tilewright generate`: one prompt, its continuation on stdout.
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>

#include "apps/commands.h"
#include "apps/interrupt.h"
#include "apps/model_session.h"
#include "apps/on_hosts.h"
#include "apps/sampling_options.h"
#include "apps/terminal_generation.h"
#include "core/log.h"

namespace tw {
namespace {

struct GenerateOptions {
  ModelOptions model;
  SamplingOptions sampling;
  std::string prompt;
  bool chat = false;
  std::string profile;
};

Expected<std::vector<TokenId>> encode_prompt(const ModelSession& session,
                                             const GenerateOptions& options) {
  std::string text = options.prompt;
  if (text == "-") text.assign(std::istreambuf_iterator<char>(std::cin), {});
  if (!options.chat) return session.tokenizer->encode(text, true);
  if (!session.chat_template) {
    return error(ErrorCode::unsupported, "--chat: {}", session.chat_template_problem);
  }
  const Json messages = Json::array({{{"role", "user"}, {"content", text}}});
  auto rendered = session.chat_template->render(messages, nullptr, true);
  if (!rendered) return forward_error(rendered);
  return session.tokenizer->encode(*rendered, false);
}

Status write_profile(const ModelSession& session, const std::string& path) {
  auto profile = session.engine->stop_profile();
  if (!profile) return forward_error(profile);
  fmt::print(stderr, "{}", (*profile)->summary(session.limits));
  return (*profile)->write_trace(path);
}

Status generate(GenerateOptions options, HostLink* link) {
  options.model.measure_machine = !options.profile.empty();
  auto session = ModelSession::open(options.model, link);
  if (!session) return forward_error(session);
  auto prompt = encode_prompt(*session, options);
  if (!prompt) return forward_error(prompt);
  const SamplingParams sampling =
      options.sampling.resolve(session->checkpoint->generation_config());
  if (!options.profile.empty()) {
    if (Status status = session->engine->start_profile(0); !status) return status;
  }
  const Interrupt interrupt;
  auto result = generate_in_terminal(
      *session, std::move(*prompt), sampling, options.sampling.stop,
      [](std::string_view piece) {
        std::fwrite(piece.data(), 1, piece.size(), stdout);
        std::fflush(stdout);
      },
      [&] { return interrupt.requested(); });
  if (!result) return forward_error(result);
  std::fputc('\n', stdout);
  const double decode_seconds = result->seconds - result->seconds_to_first_token;
  log::info("{} prompt tokens, first token after {:.0f} ms; {} tokens, {:.1f} tokens/s; finish: {}",
            result->num_prompt_tokens, result->seconds_to_first_token * 1e3,
            result->num_output_tokens,
            decode_seconds > 0 ? (result->num_output_tokens - 1) / decode_seconds : 0.0,
            to_string(result->finish_reason));
  return options.profile.empty() ? Status() : write_profile(*session, options.profile);
}

}  // namespace

void add_generate_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("generate", "Continue one prompt and print the text");
  auto options = std::make_shared<GenerateOptions>();
  options->model.log.level = "warning";
  options->model.engine.max_running_requests = 1;
  options->model.add_to(*command);
  options->model.add_adapter_to(*command);
  options->model.hosts.add_to(*command);
  options->sampling.add_to(*command);
  command->add_option("--prompt,-p", options->prompt, "The text to continue (-: read from stdin)")
      ->required();
  command->add_flag("--chat", options->chat, "Wrap the prompt in the model's chat template");
  command->add_option("--profile", options->profile,
                      "Write a trace of every step and thread to this file (open it in Perfetto), "
                      "and print where the time went");
  command->callback([options, &exit_code] {
    if (Status status = configure_log(options->model.log); !status) {
      exit_code = report(status.error());
      return;
    }
    exit_code =
        run_on_hosts(options->model, [&](HostLink* link) { return generate(*options, link); });
  });
}

}  // namespace tw
