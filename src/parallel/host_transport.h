// How bytes go from one host's process to another's. What implements it is chosen when the program
// starts (parallel/host_link.h): MPI, or memory in tests.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>

#include "core/status.h"

namespace tw {

struct HostSend {
  int host = 0;
  std::span<const std::byte> bytes;  // may be empty: an empty message is sent
};

struct HostReceive {
  int host = 0;
  std::span<std::byte> room;  // a longer message is an error
  size_t size = 0;            // what came
};

class HostTransport {
 public:
  virtual ~HostTransport() = default;

  virtual int host() const = 0;
  virtual int num_hosts() const = 0;

  // Sends and receives all of it, at the same time. Messages from one host to another arrive in the
  // order in which they were sent. Fails, naming the host, when one has not answered within
  // `timeout`; nothing can be transferred from then on. Allocates nothing once it has had as many
  // messages. One thread at a time, any thread.
  virtual Status transfer(std::span<const HostSend> sends, std::span<HostReceive> receives,
                          std::chrono::milliseconds timeout) = 0;

  // Ends the processes of all hosts, this one with the exit code.
  [[noreturn]] virtual void abort(int exit_code) = 0;
};

}  // namespace tw
