#include "http/http_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <thread>
#include <unordered_map>

#include "core/log.h"
#include "http/api_error.h"
#include "http/http_connection.h"

namespace tw {
namespace {

using asio::ip::tcp;
using ErrorCodeOf = boost::system::error_code;

// After the drain's end, for the aborted requests to be answered and the connections to close.
constexpr std::chrono::seconds kAbortTimeout{5};
constexpr int kBacklog = 1024;

tl::unexpected<Error> cannot_listen(const std::string& host, uint16_t port,
                                    const ErrorCodeOf& failure) {
  if (failure == asio::error::address_in_use) {
    return error(ErrorCode::invalid_argument,
                 "--port {}: another program listens on {}:{}; stop it or choose another port",
                 port, host, port);
  }
  return error(ErrorCode::invalid_argument, "cannot listen on {}:{}: {}", host, port,
               failure.message());
}

}  // namespace

// The acceptor, the signals, the drain's timer and the list of connections live on strand_.
class HttpServer::Impl {
 public:
  explicit Impl(Application& application)
      : application_(application),
        io_(application.http_config().io_threads),
        strand_(asio::make_strand(io_)),
        acceptor_(strand_),
        signals_(strand_),
        drain_timer_(strand_),
        retry_timer_(strand_),
        shared_{application} {}

  Status listen(BoundAddress address);
  uint16_t port() const { return acceptor_port_; }
  std::string url() const {
    const std::string& host = application_.http_config().host;
    const bool ipv6 = host.find(':') != std::string::npos;
    return fmt::format("http://{}{}{}:{}", ipv6 ? "[" : "", host, ipv6 ? "]" : "", port());
  }
  void stop_on_signals();
  void run();
  void stop() {
    asio::post(strand_, [this] { begin_or_end_drain(); });
  }

 private:
  void wait_for_signal();
  asio::awaitable<void> accept_loop();
  void add(tcp::socket socket);
  void refuse(tcp::socket socket);
  void remove(uint64_t id);
  void begin_or_end_drain();
  void abort_rest();
  void finish_if_done();
  template <typename Function>
  void for_each_connection(Function function);

  Application& application_;
  asio::io_context io_;
  asio::strand<asio::io_context::executor_type> strand_;
  tcp::acceptor acceptor_;
  asio::signal_set signals_;
  asio::steady_timer drain_timer_;
  asio::steady_timer retry_timer_;
  ConnectionShared shared_;
  uint16_t acceptor_port_ = 0;
  uint64_t next_id_ = 0;
  uint64_t first_id_after_drain_ = 0;
  std::unordered_map<uint64_t, std::shared_ptr<HttpConnection>> connections_;
  bool aborting_ = false;
};

Status HttpServer::Impl::listen(BoundAddress address) {
  const int socket = address.release();
  ErrorCodeOf failure;
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &length);
  acceptor_.assign(storage.ss_family == AF_INET6 ? tcp::v6() : tcp::v4(), socket, failure);
  if (!failure) acceptor_.listen(kBacklog, failure);
  if (failure) return cannot_listen(address.host(), application_.http_config().port, failure);
  acceptor_port_ = acceptor_.local_endpoint(failure).port();
  return {};
}

void HttpServer::Impl::stop_on_signals() {
  ErrorCodeOf ignored;
  signals_.add(SIGINT, ignored);
  signals_.add(SIGTERM, ignored);
  wait_for_signal();
}

void HttpServer::Impl::wait_for_signal() {
  signals_.async_wait([this](const ErrorCodeOf& failure, int) {
    if (failure) return;
    // Before the drain, which may end at once and then cancels this wait.
    wait_for_signal();
    begin_or_end_drain();
  });
}

void HttpServer::Impl::run() {
  asio::co_spawn(strand_, accept_loop(), asio::detached);
  std::vector<std::thread> threads;
  for (int i = 1; i < application_.http_config().io_threads; ++i) {
    threads.emplace_back([this] { io_.run(); });
  }
  io_.run();
  for (std::thread& thread : threads) thread.join();
  application_.shutdown();
}

asio::awaitable<void> HttpServer::Impl::accept_loop() {
  while (acceptor_.is_open()) {
    ErrorCodeOf failure;
    // Each connection gets a strand of its own.
    tcp::socket socket = co_await acceptor_.async_accept(
        asio::make_strand(io_), asio::redirect_error(asio::use_awaitable, failure));
    if (!acceptor_.is_open()) break;
    if (failure) {
      // Out of file descriptors, mostly: some will be closed soon.
      log::warn("cannot accept a connection: {}", failure.message());
      retry_timer_.expires_after(std::chrono::milliseconds(100));
      co_await retry_timer_.async_wait(asio::redirect_error(asio::use_awaitable, failure));
    } else if (connections_.size() >=
               static_cast<size_t>(application_.http_config().max_connections)) {
      refuse(std::move(socket));
    } else {
      add(std::move(socket));
    }
  }
}

