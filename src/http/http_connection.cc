#include "http/http_connection.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <ctime>
#include <optional>
#include <span>

#include "core/log.h"
#include "http/api_error.h"

namespace tw {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using Clock = std::chrono::steady_clock;
using ErrorCodeOf = boost::system::error_code;
using Parser = http::request_parser<http::string_body>;

constexpr uint32_t kMaxHeaderBytes = 32 << 10;
// Requests sent ahead of the answer: beyond it, the socket is not watched any more.
constexpr size_t kMaxPipelinedBytes = 64 << 10;
// How long a refused client may go on sending, so that it reads the refusal before the reset.
constexpr std::chrono::seconds kLingerTimeout{5};
constexpr std::chrono::milliseconds kDrainIdleTimeout{1000};
constexpr int64_t kMinBodyBytesPerSecond = 128 << 10;

std::string http_date() {
  return fmt::format("{:%a, %d %b %Y %H:%M:%S GMT}", fmt::gmtime(std::time(nullptr)));
}

// Why a request could not be read.
std::optional<ApiError> refusal_of(const ErrorCodeOf& failure, const HttpConfig& config) {
  if (failure == http::error::body_limit) {
    return ApiError{.status = 413,
                    .message = fmt::format("the request body is larger than {} bytes "
                                           "(--max-request-size)",
                                           config.max_request_bytes),
                    .code = "request_too_large"};
  }
  if (failure == http::error::header_limit || failure == http::error::buffer_overflow) {
    return ApiError{
        .status = 431,
        .message = fmt::format("the request's headers are larger than {} bytes", kMaxHeaderBytes)};
  }
  const bool is_http = failure.category() == make_error_code(http::error::bad_method).category();
  if (is_http && failure != http::error::end_of_stream && failure != http::error::partial_message) {
    return ApiError{.message = fmt::format("not a valid HTTP request: {}", failure.message())};
  }
  return std::nullopt;
}

class Connection final : public HttpConnection,
                         public Responder,
                         public std::enable_shared_from_this<Connection> {
 public:
  Connection(asio::ip::tcp::socket socket, ConnectionShared& shared)
      : socket_(std::move(socket)),
        deadline_(socket_.get_executor()),
        shared_(shared),
        application_(shared.application),
        config_(application_.http_config()) {
    ErrorCodeOf ignored;
    const auto peer = socket_.remote_endpoint(ignored);
    client_ = fmt::format("{}:{}", peer.address().to_string(ignored), peer.port());
    socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
    socket_.non_blocking(true, ignored);
  }

  // HttpConnection
  asio::awaitable<void> run() override;
  void drain() override {
    draining_ = true;
    if (idle_) close();
  }
  void close() override;
  asio::any_io_executor executor() override { return socket_.get_executor(); }
  const std::string& request_id() const override { return request_id_; }

  // Responder
  asio::awaitable<void> send(HttpResponse response) override;
  asio::awaitable<bool> begin_stream(std::string content_type) override;
  asio::awaitable<bool> write(std::string data) override;
  asio::awaitable<void> end_stream() override;
  void watch_client(std::function<void()> on_gone) override;
  bool client_gone() const override { return gone_; }

 private:
  asio::awaitable<bool> wait_for_request();
  asio::awaitable<bool> read_request(HttpRequest& request);
  asio::awaitable<ErrorCodeOf> read_body(Parser& parser);
  asio::awaitable<void> refuse(ApiError error);
  asio::awaitable<void> linger();
  asio::awaitable<bool> write_all(std::span<const asio::const_buffer> buffers);
  asio::awaitable<void> answer(HttpRequest& request);
  std::string head_of(int status, std::string_view content_type) const;
  void watch();
  void stop_watching();
  void client_is_gone();
  void set_deadline(Clock::time_point when);
  void clear_deadline() { deadline_.expires_at(Clock::time_point::max()); }
  void set_deadline(std::chrono::milliseconds from_now) { set_deadline(Clock::now() + from_now); }
  void log_access(const HttpRequest& request, bool is_quiet) const;
  void log_refusal(int status, const std::string& reason) const;

  asio::ip::tcp::socket socket_;
  asio::steady_timer deadline_;
  ConnectionShared& shared_;
  Application& application_;
  const HttpConfig& config_;
  std::string client_;
  beast::flat_buffer buffer_{kMaxHeaderBytes + kMaxPipelinedBytes};
  int64_t reserved_bytes_ = 0;  // of shared_.buffered_bytes

  // The request being answered.
  std::string request_id_;
  std::string version_ = "HTTP/1.1";
  bool keep_alive_ = true;
  bool is_head_ = false;
  bool chunked_ = false;
  int status_ = 0;  // of the answer; 0 before it
  Clock::time_point begin_;

  bool idle_ = true;
  bool draining_ = false;
  bool gone_ = false;
  bool reading_ = false;  // a request
  bool timed_out_ = false;
  std::function<void()> on_gone_;
  asio::cancellation_signal watch_cancel_;
  bool watching_ = false;
  uint64_t watch_epoch_ = 0;  // tells a watch that was stopped from its successor
};

void Connection::close() {
  gone_ = true;
  ErrorCodeOf ignored;
  socket_.close(ignored);
  clear_deadline();
}

// What the coroutine waits for then fails. While reading, the socket stays, for the answer 408.
void Connection::set_deadline(Clock::time_point when) {
  deadline_.expires_at(when);
  deadline_.async_wait([weak = weak_from_this()](const ErrorCodeOf& failure) {
    const auto self = weak.lock();
    // A wait that was superseded between its expiry and this call is no timeout.
    if (failure || !self || self->deadline_.expiry() > Clock::now()) return;
    ErrorCodeOf ignored;
    if (self->reading_) {
      self->timed_out_ = true;
      self->socket_.cancel(ignored);
    } else {
      self->client_is_gone();
      self->socket_.close(ignored);
    }
  });
}

asio::awaitable<void> Connection::run() {
  const auto self = shared_from_this();
  while (!gone_ && !draining_ && co_await wait_for_request()) {
    HttpRequest request;
    if (!co_await read_request(request)) break;
    co_await answer(request);
    shared_.buffered_bytes -= std::exchange(reserved_bytes_, 0);
    if (!keep_alive_) break;
  }
  shared_.buffered_bytes -= std::exchange(reserved_bytes_, 0);
  if (!gone_) {
    ErrorCodeOf ignored;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  }
  close();
}

asio::awaitable<bool> Connection::wait_for_request() {
  if (buffer_.size() > 0) co_return true;
  idle_ = true;
  // While draining there is nothing to wait for, but a probe of /health.
  set_deadline(application_.draining() ? kDrainIdleTimeout : config_.idle_timeout);
  ErrorCodeOf failure;
  co_await socket_.async_wait(asio::ip::tcp::socket::wait_read,
                              asio::redirect_error(asio::use_awaitable, failure));
  idle_ = false;
  co_return !failure;
}

asio::awaitable<bool> Connection::read_request(HttpRequest& request) {
  set_deadline(config_.header_timeout);
  begin_ = Clock::now();
  request_id_ = shared_.identifiers.make("req-");
  version_ = "HTTP/1.1";
  keep_alive_ = true;
  is_head_ = false;
  status_ = 0;
  reading_ = true;
  Parser parser;
  parser.header_limit(kMaxHeaderBytes);
  parser.body_limit(static_cast<uint64_t>(config_.max_request_bytes));
  ErrorCodeOf failure;
  co_await http::async_read_header(socket_, buffer_, parser,
                                   asio::redirect_error(asio::use_awaitable, failure));
  if (!failure) {
    begin_ = Clock::now();
    if (const std::string_view id = parser.get()["x-request-id"]; is_request_id(id)) {
      request_id_ = id;
    }
    const bool wants_continue = beast::iequals(parser.get()[http::field::expect], "100-continue");
    if (wants_continue && !parser.is_done() && parser.get().version() >= 11) {
      const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
      const asio::const_buffer buffers[] = {asio::buffer(go_on)};
      if (!co_await write_all(buffers)) co_return false;
    }
    failure = co_await read_body(parser);
  }
  reading_ = false;
  if (failure) {
    std::optional<ApiError> refusal = refusal_of(failure, config_);
    if (timed_out_) {
      refusal = ApiError{.status = 408, .message = "the request did not arrive in time"};
    }
    if (refusal) co_await refuse(std::move(*refusal));
    co_return false;
  }
  auto& message = parser.get();
  version_ = message.version() >= 11 ? "HTTP/1.1" : "HTTP/1.0";
  keep_alive_ = message.keep_alive();
  request.method = std::string(message.method_string());
  is_head_ = request.method == "HEAD";
  request.target = std::string(message.target());
  request.path = percent_decode(request.target.substr(0, request.target.find_first_of("?#")));
  request.authorization = std::string(message[http::field::authorization]);
  // Anthropic's clients have a header of their own.
  if (const auto key = message["x-api-key"]; request.authorization.empty() && !key.empty()) {
    request.authorization = "Bearer " + std::string(key);
  }
  request.if_none_match = std::string(message[http::field::if_none_match]);
  request.client = client_;
  request.id = request_id_;
  request.body = std::move(message.body());
  co_return true;
}

// A body may take body_timeout and then a second per 128 KiB that came, and its bytes count against
// what all connections may hold.
asio::awaitable<ErrorCodeOf> Connection::read_body(Parser& parser) {
  const auto begin = Clock::now();
  int64_t received = 0;
  ErrorCodeOf failure;
  while (!parser.is_done() && !failure) {
    set_deadline(begin + config_.body_timeout +
                 std::chrono::seconds(received / kMinBodyBytesPerSecond));
    received += static_cast<int64_t>(co_await http::async_read_some(
        socket_, buffer_, parser, asio::redirect_error(asio::use_awaitable, failure)));
    const auto size = static_cast<int64_t>(parser.get().body().size());
    shared_.buffered_bytes += size - reserved_bytes_;
    reserved_bytes_ = size;
    if (shared_.buffered_bytes > config_.max_buffered_bytes) {
      reading_ = false;
      // What is refused is not kept: others need not wait until this client has gone.
      parser.get().body() = {};
      shared_.buffered_bytes -= std::exchange(reserved_bytes_, 0);
      auto refusal = to_api_error(
          {ErrorCode::unavailable, "too many large requests are being received; try again later"});
      co_await refuse(std::move(refusal));
      failure = asio::error::no_buffer_space;
    }
  }
  co_return failure;
}

// Answers what could not be read as a request, and closes: where the next would begin is unknown.
asio::awaitable<void> Connection::refuse(ApiError error) {
  keep_alive_ = false;
  set_deadline(config_.send_timeout);
  const int status = error.status;
  auto response = to_response(error);
  co_await send(std::move(response));
  application_.count_request("unreadable", status);
  log_refusal(status, error.message);
  co_await linger();
}

// A close while the client still sends would reset the connection and could take the answer from
// it. So the sending side is closed and the rest is read away, for a while.
asio::awaitable<void> Connection::linger() {
  ErrorCodeOf failure;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, failure);
  set_deadline(kLingerTimeout);
  std::vector<char> waste(64 << 10);
  while (!failure) {
    co_await socket_.async_read_some(asio::buffer(waste),
                                     asio::redirect_error(asio::use_awaitable, failure));
  }
}

