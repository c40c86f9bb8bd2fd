// Hosts joined by MPI: the only file that knows it.
//
// Messages are sent and awaited without blocking calls, so that waiting has an end. Who waits spins
// at first, since hosts meet every few hundred microseconds while they compute, and sleeps in
// between then, since an idle follower waits for the next request.
#include <mpi.h>
#include <unistd.h>

#include <string_view>
#include <thread>
#include <vector>

#include "parallel/mpi_module.h"

namespace tw {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTag = 1;
constexpr auto kSpinning = std::chrono::milliseconds(2);
constexpr auto kSleep = std::chrono::microseconds(200);

std::string describe(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {text, static_cast<size_t>(length)};
}

class MpiTransport final : public HostTransport {
 public:
  MpiTransport() {
    MPI_Comm_dup(MPI_COMM_WORLD, &communicator_);
    MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(communicator_, &host_);
    MPI_Comm_size(communicator_, &num_hosts_);
  }

  // All hosts must come here, so a failed one leaves by abort().
  ~MpiTransport() override {
    if (!failed_) MPI_Finalize();
  }

  int host() const override { return host_; }
  int num_hosts() const override { return num_hosts_; }

  Status transfer(std::span<const HostSend> sends, std::span<HostReceive> receives,
                  std::chrono::milliseconds timeout) override {
    Status status = try_transfer(sends, receives, timeout);
    failed_ = failed_ || !status;
    return status;
  }

  [[noreturn]] void abort(int exit_code) override {
    MPI_Abort(communicator_, exit_code);
    _exit(exit_code);
  }

 private:
  Status try_transfer(std::span<const HostSend> sends, std::span<HostReceive> receives,
                      std::chrono::milliseconds timeout) {
    requests_.assign(receives.size() + sends.size(), MPI_REQUEST_NULL);
    statuses_.resize(requests_.size());
    size_t next = 0;
    for (const HostReceive& receive : receives) {
      const int code = MPI_Irecv(receive.room.data(), static_cast<int>(receive.room.size()),
                                 MPI_BYTE, receive.host, kTag, communicator_, &requests_[next++]);
      if (code != MPI_SUCCESS) return failure("receive from", receive.host, code);
    }
    for (const HostSend& send : sends) {
      const int code = MPI_Isend(send.bytes.data(), static_cast<int>(send.bytes.size()), MPI_BYTE,
                                 send.host, kTag, communicator_, &requests_[next++]);
      if (code != MPI_SUCCESS) return failure("send to", send.host, code);
    }
    if (Status status = wait(sends, receives, timeout); !status) return status;
    for (size_t i = 0; i < receives.size(); ++i) {
      int size = 0;
      MPI_Get_count(&statuses_[i], MPI_BYTE, &size);
      receives[i].size = static_cast<size_t>(size);
    }
    return {};
  }

  Status wait(std::span<const HostSend> sends, std::span<const HostReceive> receives,
              std::chrono::milliseconds timeout) {
    const Clock::time_point begin = Clock::now();
    for (;;) {
      int done = 0;
      const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done,
                                   statuses_.data());
      if (code != MPI_SUCCESS) return failure_of_one(sends, receives, code);
      if (done != 0) return {};
      const auto waited = Clock::now() - begin;
      if (waited < kSpinning) {
        std::this_thread::yield();
        continue;
      }
      if (waited > timeout) {
        return error(ErrorCode::unavailable,
                     "host {} has not answered for {:.1f} s (--dist-timeout): it hangs, or its "
                     "process or the network is gone",
                     slowest(sends, receives), std::chrono::duration<double>(waited).count());
      }
      std::this_thread::sleep_for(kSleep);
    }
  }

  // The host of the first message that is not through.
  int slowest(std::span<const HostSend> sends, std::span<const HostReceive> receives) {
    for (size_t i = 0; i < requests_.size(); ++i) {
      int done = 0;
      MPI_Request_get_status(requests_[i], &done, MPI_STATUS_IGNORE);
      if (done == 0) return host_of(i, sends, receives);
    }
    return host_;
  }

  static int host_of(size_t request, std::span<const HostSend> sends,
                     std::span<const HostReceive> receives) {
    return request < receives.size() ? receives[request].host
                                     : sends[request - receives.size()].host;
  }

  Status failure_of_one(std::span<const HostSend> sends, std::span<const HostReceive> receives,
                        int code) {
    if (code == MPI_ERR_IN_STATUS) {
      for (size_t i = 0; i < statuses_.size(); ++i) {
        const int own = statuses_[i].MPI_ERROR;
        if (own == MPI_SUCCESS || own == MPI_ERR_PENDING) continue;
        return failure("exchange with", host_of(i, sends, receives), own);
      }
    }
    return failure("exchange with", slowest(sends, receives), code);
  }

  static Status failure(std::string_view what, int host, int code) {
    return error(ErrorCode::unavailable, "cannot {} host {}: {}", what, host, describe(code));
  }

  MPI_Comm communicator_ = MPI_COMM_NULL;
  int host_ = 0;
  int num_hosts_ = 1;
  bool failed_ = false;
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
};

Expected<std::unique_ptr<HostTransport>> connect(std::string_view version) {
  if (version != TW_VERSION) {
    return error(ErrorCode::unsupported, "{} is of version {}, the program of {}; install both",
                 kMpiModuleFile, TW_VERSION, version);
  }
  // One thread at a time, but not always the same.
  int provided = MPI_THREAD_SINGLE;
  const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  if (code != MPI_SUCCESS) return error(ErrorCode::unavailable, "MPI: {}", describe(code));
  if (provided < MPI_THREAD_SERIALIZED) {
    MPI_Finalize();
    return error(ErrorCode::unsupported,
                 "this MPI was built without threads (MPI_THREAD_SERIALIZED); use another");
  }
  return std::make_unique<MpiTransport>();
}

}  // namespace

extern "C" void tw_connect_by_mpi(const char* version,
                                  Expected<std::unique_ptr<HostTransport>>& transport) {
  transport = connect(version);
}

}  // namespace tw
