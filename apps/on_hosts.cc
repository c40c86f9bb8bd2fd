#include "apps/on_hosts.h"

#include <csignal>

#include "apps/commands.h"

namespace tw {
namespace {

// The first host says when to stop; mpirun passes a signal on to all of them.
Status follow(const ModelOptions& options, HostLink& link) {
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  return ModelSession::follow(options, link);
}

}  // namespace

int run_on_hosts(const ModelOptions& options, const std::function<Status(HostLink*)>& command) {
  if (options.hosts.num_hosts == 1) {
    const Status status = command(nullptr);
    return status ? 0 : report(status.error());
  }
  if (const Status status = HostOptions::check(options); !status) return report(status.error());
  const auto link = HostLink::connect(options.hosts.num_hosts);
  if (!link) return report(link.error());
  (*link)->set_step_timeout(options.hosts.timeout());
  const Status status = (*link)->host() == 0 ? command(link->get()) : follow(options, **link);
  if (!status) (*link)->abort(report(status.error()));
  return 0;
}

}  // namespace tw