asio::awaitable<void> Connection::answer(HttpRequest& request) {
  clear_deadline();
  if (application_.draining()) keep_alive_ = false;
  const Application::Answered answered = co_await application_.answer(request, *this);
  stop_watching();
  on_gone_ = nullptr;
  // 499 as nginx has it: the client closed before the answer was complete.
  application_.count_request(answered.endpoint, status_ == 0 ? 499 : status_);
  log_access(request, answered.is_quiet);
}

void Connection::log_access(const HttpRequest& request, bool is_quiet) const {
  const double milliseconds =
      std::chrono::duration<double, std::milli>(Clock::now() - begin_).count();
  const LogRequestScope about(request_id_);
  const auto level = is_quiet ? spdlog::level::debug : spdlog::level::info;
  log::log(level, "{} - \"{} {} {}\" {}{} {:.0f} ms", client_, request.method,
           shorten(request.target, 200), version_, status_ == 0 ? 499 : status_,
           gone_ ? " (client gone)" : "", milliseconds);
}

void Connection::log_refusal(int status, const std::string& reason) const {
  const LogRequestScope about(request_id_);
  log::info("{} - unreadable request {}: {}", client_, status, reason);
}

std::string Connection::head_of(int status, std::string_view content_type) const {
  std::string head = fmt::format("{} {} {}\r\nServer: tilewright\r\nDate: {}\r\n", version_, status,
                                 reason_phrase(status), http_date());
  if (!content_type.empty()) head += fmt::format("Content-Type: {}\r\n", content_type);
  head += fmt::format("X-Request-Id: {}\r\n", request_id_);
  head += "Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: X-Request-Id\r\n";
  if (!keep_alive_) {
    head += "Connection: close\r\n";
  } else if (version_ == "HTTP/1.0") {
    head += "Connection: keep-alive\r\n";
  }
  return head;
}

