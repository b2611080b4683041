"""Programs that know nothing of regard use its server: LibreTranslate's and OpenAI's clients, as they are published."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import numpy as np
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from libretranslatepy import LibreTranslateAPI
from serving import RUNS, Served, serving

import regard
from regard.run import Run
from regard.serve.completions import Stops
from regard.serve.libretranslate import Lines

SENTENCES = ["The book was boring .", "The old man is not good .", "Anna slept in the zoo ."]
KEY = "a key"
NODE_MODULES = Path(__file__).parent / "node_modules"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two translators between other languages, a language model and a classifier, behind a key."""
    german = tmp_path_factory.mktemp("runs") / "german"
    shutil.copytree(RUNS / "translation", german)
    names = [RUNS / "translation", german, RUNS / "language", RUNS / "classification"]
    with serving(*names, "--languages", "german=en:de", key=KEY) as served:
        yield served


@pytest.fixture(scope="module")
def translator() -> Run:
    return regard.load(RUNS / "translation")


@pytest.fixture(scope="module")
def language() -> Run:
    return regard.load(RUNS / "language")


# --- LibreTranslate -------------------------------------------------------------------------------------------------


@pytest.fixture
def libre(server: Served) -> LibreTranslateAPI:
    return LibreTranslateAPI(server.url, KEY)


@pytest.mark.parametrize("source", ["en", "auto"])
def test_libretranslatepy_translates(libre: LibreTranslateAPI, translator: Run, source: str) -> None:
    for sentence in SENTENCES:
        assert libre.translate(sentence, source, "fr") == translator.predict(sentence).text


def test_libretranslatepy_lists_languages_by_name(libre: LibreTranslateAPI) -> None:
    assert libre.languages() == [
        {"code": "en", "name": "English", "targets": ["fr", "de"]},
        {"code": "fr", "name": "French", "targets": []},
        {"code": "de", "name": "German", "targets": []},
    ]


def test_libretranslatepy_is_answered_with_a_status_and_a_sentence_where_it_asks_for_the_impossible(
    server: Served, libre: LibreTranslateAPI
) -> None:
    for asked, status in (
        (lambda: libre.translate("I am", "fr", "en"), 400),
        (lambda: libre.detect("I am"), 400),
        (lambda: LibreTranslateAPI(server.url).translate("I am", "en", "fr"), 401),
    ):
        with pytest.raises(HTTPError) as refused:
            asked()
        with refused.value as answer:
            assert answer.status == status and isinstance(json.loads(answer.read())["error"], str)


