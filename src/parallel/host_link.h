// One host's end of a group of hosts, each of which is a process with its ranks' thread teams.
//
// Hosts are numbered from 0; all have as many ranks, host 0 the first. A link that has failed stays
// failed: who waits for a host that is gone must not wait again.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "parallel/host_transport.h"

namespace tw {

// What this host sent.
struct HostTraffic {
  int64_t messages = 0;
  int64_t bytes = 0;
};

class HostLink {
 public:
  explicit HostLink(std::unique_ptr<HostTransport> transport) : transport_(std::move(transport)) {}

  // Joins the processes that mpirun started, by the module for MPI that is built where MPI is
  // installed. Refuses, with what to do, when there is no module, or not `num_hosts` processes.
  static Expected<std::unique_ptr<HostLink>> connect(int num_hosts);

  int host() const { return transport_->host(); }
  int num_hosts() const { return transport_->num_hosts(); }

  // How long a host may let this one wait for a message: an hour, since hosts load at different
  // speeds, and so long from begin_steps() on.
  void set_step_timeout(std::chrono::milliseconds timeout) { step_timeout_ = timeout; }
  void begin_steps() { timeout_ = step_timeout_; }

  // See HostTransport::transfer().
  Status exchange(std::span<const HostSend> sends, std::span<HostReceive> receives);

  // Every host's text, in order of hosts, on all of them. For the start: it allocates.
  Expected<std::vector<std::string>> all_gather(std::string_view own);

  // Every host's status: the first failure in order of hosts, saying whose it is, on all of them.
  Status agree(const Status& own);

  // The first failure of exchange(), if there was one.
  const Status& status() const { return status_; }
  const HostTraffic& traffic() const { return traffic_; }

  // See HostTransport::abort().
  [[noreturn]] void abort(int exit_code);

 private:
  const std::unique_ptr<HostTransport> transport_;
  std::chrono::milliseconds step_timeout_{10000};
  std::chrono::milliseconds timeout_ = std::chrono::hours(1);
  Status status_;
  HostTraffic traffic_;
};

}  // namespace tw
