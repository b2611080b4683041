"""Laws of the server: it answers as `regard predict` does, whatever else it is asked, and refuses what it must."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import typer
from pages import ROOT, commands_in, python_in
from serving import PATIENCE, RUNS, Answer, Served, received, serving

import regard
from regard.cli.shell import app
from regard.data import world
from regard.data.tensors import read_tensors, write_tensors

TASKS = ("translation", "language", "classification", "tagging")
CLIENTS = 32
SENTENCES = [" ".join(pair.source) for pair in islice(world.pairs("test", seed=0, longest=8), CLIENTS)]
# of mixed lengths: some are many sentences long
TEXTS = [" ".join(SENTENCES[: 1 + place % 16 // 2 * (place % 3)]) for place in range(CLIENTS)]
CASES = {
    "beam search": ("translation", {}),
    "greedy": ("translation", {"beam": 1}),
    "alternatives": ("translation", {"beam": 3, "n_best": 2}),
    "sampling": ("language", {"temperature": 0.8, "max_length": 24, "seed": 5}),
    "classification": ("classification", {}),
    "tagging": ("tagging", {}),
}
# nothing that ends by itself before somebody looks
LONG = {"run": "language", "input": ["a"] * 16, "settings": {"min_length": 4096, "max_length": 4096}}
MOST = {"beam": 16, "min_length": 4096, "max_length": 4096}
LONGEST = {"run": "translation", "input": ["a"] * 64, "settings": MOST}  # minutes, on any processor
KEY = "clé-1"
TIMEOUT = 4  # seconds, of the server that is strict


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Served]:
    with serving(*(RUNS / task for task in TASKS), "--runs", folder) as served:
        yield served


@pytest.fixture(scope="module")
def strict() -> Iterator[Served]:
    with serving(RUNS / "language", RUNS / "translation", "--waiting", 2, "--timeout", TIMEOUT, key=KEY) as served:
        yield served


def wait_for(served: Served, **values: float) -> None:
    """Ask for metrics until they have these values."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if all(served.metric(name) == value for name, value in values.items()):
            return
    pytest.fail(f"{values} was never reached")


# --- answers --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def expected() -> dict[str, list[Any]]:
    """What `regard predict` answers to each text."""
    runs = {task: regard.load(RUNS / task) for task in TASKS}
    found = {}
    for case, (task, settings) in CASES.items():
        run = runs[task]
        answers = [run.predict([text], **settings)[0] for text in TEXTS]
        entries = [run.task.entry(text, answer) for text, answer in zip(TEXTS, answers, strict=True)]
        found[case] = json.loads(json.dumps(entries))
    return found