asio::awaitable<void> Connection::send(HttpResponse response) {
  if (gone_) co_return;
  if (application_.draining()) keep_alive_ = false;
  const bool has_content = response.status != 204 && response.status != 304;
  std::string head = head_of(response.status, has_content ? response.content_type : "");
  for (const auto& [name, value] : response.headers) head += fmt::format("{}: {}\r\n", name, value);
  if (has_content) head += fmt::format("Content-Length: {}\r\n", response.body.size());
  head += "\r\n";
  status_ = response.status;
  const asio::const_buffer buffers[] = {
      asio::buffer(head), is_head_ ? asio::const_buffer() : asio::buffer(response.body)};
  co_await write_all(buffers);
}

asio::awaitable<bool> Connection::begin_stream(std::string content_type) {
  if (gone_) co_return false;
  if (application_.draining()) keep_alive_ = false;
  chunked_ = version_ == "HTTP/1.1";
  if (!chunked_) keep_alive_ = false;  // the end of the connection is the end of the stream
  std::string head = head_of(200, content_type);
  head += "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n";
  head += chunked_ ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n";
  status_ = 200;
  const asio::const_buffer buffers[] = {asio::buffer(head)};
  co_return co_await write_all(buffers);
}

asio::awaitable<bool> Connection::write(std::string data) {
  if (gone_) co_return false;
  if (data.empty()) co_return true;  // an empty chunk would end the stream
  if (!chunked_) {
    const asio::const_buffer buffers[] = {asio::buffer(data)};
    co_return co_await write_all(buffers);
  }
  const std::string size = fmt::format("{:x}\r\n", data.size());
  const asio::const_buffer buffers[] = {asio::buffer(size), asio::buffer(data),
                                        asio::buffer("\r\n", 2)};
  co_return co_await write_all(buffers);
}

