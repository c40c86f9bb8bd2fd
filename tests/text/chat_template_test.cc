// Chat templates against what transformers renders, and templates and messages that are bad.
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <ctime>

#include "text/golden_data.h"

namespace tw {
namespace {

Json parse(std::string_view json) {
  auto parsed = parse_json(json, "test");
  EXPECT_TRUE(parsed) << parsed.error().message;
  return *parsed;
}

ChatTemplate compile(std::string_view source) {
  auto compiled = ChatTemplate::compile(source, nullptr);
  EXPECT_TRUE(compiled) << compiled.error().message;
  return *compiled;
}

const Json kHi = Json::array({{{"role", "user"}, {"content", "Hi"}}});

std::string render(std::string_view source, const Json& messages = kHi) {
  auto text = compile(source).render(messages, nullptr, false);
  return text ? *text : "error: " + text.error().message;
}

TEST(ChatTemplate, RendersAsTransformers) {
  const Json golden = test::read_golden("chat_templates.json");
  EXPECT_GE(golden["cases"].size(), 30u);
  for (const Json& entry : golden["cases"]) {
    const std::string name = entry["name"].get<std::string>();
    const auto config = test::read_asset(name, "tokenizer_config.json");
    if (!entry.contains("template")) TW_REQUIRE_ASSET(config);
    const std::string source = entry.contains("template")
                                   ? entry["template"].get<std::string>()
                                   : parse(*config)["chat_template"].get<std::string>();
    const auto compiled = ChatTemplate::compile(source, entry["special_tokens"]);
    ASSERT_TRUE(compiled) << name << ": " << compiled.error().message;
    const auto text =
        compiled->render(entry["messages"], entry.value("tools", Json(nullptr)),
                         entry.value("add_generation_prompt", false),
                         entry.value("extra", Json(nullptr)), golden["now"].get<int64_t>());
    ASSERT_TRUE(text) << name << ": " << text.error().message;
    EXPECT_EQ(*text, entry["expected"].get<std::string>()) << name << " " << entry["case"];
  }
}

TEST(ChatTemplate, TakesSpecialTokensFromATokenizerConfig) {
  const auto compiled = ChatTemplate::compile(
      "{{ bos_token }}|{{ eos_token }}|{{ pad_token is defined }}|{{ tokenizer_class is defined }}",
      parse(R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false},
                "pad_token": null, "tokenizer_class": "X", "chat_template": "x"})"));
  ASSERT_TRUE(compiled);
  EXPECT_EQ(*compiled->render(kHi, nullptr, false), "<s>|</s>|False|False");
}

TEST(ChatTemplate, ExtraVariablesDoNotReplaceTheConversation) {
  const ChatTemplate compiled = compile("{{ messages[0].content }} {{ flag }}");
  EXPECT_EQ(*compiled.render(kHi, nullptr, false, parse(R"({"flag": 1, "messages": []})")), "Hi 1");
}

TEST(ChatTemplate, TakesTheClockWhenNoTimeIsGiven) {
  std::time_t now = std::time(nullptr);
  std::tm local;
  localtime_r(&now, &local);
  const int year = local.tm_year + 1900;
  const std::string text = render("{{ strftime_now('%Y') }}");
  EXPECT_TRUE(text == std::to_string(year) || text == std::to_string(year + 1)) << text;
}

TEST(ChatTemplate, NamesTheLineOfASyntaxError) {
  const std::pair<const char*, const char*> cases[] = {
      {"ok\n{% if x %}\nfoo\n", "line 3"}, {"a\n\n{{ 1 + }}", "line 3"},
      {"{% frobnicate %}", "line 1"},      {"{{ 'open", "line 1"},
      {"{% endfor %}", "line 1"},
  };
  for (const auto& [source, line] : cases) {
    const auto compiled = ChatTemplate::compile(source, nullptr);
    ASSERT_FALSE(compiled) << source;
    EXPECT_EQ(compiled.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(compiled.error().message.find(line), std::string::npos) << compiled.error().message;
  }
  EXPECT_FALSE(ChatTemplate::compile("\xff", nullptr));
}

TEST(ChatTemplate, PassesOnWhatTheTemplateRaises) {
  const ChatTemplate compiled = compile("x\n{{ raise_exception('Roles must alternate!') }}");
  const auto text = compiled.render(kHi, nullptr, false);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(text.error().message, "chat template: line 2: Roles must alternate!");
}

TEST(ChatTemplate, ReportsWhatFailsWhileRendering) {
  for (const char* source :
       {"{{ missing.attribute }}", "{{ messages[0].content + 1 }}", "{{ nothing() }}",
        "{{ 'a' | nofilter }}", "{{ 1 / 0 }}", "{{ messages | tojson(bogus=1) }}",
        "{{ missing | tojson }}", "{{ 'a'.nomethod() }}", "{{ strftime_now('%') }}",
        "{% include 'etc/passwd' %}"}) {
    const auto compiled = ChatTemplate::compile(source, nullptr);
    if (!compiled) continue;
    const auto text = compiled->render(kHi, nullptr, false);
    ASSERT_FALSE(text) << source << " gave " << *text;
    EXPECT_EQ(text.error().code, ErrorCode::invalid_argument) << source;
  }
}

// Each ends with an error, in bounded time and memory: without bounds, none would end.
TEST(ChatTemplate, StopsHostileTemplates) {
  for (const char* source : {
           "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
           "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
           "{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
           "{{ 'x' * 1000000000000 }}",
           "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(99999) %}{% set ns.s = ns.s + "
           "ns.s %}{% endfor %}",
           "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = "
           "ns.s.replace('x', 'xxxx') %}{% endfor %}",
           "{% set ns = namespace(l=[1]) %}{% for i in range(25) %}{% set ns.l = ns.l + ns.l %}"
           "{% endfor %}{{ ns.l | tojson }}",
           "{{ '%1000000000d' | format(1) }}",
           "{{ range(1000000000) | list }}",
           "{{ messages | tojson(indent=1000000000) * 1000000 }}",
       }) {
    const auto compiled = ChatTemplate::compile(source, nullptr);
    if (!compiled) continue;
    const auto text = compiled->render(kHi, nullptr, false);
    ASSERT_FALSE(text) << source << " gave " << text->size() << " bytes";
    EXPECT_EQ(text.error().code, ErrorCode::invalid_argument) << source;
  }
}

TEST(ChatTemplate, RefusesWhatIsNestedTooDeep) {
  std::string nested;
  for (int i = 0; i < 20000; ++i) nested += '(';
  EXPECT_FALSE(ChatTemplate::compile("{{ " + nested, nullptr));
  std::string blocks;
  for (int i = 0; i < 20000; ++i) blocks += "{% if true %}";
  EXPECT_FALSE(ChatTemplate::compile(blocks, nullptr));
  Json deep = "x";
  for (int i = 0; i < 300; ++i) deep = Json::array({deep});
  const auto text =
      compile("{{ messages | tojson }}")
          .render(Json::array({{{"role", "user"}, {"content", deep}}}), nullptr, false);
  EXPECT_FALSE(text);
}

// A list in a list in a list ... would overflow the stack when it is freed or printed.
TEST(ChatTemplate, StandsListsNestedByALoop) {
  const std::string loop =
      "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor "
      "%}";
  for (const char* end : {"done", "{{ ns.l | tojson }}", "{{ ns.l }}", "{{ ns.l == [ns.l] }}",
                          "{{ ns.l | string | length }}"}) {
    const auto text = compile(loop + end).render(kHi, nullptr, false);
    if (text) {
      EXPECT_LT(text->size(), 1000000u);
    }
  }
}

TEST(ChatTemplate, LongConversationsHaveEnoughFuel) {
  const ChatTemplate compiled = compile(
      "{% for m in messages %}{% if m.role == 'user' %}<u>{{ m.content | trim }}{% else %}<a>{{ "
      "m.content | tojson }}{% endif %}{% endfor %}");
  Json messages = Json::array();
  for (int i = 0; i < 20000; ++i) {
    messages.push_back({{"role", i % 2 ? "assistant" : "user"}, {"content", "abc"}});
  }
  EXPECT_TRUE(compiled.render(messages, nullptr, false));
  messages[0]["content"] = std::string(4 << 20, 'x');
  EXPECT_TRUE(compiled.render(messages, nullptr, false));
}

TEST(ChatTemplate, RejectsWrongTypes) {
  const ChatTemplate compiled = compile("x");
  EXPECT_FALSE(compiled.render("hi", nullptr, false));
  EXPECT_FALSE(compiled.render(nullptr, nullptr, false));
  EXPECT_FALSE(compiled.render(Json::array({1}), nullptr, false));
  EXPECT_FALSE(compiled.render(kHi, "tools", false));
  EXPECT_FALSE(compiled.render(kHi, nullptr, false, Json::array()));
  EXPECT_EQ(compiled.render(Json::array({kHi[0], 1}), nullptr, false).error().message,
            "messages[1]: must be an object, found number");
}

// ---- The forms of messages ----

constexpr std::string_view kStringTemplate =
    "{% for m in messages %}{{ '[' + m['role'] + ']' + m['content'] }}{% endfor %}";
constexpr std::string_view kPartsTemplate =
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in "
    "m.content %}{% if p.type == 'text' %}({{ p.text }}){% else %}<{{ p.type }}>{% endif %}{% "
    "endfor %}{% endif %}{% endfor %}";

TEST(ChatMessages, PartsBecomeTextWhereTheTemplateReadsStrings) {
  const Json messages = parse(R"([{"role": "user", "content": [
    {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])");
  EXPECT_EQ(render(kStringTemplate, messages), "[user]a\nb");
  EXPECT_EQ(render("{{ messages[0].content }}", messages), "a\nb") << "not the array's repr";
  EXPECT_EQ(render(kPartsTemplate, messages), "(a)(b)");
  EXPECT_FALSE(compile(kStringTemplate).forms().content_parts);
  EXPECT_TRUE(compile(kPartsTemplate).forms().content_parts);
}

TEST(ChatMessages, OtherPartsAreRefusedWhereTheTemplateReadsStrings) {
  const Json messages = parse(R"([{"role": "user", "content": [
    {"type": "image_url", "image_url": {"url": "x"}}]}])");
  const auto text = compile(kStringTemplate).render(messages, nullptr, false);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(text.error().message.find("image_url"), std::string::npos);
  EXPECT_EQ(render(kPartsTemplate, messages), "<image_url>");
  EXPECT_FALSE(compile(kStringTemplate)
                   .render(parse(R"([{"role": "user", "content": [1]}])"), nullptr, false));
}

