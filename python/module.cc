// tilewright._engine: a model with the server's endpoints inside a Python process. Requests and
// answers are JSON; tilewright/engine.py makes methods of them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "apps/model_session.h"
#include "apps/served_model.h"
#include "core/log.h"
#include "server/in_process.h"

namespace nb = nanobind;

namespace {

[[noreturn]] void raise(const tw::Error& error) {
  switch (error.code) {
    case tw::ErrorCode::not_found:
      PyErr_SetString(PyExc_FileNotFoundError, error.message.c_str());
      throw nb::python_error();
    case tw::ErrorCode::resource_exhausted:
      PyErr_SetString(PyExc_MemoryError, error.message.c_str());
      throw nb::python_error();
    case tw::ErrorCode::invalid_argument:
    case tw::ErrorCode::unsupported:
    case tw::ErrorCode::corrupt_data:
      throw nb::value_error(error.message.c_str());
    default:
      throw std::runtime_error(error.message);
  }
}

// Members are destroyed in reverse order.
class PythonEngine {
 public:
  // `arguments`: flags and values as on the command line.
  static std::unique_ptr<PythonEngine> open(std::vector<std::string> arguments) {
    tw::ModelOptions options;
    options.log.level = "warning";
    tw::ServedModelOptions served;
    CLI::App command("tilewright.Engine");
    options.add_to(command);
    options.add_adapters_to(command);
    served.add_to(command);
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    try {
      command.parse(std::move(arguments));
    } catch (const CLI::ParseError& failure) {
      throw nb::value_error(failure.what());
    }
    auto engine = [&] {
      nb::gil_scoped_release others_run;
      return load(options, served);
    }();
    if (!engine) raise(engine.error());
    return std::move(*engine);
  }

  ~PythonEngine() { close(); }

  // callback(status, piece): pieces of the answer's body, then None.
  std::shared_ptr<tw::InProcessExchange> start(std::string method, std::string path,
                                               std::string body, nb::object callback) {
    if (!server_) throw nb::value_error("the engine is shut down");
    // Where the last reference goes, the GIL must be held.
    std::shared_ptr<nb::object> shared(new nb::object(std::move(callback)), [](nb::object* object) {
      nb::gil_scoped_acquire gil;
      delete object;
    });
    nb::gil_scoped_release others_run;
    return server_->start(
        std::move(method), std::move(path), std::move(body),
        [shared](int status, std::optional<std::string> piece) { call(*shared, status, piece); });
  }

  // Ends what runs; its callbacks come before this returns.
  void close() {
    nb::gil_scoped_release callbacks_run;
    server_.reset();
    service_.reset();
    session_.reset();
  }

 private:
  static tw::Expected<std::unique_ptr<PythonEngine>> load(const tw::ModelOptions& options,
                                                          const tw::ServedModelOptions& served) {
    if (tw::Status status = tw::configure_log(options.log); !status) return forward_error(status);
    if (tw::Status status = served.check(); !status) return forward_error(status);
    auto session = tw::ModelSession::open(options);
    if (!session) return forward_error(session);
    auto engine = std::make_unique<PythonEngine>();
    engine->session_ = std::make_unique<tw::ModelSession>(std::move(*session));
    auto model = tw::make_served_model(served, options, *engine->session_);
    if (!model) return forward_error(model);
    engine->service_ = std::make_unique<tw::Service>(tw::ServerConfig(), std::move(*model),
                                                     *engine->session_->engine);
    if (tw::Status status = tw::load_adapters(options, engine->service_->adapters()); !status) {
      return forward_error(status);
    }
    engine->server_ = std::make_unique<tw::InProcessServer>(*engine->service_);
    return engine;
  }

  // On the server's thread: what a callback raises has nobody to catch it.
  static void call(const nb::object& callback, int status,
                   const std::optional<std::string>& piece) {
    nb::gil_scoped_acquire gil;
    try {
      if (piece) {
        callback(status, nb::bytes(piece->data(), piece->size()));
      } else {
        callback(status, nb::none());
      }
    } catch (nb::python_error& failure) {
      failure.discard_as_unraisable("tilewright: callback of an answer");
    }
  }

  std::unique_ptr<tw::ModelSession> session_;
  std::unique_ptr<tw::Service> service_;
  std::unique_ptr<tw::InProcessServer> server_;
};

}  // namespace

NB_MODULE(_engine, module) {
  module.doc() = "The engine with the server's endpoints; use tilewright.Engine instead.";
  module.attr("__version__") = TW_VERSION;
  nb::class_<tw::InProcessExchange>(module, "Exchange", "An answer under way.")
      .def("cancel", &tw::InProcessExchange::cancel, nb::call_guard<nb::gil_scoped_release>(),
           "Ends the request: the answer is not wanted any more.");
  nb::class_<PythonEngine>(module, "Engine")
      .def(nb::new_(&PythonEngine::open), nb::arg("arguments"),
           "Loads a model; the arguments are those of the command line.")
      .def("start", &PythonEngine::start, nb::arg("method"), nb::arg("path"), nb::arg("body"),
           nb::arg("callback"),
           "Asks an endpoint; callback(status, bytes) gets the answer in pieces, then None.")
      .def("close", &PythonEngine::close, "Ends what runs and frees the model.");
}
