"""Models in other programs: CTranslate2 and ONNX Runtime compute what the run computes, and docs/export.md says how."""

from __future__ import annotations

import errno
import io
import json
import random
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import Call
from pages import DOCS

import regard
from regard import machine
from regard.checkpoint import Folder
from regard.data.fields import Fields
from regard.data.files import write_atomically
from regard.data.tensors import write_tensors
from regard.exchange.ctranslate import export_spec
from regard.exchange.onnx_graphs import export_graphs
from regard.interface import BOS, EOS, PAD, Batch, UserError
from regard.models import design_of
from regard.recipe import parse_recipe
from regard.run import Run
from regard.tasks.registry import TASKS
from regard.train.weights import weights

ctranslate2 = pytest.importorskip("ctranslate2")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
tokenizers = pytest.importorskip("tokenizers")

FRENCH = {"one": "un", "two": "deux", "three": "trois", "four": "quatre", "five": "cinq", "six": "six"}
FRENCH |= {"nine": "neuf", "ten": "dix", "cats": "chats", "dogs": "chiens", "birds": "oiseaux", "and": "et"}
TRANSFORMER = {"name": "transformer", "dim": 16, "heads": 2, "feed_forward": 20, "layers": 2}
GPT = {**TRANSFORMER, "name": "gpt", "context": 40}
RECURRENT = {"embedding": 12, "hidden": 12}
RNNSEARCH = {"name": "rnnsearch", **RECURRENT}
TOLERANCE = 1e-4


def examples(count: int, seed: int = 1) -> list[tuple[str, str]]:
    """Word by word translations of one to six words."""
    choose = random.Random(seed)
    sentences = [choose.choices(list(FRENCH), k=choose.randint(1, 6)) for _ in range(count)]
    return [(" ".join(words), " ".join(FRENCH[word] for word in words)) for words in sentences]


PAIRS = examples(60, seed=2)
TEXTS = [source for source, _ in PAIRS]


def made(path: Path, model: dict[str, Any], task: str = "translation", **tokens: Any) -> Run:
    """A run with random weights, so large that one token is clearly the most probable; as of a trained run, it is never
    <pad> or <bos>."""
    table = {"task": task, "data": {"name": "world"}, "tokens": {"kind": "bpe", "size": 400, **tokens}, "model": model}
    recipe = parse_recipe({**table, "train": {"steps": 1}}, tasks=TASKS, folder=path.parent)
    rows = PAIRS if len(recipe.task.fields) > 1 else [(text,) for text in TEXTS]
    fields = Fields.learn(recipe.task.fields, lambda: rows, recipe.tokens, recipe.task.specials)
    torch.manual_seed(5)
    network = design_of(recipe.model_name).build(recipe.model, fields.shapes)
    with torch.no_grad():
        for name, tensor in weights(network).items():
            tensor.normal_(std=0.3)
            if name.endswith("running_var"):  # about 1, so that logits are not in the hundreds
                tensor.abs_().add_(0.7)
            if name.endswith("head.bias"):
                tensor[[PAD, BOS]] = -20.0
    folder = Folder(path)
    folder.path.mkdir()
    folder.write_facts({**machine.facts(), "files": {}, "data": "", "precision": "float32"})
    write_atomically(folder.fields, fields.to_json(), own=True)
    write_tensors(folder.best, weights(network), {"step": 1})
    write_atomically(folder.config, recipe.to_toml(placed=True), own=True)
    return regard.load(path)


def trained(path: Path, model: dict[str, Any]) -> Run:
    pairs = examples(1000)
    train = {"steps": 700, "batch_tokens": 400, "learning_rate": 0.01, "warmup": 20, "validate_every": 700}
    recipe = {"task": "translation", "tokens": {"kind": "bpe", "size": 300}, "model": {**model, "dropout": 0.0}}
    return regard.train({**recipe, "train": train}, path, data=pairs, valid=pairs[:30], progress=False)


def names_of(run: Run, side: str) -> list[str]:
    return [*run.tokenizer(side).specials, *run.tokenizer(side).vocabulary]


# --- CTranslate2 -------------------------------------------------------------------------------------------------

TRANSLATORS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # settings of the model and of the tokens
    "pre-norm": ({}, {}),
    "post-norm, untied, apart": ({"norm": "post", "tie": False, "activation": "gelu"}, {"joint": False}),
    "Marian's positions": ({"norm": "post", "positions": "sinusoidal-halves", "activation": "silu"}, {"kind": "given"}),
    "learned": ({"positions": "learned", "longest": 64, "activation": "gelu-tanh"}, {"kind": "characters"}),
    "rotary": ({"positions": "rotary", "activation": "tanh"}, {}),
    "t5": ({"positions": "t5"}, {"joint": False}),
}
LANGUAGE = {
    "gpt2": {"activation": "gelu-tanh", "scaled": False, "head_bias": False},
    "gpt1": {"norm": "post", "epsilon": 1e-2},
    "sinusoidal": {"positions": "sinusoidal", "tie": False},
    "rotary": {"positions": "rotary"},
    "alibi": {"positions": "alibi", "heads": 4},
    "t5": {"positions": "t5"},
}


