"""/tokenize and /detokenize."""


def test_there_and_back(api):
    answer = api.post("/tokenize", {"prompt": "Hello, wörld!"}).json()
    assert answer["count"] == len(answer["tokens"]) > 0
    assert answer["max_model_len"] > 0
    assert api.post("/detokenize", {"tokens": answer["tokens"]}).json()["text"] == "Hello, wörld!"


def test_batches(api):
    answer = api.post("/v1/tokenize", {"prompt": ["a", "b c"]}).json()
    assert answer["count"] == [len(tokens) for tokens in answer["tokens"]]
    texts = api.post("/v1/detokenize", {"tokens": answer["tokens"]}).json()["text"]
    assert texts == ["a", "b c"]


def test_bad_requests(api):
    assert api.post("/tokenize", {}).status == 400
    assert api.post("/tokenize", {"prompt": 5}).status == 400
    assert api.post("/detokenize", {"tokens": ["x"]}).status == 400
    assert api.post("/detokenize", {}).status == 400
