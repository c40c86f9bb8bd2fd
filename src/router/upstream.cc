#include "router/upstream.h"

#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

namespace tw {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using ErrorCodeOf = boost::system::error_code;

constexpr size_t kPieceBytes = 16 << 10;
constexpr uint32_t kMaxHeaderBytes = 32 << 10;
// Of an answer, beside its type: what clients act upon.
constexpr std::array kPassedHeaders = {http::field::retry_after, http::field::etag,
                                       http::field::allow, http::field::www_authenticate,
                                       http::field::cache_control};

http::request<http::string_body> to_beast(const HttpRequest& request, const WorkerAddress& worker) {
  http::request<http::string_body> message;
  message.method_string(request.method);
  message.target(request.target);
  message.version(11);
  message.set(http::field::host, worker.url.substr(worker.url.find("//") + 2));
  message.set(http::field::connection, "close");
  if (!request.authorization.empty()) {
    message.set(http::field::authorization, request.authorization);
  }
  if (!request.if_none_match.empty()) {
    message.set(http::field::if_none_match, request.if_none_match);
  }
  message.set("X-Request-Id", request.id);
  if (!request.body.empty()) message.set(http::field::content_type, "application/json");
  message.body() = request.body;
  message.prepare_payload();
  return message;
}

class Exchange final : public Upstream, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(asio::any_io_executor executor, const WorkerAddress& worker, UpstreamTimeouts timeouts)
      : worker_(worker),
        timeouts_(timeouts),
        resolver_(executor),
        socket_(executor),
        deadline_(executor) {
    parser_.header_limit(kMaxHeaderBytes);
    parser_.body_limit(boost::none);
  }

  asio::awaitable<Expected<HttpResponse>> open(const HttpRequest& request) override;
  asio::awaitable<Expected<std::string>> read() override;
  void cancel() override {
    cancelled_ = true;
    close();
  }
  asio::any_io_executor executor() override { return socket_.get_executor(); }

 private:
  void close() {
    ErrorCodeOf ignored;
    resolver_.cancel();
    socket_.close(ignored);
  }
  asio::awaitable<ErrorCodeOf> connect();
  void set_deadline(std::chrono::milliseconds from_now);
  tl::unexpected<Error> broken(ErrorCode code, const ErrorCodeOf& failure) const;

  const WorkerAddress worker_;
  const UpstreamTimeouts timeouts_;
  tcp::resolver resolver_;
  tcp::socket socket_;
  asio::steady_timer deadline_;
  beast::flat_buffer buffer_;
  http::response_parser<http::buffer_body> parser_;
  bool cancelled_ = false;
  bool timed_out_ = false;
};

// What is waited for then fails.
void Exchange::set_deadline(std::chrono::milliseconds from_now) {
  deadline_.expires_after(from_now);
  deadline_.async_wait([weak = weak_from_this()](const ErrorCodeOf& failure) {
    const auto self = weak.lock();
    // A wait that was superseded between its expiry and this call is no timeout.
    if (failure || !self || self->deadline_.expiry() > Clock::now()) return;
    self->timed_out_ = true;
    self->close();
  });
}

tl::unexpected<Error> Exchange::broken(ErrorCode code, const ErrorCodeOf& failure) const {
  if (cancelled_) return error(ErrorCode::cancelled, "cancelled");
  return error(code, "{}", timed_out_ ? "no answer in time" : failure.message());
}

asio::awaitable<ErrorCodeOf> Exchange::connect() {
  ErrorCodeOf failure;
  set_deadline(timeouts_.connect);
  const std::string port = std::to_string(worker_.port);
  const auto endpoints = co_await resolver_.async_resolve(
      worker_.host, port, asio::redirect_error(asio::use_awaitable, failure));
  if (!failure) {
    co_await asio::async_connect(socket_, endpoints,
                                 asio::redirect_error(asio::use_awaitable, failure));
  }
  if (!failure && (cancelled_ || timed_out_)) failure = asio::error::operation_aborted;
  if (!failure) socket_.set_option(tcp::no_delay(true), failure);
  co_return failure;
}

asio::awaitable<Expected<HttpResponse>> Exchange::open(const HttpRequest& request) {
  const auto self = shared_from_this();
  ErrorCodeOf failure = co_await connect();
  if (failure) co_return broken(ErrorCode::not_found, failure);
  const auto message = to_beast(request, worker_);
  set_deadline(timeouts_.silence);
  co_await http::async_write(socket_, message, asio::redirect_error(asio::use_awaitable, failure));
  if (request.method == "HEAD") parser_.skip(true);
  if (!failure) {
    co_await http::async_read_header(socket_, buffer_, parser_,
                                     asio::redirect_error(asio::use_awaitable, failure));
  }
  if (failure) co_return broken(ErrorCode::unavailable, failure);
  const auto& head = parser_.get();
  HttpResponse response;
  response.status = static_cast<int>(head.result_int());
  response.content_type = std::string(head[http::field::content_type]);
  for (const http::field field : kPassedHeaders) {
    const auto value = head[field];
    if (!value.empty()) {
      response.headers.emplace_back(std::string(http::to_string(field)), std::string(value));
    }
  }
  co_return response;
}

asio::awaitable<Expected<std::string>> Exchange::read() {
  const auto self = shared_from_this();
  std::string piece;
  while (piece.empty() && !parser_.is_done()) {
    piece.resize(kPieceBytes);
    auto& body = parser_.get().body();
    body.data = piece.data();
    body.size = piece.size();
    ErrorCodeOf failure;
    set_deadline(timeouts_.silence);
    co_await http::async_read_some(socket_, buffer_, parser_,
                                   asio::redirect_error(asio::use_awaitable, failure));
    if (failure == http::error::need_buffer) failure = {};
    if (failure) co_return broken(ErrorCode::unavailable, failure);
    piece.resize(piece.size() - body.size);
  }
  co_return piece;
}

}  // namespace

std::shared_ptr<Upstream> Upstream::create(asio::any_io_executor executor,
                                           const WorkerAddress& worker, UpstreamTimeouts timeouts) {
  return std::make_shared<Exchange>(std::move(executor), worker, timeouts);
}

}  // namespace tw
