#include "text/tool_parsers/tool_parser.h"

#include <algorithm>

namespace tw {
namespace {

// SGLang's names; several for one format where families share it.
constexpr ToolFormat kFormats[] = {
    {"deepseekv3", make_deepseek_parser, true},
    {"deepseekv31", make_deepseek_parser, true},
    {"glm", make_glm_parser, false},
    {"glm45", make_glm_parser, false},
    {"glm47", make_glm_parser, false},
    {"gpt-oss", make_harmony_parser, true},
    {"kimi_k2", make_kimi_k2_parser, true},
    {"llama3", make_llama3_parser, true},
    {"minimax-m2", make_minimax_parser, false},
    {"mistral", make_mistral_parser, true, 9},
    {"pythonic", make_pythonic_parser, true},
    {"qwen", make_qwen_parser, false},
    {"qwen25", make_qwen_parser, false},
    {"qwen3_coder", make_qwen3_coder_parser, false},
};

}  // namespace

const ToolFormat* find_tool_format(std::string_view name) {
  const auto found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                  [name](const ToolFormat& format) { return format.name == name; });
  return found == std::end(kFormats) ? nullptr : found;
}

std::string tool_format_names() {
  std::string names;
  for (const ToolFormat& format : kFormats) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", format.name);
  }
  return names;
}

ToolSchemas::ToolSchemas(const Json& tools) {
  if (!tools.is_array()) return;
  for (const Json& tool : tools) {
    const auto function = tool.is_object() ? tool.find("function") : tool.end();
    if (function == tool.end() || !function->is_object()) continue;
    const auto name = function->find("name");
    if (name == function->end() || !name->is_string()) continue;
    functions_.push_back({name->get<std::string>(), function->value("parameters", Json())});
  }
}

const ToolSchemas::Function* ToolSchemas::find(std::string_view name) const {
  const auto found =
      std::find_if(functions_.begin(), functions_.end(),
                   [name](const Function& function) { return function.name == name; });
  return found == functions_.end() ? nullptr : &*found;
}

bool ToolSchemas::has(std::string_view name) const {
  return find(name) != nullptr;
}

const Json* ToolSchemas::parameters(std::string_view function) const {
  const Function* found = find(function);
  return found && found->parameters.is_object() ? &found->parameters : nullptr;
}

const Json* ToolSchemas::parameter(std::string_view function, std::string_view name) const {
  const Json* all = parameters(function);
  if (!all) return nullptr;
  const auto properties = all->find("properties");
  if (properties == all->end() || !properties->is_object()) return nullptr;
  const auto schema = properties->find(name);
  return schema == properties->end() ? nullptr : &*schema;
}

std::string ToolSchemas::names() const {
  std::string names;
  for (const Function& function : functions_) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", function.name);
  }
  return names;
}

}  // namespace tw
