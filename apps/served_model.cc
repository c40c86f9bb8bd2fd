#include "apps/served_model.h"

#include <filesystem>

#include "apps/pooling_choice.h"
#include "hub/model_id.h"

namespace tw {
namespace {

std::string default_name(const std::string& model_path) {
  std::filesystem::path path(model_path);
  std::error_code ignored;
  if (parse_model_id(model_path) && !std::filesystem::exists(path, ignored)) return model_path;
  if (!path.has_filename()) path = path.parent_path();
  const std::string name = path.filename().string();
  return path.extension() == ".gguf" ? path.stem().string() : name;
}

template <typename Format>
Expected<const Format*> find_format(const char* flag, const std::string& name,
                                    const Format* (*find)(std::string_view),
                                    const std::string& known) {
  if (name.empty()) return nullptr;
  if (const Format* format = find(name)) return format;
  return error(ErrorCode::invalid_argument, "{} {}: unknown; there are {}", flag, name, known);
}

Expected<const ToolFormat*> tool_format(const std::string& name) {
  return find_format("--tool-call-parser", name, find_tool_format, tool_format_names());
}

Expected<const ReasoningFormat*> reasoning_format(const std::string& name) {
  return find_format("--reasoning-parser", name, find_reasoning_format, reasoning_format_names());
}

}  // namespace

void ServedModelOptions::add_to(CLI::App& command) {
  const auto option = [&](const char* flags, std::string& value, const std::string& help) {
    command.add_option(flags, value, help)->capture_default_str()->group("Server");
  };
  option("--served-model-name", name,
         "Name in /v1/models (default: the hub's name, or the name of the model's file or folder)");
  option("--tool-call-parser", tool_call_parser,
         "Format in which the model writes tool calls: " + tool_format_names());
  option("--reasoning-parser", reasoning_parser,
         "Format of the model's reasoning, which then comes as reasoning_content: " +
             reasoning_format_names());
  option("--pooling", pooling,
         "Which hidden states /v1/embeddings answers: " + pooling_names() +
             "; auto: as the folder's 1_Pooling/config.json says, else last");
}

Status ServedModelOptions::check() const {
  if (const auto tools = tool_format(tool_call_parser); !tools) {
    return tl::unexpected(tools.error());
  }
  if (const auto reasoning = reasoning_format(reasoning_parser); !reasoning) {
    return tl::unexpected(reasoning.error());
  }
  return check_pooling(pooling);
}

Expected<ServedModel> make_served_model(const ServedModelOptions& options,
                                        const ModelOptions& model_options,
                                        const ModelSession& session) {
  if (Status status = options.check(); !status) return forward_error(status);
  const auto pooling = choose_pooling(options.pooling, *session.checkpoint);
  if (!pooling) return tl::unexpected(pooling.error());
  const bool chat = session.chat_template.has_value();
  return ServedModel{
      .name = options.name.empty() ? default_name(model_options.model_path) : options.name,
      .path = model_options.model_path,
      .tokenizer = *session.tokenizer,
      .chat_template = chat ? &*session.chat_template : nullptr,
      .chat_template_problem = session.chat_template_problem,
      .generation_config = session.checkpoint->generation_config(),
      .architecture = session.checkpoint->config().value("model_type", ""),
      .tool_format = *tool_format(options.tool_call_parser),
      .reasoning_format = *reasoning_format(options.reasoning_parser),
      .pooling = *pooling,
      .limits = session.limits};
}

Status load_adapters(const ModelOptions& options, Adapters& adapters) {
  const auto paths = adapter_paths(options);
  if (!paths) return tl::unexpected(paths.error());
  for (const auto& [name, folder] : *paths) {
    if (Status status = adapters.load(name, folder); !status) return status;
  }
  return {};
}

}  // namespace tw
