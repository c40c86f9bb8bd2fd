#include "server/grammar_fields.h"

namespace tw {
namespace {

constexpr const char* kFormats =
    "{\"type\": \"text\"}, {\"type\": \"json_object\"}, {\"type\": \"json_schema\", "
    "\"json_schema\": {\"name\": ..., \"schema\": {...}}} or {\"type\": \"structural_tag\", ...}";

// A JSON value, or its text.
std::optional<Json> json_or_text(RequestFields& fields, const std::string& name,
                                 const Json& value) {
  if (!value.is_string()) return value;
  auto json = parse_json(value.get_ref<const std::string&>(), "the text", kRequestJsonLimits);
  if (json) return std::move(*json);
  fields.fail(name, value, fmt::format("JSON or its text ({})", json.error().message));
  return std::nullopt;
}

GrammarSource json_schema(const Json& schema) {
  return {GrammarKind::json_schema, dump_json(schema)};
}

std::optional<GrammarSource> structural_tag(RequestFields& fields, const std::string& name,
                                            const Json& value) {
  const auto tag = json_or_text(fields, name, value);
  if (!tag) return std::nullopt;
  auto grammar = structural_tag_grammar(*tag);
  if (grammar) return std::move(*grammar);
  fields.fail(bad_field(fields.full_name(name),
                        fmt::format("{}: {}", fields.full_name(name), grammar.error().message)));
  return std::nullopt;
}

std::optional<GrammarSource> read_json_schema_format(RequestFields& fields, const Json& format) {
  const auto holder = format.find("json_schema");
  const Json* schema = nullptr;
  if (holder != format.end() && holder->is_object()) {
    const auto found = holder->find("schema");
    if (found != holder->end() && found->is_object()) schema = &*found;
  }
  if (schema) return json_schema(*schema);
  fields.fail("response_format.json_schema", holder == format.end() ? Json() : *holder,
              "an object with a name and, as schema, a JSON schema (an object)");
  return std::nullopt;
}

std::optional<GrammarSource> read_response_format(RequestFields& fields, const Json& format) {
  const Json type = format.is_object() ? format.value("type", Json()) : Json();
  if (type == "text") return std::nullopt;
  if (type == "json_object") return json_schema({{"type", "object"}});
  if (type == "json_schema") return read_json_schema_format(fields, format);
  if (type == "structural_tag") return structural_tag(fields, "response_format", format);
  fields.fail("response_format", format, kFormats);
  return std::nullopt;
}

std::string lark_string(const std::string& text) {
  return dump_json(Json(text));
}

}  // namespace

void read_grammar(RequestFields& fields, std::optional<GrammarSource>& grammar) {
  std::string_view first;
  const auto set = [&](std::string_view name, std::optional<GrammarSource> source) {
    if (!source) return;
    if (grammar) fields.fail(name, *fields.find(name), fmt::format("absent beside {}", first));
    first = name;
    grammar = std::move(source);
  };
  if (const Json* format = fields.find("response_format")) {
    set("response_format", read_response_format(fields, *format));
  }
  std::string text;
  if (fields.read("regex", text)) set("regex", GrammarSource{GrammarKind::regex, text});
  if (fields.read("ebnf", text)) set("ebnf", GrammarSource{GrammarKind::ebnf, text});
  if (const Json* schema = fields.find("json_schema")) {
    const auto json = json_or_text(fields, "json_schema", *schema);
    if (json && !json->is_object() && !json->is_boolean()) {
      fields.fail("json_schema", *json, "a JSON schema (an object) or its text");
    } else if (json) {
      set("json_schema", json_schema(*json));
    }
  }
  if (const Json* tag = fields.find("structural_tag")) {
    set("structural_tag", structural_tag(fields, "structural_tag", *tag));
  }
}

Expected<GrammarSource> structural_tag_grammar(const Json& tag) {
  const auto structures = tag.is_object() ? tag.find("structures") : tag.end();
  const auto triggers = tag.is_object() ? tag.find("triggers") : tag.end();
  if (structures == tag.end() || !structures->is_array() || structures->empty() ||
      triggers == tag.end() || !triggers->is_array() || triggers->empty()) {
    return error(ErrorCode::invalid_argument,
                 "it must be an object with structures and triggers, arrays that are not empty");
  }
  for (const Json& trigger : *triggers) {
    if (!trigger.is_string() || trigger.get_ref<const std::string&>().empty()) {
      return error(ErrorCode::invalid_argument, "triggers: expected strings that are not empty");
    }
  }
  // The text up to a trigger is lazy: where one is complete, nothing but its structures goes on.
  std::string rules, choices;
  for (size_t i = 0; i < triggers->size(); ++i) {
    rules += fmt::format("text_{}[suffix={}]: TEXT\n", i,
                         lark_string((*triggers)[i].get<std::string>()));
  }
  for (size_t i = 0; i < structures->size(); ++i) {
    const Json& structure = (*structures)[i];
    const std::string where = fmt::format("structures[{}]", i);
    const Json begin = structure.is_object() ? structure.value("begin", Json()) : Json();
    const Json end = structure.is_object() ? structure.value("end", Json("")) : Json();
    const Json schema = structure.is_object() ? structure.value("schema", Json::object()) : Json();
    if (!begin.is_string() || !end.is_string() || !schema.is_object()) {
      return error(ErrorCode::invalid_argument,
                   "{}: expected begin and end (strings) and schema (an object)", where);
    }
    const std::string text = begin.get<std::string>();
    const auto fits = [&](const Json& trigger) {
      return text.starts_with(trigger.get_ref<const std::string&>());
    };
    const auto trigger = std::find_if(triggers->begin(), triggers->end(), fits);
    if (trigger == triggers->end()) {
      return error(ErrorCode::invalid_argument, "{}.begin: {} begins with none of the triggers",
                   where, quote_json(begin));
    }
    const std::string rest = text.substr(trigger->get_ref<const std::string&>().size());
    choices += fmt::format("{}tag_{}", choices.empty() ? "" : " | ", i);
    rules += fmt::format("tag_{}: text_{} {} %json {} {}\n", i, trigger - triggers->begin(),
                         lark_string(rest), dump_json(schema), lark_string(end.get<std::string>()));
  }
  return GrammarSource{GrammarKind::ebnf,
                       fmt::format("start: ({})* TEXT\nTEXT: /(?s:.*)/\n{}", choices, rules)};
}

}  // namespace tw
