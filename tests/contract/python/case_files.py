"""Reads the cases in ../cases and compares answers with what they expect.

../README.md describes the format.
"""
import json
import math
import pathlib
import re

CASES = pathlib.Path(__file__).parent.parent / "cases"

TYPES = {
    "<any>": lambda value: True,
    "<string>": lambda value: isinstance(value, str),
    "<text>": lambda value: isinstance(value, str) and value != "",
    "<integer>": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "<number>": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "<boolean>": lambda value: isinstance(value, bool),
    "<object>": lambda value: isinstance(value, dict),
    "<array>": lambda value: isinstance(value, list),
}
ABSENT = object()


def case_names():
    return sorted(path.parent.name for path in CASES.glob("*/request.json"))


def fill_in(value, model):
    """Replaces <model> by the served model's name, everywhere."""
    if isinstance(value, dict):
        return {key: fill_in(entry, model) for key, entry in value.items()}
    if isinstance(value, list):
        return [fill_in(entry, model) for entry in value]
    return value.replace("<model>", model) if isinstance(value, str) else value


def load_case(name, model):
    folder = CASES / name
    request = json.loads((folder / "request.json").read_text())
    expected = json.loads((folder / "expected.json").read_text())
    unknown = set(request) - {"method", "path", "headers", "body", "text"}
    unknown |= set(expected) - {"status", "headers", "body", "text", "events"}
    assert not unknown, f"{folder}: unknown fields {sorted(unknown)}"
    return fill_in(request, model), fill_in(expected, model)


def differences(expected, found, where=""):
    """Where `found` is not what `expected` describes; empty when it is."""
    if isinstance(expected, str) and expected.startswith("<") and expected.endswith(">"):
        return placeholder_differences(expected, found, where)
    if found is ABSENT:
        return [f"{where}: missing, expected {json.dumps(expected)}"]
    if isinstance(expected, dict) and isinstance(found, dict):
        result = []
        for key, entry in expected.items():
            result += differences(entry, found.get(key, ABSENT), f"{where}.{key}")
        return result
    if isinstance(expected, list) and isinstance(found, list):
        return list_differences(expected, found, where)
    if isinstance(expected, float) and isinstance(found, (int, float)):
        same = math.isclose(expected, found, rel_tol=1e-6)
    else:
        same = type(expected) is type(found) and expected == found
    return [] if same else [f"{where}: {json.dumps(found)}, expected {json.dumps(expected)}"]


def placeholder_differences(expected, found, where):
    shown = "missing" if found is ABSENT else json.dumps(found)
    kind, _, argument = expected[1:-1].partition(" ")
    if expected == "<absent>":
        matches = found is ABSENT
    elif found is ABSENT:
        matches = False
    elif kind == "contains":
        matches = isinstance(found, str) and argument in found
    elif kind == "matches":
        matches = isinstance(found, str) and re.fullmatch(argument, found, re.DOTALL) is not None
    else:
        matches = TYPES[expected](found)
    return [] if matches else [f"{where}: {shown}, expected {expected}"]


def list_differences(expected, found, where):
    """Element by element; "..." stands for any number of them, at one place of the list."""
    if "..." not in expected:
        if len(expected) != len(found):
            return [f"{where}: {len(found)} elements, expected {len(expected)}: "
                    f"{json.dumps(found)[:500]}"]
        pairs = enumerate(zip(expected, found))
    else:
        gap = expected.index("...")
        after = len(expected) - gap - 1
        if len(found) < gap + after:
            return [f"{where}: {len(found)} elements, expected at least {gap + after}"]
        pairs = list(enumerate(zip(expected[:gap], found)))
        start = len(found) - after
        pairs += [(start + i, pair) for i, pair in enumerate(zip(expected[gap + 1:], found[start:]))]
    result = []
    for index, (pattern, entry) in pairs:
        result += differences(pattern, entry, f"{where}[{index}]")
    return result
