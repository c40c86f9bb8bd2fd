"""LiteLLM, the library behind many proxies and agents."""
import json

import litellm
import pytest

litellm.suppress_debug_info = True


@pytest.fixture
def openai_like(url, model):
    return {"model": f"openai/{model}", "api_base": url + "/v1", "api_key": "key"}


def test_chat(openai_like):
    answer = litellm.completion(messages=[{"role": "user", "content": "What is the capital of France? Answer in one sentence."}],
                                max_tokens=24, temperature=0, **openai_like)
    assert "Paris" in answer.choices[0].message.content
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_stream(openai_like):
    chunks = list(litellm.completion(messages=[{"role": "user", "content": "What is the capital of France? Answer in one sentence."}],
                                     max_tokens=24, temperature=0, stream=True,
                                     stream_options={"include_usage": True}, **openai_like))
    assert "Paris" in "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert chunks[-1].usage.completion_tokens > 0


def test_json_schema(openai_like):
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
              "additionalProperties": False}
    answer = litellm.completion(
        messages=[{"role": "user", "content": "Name a city as JSON."}], max_tokens=64, temperature=0,
        response_format={"type": "json_schema", "json_schema": {"name": "city", "schema": schema}}, **openai_like)
    assert isinstance(json.loads(answer.choices[0].message.content)["city"], str)


def test_forced_tool(openai_like):
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
    answer = litellm.completion(
        messages=[{"role": "user", "content": "What is the weather in Rome?"}], tools=tools, max_tokens=64,
        temperature=0, tool_choice={"type": "function", "function": {"name": "weather"}}, **openai_like)
    call = answer.choices[0].message.tool_calls[0]
    assert call.function.name == "weather" and "city" in json.loads(call.function.arguments)


def test_text_completion(url, model):
    answer = litellm.text_completion(model=f"text-completion-openai/{model}", prompt="The sky is", max_tokens=4,
                                     temperature=0, api_base=url + "/v1", api_key="key")
    assert answer.choices[0].text


def test_embeddings(openai_like):
    answer = litellm.embedding(input=["one", "two"], **openai_like)
    assert len(answer.data) == 2 and len(answer.data[0]["embedding"]) == len(answer.data[1]["embedding"])


def test_rerank(url, model):
    answer = litellm.rerank(model=f"hosted_vllm/{model}", query="What is blue?", documents=["the sky", "grass"],
                            top_n=1, api_base=url, api_key="key")
    assert len(answer.results) == 1 and 0 < answer.results[0]["relevance_score"] < 1