void HttpServer::Impl::add(tcp::socket socket) {
  const uint64_t id = next_id_++;
  auto connection = HttpConnection::create(std::move(socket), shared_);
  connections_.emplace(id, connection);
  application_.set_connections(static_cast<int>(connections_.size()));
  asio::co_spawn(connection->executor(), connection->run(),
                 asio::bind_executor(strand_, [this, id, connection](std::exception_ptr failure) {
                   if (failure) log::error("a connection ended with an exception");
                   remove(id);
                 }));
}

// Answered without reading, so that it costs nothing; closing may reset the connection.
void HttpServer::Impl::refuse(tcp::socket socket) {
  const HttpResponse response = to_response(to_api_error(
      {ErrorCode::unavailable, "too many connections are open (--max-connections); try again"}));
  const std::string answer = fmt::format(
      "HTTP/1.1 503 {}\r\nContent-Type: {}\r\nRetry-After: 1\r\nConnection: close\r\n"
      "Content-Length: {}\r\n\r\n{}",
      reason_phrase(503), response.content_type, response.body.size(), response.body);
  ErrorCodeOf ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(answer), ignored);
  socket.shutdown(tcp::socket::shutdown_send, ignored);
  log::warn("a connection was refused: {} are open (--max-connections)", connections_.size());
}

void HttpServer::Impl::remove(uint64_t id) {
  connections_.erase(id);
  application_.set_connections(static_cast<int>(connections_.size()));
  finish_if_done();
}

template <typename Function>
void HttpServer::Impl::for_each_connection(Function function) {
  for (const auto& [id, connection] : connections_) {
    asio::dispatch(connection->executor(),
                   [connection = connection, function] { function(*connection); });
  }
}

void HttpServer::Impl::begin_or_end_drain() {
  if (!acceptor_.is_open()) return;  // the drain is over: a timer would only keep run() waiting
  if (application_.draining()) {
    if (!aborting_) abort_rest();
    return;
  }
  application_.begin_drain();
  first_id_after_drain_ = next_id_;
  log::info("shutting down: {} connections; requests under way have {:.0f} s (--drain-timeout)",
            connections_.size(),
            std::chrono::duration<double>(application_.http_config().drain_timeout).count());
  for_each_connection([](HttpConnection& connection) { connection.drain(); });
  drain_timer_.expires_after(application_.http_config().drain_timeout);
  drain_timer_.async_wait([this](const ErrorCodeOf& failure) {
    if (!failure && !aborting_) abort_rest();
  });
  finish_if_done();
}

void HttpServer::Impl::abort_rest() {
  aborting_ = true;
  log::warn("aborting the requests that still run");
  application_.abort_all();
  drain_timer_.expires_after(kAbortTimeout);
  drain_timer_.async_wait([this](const ErrorCodeOf& failure) {
    if (failure) return;
    for_each_connection([](HttpConnection& connection) { connection.close(); });
  });
}

// Connections that came during the drain are only told so: nothing is lost by closing them.
void HttpServer::Impl::finish_if_done() {
  if (!application_.draining() || !acceptor_.is_open()) return;
  for (const auto& [id, connection] : connections_) {
    if (id < first_id_after_drain_) return;
  }
  for_each_connection([](HttpConnection& connection) { connection.close(); });
  ErrorCodeOf ignored;
  acceptor_.close(ignored);
  signals_.cancel(ignored);
  drain_timer_.cancel();
  retry_timer_.cancel();
}

Expected<BoundAddress> BoundAddress::bind(const std::string& host, uint16_t port) {
  ErrorCodeOf failure;
  asio::io_context io;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, failure);
  if (failure || found.empty()) {
    return error(ErrorCode::invalid_argument, "--host {}: {}", host, failure.message());
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  tcp::acceptor acceptor(io);
  acceptor.open(endpoint.protocol(), failure);
  if (!failure) acceptor.set_option(tcp::acceptor::reuse_address(true), failure);
  if (!failure) acceptor.bind(endpoint, failure);
  if (failure) return cannot_listen(host, port, failure);
  const int socket = acceptor.release(failure);
  if (failure) return cannot_listen(host, port, failure);
  return BoundAddress(socket, host);
}

BoundAddress::~BoundAddress() {
  if (socket_ >= 0) ::close(socket_);
}

Expected<std::unique_ptr<HttpServer>> HttpServer::create(Application& application,
                                                         BoundAddress address) {
  auto impl = std::make_unique<Impl>(application);
  if (Status status = impl->listen(std::move(address)); !status) return forward_error(status);
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
uint16_t HttpServer::port() const {
  return impl_->port();
}
std::string HttpServer::url() const {
  return impl_->url();
}
void HttpServer::stop_on_signals() {
  impl_->stop_on_signals();
}
void HttpServer::run() {
  impl_->run();
}
void HttpServer::stop() {
  impl_->stop();
}

}  // namespace tw