def node(script: str, **values: str) -> Any:
    """Run a module in node, which prints JSON."""
    if shutil.which("node") is None or not (NODE_MODULES / "libretranslate").is_dir():
        missing = "no node, or no packages for it: make tests/node_modules/.ready"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    command = ["node", "--input-type=module", "--eval", script]
    done = subprocess.run(
        command, cwd=NODE_MODULES.parent, env={**os.environ, **values}, capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_npm_libretranslate_translates_and_refuses_languages_that_are_not_there(
    server: Served, translator: Run
) -> None:
    script = """
        import { translate } from "libretranslate";
        const ask = (query, source, target) =>
            translate({ query, source, target, apiurl: process.env.URL, apiKey: process.env.KEY });
        const refused = await ask("a", "en", "nl").catch((error) => error.message);
        const sentences = JSON.parse(process.env.SENTENCES);
        const found = await Promise.all(sentences.map((each) => ask(each, undefined, "fr")));
        console.log(JSON.stringify({ found, refused, keyless: await translate(
            { query: "a", source: "en", target: "fr", apiurl: process.env.URL }) ?? null }));
    """
    answers = node(script, URL=server.url, KEY=KEY, SENTENCES=json.dumps(SENTENCES))
    assert answers["found"] == [translator.predict(sentence).text for sentence in SENTENCES]
    assert "language" in answers["refused"] and answers["keyless"] is None


def ask(server: Served, **values: Any) -> Any:
    answer = server.post("/translate", {"source": "en", "target": "fr", **values})
    assert answer.status == 200, answer.content
    return answer.json


def test_lines_are_read_without_their_ends_wherever_they_were_written() -> None:
    assert Lines("one\r\n\r\n  \n two\n").filled == {0: "one", 3: " two"}


def test_texts_keep_their_lines_and_lists_their_order(server: Served, translator: Run) -> None:
    first, second, third = (translator.predict(sentence).text for sentence in SENTENCES)
    text = f"{SENTENCES[0]}\r\n\n  \n{SENTENCES[1]}"
    assert ask(server, q=text) == {"translatedText": f"{first}\n\n\n{second}"}
    assert ask(server, q=SENTENCES, source="auto") == {
        "translatedText": [first, second, third],
        "detectedLanguage": [{"language": "en", "confidence": 0.0}] * 3,
    }
    assert ask(server, q="", format="html") == {"translatedText": ""}


def test_alternatives_are_the_rest_of_the_n_best_list(server: Served, translator: Run) -> None:
    answer = translator.predict(SENTENCES[0], n_best=3)
    found = ask(server, q=SENTENCES[0], alternatives=2)
    assert found == {"translatedText": answer.text, "alternatives": [other.text for other in answer.alternatives]}
    many = ask(server, q=[SENTENCES[0], "", "\n".join(SENTENCES[:2])], alternatives=2)["alternatives"]
    assert many[:2] == [found["alternatives"], []] and all(text.count("\n") == 1 for text in many[2])


FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("body", "headers", "names"),
    [
        (b"source=en&target=fr", FORM, "q"),
        (b"q=a&q=b&source=en&source=de&target=fr", FORM, "source"),
        (b"q=a&source=en&target=fr&alternatives=many", FORM, "alternatives"),
        (b"q=a&source=en&target=fr&format=pdf", FORM, "format"),
        (b"q=\xff", FORM, "urlencoded"),
        (b"--x", {"content-type": "multipart/form-data; boundary=x"}, "multipart/form-data"),
        (b"{", {"content-type": "application/json"}, "JSON"),
        (b"[" * 100_000, {"content-type": "application/json"}, "JSON"),
        (b'"text"', {"content-type": "application/json"}, "JSON object"),
        ({"q": {}, "source": "en", "target": "fr"}, {}, "q"),
        ({"q": "a", "source": "xx", "target": "fr"}, {}, "en:fr, en:de"),
        ({"q": "a", "source": "en", "target": "en"}, {}, "not supported"),
    ],
)
def test_a_request_that_is_wrong_is_refused_and_says_where(
    server: Served, body: Any, headers: dict[str, str], names: str
) -> None:
    answer = server.post("/translate", body, headers)
    assert answer.status == 400 and isinstance(answer.json["error"], str) and names in answer.error


# --- OpenAI ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


PROMPT = "The man"


def test_openai_completes_a_prompt_with_what_predict_samples(client: openai.OpenAI, language: Run) -> None:
    how: dict[str, Any] = {"seed": 7, "temperature": 0.8, "top_p": 0.9}
    found = client.completions.create(
        model="language", prompt=[PROMPT, "I am"], n=2, max_tokens=12, **how, extra_body={"top_k": 7}
    )
    expected = language.predict([PROMPT, "I am"], n_best=2, max_length=12, **how, top_k=7)
    texts = [one.text for best in expected for one in (best, *best.alternatives)]
    assert [choice.text for choice in found.choices] == [
        text[len(prompt) :] for prompt, text in zip([PROMPT] * 2 + ["I am"] * 2, texts, strict=True)
    ]
    tokens = [one.tokens for best in expected for one in (best, *best.alternatives)]
    reasons = ["length" if len(each) == 12 else "stop" for each in tokens]
    assert [choice.finish_reason for choice in found.choices] == reasons and len(set(reasons)) == 2
    written = sum(min(12, len(each) + 1) for each in tokens)
    read = sum(1 + len(language.tokenizer("target").encode(prompt)) for prompt in (PROMPT, "I am"))
    assert found.usage is not None
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (read, written)
    assert found.usage.total_tokens == read + written


