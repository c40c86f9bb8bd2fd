#include "server/in_process.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <mutex>
#include <thread>
#include <utility>

#include "server/routes.h"

namespace tw {
namespace {

// All on the server's one thread, but cancel().
class Exchange final : public InProcessExchange,
                       public Responder,
                       public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(asio::any_io_executor executor, std::string request_id, InProcessServer::Sink sink)
      : executor_(std::move(executor)),
        request_id_(std::move(request_id)),
        sink_(std::move(sink)) {}

  void cancel() override {
    std::lock_guard lock(mutex_);
    if (ended_) return;
    asio::post(executor_, [self = shared_from_this()] {
      self->gone_ = true;
      if (const auto on_gone = std::exchange(self->on_gone_, nullptr)) on_gone();
    });
  }

  asio::any_io_executor executor() override { return executor_; }
  const std::string& request_id() const override { return request_id_; }

  asio::awaitable<void> send(HttpResponse response) override {
    status_ = response.status;
    give(std::move(response.body));
    co_return;
  }
  asio::awaitable<bool> begin_stream(std::string) override {
    status_ = 200;
    co_return !gone_;
  }
  asio::awaitable<bool> write(std::string data) override {
    give(std::move(data));
    co_return !gone_;
  }
  asio::awaitable<void> end_stream() override { co_return; }

  void watch_client(std::function<void()> on_gone) override { on_gone_ = std::move(on_gone); }
  bool client_gone() const override { return gone_; }

  void end() {
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
    }
    on_gone_ = nullptr;
    sink_(status_, std::nullopt);
  }

 private:
  void give(std::string piece) {
    if (!gone_) sink_(status_, std::move(piece));
  }

  const asio::any_io_executor executor_;
  const std::string request_id_;
  const InProcessServer::Sink sink_;
  int status_ = 499;  // of a client that went before an answer came
  bool gone_ = false;
  std::function<void()> on_gone_;
  std::mutex mutex_;
  bool ended_ = false;  // the server, and with it the executor, may be gone
};

asio::awaitable<void> answer(Service& service, HttpRequest request,
                             std::shared_ptr<Exchange> exchange) {
  co_await dispatch(service, find_route(request.path), request, *exchange);
  exchange->end();
}

}  // namespace

class InProcessServer::Impl {
 public:
  explicit Impl(Service& service)
      : service_(service), io_(1), work_(io_.get_executor()), thread_([this] { io_.run(); }) {}

  ~Impl() {
    service_.begin_drain();
    service_.engine().shutdown();
    // The coroutines end, and run() returns.
    work_.reset();
    thread_.join();
    service_.shutdown();
  }

  std::shared_ptr<InProcessExchange> start(HttpRequest request, Sink sink) {
    request.id = service_.make_id("req-");
    request.authorization = "Bearer " + service_.config().api_key;
    auto exchange = std::make_shared<Exchange>(io_.get_executor(), request.id, std::move(sink));
    auto answering = answer(service_, std::move(request), exchange);
    asio::co_spawn(io_, std::move(answering), asio::detached);
    return exchange;
  }

 private:
  Service& service_;
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::thread thread_;
};

InProcessServer::InProcessServer(Service& service) : impl_(std::make_unique<Impl>(service)) {}

InProcessServer::~InProcessServer() = default;

std::shared_ptr<InProcessExchange> InProcessServer::start(std::string method, std::string path,
                                                          std::string body, Sink sink) {
  HttpRequest request;
  request.method = std::move(method);
  request.target = path;
  request.path = std::move(path);
  request.body = std::move(body);
  request.client = "in process";
  return impl_->start(std::move(request), std::move(sink));
}

}  // namespace tw
