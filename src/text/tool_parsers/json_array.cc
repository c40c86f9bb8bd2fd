// Forced calls (tool_choice): a grammar makes the model write them as one JSON array.
#include "text/tool_parsers/bracket_parser.h"
#include "text/tool_parsers/json_calls.h"

namespace tw {

ToolParserPtr make_json_array_parser(ToolSchemasPtr tools) {
  return std::make_unique<BracketParser>(
      BracketFormat{.open = '['}, [](std::string_view text) { return calls_from_json(text); });
}

Json forced_calls_schema(const Json& tools, std::string_view only, bool parallel) {
  const ToolSchemas schemas(tools);
  Json choices = Json::array();
  Json definitions = Json::object();
  for (const Json& tool : tools) {
    const std::string name = tool["function"]["name"].get<std::string>();
    if (!only.empty() && name != only) continue;
    const Json* given = schemas.parameters(name);
    Json parameters = given ? *given : Json{{"type", "object"}};
    // References are relative to the root of the schema, which a tool's is no longer.
    for (const char* key : {"$defs", "definitions"}) {
      const auto found = parameters.find(key);
      if (found == parameters.end() || !found->is_object()) continue;
      for (const auto& [definition, schema] : found->items()) {
        definitions[key][definition] = schema;
      }
      parameters.erase(key);
    }
    choices.push_back({{"type", "object"},
                       {"properties", {{"name", {{"const", name}}}, {"parameters", parameters}}},
                       {"required", Json::array({"name", "parameters"})},
                       {"additionalProperties", false}});
  }
  Json schema = {{"type", "array"}, {"minItems", 1}, {"items", {{"anyOf", choices}}}};
  if (!only.empty() || !parallel) schema["maxItems"] = 1;
  schema.update(definitions);
  return schema;
}

}  // namespace tw
