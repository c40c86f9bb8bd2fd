#!/usr/bin/env python3
"""Writes tests/text/golden/chat_templates.json: what chat templates render in the environment that
transformers sets up for them.

Needs transformers (and its jinja2) from PyPI and the templates of tools/fetch_tokenizers.sh.
"""
import datetime
import json
import pathlib
import sys

from transformers.utils import chat_template_utils

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CACHE = ROOT / ".cache/tokenizers"
NOW = 1_753_956_000  # 2025-07-31 10:00 UTC: the same day in nearly all time zones

SMOLLM2 = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""

# What templates in the field use, each in a small one of our own.
FEATURES = {
    "tojson": """{{ value|tojson }}
{{ value|tojson(indent=2) }}
{{ value | tojson(sort_keys=true, separators=(',', ':')) }}
{{ value|tojson(ensure_ascii=true) }}
{{ []|tojson(indent=4) }} {{ {}|tojson(indent=4) }} {{ [[]]|tojson(indent=1) }}
{{ ['<b>', "it's & \\"q\\""]|tojson }} {{ '<&>'|tojson }}""",
    "printing": """{{ true }} {{ none }} {{ 1.0 }} {{ 3 }} {{ 10 / 4 }} {{ 7 // 2 }} {{ 2 ** 10 }}
{{ ['a', 1, none, true, 1.5] }} {{ {'k': 'v', 'n': [1, 2]} }} {{ ("a", "b") }} {{ missing }}|
{{ 'x' ~ 1 ~ none ~ true }} {{ "quote's" }} {{ ["quote's", 'dq"'] }}""",
    "blocks": """{% if true %}
  yes
{% endif %}
    {% for x in [1, 2, 3] %}
    {{ x }},
    {% endfor %}
  {%- if false -%} no {%- else -%}  trimmed  {%- endif -%}
    {# a comment #}
end
{% raw %}{{ not rendered }}{% endraw %}
""",
    "loops": """{%- for m in messages -%}
{{ loop.index }}/{{ loop.length }} {{ loop.first }} {{ loop.last }} {{ loop.revindex0 }} {{ loop.previtem.role if loop.previtem is defined else '-' }} {{ loop.nextitem.role if loop.nextitem is defined else '-' }} {{ loop.cycle('a', 'b') }}
{% endfor %}
{%- for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x > 5 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in [] %}never{% else %}empty{% endfor %}
{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}
{% for k, v in {'b': 1, 'a': 2}|dictsort %}{{ k }}={{ v }};{% endfor %}
{% for m in messages if m.role == 'user' %}{{ m.content }};{% endfor %}
{% for k in {'x': 1, 'y': 2} %}{{ k }}{% endfor %}""",
    "namespace": """{% set ns = namespace(n=0, found=false, parts=[]) %}
{% for m in messages %}{% set ns.n = ns.n + 1 %}{% if m.role == 'user' %}{% set ns.found = true %}{% endif %}{% set ns.parts = ns.parts + [m.role] %}{% endfor %}
{{ ns.n }} {{ ns.found }} {{ ns.parts | join('+') }}
{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{% endfor %}{{ x }}
{% set block %}captured {{ x }}{% endset %}{{ block | upper }}""",
    "macros": """{% macro call(name, args={}, last=false) %}
<{{ name }}>{{ args | tojson }}{% if last %}!{% endif %}
{% endmacro %}
{{ call('a') }}{{ call('b', {'x': [1]}, last=true) }}
{%- macro rec(n) %}{{ n }}{% if n > 0 %}{{ rec(n - 1) }}{% endif %}{% endmacro %}
{{ rec(5) }}{% macro noargs() %}{{ caller is defined }}{% endmacro %}{{ noargs() }}""",
    "strings": """{{ '  a b '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ '\\n\\na'.lstrip('\\n') }}|{{ 'a  '.rstrip() }}|{{ 'a,b,c'.split(',') }}|{{ 'a,b,c'.split(',', 1) }}|{{ ' a  b '.split() }}|{{ 'a</think>b'.split('</think>')[-1] }}
{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'bc')) }} {{ 'abc'.upper() }} {{ 'ABC'.lower() }} {{ 'hello world'.title() }} {{ 'hello'.capitalize() }} {{ 'aXbX'.replace('X', '-') }} {{ 'aXbX'.replace('X', '-', 1) }} {{ 'abcabc'.count('bc') }} {{ 'abc'.find('c') }} {{ '-'.join(['a', 'b']) }}
{{ 'a::b::c'.rsplit('::', 1) }} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }} {{ 'k=v=w'.partition('=') }} {{ 'k=v=w'.rpartition('=') }} {{ 'none'.partition('=') }}
{{ '%s has %d' | format('a', 3) }} {{ '{} {x}'.format(1, x=2) if false else 'skip' }} {{ 'a\\nb'.splitlines() }} {{ 'Hi' * 3 }} {{ 'bc' in 'abcd' }} {{ 'é😀'|length }}""",
    "slices": """{{ 'abcdef'[1:3] }} {{ 'abcdef'[::-1] }} {{ 'abcdef'[-2:] }} {{ 'abcdef'[0] }}
{{ [1, 2, 3, 4][::-1] }} {{ [1, 2, 3, 4][1:] }} {{ [1, 2, 3, 4][:-1] }} {{ [1, 2, 3, 4][::2] }} {{ messages[1:]|length }} {{ messages[-1].role }} {{ messages[::-1][0]['content'] }}""",
    "tests": """{{ x is defined }} {{ messages is defined }} {{ none is none }} {{ 'a' is string }} {{ 1 is number }} {{ {} is mapping }} {{ [] is iterable }} {{ 'a' is iterable }} {{ [] is sequence }} {{ {} is sequence }} {{ true is true }} {{ 1 is true }} {{ 3 is odd }} {{ 4 is divisibleby 2 }} {{ 'a' is in ['a'] }} {{ 2 is eq 2 }} {{ true is boolean }} {{ 1 is integer }} {{ 1.5 is float }} {{ x is undefined }} {{ messages[0].missing is defined }} {{ not x }} {{ 'role' in messages[0] }} {{ x is not defined or x }}""",
    "filters": """{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|list }} {{ messages|rejectattr('role', 'equalto', 'user')|list|length }} {{ messages|map(attribute='role')|join(', ') }} {{ [3, 1, 2]|sort }} {{ [1, 2]|sum }} {{ [1, 2, 2]|unique|list }} {{ 'abc'|first }} {{ [1, 2]|last }} {{ [1, 2]|reverse|list }} {{ missing|default('d') }} {{ ''|default('d', true) }} {{ 'a b'|replace(' ', '_') }} {{ '  x '|trim }} {{ 'x\\ny'|indent(2) }} {{ 'x\\ny'|indent(2, true) }} {{ -3|abs }} {{ '12'|int + 1 }} {{ '1.5'|float }} {{ 2.567|round(1) }} {{ [1, 2, 3]|length }} {{ 'abc'|upper }} {{ 'a'|string }} {{ {'a': 1}|items|list }} {{ [[1, 2], [3]]|map('first')|list }} {{ [1, 2, 3, 4]|select('odd')|list }} {{ ['b', 'A']|sort }} {{ 'hello world'|capitalize }} {{ 'x'|safe }} {{ '<'|e }} {{ [1,2,3]|batch(2)|list }} {{ 'a-b'|title }} {{ [{'n': 2}, {'n': 1}]|sort(attribute='n')|map(attribute='n')|list }} {{ [1, 5, 3]|max }} {{ [4, 2]|min }}""",
    "expressions": """{{ 'a' if true else 'b' }} {{ 'a' if false }}| {{ 1 < 2 < 3 }} {{ 1 if none else 2 }} {{ (1, 2)[1] }} {{ {'a': {'b': 1}}.a.b }} {{ {'a': 1}['a'] }} {{ {'a': 1}.get('b', 'dflt') }} {{ {'a': 1}.get('b') }} {{ [1] + [2] }} {{ 5 % 3 }} {{ -1 }} {{ not true }} {{ true and 'x' }} {{ '' or 'y' }} {{ {'a': 1}.keys()|list }} {{ {'a': 1}.values()|list }} {{ dict(a=1, b=2).b }} {{ 1 == 1.0 }} {{ 'a' != 'b' }} {{ none == none }} {{ [1, 2] == [1, 2] }} {{ 'abc' < 'abd' }} {{ messages[0]['role'] ~ '!' }}""",
    "generation": """{% for m in messages %}
{% if m.role == 'assistant' %}
{% generation %}
{{ m.content }}<end>
{% endgeneration %}
{% else %}
{{ m.role }}: {{ m.content }}
{% endif %}
{% endfor %}
{%- generation -%}  {% set inner = 1 %}x  {%- endgeneration -%}
{{ inner is defined }}""",
    "date": """{{ strftime_now('%d %b %Y') }} {{ strftime_now("%Y-%m-%d") }} {% if strftime_now is defined %}yes{% endif %} {{ strftime_now('%B %A %j') }}""",
    "specials": """{{ bos_token }}{{ eos_token }}{{ pad_token }}|{{ bos_token is defined }}|{{ pad_token is defined }}""",
}