def close(found: Any, expected: Any) -> bool:
    """Whether two answers are the same, but for the last digits of numbers."""
    if isinstance(expected, float):
        return bool(found == pytest.approx(expected, abs=1e-3))
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(close(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(close, found, expected))
    return bool(found == expected)


def predicted(served: Served, case: str, text: str) -> Any:
    task, settings = CASES[case]
    answer = served.post("/v1/predict", {"run": task, "input": text, "settings": settings})
    assert answer.status == 200, answer.content
    (prediction,) = answer.json["predictions"]
    return prediction


@pytest.mark.parametrize("case", CASES)
def test_a_request_alone_gets_what_predict_gives(server: Served, expected: dict[str, list[Any]], case: str) -> None:
    for place in (0, 5, 14):
        assert close(predicted(server, case, TEXTS[place]), expected[case][place])


def test_many_requests_at_once_get_what_each_gets_alone(server: Served, expected: dict[str, list[Any]]) -> None:
    asked = [(case, place) for place in range(CLIENTS) for case in CASES]
    with ThreadPoolExecutor(CLIENTS) as pool:
        found = list(pool.map(lambda one: predicted(server, one[0], TEXTS[one[1]]), asked))
    wrong = [one for one, answer in zip(asked, found, strict=True) if not close(answer, expected[one[0]][one[1]])]
    assert wrong == []
    assert server.metric("decoding_examples_total") > 1.5 * server.metric("decoding_steps_total")  # they were together


def test_several_inputs_of_a_request_get_what_predict_gives_for_a_list(server: Served) -> None:
    run, settings = regard.load(RUNS / "language"), {"sample": True, "max_length": 12}
    answer = server.post("/v1/predict", {"run": "language", "input": TEXTS[:5], "settings": settings})
    assert [each["text"] for each in answer.json["predictions"]] == [
        each.text for each in run.predict(TEXTS[:5], **settings)
    ]


def test_scores_are_those_of_the_library(server: Served) -> None:
    pairs = [["The book was boring .", "Le livre était bon ."], ["I am", "Je"]]
    run = regard.load(RUNS / "translation")
    answer = server.post("/v1/score", {"run": "translation", "examples": pairs})
    assert answer.json["log_probs"] == pytest.approx(run.log_prob([tuple(pair) for pair in pairs]), abs=1e-3)


def test_the_pages_documentation_needs_nothing_from_elsewhere(server: Served) -> None:
    assert server.get("/openapi.json").status == 200
    assert {server.get(path).status for path in ("/docs", "/redoc")} == {404}  # which load scripts from elsewhere


# --- clients that leave ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/predict", LONG),
        ("/v1/predict", {**LONG, "run": "translation"}),
        ("/v1/completions", {"model": "language", "prompt": ["a"] * 64, "n": 16, "max_tokens": 4096, "stream": True}),
        ("/v1/completions", {"model": "language", "prompt": ["a"] * 64, "n": 16, "max_tokens": 4096, "stop": "§"}),
    ],
)
def test_a_client_that_is_killed_leaves_nothing_behind(server: Served, path: str, body: Any) -> None:
    wait_for(server, requests_open=0, work_open=0)
    steps = server.metric("decoding_steps_total")
    connection = server.send("POST", path, body)
    wait_for(server, requests_open=1, work_open=1)
    assert connection.sock is not None
    connection.sock.close()
    connection.close()
    wait_for(server, requests_open=0, work_open=0)
    assert server.metric("decoding_steps_total") - steps < 3000  # the decode did not go to its end


def test_a_stream_that_is_closed_in_the_middle_ends_the_decode(server: Served) -> None:
    body = {"model": "language", "prompt": ["a"] * 64, "n": 16, "max_tokens": 4096, "stream": True}
    connection = server.send("POST", "/v1/completions", body)
    response = connection.getresponse()
    assert response.readline().startswith(b"data: {")
    assert server.metric("work_open") == 1
    steps = server.metric("decoding_steps_total")
    response.close()
    connection.close()
    wait_for(server, requests_open=0, work_open=0)
    assert server.metric("decoding_steps_total") - steps < 1000


# --- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "names"),
    [
        ("/v1/predict", {"run": "translation", "input": ["a"] * 65}, "1 to 64 inputs"),
        ("/v1/predict", {"run": "translation", "input": []}, "1 to 64 inputs"),
        ("/v1/predict", {"run": "translation", "input": "a", "settings": {"beam": 17}}, "beam = 17"),
        ("/v1/predict", {"run": "language", "input": "a", "settings": {"max_length": 4097}}, "max_length = 4097"),
        ("/v1/predict", {"run": "translation", "input": "a", "settings": {"shortlist": 10}}, "shortlist"),
        ("/v1/predict", {"run": "tagging", "input": "a", "settings": {"beam": 2}}, "does not write text"),
        ("/v1/completions", {"model": "language", "prompt": "a", "n": 17}, "n is 17"),
        ("/v1/completions", {"model": "language", "prompt": "a", "max_tokens": 4097}, "max_tokens is 4097"),
        ("/v1/embeddings", {"model": "language", "input": ["a"] * 65}, "1 to 64 inputs"),
        ("/v1/embeddings", {"model": "translation", "input": "a " * 1001}, "more than 1000 tokens"),
        ("/translate", {"q": "a\n" * 65, "source": "en", "target": "fr"}, "65 lines"),
        ("/translate", {"q": "a " * 1001, "source": "en", "target": "fr"}, "more than 1000 tokens"),
        ("/translate", {"q": "a", "source": "en", "target": "fr", "alternatives": 16}, "alternatives = 16"),
        ("/v1/look", {"run": "translation", "input": "a " * 1001}, "more than 1000 tokens"),
        ("/v1/score", {"run": "language", "examples": ["a " * 5000]}, "more than 4096 tokens"),
    ],
)
def test_a_request_for_too_much_is_refused(server: Served, path: str, body: Any, names: str) -> None:
    answer = server.post(path, body)
    assert answer.status == 400 and names in answer.error


