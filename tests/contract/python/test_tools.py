"""Tool calls, reasoning and structured output through the official client.

The small model seldom calls a tool by itself. Where a test is about what the server makes of a
text, a grammar makes the model write that text.
"""
import json
import re

import openai
import pytest

QUESTION = [{"role": "user", "content": "What is the weather in Paris?"}]
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "maxLength": 20},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
        "required": ["city", "unit"], "additionalProperties": False}}},
    {"type": "function", "function": {"name": "get_time", "parameters": {
        "type": "object", "properties": {"zone": {"enum": ["utc", "local"]}},
        "required": ["zone"], "additionalProperties": False}}}]
WRITTEN = ("<think>\nShould I look?\n</think>\n\nI look.\n<tool_call>\n"
           '{"name": "get_weather", "arguments": {"city": "Paris", "unit": "celsius"}}\n'
           '</tool_call>\n<tool_call>{"name": "get_time", "arguments": {"zone": "utc"}}</tool_call>')


def chat(client, model, **kwargs):
    kwargs.setdefault("temperature", 0)
    kwargs.setdefault("max_tokens", 250)
    return client.chat.completions.create(model=model, messages=kwargs.pop("messages", QUESTION),
                                          **kwargs)


def writes(text):
    return {"regex": re.escape(text).replace("\\ ", " ").replace("\\\n", "\\n")}


def check_weather(call):
    arguments = json.loads(call.function.arguments)
    assert call.function.name == "get_weather"
    assert set(arguments) == {"city", "unit"}
    assert arguments["unit"] in ("celsius", "fahrenheit")


class TestCalls:
    def test_whole(self, client, model):
        choice = chat(client, model, tools=TOOLS, extra_body=writes(WRITTEN)).choices[0]
        assert choice.finish_reason == "tool_calls"
        assert choice.message.reasoning_content == "Should I look?"
        assert choice.message.content.strip() == "I look."
        weather, time = choice.message.tool_calls
        check_weather(weather)
        assert json.loads(time.function.arguments) == {"zone": "utc"}
        assert weather.id != time.id and weather.type == "function"

    def test_stream(self, client, model):
        with client.chat.completions.stream(model=model, messages=QUESTION, tools=TOOLS,
                                            temperature=0, max_tokens=250,
                                            extra_body=writes(WRITTEN)) as stream:
            choice = stream.get_final_completion().choices[0]
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content.strip() == "I look."
        assert [call.function.name for call in choice.message.tool_calls] == [
            "get_weather", "get_time"]
        check_weather(choice.message.tool_calls[0])

    @pytest.mark.parametrize("choice", [
        "required", {"type": "function", "function": {"name": "get_weather"}}], ids=["any", "named"])
    def test_forced(self, client, model, choice):
        answer = chat(client, model, tools=TOOLS, tool_choice=choice,
                      parallel_tool_calls=False).choices[0]
        assert answer.finish_reason == "tool_calls"
        [call] = answer.message.tool_calls
        if choice != "required":
            check_weather(call)
        assert answer.message.content is None

    def test_a_round_trip(self, client, model):
        first = chat(client, model, tools=TOOLS, extra_body=writes(WRITTEN)).choices[0].message
        messages = [*QUESTION, first.model_dump(exclude_none=True),
                    *[{"role": "tool", "tool_call_id": call.id, "content": "12"}
                      for call in first.tool_calls]]
        assert chat(client, model, tools=TOOLS, messages=messages,
                    max_tokens=8).choices[0].message.role == "assistant"

    @pytest.mark.parametrize("field,value", [
        ("tools", [{"type": "function"}]), ("tools", [{"type": "code"}]),
        ("tool_choice", {"type": "function", "function": {"name": "nothing"}})])
    def test_bad_tools_are_named(self, client, model, field, value):
        fields = {"tools": TOOLS, field: value}
        with pytest.raises(openai.BadRequestError) as raised:
            chat(client, model, **fields)
        assert raised.value.param.startswith(field)


PERSON = {"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "maximum": 150}},
    "required": ["name", "age"], "additionalProperties": False}


