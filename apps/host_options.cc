#include "apps/host_options.h"

#include "apps/model_options.h"
#include "parallel/communicator.h"

namespace tw {

void HostOptions::add_to(CLI::App& command) {
  constexpr const char* kGroup = "Hosts";
  command
      .add_option("--nnodes", num_hosts,
                  "Hosts that compute the model together, a process on each that mpirun starts; "
                  "the ranks of --tp are divided among them")
      ->check(CLI::Range(1, CommunicatorGroup::kMaxRanks))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option("--dist-timeout", timeout_seconds,
                  "Seconds without an answer after which a host counts as gone")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str()
      ->group(kGroup);
}

Status HostOptions::check(const ModelOptions& options) {
  const int hosts = options.hosts.num_hosts;
  if (hosts == 1) return {};
  if (options.tensor_parallel_size % hosts != 0) {
    return error(ErrorCode::invalid_argument,
                 "--tp {} --nnodes {}: every host has as many ranks; use a multiple of {} for --tp",
                 options.tensor_parallel_size, hosts, hosts);
  }
  const auto refuse = [&](const std::string& option, const char* instead) -> Status {
    return error(ErrorCode::unsupported, "{} --nnodes {}: not supported over several hosts; {}",
                 option, hosts, instead);
  };
  if (options.takes_adapters()) return refuse("--enable-lora", "merge the adapter into the model");
  if (options.engine.enable_eplb) {
    return refuse("--enable-eplb", "place experts at start with --init-expert-location");
  }
  const std::string& algorithm = options.engine.speculative_algorithm;
  if (!algorithm.empty() && algorithm != "NGRAM") {
    return refuse("--speculative-algorithm " + algorithm, "use NGRAM");
  }
  return {};
}

}  // namespace tw
