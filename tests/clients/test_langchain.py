"""LangChain's classes for OpenAI's APIs."""
import pytest
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings


@pytest.fixture
def chat(url, model):
    return ChatOpenAI(model=model, base_url=url + "/v1", api_key="key", temperature=0, max_tokens=32)


def test_invoke_stream_and_batch(chat):
    question = "What is the capital of France? Answer in one sentence."
    answer = chat.invoke(question)
    assert "Paris" in answer.content and answer.usage_metadata["output_tokens"] > 0
    assert "".join(chunk.content for chunk in chat.stream(question)) == answer.content
    assert [reply.content for reply in chat.batch([question, question])] == [answer.content] * 2


def test_structured_output(chat):
    schema = {"title": "city", "type": "object", "properties": {"name": {"type": "string"}},
              "required": ["name"], "additionalProperties": False}
    for method in ("json_schema", "function_calling"):
        found = chat.with_structured_output(schema, method=method).invoke("Name a city.")
        assert isinstance(found["name"], str), method


def test_responses_api(url, model):
    chat = ChatOpenAI(model=model, base_url=url + "/v1", api_key="key", temperature=0, max_tokens=32,
                      use_responses_api=True)
    assert "Paris" in chat.invoke("What is the capital of France? Answer in one sentence.").text


def test_completions(url, model):
    complete = OpenAI(model=model, base_url=url + "/v1", api_key="key", temperature=0, max_tokens=8)
    assert complete.invoke("The sky is")
    assert len(complete.generate(["One", "Two"]).generations) == 2


def test_embeddings(url, model):
    embeddings = OpenAIEmbeddings(model=model, base_url=url + "/v1", api_key="key", check_embedding_ctx_length=False)
    vectors = embeddings.embed_documents(["one", "two"])
    assert len(vectors) == 2 and len(vectors[0]) == len(embeddings.embed_query("three"))
