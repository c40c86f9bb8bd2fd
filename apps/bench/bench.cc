// `tilewright bench`: one subcommand per file in this folder.
#include "apps/bench/bench_commands.h"
#include "apps/commands.h"

namespace tw {

void add_bench_command(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("bench", "Measure a model, a server, the kernels, the machine");
  command->require_subcommand(1);
  add_bench_latency_command(*command, exit_code);
  add_bench_serve_command(*command, exit_code);
  add_bench_kernels_command(*command, exit_code);
  add_bench_machine_command(*command, exit_code);
}

}  // namespace tw
