#include "server/raw_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include <algorithm>

namespace tw {

using Clock = std::chrono::steady_clock;

RawClient::RawClient(uint16_t port, int receive_buffer) {
  socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
  if (receive_buffer > 0) {
    setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) close();
}

RawClient::~RawClient() {
  close();
}

bool RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

bool RawClient::request(std::string_view method, std::string_view target, std::string_view body,
                        std::string_view headers) {
  return send(fmt::format("{} {} HTTP/1.1\r\nHost: test\r\n{}Content-Length: {}\r\n\r\n{}", method,
                          target, headers, body.size(), body));
}

bool RawClient::receive(Clock::time_point until) {
  if (ended_ || socket_ < 0) return false;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
  pollfd poll_for{socket_, POLLIN, 0};
  if (::poll(&poll_for, 1, static_cast<int>(std::max<int64_t>(left.count(), 0))) <= 0) return false;
  char buffer[16384];
  const ssize_t count = ::recv(socket_, buffer, sizeof(buffer), 0);
  if (count <= 0) {
    ended_ = true;
    return false;
  }
  received_.append(buffer, static_cast<size_t>(count));
  return true;
}

RawResponse RawClient::response(std::chrono::milliseconds patience, bool is_head) {
  const auto until = Clock::now() + patience;
  RawResponse response;
  size_t head_end;
  while ((head_end = received_.find("\r\n\r\n")) == std::string::npos) {
    if (!receive(until)) return response;
  }
  const std::string head = received_.substr(0, head_end + 2);
  received_.erase(0, head_end + 4);
  response.status = std::stoi(head.substr(head.find(' ') + 1, 3));
  for (size_t begin = head.find("\r\n") + 2; begin < head.size();) {
    const size_t end = head.find("\r\n", begin);
    const size_t colon = head.find(": ", begin);
    std::string name = head.substr(begin, colon - begin);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    response.headers[name] = head.substr(colon + 2, end - colon - 2);
    begin = end + 2;
  }
  if (is_head || response.status == 204 || response.status == 304 || response.status == 100) {
    response.complete = true;
    return response;
  }
  if (response.headers.contains("content-length")) {
    const size_t length = std::stoul(response.headers["content-length"]);
    while (received_.size() < length && receive(until)) {
    }
    response.complete = received_.size() >= length;
    response.body = received_.substr(0, length);
    received_.erase(0, length);
    return response;
  }
  const auto encoding = response.headers.find("transfer-encoding");
  if (encoding == response.headers.end() || encoding->second != "chunked") {
    while (receive(until)) {
    }
    response.complete = ended_;
    response.body = std::exchange(received_, {});
    return response;
  }
  for (;;) {
    size_t line_end;
    while ((line_end = received_.find("\r\n")) == std::string::npos) {
      if (!receive(until)) return response;
    }
    const size_t size = std::stoul(received_.substr(0, line_end), nullptr, 16);
    while (received_.size() < line_end + 4 + size) {
      if (!receive(until)) return response;
    }
    response.body += received_.substr(line_end + 2, size);
    received_.erase(0, line_end + 4 + size);
    if (size == 0) break;
  }
  response.complete = true;
  return response;
}

std::string RawClient::read_until(std::string_view mark, std::chrono::milliseconds patience) {
  const auto until = Clock::now() + patience;
  while (received_.find(mark) == std::string::npos && receive(until)) {
  }
  return std::exchange(received_, {});
}

bool RawClient::closed_within(std::chrono::milliseconds patience) {
  const auto until = Clock::now() + patience;
  while (receive(until)) received_.clear();
  return ended_;
}

void RawClient::shutdown_sending() {
  ::shutdown(socket_, SHUT_WR);
}

void RawClient::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

void RawClient::reset() {
  const linger abort{1, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &abort, sizeof(abort));
  close();
}

}  // namespace tw