def translator(folder: Path) -> Any:
    return ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)


def sources(run: Run, folder: Path, texts: list[str]) -> list[list[str]]:
    """The tokens that the exported tokenizer makes: those of the run, and <eos>."""
    read = tokenizers.Tokenizer.from_file(str(folder / "source" / "tokenizer.json"))
    found = [read.encode(text).tokens for text in texts]
    names = names_of(run, "source")
    assert found == [[names[token] for token in [*run.tokenizer("source").encode(text), EOS]] for text in texts]
    return found


@pytest.mark.parametrize("name", TRANSLATORS)
def test_ctranslate2_computes_the_same_probabilities_and_greedy_outputs(name: str, tmp_path: Path) -> None:
    model, tokens = TRANSLATORS[name]
    run = made(tmp_path / "run", TRANSFORMER | model, **tokens)
    folder = export_spec(tmp_path / "run", tmp_path / "ct2")
    theirs, read = translator(folder), sources(run, folder, TEXTS)
    names = names_of(run, "target")
    written = [[names[token] for token in run.tokenizer("target").encode(target)] for _, target in PAIRS]
    scored = theirs.score_batch(read, written)
    np.testing.assert_allclose([sum(each.log_probs) for each in scored], run.log_prob(PAIRS), rtol=0, atol=TOLERANCE)
    found = theirs.translate_batch(
        read, beam_size=1, max_decoding_length=9, min_decoding_length=0, return_scores=True, length_penalty=0
    )
    ours = run.predict(TEXTS, beam=1, max_length=9)
    write = tokenizers.Tokenizer.from_file(str(folder / "target" / "tokenizer.json"))
    assert [write.decode([names.index(token) for token in each.hypotheses[0]]) for each in found] == [
        each.text for each in ours
    ]
    np.testing.assert_allclose([each.scores[0] for each in found], [each.score for each in ours], rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", LANGUAGE)
def test_ctranslate2_continues_texts_as_a_language_model_does(name: str, tmp_path: Path) -> None:
    run = made(tmp_path / "run", GPT | LANGUAGE[name], "language")
    folder = export_spec(tmp_path / "run", tmp_path / "ct2")
    theirs = ctranslate2.Generator(str(folder), compute_type="float32", intra_threads=1)
    read = tokenizers.Tokenizer.from_file(str(folder / "target" / "tokenizer.json"))
    prompts = [read.encode(text).tokens for text in TEXTS[:20]]
    assert {prompt[0] for prompt in prompts} == {"<bos>"}
    scored = theirs.score_batch([[*prompt, "<eos>"] for prompt in prompts])
    np.testing.assert_allclose([sum(each.log_probs) for each in scored], run.log_prob(TEXTS[:20]), rtol=0, atol=1e-4)
    found = theirs.generate_batch(prompts, beam_size=1, max_length=9, min_length=0, include_prompt_in_result=False)
    ours = run.predict(TEXTS[:20], beam=1, sample=False, max_length=9)
    names = run.tokenizer("target").surface
    assert [tuple(names(each.sequences_ids[0])) for each in found] == [each.tokens for each in ours]


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_ctranslate2_translates_as_a_trained_run_does(norm: str, tmp_path: Path) -> None:
    """With patience 2: by default its beam search stops at the fourth hypothesis that ends, even if a better one goes
    on. By default, too, it renormalises the first step without <eos>."""
    run = trained(tmp_path / "run", TRANSFORMER | {"dim": 32, "feed_forward": 64, "norm": norm})
    assert run.score(PAIRS)["bleu"] > 50
    folder = export_spec(tmp_path / "run", tmp_path / "ct2")
    theirs, names = translator(folder), names_of(run, "target")
    for beam in (1, 4):
        ours = run.predict(TEXTS, beam=beam)
        read = sources(run, folder, TEXTS)
        how = {"beam_size": beam, "patience": 2, "min_decoding_length": 0}
        found = theirs.translate_batch(read, return_scores=True, **how)
        for own, other in zip(ours, found, strict=True):
            ids = [names.index(token) for token in other.hypotheses[0]]
            assert tuple(run.tokenizer("target").surface(ids)) == own.tokens
            assert other.scores[0] == pytest.approx(own.score / (len(ids) + 1), abs=1e-4)


# --- ONNX --------------------------------------------------------------------------------------------------------

NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "transformer": ("translation", TRANSFORMER),
    "post-norm, learned": ("translation", TRANSFORMER | {"norm": "post", "positions": "learned", "longest": 64}),
    "rotary": ("translation", TRANSFORMER | {"positions": "rotary", "activation": "gelu"}),
    "alibi, batch": ("translation", TRANSFORMER | {"positions": "alibi", "normalisation": "batch"}),
    "t5 positions": ("translation", TRANSFORMER | {"positions": "t5", "activation": "silu", "tie": False}),
    "t5": ("translation", TRANSFORMER | {"name": "t5"}),
    "bart": ("translation", TRANSFORMER | {"name": "bart"}),
    "rnnsearch": ("translation", RNNSEARCH),
    "rnnsearch, heads": ("translation", RNNSEARCH | {"cell": "lstm", "score": "dot", "heads": 2}),
    "rnnsearch, deep": ("translation", RNNSEARCH | {"score": "mlp", "layers": 2, "skip": "highway"}),
    "rnnsearch, kernel": ("translation", RNNSEARCH | {"score": "gaussian", "lexical": True}),
    "seq2seq": ("translation", {"name": "seq2seq", **RECURRENT}),
    "seq2seq, mean": ("translation", {"name": "seq2seq", **RECURRENT, "context": "mean", "cell": "gru-after"}),
    "convs2s": ("translation", {"name": "convs2s", **RECURRENT, "layers": 2}),
    "denoising": ("denoising", TRANSFORMER | {"name": "bart"}),
    "gpt": ("language", GPT),
    "gpt, adaptive": ("language", GPT | {"head": "adaptive", "tie": False, "positions": "rotary"}),
    "rnn_lm": ("language", {"name": "rnn_lm", **RECURRENT, "layers": 2}),
    "rnn_lm, features": ("language", {"name": "rnn_lm", **RECURRENT, "head": "features"}),
    "neural_lm": ("language", {"name": "neural_lm", **RECURRENT}),
}  # fmt: skip