CHAT = [
    {"role": "system", "content": "You are helpful."},
    {"role": "user", "content": "  What's <b>2+2</b> & 3?\n"},
    {"role": "assistant", "content": "It's \"4\"."},
    {"role": "user", "content": "Danke! 你好 😀"},
]
SHORT = [{"role": "user", "content": "Hi"}]
THINKING = [
    {"role": "user", "content": "Why?"},
    {"role": "assistant", "content": "<think>\nHmm.\n</think>\n\nBecause."},
    {"role": "user", "content": "And?"},
    {"role": "assistant", "reasoning_content": "Let me see", "content": "Well"},
]
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather's <state> & \"more\"",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "Stadt, z.B. Köln"},
        "days": {"type": "integer", "default": 1, "minimum": 0.5}}, "required": ["city"]}}}]


def tool_chat(arguments, content):
    return [
        {"role": "user", "content": "Weather in Köln and Paris?"},
        {"role": "assistant", "content": content, "tool_calls": [
            {"id": "a1", "type": "function", "function": {"name": "get_weather",
                                                          "arguments": arguments("Köln")}},
            {"id": "a2", "type": "function", "function": {"name": "get_weather",
                                                          "arguments": arguments("Paris")}}]},
        {"role": "tool", "tool_call_id": "a1", "content": "{\"c\": 21}"},
        {"role": "tool", "tool_call_id": "a2", "content": "rain"},
    ]