def test_openai_completes_greedily_at_temperature_0(client: openai.OpenAI, language: Run) -> None:
    found = client.completions.create(model="language", prompt=PROMPT, temperature=0, max_tokens=20, n=3, echo=True)
    assert [each.text for each in found.choices] == [
        language.predict(PROMPT, beam=1, sample=False, max_length=20).text
    ] * 3
    assert [each.index for each in found.choices] == [0, 1, 2]


def test_openai_gets_another_sample_each_time_but_with_a_seed(client: openai.OpenAI) -> None:
    def sampled(**options: Any) -> str:
        return client.completions.create(model="language", prompt=PROMPT, max_tokens=30, **options).choices[0].text

    assert len({sampled() for _ in range(5)}) > 1
    assert len({sampled(seed=-3) for _ in range(3)}) == 1


@pytest.mark.parametrize(("echo", "n"), [(False, 1), (True, 3)])
def test_openai_streams_the_text_that_comes_without_streaming(
    server: Served, client: openai.OpenAI, echo: bool, n: int
) -> None:
    asked = {"model": "language", "prompt": [PROMPT, "I am"], "n": n, "seed": 5, "max_tokens": 15, "echo": echo}
    whole = client.completions.create(**asked)
    texts, reasons, events = [""] * 2 * n, [""] * 2 * n, 0
    usage = None
    for event in client.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        usage, events = event.usage, events + 1
        for choice in event.choices:
            texts[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason or ""
    assert sorted(texts[:n]) == sorted(choice.text for choice in whole.choices[:n])  # those are ranked
    assert sorted(texts[n:]) == sorted(choice.text for choice in whole.choices[n:])
    assert sorted(reasons) == sorted(choice.finish_reason for choice in whole.choices)
    assert events > 4 * n and usage == whole.usage
    raw = server.post("/v1/completions", {**asked, "stream": True})
    assert raw.headers["content-type"].startswith("text/event-stream") and raw.content.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("stop", [" ", ["§", "e"], "zzz"])
def test_openai_stops_before_a_stop_sequence(client: openai.OpenAI, stop: Any, stream: bool) -> None:
    asked = {"model": "language", "prompt": PROMPT, "temperature": 0, "max_tokens": 40}
    unstopped = client.completions.create(**asked)
    whole = unstopped.choices[0].text
    places = [whole.find(each) for each in ([stop] if isinstance(stop, str) else stop) if each in whole]
    found = client.completions.create(**asked, stop=stop, stream=stream)
    choices = [choice for event in found for choice in event.choices] if stream else found.choices
    assert "".join(choice.text for choice in choices) == whole[: min(places, default=None)]
    assert choices[-1].finish_reason == ("stop" if places else unstopped.choices[0].finish_reason)
    if places and not stream:
        assert found.usage.completion_tokens < unstopped.usage.completion_tokens  # the decode ended there


@given(pieces=st.lists(st.text("ab", max_size=3)), stops=st.lists(st.text("ab", min_size=1, max_size=3), max_size=2))
def test_a_stop_sequence_is_found_however_the_text_is_cut(pieces: list[str], stops: list[str]) -> None:
    found = Stops(stops)
    shown = "".join([found.feed(piece) for piece in pieces]) + found.held
    text = "".join(pieces)
    assert text.startswith(shown) and not any(stop in shown for stop in stops)
    assert found.found == any(stop in text for stop in stops)
    if len(stops) == 1 or not found.found:
        assert shown == text.partition(stops[0] if stops else "\0")[0]


def test_openai_gets_the_answer_of_a_run_that_does_not_continue(client: openai.OpenAI, translator: Run) -> None:
    asked = {"model": "translation", "prompt": [*SENTENCES, ""]}
    expected = [answer.text for answer in translator.predict([*SENTENCES, ""])]
    found = client.completions.create(**asked)
    assert [choice.text for choice in found.choices] == expected
    events = list(client.completions.create(**asked, stream=True))
    texts = ["".join(c.text for e in events for c in e.choices if c.index == place) for place in range(4)]
    assert texts == expected
    best = client.completions.create(model="translation", prompt=SENTENCES[0], n=2, best_of=2).choices
    answer = translator.predict(SENTENCES[0], n_best=2)
    assert [choice.text for choice in best] == [answer.text, answer.alternatives[0].text]
    stopped = client.completions.create(model="translation", prompt=SENTENCES[0], stop=" ").choices[0]
    assert (stopped.text, stopped.finish_reason) == (expected[0].split()[0], "stop")


@pytest.mark.parametrize("model", ["language", "translation", "classification"])
def test_openai_embeds(client: openai.OpenAI, model: str) -> None:
    run = regard.load(RUNS / model)
    vectors = run.embed(SENTENCES)
    usual = client.embeddings.create(model=model, input=SENTENCES)  # which asks for base64
    floats = client.embeddings.create(
        model=model, input=SENTENCES, encoding_format="float", dimensions=vectors.shape[1]
    )
    for found in (usual, floats):
        assert np.array([each.embedding for each in found.data]) == pytest.approx(vectors, abs=1e-4)
        assert [each.index for each in found.data] == [0, 1, 2]
        assert found.usage.prompt_tokens == sum(map(len, run.tokenizer().encode_all(SENTENCES)))
    one = client.embeddings.create(model=model, input=SENTENCES[1])
    assert one.data[0].embedding == pytest.approx(vectors[1].tolist(), abs=1e-4)


def test_openai_lists_models_and_describes_one(client: openai.OpenAI) -> None:
    listed = client.models.list().data
    assert [model.id for model in listed] == ["translation", "german", "language", "classification"]
    assert client.models.retrieve("german") == listed[1] and listed[1].owned_by == "regard"
    with pytest.raises(openai.NotFoundError) as missing:
        client.models.retrieve("gpt-4")
    assert missing.value.code == "model_not_found" and "choose one of translation, german" in str(missing.value)


def test_openai_is_refused_a_chat_with_the_remedy(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="language", messages=[{"role": "user", "content": "Hello"}])
    assert "/v1/completions" in str(refused.value) and refused.value.type == "invalid_request_error"


@pytest.mark.parametrize(
    ("param", "options"),
    [
        ("suffix", {"suffix": "."}),
        ("logprobs", {"logprobs": 0}),
        ("best_of", {"best_of": 2}),
        ("presence_penalty", {"presence_penalty": 0.1}),
        ("frequency_penalty", {"frequency_penalty": -1}),
        ("logit_bias", {"logit_bias": {"5": 1}}),
        ("stream_options", {"stream_options": {"include_usage": True}}),
        ("temperature", {"temperature": 3}),
        ("temperature", {"temperature": "hot"}),
        ("top_p", {"top_p": 0}),
        ("n", {"n": 0}),
        ("max_tokens", {"max_tokens": 0}),
        ("seed", {"seed": 1 << 64}),
        ("stop", {"stop": ["a", "b", "c", "d", "e"]}),
        ("stop", {"stop": ""}),
        ("prompt", {"prompt": [1, 2]}),
        ("prompt", {"prompt": []}),
        ("prompt", {"prompt": None}),
        ("model", {"model": "classification"}),
        ("echo", {"echo": True, "model": "translation"}),
        ("min_p", {"extra_body": {"min_p": 0.1}}),
    ],
)
def test_openai_is_refused_what_would_be_ignored_and_the_parameter_is_named(
    client: openai.OpenAI, param: str, options: dict[str, Any]
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(**{"model": "language", "prompt": PROMPT, "max_tokens": 2, **options})
    assert refused.value.param == param, refused.value


@pytest.mark.parametrize(
    ("param", "options"),
    [("dimensions", {"dimensions": 3}), ("input", {"input": ""}), ("input", {"input": [[1, 2]]})],
)
def test_openai_is_refused_vectors_that_the_model_does_not_have(
    client: openai.OpenAI, param: str, options: dict[str, Any]
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(**{"model": "language", "input": PROMPT, **options})
    assert refused.value.param == param


def test_openai_without_the_key_is_not_authenticated(server: Served) -> None:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="another", max_retries=0)
    with client, pytest.raises(openai.AuthenticationError):
        client.models.list()