def session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(path, options)


class Graphs:
    """The two graphs of a folder, which step as a model does."""

    def __init__(self, folder: Path) -> None:
        (first,) = (folder / name for name in ("encoder.onnx", "start.onnx") if (folder / name).exists())
        self.first, self.next = session(first), session(folder / "step.onnx")

    def start(self, batch: Batch) -> dict[str, Any]:
        given = {"tokens": np.full(batch.size, BOS)}
        if batch.source is not None:
            given = {"source": batch.source.values.numpy(), "mask": batch.source.mask.numpy()}
        names = [each.name for each in self.first.get_outputs()]
        return dict(zip(names, self.first.run(None, given), strict=True))

    def step(self, tokens: Any, state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        logits, *after = self.next.run(None, {"tokens": tokens, **state})
        names = [each.name.removeprefix("next.") for each in self.next.get_outputs()[1:]]
        return logits, state | dict(zip(names, after, strict=True))


def step_alike(run: Run, graphs: Graphs, texts: list[str], steps: int) -> None:
    """Decode greedily with both: logits agree at every step, and so do the tokens."""
    model: Any = run.model
    batch = (
        run.batch(source=texts, multiple=1)
        if "source" in run.fields
        else Batch.of_text(torch.full((len(texts), 1), BOS))
    )
    with torch.inference_mode():
        ours, theirs = model.start(batch), graphs.start(batch)
        tokens = torch.full((len(texts),), BOS)
        for _ in range(steps):
            logits, ours = model.step(tokens, ours)
            found, theirs = graphs.step(tokens.numpy(), theirs)
            np.testing.assert_allclose(found, logits.numpy(), rtol=0, atol=TOLERANCE)
            tokens = logits.argmax(-1)
            assert (found.argmax(-1) == tokens.numpy()).all()


FEW = [["two cats"], ["one", "five birds and nine dogs", "ten cats"], ["six dogs and four cats and one"]]


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_onnx_runtime_computes_the_same_logits_at_every_step(name: str, tmp_path: Path) -> None:
    """Batches of one and three, with padding; lengths that the graphs were not traced with."""
    task, model = NETWORKS[name]
    run = made(tmp_path / "run", model, task)
    graphs = Graphs(export_graphs(tmp_path / "run", tmp_path / "onnx"))
    for texts in FEW:
        step_alike(run, graphs, texts, steps=20)


@pytest.fixture(scope="module")
def handed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """A run, and its folders my-ct2 and my-onnx beside it."""
    place = tmp_path_factory.mktemp("handover")
    run = made(place / "run", TRANSFORMER | {"layers": 1})
    export_spec(place / "run", place / "my-ct2")
    export_graphs(place / "run", place / "my-onnx")
    return run, place


def test_onnx_runtime_steps_as_a_transformer_does(handed: tuple[Run, Path]) -> None:
    run, place = handed
    graphs = Graphs(place / "my-onnx")
    for texts in FEW:
        step_alike(run, graphs, texts, steps=20)
    given = {each.name: each.shape for each in graphs.next.get_inputs()}
    assert given["carry.0.keys"] == ["batch", 2, "length", 8] and given["memory.0.keys"] == ["batch", 2, "source", 8]


def test_the_page_translates_as_predict_does(handed: tuple[Run, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    run, place = handed
    page = (DOCS / "export.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, flags=re.S | re.M)
    monkeypatch.chdir(place)
    for block, beam, folder in zip(blocks, (4, 1), ("my-ct2", "my-onnx"), strict=True):
        (text,) = re.findall(r'encode\("([^"]+)"\)', block)
        (command,) = re.findall(rf"^regard export runs/my .* -o {folder}$", page, flags=re.M)
        assert command.split()[4] in folder
        (most,) = re.findall(r"len\(written\) < (\d+)", block) or ["256"]
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(block, "docs/export.md", "exec"), {})
        assert printed.getvalue() == run.predict(text, beam=beam, max_length=int(most)).text + "\n"


# --- folders and refusals ----------------------------------------------------------------------------------------


def test_a_run_of_words_has_its_vocabulary_beside_it(tmp_path: Path, call: Call) -> None:
    run = made(tmp_path / "run", TRANSFORMER, kind="words", joint=False)
    done = call("export", tmp_path / "run", "--to", "ct2", "-o", tmp_path / "out")
    assert done.code == 0 and "source/vocabulary.json" in done.err.replace("\n", "")
    for side in ("source", "target"):
        assert json.loads((tmp_path / "out" / side / "vocabulary.json").read_text()) == names_of(run, side)
    names = names_of(run, "source")
    read = [[names[token] for token in [*run.tokenizer("source").encode(text), EOS]] for text in TEXTS]
    (first, *_) = translator(tmp_path / "out").translate_batch(read, beam_size=1, max_decoding_length=9)[0].hypotheses
    assert (
        run.tokenizer("target").decode([names_of(run, "target").index(each) for each in first])
        == run.predict(TEXTS[0], beam=1, max_length=9).text
    )


MISTAKES: dict[str, tuple[str, dict[str, Any], str, list[str]]] = {
    "another model": ("translation", RNNSEARCH, "ct2", ["rnnsearch", "transformer"]),
    "batch normalisation": ("translation", TRANSFORMER | {"normalisation": "batch"}, "ct2", ["model.norm", '"layer"']),
    "ALiBi": ("translation", TRANSFORMER | {"positions": "alibi"}, "ct2", ["positions", '"rotary"']),
    "adaptive softmax": ("language", GPT | {"head": "adaptive", "tie": False}, "ct2", ["head", '"softmax"']),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_another_program_lacks_is_refused_in_one_sentence(mistake: str, tmp_path: Path, call: Call) -> None:
    task, model, form, said = MISTAKES[mistake]
    made(tmp_path / "run", model, task)
    done = call("export", tmp_path / "run", "--to", form, "-o", tmp_path / "out")
    assert done.code == 1 and all(word in done.err for word in said)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


@pytest.mark.parametrize("form", ["ct2", "onnx"])
def test_a_missing_package_and_a_full_folder_are_refused(
    form: str, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "run", TRANSFORMER)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    done = call("export", tmp_path / "run", "--to", form, "-o", tmp_path / "full")
    assert done.code == 1 and "not empty" in done.err
    monkeypatch.setattr(machine, "find_spec", lambda name: None)
    done = call("export", tmp_path / "run", "--to", form, "-o", tmp_path / "out")
    assert done.code == 1 and 'pip install "regard[export]"' in done.err.replace("\n", " ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "run"]


def full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("export", "what"),
    [(export_spec, "regard.exchange.ctranslate.write_sides"), (export_graphs, "torch.onnx.export")],
)
def test_a_full_disk_leaves_nothing_behind(
    export: Callable[..., Path], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "run", TRANSFORMER | {"layers": 1})
    monkeypatch.setattr(what, full)
    with pytest.raises(UserError, match="No space left"):
        export(tmp_path / "run", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_runs_that_do_not_write_are_refused(tmp_path: Path) -> None:
    runs = Path(__file__).parent / "runs"
    for export in (export_spec, export_graphs):
        with pytest.raises(UserError, match=r"export (a translator|it)"):
            export(runs / "classification", tmp_path / "out")
    assert not (tmp_path / "out").exists()
