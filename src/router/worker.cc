#include "router/worker.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/log.h"

namespace tw {

Expected<WorkerAddress> WorkerAddress::parse(const std::string& text) {
  constexpr std::string_view kScheme = "http://";
  const auto refuse = [&text](const char* reason) {
    return error(ErrorCode::invalid_argument,
                 "worker \"{}\": {}; expected http://HOST:PORT, such as http://10.0.0.2:30000",
                 text, reason);
  };
  std::string_view rest = text;
  if (rest.starts_with("https://")) {
    return refuse("workers are reached over http; let a proxy beside the worker end TLS");
  }
  if (rest.starts_with(kScheme)) rest.remove_prefix(kScheme.size());
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.find_first_of("/?#@ \t\r\n") != std::string_view::npos) {
    return refuse("it has more than a host and a port");
  }
  WorkerAddress address;
  std::string_view port;
  if (rest.starts_with('[')) {
    const size_t end = rest.find(']');
    if (end == std::string_view::npos) return refuse("the IPv6 address does not end");
    address.host = rest.substr(1, end - 1);
    port = rest.substr(end + 1);
    if (!port.empty() && port[0] != ':') return refuse("expected : after the IPv6 address");
  } else {
    const size_t colon = std::min(rest.find(':'), rest.size());
    address.host = rest.substr(0, colon);
    port = rest.substr(colon);
  }
  if (address.host.empty()) return refuse("it names no host");
  if (!port.empty()) {
    port.remove_prefix(1);
    const auto [end, failure] =
        std::from_chars(port.data(), port.data() + port.size(), address.port);
    if (failure != std::errc() || end != port.data() + port.size() || address.port == 0) {
      return refuse("the port is no number from 1 to 65535");
    }
  }
  const bool ipv6 = address.host.find(':') != std::string::npos;
  address.url = fmt::format("{}{}{}{}:{}", kScheme, ipv6 ? "[" : "", address.host, ipv6 ? "]" : "",
                            address.port);
  return address;
}

void Worker::count_check(bool succeeded) {
  std::lock_guard lock(mutex_);
  if (!std::exchange(checked_, true) && !succeeded) {
    log::warn("worker {} does not answer its health check", url());
  }
  if (succeeded == healthy_) {
    streak_ = 0;
    return;
  }
  const int needed = !succeeded ? thresholds_.failures : was_healthy_ ? thresholds_.successes : 1;
  if (++streak_ >= needed) set_healthy(succeeded);
}

void Worker::count_refusal() {
  std::lock_guard lock(mutex_);
  if (healthy_) set_healthy(false);
}

void Worker::set_healthy(bool healthy) {
  healthy_ = healthy;
  was_healthy_ = was_healthy_ || healthy;
  streak_ = 0;
  if (healthy) {
    log::info("worker {} takes requests", url());
  } else {
    log::warn("worker {} is out of use until it answers its health checks", url());
  }
}

Status WorkerPool::add(const WorkerAddress& address) {
  std::lock_guard lock(mutex_);
  const auto same = [&](const auto& worker) { return worker->url() == address.url; };
  if (std::ranges::any_of(workers_, same)) {
    return error(ErrorCode::invalid_argument, "worker {} is there already", address.url);
  }
  workers_.push_back(std::make_shared<Worker>(address, thresholds_));
  return {};
}

Status WorkerPool::remove(const WorkerAddress& address) {
  std::lock_guard lock(mutex_);
  const auto same = [&](const auto& worker) { return worker->url() == address.url; };
  if (std::erase_if(workers_, same) > 0) return {};
  return error(ErrorCode::not_found, "there is no worker {}; /list_workers names them",
               address.url);
}

std::vector<std::shared_ptr<Worker>> WorkerPool::all() const {
  std::lock_guard lock(mutex_);
  return workers_;
}

std::vector<std::shared_ptr<Worker>> WorkerPool::healthy() const {
  std::vector<std::shared_ptr<Worker>> workers = all();
  std::erase_if(workers, [](const auto& worker) { return !worker->is_healthy(); });
  return workers;
}

}  // namespace tw