@pytest.mark.parametrize("path", ["/v1/predict", "/translate", "/v1/completions"])
def test_a_body_that_is_too_large_is_refused_whether_or_not_its_length_is_given(server: Served, path: str) -> None:
    headers = {"content-type": "application/json"}
    announced = server.ask("POST", path, b"", {**headers, "content-length": "9000000"})
    chunks = (b" " * (1 << 16) for _ in range(200))
    assert [answer.status for answer in (announced, server.ask("POST", path, chunks, headers))] == [413, 413]


def test_requests_beyond_those_that_may_wait_are_asked_to_come_later(strict: Served) -> None:
    wait_for(strict, requests_open=0)
    waiting = [strict.send("POST", "/v1/predict", LONGEST) for _ in range(2)]
    wait_for(strict, requests_open=2)
    refused = strict.post("/v1/completions", {"model": "language", "prompt": "a"})
    assert refused.status == 429 and int(refused.headers["retry-after"]) >= 1
    assert refused.json["error"]["type"] == "rate_limit_error"
    assert strict.get("/health").status == 200
    for connection in waiting:  # and these take too long
        answer = received(connection)
        assert answer.status == 503 and int(answer.headers["retry-after"]) >= 1
        connection.close()
    wait_for(strict, requests_open=0, work_open=0)
    assert strict.post("/v1/completions", {"model": "language", "prompt": "a", "max_tokens": 2}).status == 200


# --- who may ask ----------------------------------------------------------------------------------------------------


def test_every_route_needs_the_key_but_those_without_secrets(strict: Served) -> None:
    paths = strict.get("/openapi.json").json["paths"]
    assert len(paths) > 10
    open_to_all = {"/health", "/languages"}
    for path, methods in paths.items():
        for method in methods:
            for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Bearer "}):
                answer = Served(strict.process, strict.host, strict.port).ask(
                    method.upper(), path, b"{}" if method == "post" else None, headers
                )
                assert (answer.status == 401) != (path in open_to_all), path
    assert strict.get("/").status == 200


Q = {"q": "I am", "source": "en", "target": "fr"}


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_key_may_have_any_characters(strict: Served, encoding: str) -> None:
    keyless = Served(strict.process, strict.host, strict.port)
    for key, status in ((KEY, 200), (KEY[:-1], 401)):
        sent = f"Bearer {key}".encode(encoding).decode("latin-1")  # as which http.client writes it
        assert keyless.get("/v1/models", {"authorization": sent}).status == status


@pytest.mark.parametrize("name", ["api_key", "apiKey"])
def test_libretranslates_clients_send_the_key_in_the_body(strict: Served, name: str) -> None:
    keyless = Served(strict.process, strict.host, strict.port)
    assert keyless.post("/translate", {**Q, name: KEY}).status == 200
    form = "&".join(f"{key}={value}" for key, value in {**Q, name: "cl%C3%A9-1"}.items()).encode()
    assert keyless.ask("POST", "/translate", form, {"content-type": "application/x-www-form-urlencoded"}).status == 200
    for wrong in ("", "clé-2", None, 1, ["clé-1"], {"": KEY}, "\ud800", KEY + "\0"):
        assert keyless.post("/translate", {**Q, name: wrong}).status == 401, wrong
    assert keyless.post("/detect", {"q": "a", name: KEY}).status == 400
    assert keyless.post("/v1/completions", {"model": "language", "prompt": "a", name: KEY}).status == 401
    assert keyless.ask("POST", "/translate", b"[]", {"content-type": "application/json"}).status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "attacker.example"},
        {"host": "127.0.0.1.attacker.example:80"},
        {"host": ""},
        {"origin": "http://attacker.example"},
        {"origin": "null"},
        {"origin": "https://127.0.0.1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_requests_from_elsewhere_are_refused(server: Served, headers: dict[str, str]) -> None:
    for path in ("/v1/runs", "/metrics", "/languages", "/health"):
        assert server.get(path, headers).status == 403
    assert server.post("/v1/predict", {"run": "tagging", "input": "a"}, headers).status == 403


def test_the_page_itself_may_ask_and_a_link_to_it_may_be_anywhere(server: Served) -> None:
    own = {"origin": server.url, "sec-fetch-site": "same-origin"}
    assert server.post("/v1/predict", {"run": "tagging", "input": "a"}, own).status == 200
    assert server.get("/", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}).status == 200


