// Hosts that are threads of one process and exchange messages in memory: several hosts without MPI,
// and failures when a test wants them.
#pragma once

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "parallel/host_link.h"

namespace tw::testing_support {

// What the hosts share: a queue of messages from each to each.
class HostsInMemory {
 public:
  explicit HostsInMemory(int num_hosts)
      : num_hosts_(num_hosts), queues_(static_cast<size_t>(num_hosts * num_hosts)) {}

  std::unique_ptr<HostLink> link(int host) {
    return std::make_unique<HostLink>(std::make_unique<Transport>(*this, host));
  }

  // Ends all exchanges, under way and to come, with errors.
  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    arrived_.notify_all();
  }

  // The host sends nothing any more, as if it hung.
  void silence(int host) {
    std::lock_guard lock(mutex_);
    silent_ = host;
  }

 private:
  using Message = std::vector<std::byte>;

  class Transport final : public HostTransport {
   public:
    Transport(HostsInMemory& hosts, int host) : hosts_(hosts), host_(host) {}
    int host() const override { return host_; }
    int num_hosts() const override { return hosts_.num_hosts_; }

    Status transfer(std::span<const HostSend> sends, std::span<HostReceive> receives,
                    std::chrono::milliseconds timeout) override {
      std::unique_lock lock(hosts_.mutex_);
      for (const HostSend& send : sends) {
        if (hosts_.silent_ == host_) continue;
        hosts_.queue(host_, send.host).emplace_back(send.bytes.begin(), send.bytes.end());
      }
      hosts_.arrived_.notify_all();
      for (HostReceive& receive : receives) {
        auto& queue = hosts_.queue(receive.host, host_);
        hosts_.arrived_.wait_for(lock, timeout, [&] { return hosts_.closed_ || !queue.empty(); });
        if (hosts_.closed_ || queue.empty()) {
          return error(ErrorCode::unavailable, "host {} has not answered", receive.host);
        }
        const Message message = std::move(queue.front());
        queue.pop_front();
        if (message.size() > receive.room.size()) {
          return error(ErrorCode::internal, "a message of {} bytes for room of {}", message.size(),
                       receive.room.size());
        }
        if (!message.empty()) {
          std::memcpy(receive.room.data(), message.data(), message.size());
        }
        receive.size = message.size();
      }
      return {};
    }

    [[noreturn]] void abort(int) override { std::abort(); }

   private:
    HostsInMemory& hosts_;
    const int host_;
  };

  std::deque<Message>& queue(int from, int to) {
    return queues_[static_cast<size_t>(from * num_hosts_ + to)];
  }

  const int num_hosts_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::deque<Message>> queues_;
  int silent_ = -1;
  bool closed_ = false;
};

}  // namespace tw::testing_support