def as_object(city):
    return {"city": city, "days": 2, "f": 1.0, "e": 1e-7}


def as_text(city):
    return json.dumps({"city": city}, ensure_ascii=False)


def parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


def special_tokens(config):
    values = {}
    for name, value in config.items():
        if name.endswith("_token") and isinstance(value, (str, dict)):
            values[name] = value if isinstance(value, str) else value["content"]
    return values


class FixedDate(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, tz)


def render(template, tokens, case):
    compiled = chat_template_utils._compile_jinja_template(template)
    variables = {**tokens, **case.get("extra", {})}
    return compiled.render(messages=case["messages"], tools=case.get("tools"), documents=None,
                           add_generation_prompt=case.get("add_generation_prompt", False),
                           **variables)


def cases():
    prompts = [("chat", {"messages": CHAT, "add_generation_prompt": True}),
               ("open", {"messages": CHAT}),
               ("short", {"messages": SHORT, "add_generation_prompt": True})]
    tool_object = {"messages": tool_chat(as_object, ""), "tools": TOOLS,
                   "add_generation_prompt": True}
    by_template = {
        "qwen3": prompts + [
            ("tools", tool_object),
            ("thinking", {"messages": THINKING}),
            ("no_thinking", {"messages": SHORT, "add_generation_prompt": True,
                             "extra": {"enable_thinking": False}})],
        "llama3_1": prompts,
        "deepseek_v3": prompts + [
            ("tools", {"messages": tool_chat(as_text, None), "tools": TOOLS,
                       "add_generation_prompt": True})],
        "gemma3": prompts + [
            ("parts", {"messages": [{"role": "user", "content": parts("a ", "b")}],
                       "add_generation_prompt": True})],
    }
    for name, some in by_template.items():
        config = json.loads((CACHE / name / "tokenizer_config.json").read_text())
        for label, case in some:
            yield name, None, special_tokens(config), label, case
    for label, case in prompts:
        yield "smollm2", SMOLLM2, {}, label, case
    value = {"b": "ä<>&'\"\\/\n\t\x01\u2028😀", "a": [1, 1.0, 1e16, 1.5e-7, -0.0, True, None], "n": {}}
    for name, template in FEATURES.items():
        yield name, template, {"bos_token": "<s>", "eos_token": "</s>"}, "feature", {
            "messages": CHAT, "extra": {"value": value}}


def main():
    chat_template_utils.datetime = FixedDate
    lines = []
    for name, template, tokens, label, case in cases():
        source = template
        if source is None:
            source = json.loads((CACHE / name / "tokenizer_config.json").read_text())[
                "chat_template"]
        entry = {"name": name, "case": label}
        if template is not None:
            entry["template"] = template
        entry.update(special_tokens=tokens, **case)
        entry["expected"] = render(source, tokens, case)
        lines.append(json.dumps(entry, ensure_ascii=False))
    content = f'{{"now": {NOW}, "cases": [\n' + ",\n".join(lines) + "\n]}\n"
    (ROOT / "tests/text/golden/chat_templates.json").write_text(content)


if __name__ == "__main__":
    sys.exit(main())
