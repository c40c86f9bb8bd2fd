// The `tilewright` program: one subcommand per file in this folder.
#include <cstdio>

#include "apps/commands.h"
#include "core/log.h"

namespace tw {

int report(const Error& error) {
  if (logs_json()) {
    log::error("{}", error.message);
  } else {
    std::fprintf(stderr, "tilewright: %s\n", error.message.c_str());
  }
  switch (error.code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::not_found:
    case ErrorCode::unsupported:
    case ErrorCode::corrupt_data:
    case ErrorCode::resource_exhausted:
      return 2;
    default:
      return 1;
  }
}

}  // namespace tw

int main(int argc, char** argv) {
  CLI::App app{
      "tilewright serves large language models on CPUs.\n"
      "Start with: tilewright serve --model-path MODEL.gguf"};
  app.name("tilewright");
  app.set_version_flag("--version", std::string("tilewright ") + TW_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(36);
  int exit_code = 0;
  tw::add_serve_command(app, exit_code);
  tw::add_router_command(app, exit_code);
  tw::add_generate_command(app, exit_code);
  tw::add_chat_command(app, exit_code);
  tw::add_bench_command(app, exit_code);
  tw::add_plan_command(app, exit_code);
  tw::add_inspect_command(app, exit_code);
  tw::add_evaluate_command(app, exit_code);
  tw::add_convert_command(app, exit_code);
  tw::add_quantize_command(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& failure) {
    // 0 for --help and --version; bad flags are 2 as for every other bad input.
    return app.exit(failure) == 0 ? 0 : 2;
  }
  return exit_code;
}