def test_what_is_sent_cannot_be_taken_for_a_page(server: Served) -> None:
    answer = server.post("/v1/predict", {"run": "tagging", "input": "<script>alert(1)</script>"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in answer.headers


TRICKS = ["../translation", "..", ".", "", "/etc", str(RUNS / "translation"), "translation/", "translation\0", "~", "*"]


@pytest.mark.parametrize("name", TRICKS)
def test_no_name_of_a_run_leads_to_another_path(server: Served, name: str) -> None:
    assert server.post("/v1/predict", {"run": name, "input": "a"}).status == 404
    assert server.post("/v1/completions", {"model": name, "prompt": "a"}).status == 404


@pytest.mark.parametrize(
    "name", ["..%2ftranslation", "%2e%2e", "..%5ctranslation", "%2fetc", "translation%00", "%c0%ae"]
)
def test_no_path_leads_out_of_the_runs(server: Served, name: str) -> None:
    for path in (f"/v1/runs/{name}", f"/v1/runs/{name}/training", f"/v1/models/{name}", f"/page/{name}", f"/{name}"):
        assert server.get(path).status == 404, path


# --- runs -----------------------------------------------------------------------------------------------------------


def models(served: Served) -> set[str]:
    return {model["id"] for model in served.get("/v1/models").json["data"]}


def complete(served: Served, run: str) -> Answer:
    return served.post("/v1/completions", {"model": run, "prompt": "The man", "temperature": 0, "max_tokens": 8})


def test_a_run_that_appears_is_served_and_one_that_changes_is_loaded_again(server: Served, folder: Path) -> None:
    assert complete(server, "later").status == 404
    shutil.copytree(RUNS / "language", folder / "later")
    assert "later" in models(server)
    before = complete(server, "later")
    assert before.json["choices"] == complete(server, "language").json["choices"]
    weights = folder / "later" / "model.safetensors"
    tensors, facts = read_tensors(weights)
    write_tensors(weights, {name: tensor.flip(0) for name, tensor in tensors.items()}, facts)
    assert complete(server, "later").json["choices"] != before.json["choices"]
    shutil.rmtree(folder / "later")
    assert complete(server, "later").status == 404 and "later" not in models(server)


@pytest.mark.parametrize("key", ["name", "cell"])
def test_a_run_in_the_folder_cannot_bring_code(server: Served, folder: Path, tmp_path: Path, key: str) -> None:
    shutil.copytree(RUNS / "translation", folder / "theirs")
    code = tmp_path / "code.py"
    code.write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n")
    config = folder / "theirs" / "config.toml"
    own = str(code) if key == "name" else f"{code}:Cell"
    config.write_text(re.sub(rf'(?ms)(^\[model\].*?^{key} = )"[^"]*"', rf'\1"{own}"', config.read_text()))
    try:
        answer = server.post("/v1/predict", {"run": "theirs", "input": "a"})
        assert answer.status == 400 and "code of your own" in answer.error
        assert server.get("/v1/runs").status == 200 and server.get("/languages").status == 200
        assert not (tmp_path / "executed").exists()
    finally:
        shutil.rmtree(folder / "theirs")


def test_a_run_in_the_folder_does_not_show_the_files_that_its_recipe_names(
    server: Served, folder: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("hidden words\n" * 20)
    shutil.copytree(RUNS / "language", folder / "theirs")
    config = folder / "theirs" / "config.toml"
    data = f'[data]\nname = "text"\ntrain = "{secret}"\nvalid = "{secret}"\n\n[tokens]'
    config.write_text(re.sub(r"(?s)\[data\].*?\[tokens\]", lambda _: data, config.read_text()))
    try:
        for path in ("/v1/runs", "/v1/runs/theirs", "/v1/runs/theirs/examples", "/v1/runs/theirs/training"):
            answer = server.get(path)
            assert answer.status == 200 and b"hidden" not in answer.content, path
        assert server.get("/v1/runs/language/examples").json["examples"]
    finally:
        shutil.rmtree(folder / "theirs")


def test_a_run_that_is_a_link_or_damaged_does_not_end_the_server(server: Served, folder: Path) -> None:
    (folder / "link").symlink_to(RUNS / "language")
    (folder / "damaged").mkdir()
    (folder / "damaged" / "config.toml").write_bytes(b"\xff[data")
    try:
        assert complete(server, "link").status == 404
        assert server.post("/v1/predict", {"run": "damaged", "input": "a"}).status == 400
        assert {server.get(path).status for path in ("/v1/runs", "/v1/models", "/languages")} == {200}
    finally:
        (folder / "link").unlink()
        shutil.rmtree(folder / "damaged")


# --- docs/serving.md --------------------------------------------------------------------------------------------------

ADDRESS = "http://127.0.0.1:8080"
COMMANDS = commands_in("serving.md")
CURL = [command for command in COMMANDS if command.startswith("curl ")]


@pytest.fixture
def demo(server: Served, folder: Path) -> Iterator[Served]:
    """The server with the run that the page names."""
    shutil.copytree(RUNS / "translation", folder / "demo")
    yield server
    shutil.rmtree(folder / "demo")


@pytest.mark.parametrize("command", CURL)
def test_a_request_of_the_page_is_answered(demo: Served, command: str) -> None:
    assert ADDRESS in command
    program, *arguments = shlex.split(command.replace(ADDRESS, demo.url))
    done = subprocess.run([program, "--silent", "--show-error", "--fail-with-body", *arguments], capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    if "metrics" in command:
        assert b"# TYPE regard_requests_total counter" in done.stdout
    elif '"stream": true' in command:
        assert done.stdout.startswith(b"data: {") and done.stdout.endswith(b"data: [DONE]\n\n")
    else:
        assert json.loads(done.stdout)


def test_the_python_of_the_page_runs(demo: Served, capsys: pytest.CaptureFixture[str]) -> None:
    libre, client = python_in("serving.md")
    for block in (libre, client):
        exec(compile(block.replace(ADDRESS, demo.url), "docs/serving.md", "exec"), {})
        assert capsys.readouterr().out.strip()


def test_the_commands_of_the_page_are_understood(tmp_path: Path) -> None:
    others = [shlex.split(command) for command in COMMANDS if command not in CURL]
    command = typer.main.get_group(app).commands["serve"]
    assert len(others) >= 5 and {tuple(words[:2]) for words in others} == {("regard", "serve")}
    for _, _, *arguments in others:
        command.make_context("serve", arguments)


def test_the_image_serves_a_folder_of_runs_as_an_ordinary_user() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    (entry,) = (json.loads(line.removeprefix("ENTRYPOINT ")) for line in lines if line.startswith("ENTRYPOINT "))
    context = typer.main.get_group(app).commands["serve"].make_context("serve", entry[2:])
    assert (str(context.params["runs"]), context.params["host"]) == ("/runs", "0.0.0.0")
    copied = [name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]]
    assert all((ROOT / name).exists() and f"!{name}" in (ROOT / ".dockerignore").read_text() for name in copied)
    assert lines.index("USER regard") < lines.index(f"ENTRYPOINT {json.dumps(entry)}")


# --- the end, which the strict server is asked for last ---------------------------------------------------------------


@pytest.mark.slow
def test_sigterm_refuses_what_takes_too_long() -> None:
    with serving(RUNS / "translation") as served:
        connection = served.send("POST", "/v1/predict", LONGEST)
        wait_for(served, work_open=1)
        served.process.send_signal(signal.SIGTERM)
        answer = received(connection)
        assert answer.status == 503 and "retry-after" in answer.headers
        assert served.process.wait(PATIENCE) == 0


def test_sigterm_finishes_what_is_under_way(strict: Served) -> None:
    wait_for(strict, requests_open=0)
    body = {**LONG, "settings": {"min_length": 300, "max_length": 300}}
    connection = strict.send("POST", "/v1/predict", body)
    found: list[Answer] = []
    reader = threading.Thread(target=lambda: found.append(received(connection)))
    wait_for(strict, requests_open=1, work_open=1)
    strict.process.send_signal(signal.SIGTERM)
    reader.start()
    reader.join()
    assert found[0].status == 200 and len(found[0].json["predictions"]) == 16
    assert strict.process.wait(10) in (0, 128 + signal.SIGTERM)
