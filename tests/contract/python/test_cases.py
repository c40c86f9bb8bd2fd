"""The cases in ../cases: a request, and what the answer must be like."""
import json

import pytest

from case_files import case_names, differences, load_case


@pytest.mark.parametrize("name", case_names())
def test_case(api, model, name):
    request, expected = load_case(name, model)
    body = request.get("text", request.get("body"))
    reply = api.request(request.get("method", "POST"), request["path"], body,
                        request.get("headers"))
    found = {"status": reply.status, "headers": reply.headers}
    if "events" in expected:
        found["events"] = reply.events() if reply.status == 200 else reply.body.decode()
    if "body" in expected:
        found["body"] = json.loads(reply.body)
    if "text" in expected:
        found["text"] = reply.body.decode()
    problems = differences(expected, found)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("expected,found,num_differences", [
    ({"a": 1}, {"a": 1, "b": 2}, 0),
    ({"a": 1}, {"b": 2}, 1),
    ({"a": "<absent>"}, {"b": 2}, 0),
    ({"a": "<absent>"}, {"a": None}, 1),
    ({"a": True}, {"a": 1}, 1),
    ({"a": "<integer>"}, {"a": True}, 1),
    ({"a": "<integer>"}, {"a": 1.0}, 1),
    ({"a": "<number>"}, {"a": 1.5}, 0),
    ({"a": "<text>"}, {"a": ""}, 1),
    ({"a": "<contains b c>"}, {"a": "a b c d"}, 0),
    ({"a": "<matches x+>"}, {"a": "xxy"}, 1),
    ([1, "...", 3], [1, 3], 0),
    ([1, "...", 3], [1, 2, 2, 3], 0),
    ([1, "...", 3], [1, 2, 4], 1),
    ([1, 2], [1, 2, 3], 1),
    ([], {}, 1),
])
def test_the_comparison_itself(expected, found, num_differences):
    assert len(differences(expected, found)) == num_differences
