"""Whatever is sent, the server answers, says so in its schema, and treats a text as a text."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from serving import PATIENCE, RUNS, Answer, Served, serving

from regard.data.text import encodable

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
NAMES = ["demo", "language", "classification", "tagging"]  # of the examples in the schema, and others
TEXTS = 2000  # hostile ones
LONGEST = 1 << 20
MANY = 400  # generated requests for each operation
# they refuse everything, or give events without end
REFUSE = ("/detect", "/v1/chat/completions", "/v1/runs/{run}/training/events")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    demo = tmp_path_factory.mktemp("runs") / "demo"
    shutil.copytree(RUNS / "translation", demo)
    with serving(demo, *(RUNS / name for name in NAMES[1:])) as served:
        yield served


@pytest.fixture(scope="module")
def schema(server: Served) -> Any:
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


def operations(schema: Any) -> list[Any]:
    return [each.ok() for each in schema.get_all_operations()]


def test_every_operation_has_examples_and_the_statuses_of_the_guard(schema: Any) -> None:
    found, models = schema.raw_schema["paths"], schema.raw_schema["components"]["schemas"]
    assert len(found) > 10
    for path, methods in found.items():
        for operation in methods.values():
            assert {"401", "403", "413"} <= operation["responses"].keys() and "422" not in operation["responses"], path
            for status, response in operation["responses"].items():
                assert response["description"], path
                assert all("example" in each for each in response.get("content", {}).values()), (path, status)
            for media in operation.get("requestBody", {}).get("content", {}).values():
                reference = media["schema"].get("$ref", "").rpartition("/")[2]
                assert has_examples(models[reference] if reference else media["schema"]), path


def has_examples(schema: dict[str, Any]) -> bool:
    """Whether a schema has an example, or each of its required properties has."""
    return "examples" in schema or all("examples" in schema["properties"][name] for name in schema.get("required", []))


def statuses(operation: Any, mode: GenerationMode, examples: int) -> set[int]:
    """Send generated requests, half of them for runs that exist, check the answers, and return their statuses."""
    found: set[int] = set()

    @settings(
        max_examples=examples, derandomize=examples < MANY, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy(generation_mode=mode), name=st.sampled_from([*NAMES, None]))
    def answers(case: Case, name: str | None) -> None:
        for key in ("run", "model"):
            if name and isinstance(case.body, dict) and isinstance(case.body.get(key), str):
                case.body[key] = name
            if name and key in (case.path_parameters or {}) and case.path not in REFUSE:
                case.path_parameters[key] = name
        found.add(case.call_and_validate(checks=CHECKS, timeout=PATIENCE).status_code)

    answers()
    return found


@pytest.mark.parametrize("examples", [12, pytest.param(MANY, marks=pytest.mark.slow)])
def test_valid_requests_are_answered_as_the_schema_says(schema: Any, examples: int) -> None:
    for operation in operations(schema):
        assert 200 in statuses(operation, GenerationMode.POSITIVE, examples) or operation.path in REFUSE, (
            operation.label
        )


@pytest.mark.parametrize("examples", [6, pytest.param(MANY, marks=pytest.mark.slow)])
def test_invalid_requests_are_refused_as_the_schema_says(schema: Any, examples: int) -> None:
    for operation in operations(schema):
        if operation.body:  # a path with any text in it is valid
            assert 400 in statuses(operation, GenerationMode.NEGATIVE, examples), operation.label


# --- hostile texts --------------------------------------------------------------------------------------------------

PARTS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</script><svg/onload=alert(1)>",
    "{{7*7}}${7*7}",
    "' OR 1=1 --",
    "../../etc/passwd",
    "\u202e\u2066evil\u2069\u202c",
    "\u200b\u200d\ufeff\u2060",
    "\0",
    "\x1b[31m\x07\x08\x7f",
    "\r\n\v\f\x1c\x85\u2028\u2029",
    "\t",
    "\ud800",
    "\udfff\ud800",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "e" + "\u0301" * 40,
    "\ufdfa\ufb03\u1e9b\u0323",
    "\ufffe\uffff\U0010ffff\ufffd",
    "ท้องฟ้า 天空 سماء שמיים",
    "<eos> <bos> <unk> <pad> [MASK]",
    "NaN Infinity -0 1e999",
    "x" * 300,
    "%00%2e%2e%2f",
    "The book was boring .",
    " ",
]


def hostile(count: int) -> list[str]:
    """Texts that are put together from parts which have broken programs."""
    chance = random.Random(1)
    return PARTS + ["".join(chance.choices(PARTS, k=chance.randint(1, 4))) for _ in range(count - len(PARTS))]


def held(answer: Answer) -> Any:
    """What an answer has, which is text and nothing else, whatever was sent."""
    assert answer.status in (200, 400), answer.content[:1000]
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    return answer.json


def sent(text: str) -> str:
    """A text as the server reads it from JSON, where halves of a character may become one."""
    return encodable(json.loads(json.dumps(text)))


def several(texts: list[str], count: int) -> list[list[str]]:
    return [texts[start : start + count] for start in range(0, len(texts), count)]


def test_hostile_texts_are_predicted(server: Served) -> None:
    for number, texts in enumerate(several(hostile(TEXTS), 64)):
        for name in NAMES[1 if number % 8 == 0 else 2 :]:  # a language model takes long over so many different lengths
            limits = {"max_length": 1} if name == "language" else {}
            found = held(server.post("/v1/predict", {"run": name, "input": texts, "settings": limits}))["predictions"]
            for text, answer in zip(map(sent, texts), found, strict=True):
                assert name != "language" or answer["text"].startswith(text)
                assert name != "tagging" or " ".join(answer["words"]).split() == text.split()


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_hostile_texts_are_translated(server: Served, every: int) -> None:
    pair = {"source": "en", "target": "fr"}
    for texts in several(hostile(TEXTS)[::every] + PARTS, 12):
        found = held(server.post("/translate", {"q": texts, **pair}))
        for text, translated in zip(texts, found["translatedText"], strict=True):
            assert translated.count("\n") == text.count("\n")
    for text in PARTS:
        form = urlencode({"q": sent(text), **pair}).encode()
        held(server.post("/translate", form, {"content-type": "application/x-www-form-urlencoded"}))


@pytest.mark.parametrize("every", [200, pytest.param(1, marks=pytest.mark.slow)])
def test_hostile_texts_are_looked_at(server: Served, every: int) -> None:
    for text in hostile(TEXTS)[::every] + PARTS:
        for name in NAMES[:3]:
            held(server.post("/v1/look", {"run": name, "input": text}))


MEGABYTES = ["a " * (LONGEST // 2), "a" * LONGEST]
OTHERS = ["\u0301" * (LONGEST // 2), "\n" * LONGEST]


@pytest.mark.parametrize("text", [*MEGABYTES, *(pytest.param(each, marks=pytest.mark.slow) for each in OTHERS)])
def test_a_text_of_a_megabyte_is_answered_or_refused(server: Served, text: str) -> None:
    for name in NAMES:
        limits = {"max_length": 1} if name in ("demo", "language") else {}
        held(server.post("/v1/predict", {"run": name, "input": text, "settings": limits}))
    for name in NAMES[:2]:
        held(server.post("/v1/look", {"run": name, "input": text}))
        held(server.post("/v1/completions", {"model": name, "prompt": text, "max_tokens": 1, "stop": text[:9]}))
    held(server.post("/v1/embeddings", {"model": "classification", "input": text}))
    held(server.post("/v1/score", {"run": "language", "examples": [text]}))
    held(server.post("/v1/steps", {"run": "demo", "input": text}))
    held(server.post("/translate", {"q": text, "source": "en", "target": "fr"}))


@pytest.mark.parametrize("text", PARTS)
def test_hostile_names_and_keys_are_refused(server: Served, text: str) -> None:
    for path, key in (("/v1/predict", "run"), ("/v1/completions", "model"), ("/v1/look", "run")):
        held_or_missing = server.post(path, {key: text, "input": "a", "prompt": "a"})
        assert held_or_missing.status in (400, 404) and held_or_missing.error
    assert server.post("/v1/predict", {"run": "demo", "input": "a", text: text}).status == 400
    assert server.post("/v1/predict", {"run": "demo", "input": "a", "settings": {"blank": text, text: 1}}).status == 400
    assert server.post("/translate", {"q": "a", "source": text, "target": text}).status == 400
    assert server.get(f"/v1/runs/{quote(sent(text), safe='')}").status in (404, 200 if text == " " else 404)