TEST(ChatMessages, NullsAreLeftOutAndContentIsWhatTheTemplateStands) {
  const Json messages = parse(R"([{"role": "user", "content": "x", "name": null},
    {"role": "assistant", "content": null, "tool_calls": null, "refusal": null}, {"role": "user"}])");
  EXPECT_EQ(render("{% for m in messages %}{{ m.keys() | join(',') }};{% endfor %}", messages),
            "role,content;role,content;role,content;");
  EXPECT_EQ(render(kStringTemplate, messages), "[user]x[assistant][user]");
  EXPECT_EQ(render("{% for m in messages %}{{ m.content }}.{% endfor %}", messages), "x...");
}

constexpr std::string_view kObjectArguments =
    "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}{% for k, v in "
    "c.function.arguments.items() %}{{ k }}={{ v | tojson }};{% endfor %}{% endfor %}{% endfor %}";
constexpr std::string_view kTextArguments =
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ 'call ' + c.function.arguments "
    "}}{% endfor %}{% endfor %}";

TEST(ChatMessages, ArgumentsComeInTheFormThatTheTemplateReads) {
  const Json as_text = parse(R"([{"role": "user", "content": "q"},
    {"role": "assistant", "content": null, "tool_calls": [
    {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": [1, 2.0]}"}}]}])");
  Json as_object = as_text;
  as_object[1]["tool_calls"][0]["function"]["arguments"] = parse(R"({"a": [1, 2.0]})");
  for (const Json& messages : {as_text, as_object}) {
    EXPECT_EQ(render(kObjectArguments, messages), "qa=[1, 2.0];");
  }
  EXPECT_EQ(render(kTextArguments, as_text), "call {\"a\": [1, 2.0]}");
  EXPECT_EQ(render(kTextArguments, as_object), "call {\"a\":[1,2.0]}");
}

TEST(ChatMessages, FormsOfRealTemplates) {
  struct Case {
    const char* name;
    ChatTemplateForms forms;
  };
  for (const auto& [name, forms] :
       {Case{"qwen3", {.content_parts = false, .null_content = false, .argument_objects = true}},
        Case{"deepseek_v3",
             {.content_parts = false, .null_content = true, .argument_objects = false}},
        Case{"gemma3", {.content_parts = true, .null_content = false, .argument_objects = true}},
        Case{"llama3_1",
             {.content_parts = false, .null_content = false, .argument_objects = true}}}) {
    const auto config = test::read_asset(name, "tokenizer_config.json");
    TW_REQUIRE_ASSET(config);
    const Json json = parse(*config);
    const auto compiled = ChatTemplate::compile(json["chat_template"].get<std::string>(), json);
    ASSERT_TRUE(compiled) << compiled.error().message;
    EXPECT_EQ(compiled->forms().content_parts, forms.content_parts) << name;
    EXPECT_EQ(compiled->forms().null_content, forms.null_content) << name;
    EXPECT_EQ(compiled->forms().argument_objects, forms.argument_objects) << name;
  }
}

}  // namespace
}  // namespace tw