asio::awaitable<void> Connection::end_stream() {
  if (gone_ || !chunked_) co_return;
  const asio::const_buffer buffers[] = {asio::buffer("0\r\n\r\n", 5)};
  co_await write_all(buffers);
}

// Writes all, as long as the client takes some of it within the send timeout.
asio::awaitable<bool> Connection::write_all(std::span<const asio::const_buffer> buffers) {
  std::vector<asio::const_buffer> rest(buffers.begin(), buffers.end());
  ErrorCodeOf failure;
  while (!failure && !gone_) {
    std::erase_if(rest, [](const asio::const_buffer& buffer) { return buffer.size() == 0; });
    if (rest.empty()) break;
    // Most writes fit into the socket's buffer: no timer for those.
    size_t taken = socket_.write_some(rest, failure);
    if (failure == asio::error::would_block) {
      failure = {};
      set_deadline(config_.send_timeout);
      taken = co_await socket_.async_write_some(rest,
                                                asio::redirect_error(asio::use_awaitable, failure));
      clear_deadline();
    }
    for (asio::const_buffer& buffer : rest) {
      const size_t part = std::min(taken, buffer.size());
      buffer += part;
      taken -= part;
    }
  }
  if (failure) client_is_gone();
  co_return !gone_;
}

void Connection::client_is_gone() {
  gone_ = true;
  keep_alive_ = false;
  if (const auto on_gone = std::exchange(on_gone_, nullptr)) on_gone();
}

void Connection::watch_client(std::function<void()> on_gone) {
  on_gone_ = std::move(on_gone);
  if (!watching_) watch();
}

// Looks for the end of the client's sending, taking in what it sends ahead.
void Connection::watch() {
  if (gone_ || buffer_.size() >= kMaxPipelinedBytes) return;
  watching_ = true;
  socket_.async_wait(
      asio::ip::tcp::socket::wait_read,
      asio::bind_cancellation_slot(
          watch_cancel_.slot(),
          [self = shared_from_this(), epoch = watch_epoch_](const ErrorCodeOf& failure) {
            if (epoch != self->watch_epoch_) return;
            self->watching_ = false;
            if (failure || !self->on_gone_) return;
            ErrorCodeOf status;
            const size_t count = self->socket_.read_some(self->buffer_.prepare(4096), status);
            self->buffer_.commit(count);
            if (status && status != asio::error::would_block) {
              self->client_is_gone();
            } else {
              self->watch();
            }
          }));
}

void Connection::stop_watching() {
  if (!std::exchange(watching_, false)) return;
  ++watch_epoch_;
  watch_cancel_.emit(asio::cancellation_type::terminal);
}

}  // namespace

std::shared_ptr<HttpConnection> HttpConnection::create(asio::ip::tcp::socket socket,
                                                       ConnectionShared& shared) {
  return std::make_shared<Connection>(std::move(socket), shared);
}

}  // namespace tw
