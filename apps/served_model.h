// The model of a session as the server's endpoints see it, by what the user says of it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "apps/model_session.h"
#include "core/status.h"
#include "server/service.h"

namespace tw {

struct ServedModelOptions {
  std::string name;  // empty: from the model's path
  std::string tool_call_parser;
  std::string reasoning_parser;
  std::string pooling = "auto";

  void add_to(CLI::App& command);
  // What can be wrong without a model, before it is loaded.
  Status check() const;
};

// Loads what --lora-paths names.
Status load_adapters(const ModelOptions& options, Adapters& adapters);

// Refers to the session, which must outlive it.
Expected<ServedModel> make_served_model(const ServedModelOptions& options,
                                        const ModelOptions& model_options,
                                        const ModelSession& session);

}  // namespace tw
