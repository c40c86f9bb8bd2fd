#include "parallel/host_staging.h"

#include "core/check.h"

namespace tw {

HostStaging::HostStaging(HostLink& link)
    : link_(link), blocks_(static_cast<size_t>(link.num_hosts())) {
  for (auto& own : own_) own.resize(kBlock);
  for (int host = 0; host < link.num_hosts(); ++host) {
    if (host == link.host()) continue;
    auto& block = blocks_[static_cast<size_t>(host)];
    block.resize(kBlock);
    sends_.push_back({host, {}});
    receives_.push_back({host, std::as_writable_bytes(std::span(block))});
  }
}

void HostStaging::swap(std::span<const float> own) {
  for (HostSend& send : sends_) send.bytes = std::as_bytes(own);
  static_cast<void>(link_.exchange(sends_, receives_));
}

void HostStaging::scatter(std::span<const float> own) {
  for (HostSend& send : sends_) {
    const Range share = share_of(send.host, static_cast<int64_t>(own.size()));
    send.bytes = std::as_bytes(
        own.subspan(static_cast<size_t>(share.begin), static_cast<size_t>(share.size())));
  }
  static_cast<void>(link_.exchange(sends_, receives_));
}

void HostStaging::collect(std::span<const float> own) {
  if (link_.host() == 0) {
    static_cast<void>(link_.exchange({}, receives_));
    return;
  }
  const HostSend send{0, std::as_bytes(own)};
  static_cast<void>(link_.exchange(std::span(&send, 1), {}));
}

std::span<const float> HostStaging::received(int host) const {
  TW_CHECK(host != link_.host());
  const HostReceive& receive =
      receives_[static_cast<size_t>(host < link_.host() ? host : host - 1)];
  const size_t count = receive.size / sizeof(float);
  return {count == 0 ? nullptr : blocks_[static_cast<size_t>(host)].data(), count};
}

}  // namespace tw