class TestStructuredOutput:
    def test_json_schema(self, client, model):
        answer = chat(client, model, response_format={
            "type": "json_schema",
            "json_schema": {"name": "person", "strict": True, "schema": PERSON}}).choices[0]
        person = json.loads(answer.message.content)
        assert set(person) == {"name", "age"} and isinstance(person["age"], int)
        assert answer.finish_reason == "stop"

    def test_sampled_choices_all_fit(self, client, model):
        answer = chat(client, model, n=4, temperature=1.5, extra_body={"json_schema": PERSON})
        for choice in answer.choices:
            assert set(json.loads(choice.message.content)) == {"name", "age"}

    def test_regex_and_ebnf(self, client, model):
        text = chat(client, model, extra_body={"regex": "[0-9]{3}-[a-f]{2}"}).choices[0]
        assert re.fullmatch("[0-9]{3}-[a-f]{2}", text.message.content)
        grammar = 'root ::= item ("," item){2}\nitem ::= "(" (root | [a-z]) ")" | [0-9]'
        text = chat(client, model, extra_body={"ebnf": grammar}, max_tokens=40).choices[0]
        assert text.message.content[0] in "(0123456789"

    def test_completions(self, client, model):
        answer = client.completions.create(model=model, prompt="The year is", temperature=0,
                                           extra_body={"regex": " (19|20)[0-9]{2}"})
        assert re.fullmatch(" (19|20)[0-9]{2}", answer.choices[0].text)

    def test_native(self, api):
        answer = api.post("/generate", {"text": "A colour:", "sampling_params": {
            "temperature": 0, "regex": " (red|green)"}})
        assert answer.json()["text"] in (" red", " green")

    def test_others_in_the_batch_are_free(self, client, model):
        plain = chat(client, model, max_tokens=12).choices[0].message.content
        stream = chat(client, model, stream=True, extra_body={"regex": "a{100}"})
        next(iter(stream))
        assert chat(client, model, max_tokens=12).choices[0].message.content == plain
        stream.close()

    @pytest.mark.parametrize("fields", [
        {"regex": "("}, {"ebnf": "root ::= missing"}, {"json_schema": {"type": "nonsense"}},
        {"structural_tag": {"triggers": []}}, {"regex": "a", "ebnf": 'root ::= "a"'},
        {"regex": "a" * 300_000}], ids=lambda fields: "+".join(fields))
    def test_bad_grammars(self, client, model, fields):
        with pytest.raises(openai.BadRequestError):
            chat(client, model, extra_body=fields)


class TestResponses:
    def test_whole(self, client, model):
        answer = client.responses.create(model=model, input="Say hello.", temperature=0,
                                         max_output_tokens=8, instructions="Be brief.")
        assert answer.object == "response" and answer.output_text
        assert answer.status in ("completed", "incomplete")
        assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
        assert answer.instructions == "Be brief."

    def test_stream(self, client, model):
        whole = client.responses.create(model=model, input="Say hello.", temperature=0,
                                        max_output_tokens=8)
        with client.responses.stream(model=model, input="Say hello.", temperature=0,
                                     max_output_tokens=8) as stream:
            events = list(stream)
        assert events[0].type == "response.created"
        assert events[-1].type in ("response.completed", "response.incomplete")
        assert [event.sequence_number for event in events] == list(range(len(events)))
        text = "".join(event.delta for event in events
                       if event.type == "response.output_text.delta")
        assert text == whole.output_text

    def test_calls_and_their_results(self, client, model):
        tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
        answer = client.responses.create(model=model, input="The weather in Paris?", tools=tools,
                                         temperature=0, extra_body=writes(WRITTEN))
        assert [item.type for item in answer.output] == [
            "reasoning", "message", "function_call", "function_call"]
        call = answer.output[2]
        assert json.loads(call.arguments)["city"] == "Paris"
        items = [{"role": "user", "content": "The weather in Paris?"},
                 {"type": "function_call", "call_id": call.call_id, "name": call.name,
                  "arguments": call.arguments},
                 {"type": "function_call_output", "call_id": call.call_id, "output": "12"}]
        assert client.responses.create(model=model, input=items, max_output_tokens=4).output

    def test_format(self, client, model):
        answer = client.responses.create(
            model=model, input="A person.", temperature=0,
            text={"format": {"type": "json_schema", "name": "person", "schema": PERSON}})
        assert set(json.loads(answer.output_text)) == {"name", "age"}

    @pytest.mark.parametrize("fields", [
        {"input": 5}, {"input": []}, {"input": "x", "previous_response_id": "resp_1"},
        {"input": "x", "tools": [{"type": "web_search"}]}, {"input": [{"type": "image"}]}],
        ids=["number", "empty", "previous", "tool", "item"])
    def test_bad_requests(self, client, model, fields):
        with pytest.raises(openai.BadRequestError):
            client.responses.create(model=model, **fields)
