"""Hugging Face folders as files: what is trained here runs there, every form of weights is read, hostile and broken
folders are refused, and an imported model is a run as any other."""

from __future__ import annotations

import json
import math
import os
import pickle
import random
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import Call, Result
from safetensors.torch import load_file, save_file
from torch import Tensor

import regard
from regard.data.corruption import MASK, with_hidden
from regard.data.tensors import read_tensors
from regard.exchange.hugging_face import import_folder
from regard.interface import Batch
from regard.loading import read_recipe
from regard.run import Run
from regard.train.session import Session
from regard.train.weights import weights as weights_by_name

transformers = pytest.importorskip("transformers")
pytest.importorskip("sentencepiece")
from folders import FAMILIES, word_piece  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

SIZES = {"dim": 12, "heads": 3, "feed_forward": 20, "layers": 2, "dropout": 0.0}
TRAIN = {"steps": 3, "validate_every": 3, "batch_tokens": 512, "learning_rate": 0.01, "precision": "float32"}
WORLD = {"name": "world", "sentences": 61, "valid": 7}
BPE = {"kind": "bpe", "size": 300}
MARIAN = {"norm": "post", "positions": "sinusoidal-halves", "activation": "silu"}
PLAIN = {"scaled": False, "head_bias": False, "norm": "pre", "activation": "gelu-tanh"}
LIST = ["the cat sees a dog .", "dogs", "été ! naïve ; <eos> [MASK] 日本"]

TRAINED: dict[str, tuple[str, dict[str, Any], str]] = {  # task, model, what `transformers` has for it
    "gpt": ("language", {"name": "gpt", "context": 200, **PLAIN}, "GPT2LMHeadModel"),
    "gpt untied": ("language", {"name": "gpt", "context": 200, "tie": False, **PLAIN}, "GPT2LMHeadModel"),
    "transformer": ("translation", {"name": "transformer", **MARIAN}, "MarianMTModel"),
    "bert": ("masked", {"name": "bert"}, "BertForMaskedLM"),
    "bert pairs": ("masked", {"name": "bert", "follows": True}, "BertForMaskedLM"),
    "distilbert": ("masked", {"name": "bert", "segments": 0, "pooler": "relu"}, "DistilBertForMaskedLM"),
    "roberta": ("masked", {"name": "roberta"}, "RobertaForMaskedLM"),
    "albert": ("masked", {"name": "albert", "embedding": 7}, "AlbertForMaskedLM"),
    "electra": ("masked", {"name": "electra", "embedding": 7}, "ElectraForMaskedLM"),
    "bert labels": ("classification", {"name": "bert"}, "BertForSequenceClassification"),
    "t5": ("translation", {"name": "t5"}, "T5ForConditionalGeneration"),
    "t5 gated": ("translation", {"name": "t5", "gated": True, "activation": "gelu-tanh", "tie": False,
                                 "head_dim": 5}, "T5ForConditionalGeneration"),
    "bart": ("translation", {"name": "bart"}, "BartForConditionalGeneration"),
}  # fmt: skip
SOON = ["gpt", "transformer", "bert labels"]  # the others take longer


def near(found: Any, wanted: Any, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(torch.as_tensor(found).float(), torch.as_tensor(wanted).float(), rtol=0, atol=tolerance)


def recipe(task: str, model: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"task": task, "data": WORLD, "tokens": BPE, "model": {**SIZES, **model}, "train": TRAIN} | more


def trained(task: str, model: dict[str, Any], folder: Path) -> Run:
    return regard.train(recipe(task, model), folder, progress=False)


# --- what is trained here runs there ---


def logits_here(run: Run, texts: Sequence[str], targets: Sequence[str]) -> Tensor:
    """The logits at every position of the target, or of the source; padding is at the end of each row."""
    model: Any = run.model
    if run.task.name == "language":
        logits: Tensor = model.logits(run.batch(target=texts))
    elif run.task.name == "translation":
        logits = model.logits(run.batch(source=texts, target=targets))
    elif run.task.name == "masked":
        source = run.batch(source=texts).source
        assert source is not None
        hidden = torch.zeros_like(source.mask)
        hidden[:, 0] = True
        logits = model.head.logits(model.states(with_hidden(source, hidden)))
    else:
        logits = torch.tensor([list((each.probabilities or {}).values()) for each in run.predict(texts)]).log()
    return logits


def logits_there(model: Any, tokenizer: Any, task: str, texts: Sequence[str], targets: Sequence[str]) -> list[Tensor]:
    """The same, for each text by itself."""
    found = []
    for text, target in zip(texts, targets, strict=True):
        read = tokenizer(text, return_tensors="pt")
        if task == "language":
            logits = model(**read).logits
        elif task == "masked":
            read["input_ids"][:, 1] = MASK
            logits = model(**read).logits[:, 1:]
        elif task == "translation":
            after = tokenizer(target, add_special_tokens=False)["input_ids"]
            lead = [2] if model.config.model_type == "bart" else []
            written = torch.tensor([[*lead, tokenizer.bos_token_id, *after]])
            logits = model(**read, decoder_input_ids=written).logits[:, len(lead) :]
        else:
            logits = model(**read).logits.log_softmax(-1)
        found.append(logits[0])
    return found


def mostly_slow(names: Iterable[str], soon: Sequence[str]) -> Any:
    marked = [pytest.param(name, marks=[] if name in soon else pytest.mark.slow) for name in names]
    return pytest.mark.parametrize("name", marked)


@mostly_slow(TRAINED, SOON)
@torch.no_grad()
def test_what_is_trained_here_runs_there_and_comes_back(name: str, tmp_path: Path, call: Call) -> None:
    task, settings, architecture = TRAINED[name]
    with torch.enable_grad():
        run = trained(task, settings, tmp_path / "run")
    done = call("export", tmp_path / "run", "--to", "hf", "-o", tmp_path / "folder")
    assert done.code == 0, done.err
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")
    model = getattr(transformers, architecture).from_pretrained(tmp_path / "folder").eval()
    ids = run.tokenizer().encode_all(LIST)
    assert tokenizer(LIST, add_special_tokens=False)["input_ids"] == ids
    ours = logits_here(run, LIST, LIST[::-1])
    for row, theirs in enumerate(logits_there(model, tokenizer, task, LIST, LIST[::-1])):
        near(ours[row, : len(theirs)] if ours.dim() > 2 else ours[row], theirs)
    done = call("import", tmp_path / "folder", "-o", tmp_path / "again")
    assert done.code == 0 and "Left out" not in done.err, done.err
    again = regard.load(tmp_path / "again")
    same_answers(run, again)


@pytest.mark.slow
@torch.no_grad()
def test_of_a_generator_and_a_discriminator_the_discriminator_is_exported(tmp_path: Path, call: Call) -> None:
    with torch.enable_grad():
        players = {"name": "electra", "embedding": 7, "head": "replaced", "generator": 0.5}
        run = trained("masked", players, tmp_path / "run")
    assert call("export", tmp_path / "run", "--to", "hf", "-o", tmp_path / "folder").code == 0
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")
    model = transformers.ElectraForPreTraining.from_pretrained(tmp_path / "folder").eval()
    source = run.batch(source=LIST).source
    assert source is not None
    ours = run.model.get_submodule("head").logits(run.model.states(Batch(source)))  # type: ignore[operator]
    for row, text in enumerate(LIST):
        theirs = model(**tokenizer(text, return_tensors="pt")).logits[0, 1:]  # without <cls>
        near(ours[row, : len(theirs)], theirs)


def same_answers(one: Run, two: Run) -> None:
    shown = ["the cat [MASK] a dog ."] if one.task.name == "masked" else LIST
    how = {} if one.task.name in ("classification", "masked") else {"max_length": 7, "sample": False}
    answers = [[each.text for each in run.predict(shown, **how)] for run in (one, two)]
    if one.task.name != "classification":
        pairs = list(zip(LIST, LIST[::-1], strict=True)) if one.task.name == "translation" else LIST
        near(one.log_prob(pairs), two.log_prob(pairs))
    assert answers[0] == answers[1]


def pictures(*size: int, count: int = 12) -> list[tuple[Any, str]]:
    shown = np.random.default_rng(1).integers(0, 256, (count, *size), np.uint8)
    return [(each, "ab"[number % 2]) for number, each in enumerate(shown)]


@pytest.mark.parametrize("size", [(12, 12, 3), (8, 16, 1)])
def test_a_picture_model_that_is_trained_here_runs_there(size: tuple[int, ...], tmp_path: Path, call: Call) -> None:
    data = pictures(*size)
    how = {"task": "pictures", "model": {"name": "vit", "patch": 4, **SIZES}, "train": TRAIN}
    run = regard.train(how, tmp_path / "run", data=data, valid=data[:4], progress=False)
    assert call("export", tmp_path / "run", "--to", "hf", "-o", tmp_path / "folder").code == 0
    model = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "folder").eval()
    how = json.loads((tmp_path / "folder" / "preprocessor_config.json").read_text())
    shown = [each for each, _ in data[:3]]
    pixels = torch.from_numpy(np.stack(shown)).permute(0, 3, 1, 2) * how["rescale_factor"]
    mean, spread = (torch.tensor(how[key])[:, None, None] for key in ("image_mean", "image_std"))
    with torch.no_grad():
        theirs = model((pixels - mean) / spread).logits.softmax(-1)
    near([list((each.probabilities or {}).values()) for each in run.predict(shown)], theirs)
    assert call("import", tmp_path / "folder", "-o", tmp_path / "again").code == 0
    again = regard.load(tmp_path / "again").predict(shown)
    near([list((each.probabilities or {}).values()) for each in again], theirs)


REFUSED: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {  # task, model, tokens, the remedy
    "seq2seq": ("translation", {"name": "seq2seq", "embedding": 5, "hidden": 7}, BPE, "train one of"),
    "rnn_lm": ("language", {"name": "rnn_lm", "embedding": 7, "hidden": 7}, BPE, "train one of"),
    "ngram": ("language", {"name": "ngram"}, {"kind": "words", "size": 0}, "train one of"),
    "gpt": ("language", {"name": "gpt", "context": 200, **SIZES}, BPE, 'model.preset = "gpt2"'),
    "post-norm": ("masked", {"name": "bert", "norm": "pre", **SIZES}, BPE, 'model.norm = "post"'),
    "words": ("masked", {"name": "bert", **SIZES}, {"kind": "words", "size": 0}, 'tokens.kind = "bpe"'),
    "tagger": ("tagging", {"name": "bert", **SIZES}, {}, "train one for masked, classification"),
    "two vocabularies": ("translation", {"name": "t5", **SIZES}, BPE | {"joint": False}, "tokens.joint = true"),
    "untied": ("translation", {"name": "transformer", "tie": False, **MARIAN, **SIZES}, BPE, "model.tie = true"),
    "pooler": ("classification", {"name": "bert", "pooler": "gelu", **SIZES}, BPE, 'model.pooler = "tanh"'),
    "same width": ("masked", {"name": "electra", "embedding": 12, **SIZES}, BPE, "model.embedding"),
    "no narrower": ("masked", {"name": "albert", "embedding": 0, **SIZES}, BPE, "model.embedding"),
}


@mostly_slow(REFUSED, ["gpt", "words", "same width", "no narrower"])
def test_what_cannot_run_there_is_refused_with_the_remedy_and_leaves_nothing(
    name: str, tmp_path: Path, call: Call
) -> None:
    task, model, tokens, remedy = REFUSED[name]
    how = {
        "task": task,
        "data": WORLD,
        "tokens": tokens,
        "model": model,
        "train": {"steps": 1} if name == "ngram" else TRAIN,
    }
    regard.train(how, tmp_path / "run", progress=False)
    done = call("export", tmp_path / "run", "--to", "hf", "-o", tmp_path / "folder")
    one_sentence(done)
    assert remedy in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def one_sentence(done: Result) -> None:
    assert done.code == 1 and done.out == "", done
    assert done.err.count("\n") == 1 and done.err.endswith(".\n") and "Traceback" not in done.err, done.err


# --- every form of weights is read ---

SMALL = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
SMALL |= {"max_position_embeddings": 40}
SIDES = {f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in
         {"layers": 2, "attention_heads": 3, "ffn_dim": 20}.items()}  # fmt: skip
SEQ2SEQ = {"d_model": 12, "max_position_embeddings": 80, **SIDES}
Weights = dict[str, Tensor]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of BERT with both of its heads, as `transformers` writes it."""
    folder = tmp_path_factory.mktemp("theirs") / "bert"
    word_piece(folder, "bert")
    written = json.loads((folder / "config.json").read_text())
    torch.manual_seed(7)
    model = transformers.BertForPreTraining(transformers.BertConfig(**SMALL, vocab_size=written["vocab_size"]))
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def folder(theirs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(theirs, tmp_path / "folder"))


def sharded(weights: Weights, folder: Path, name: str, end: str, save: Any) -> None:
    names, places = sorted(weights), {}
    for number, some in enumerate((names[::2], names[1::2]), 1):
        file = f"{name}-{number:05}-of-00002.{end}"
        save({each: weights[each] for each in some}, folder / file)
        places |= dict.fromkeys(some, file)
    (folder / f"{name}.{end}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def old_names(weights: Weights) -> Weights:
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    pairs = ((name, next((end for end in old if name.endswith(end)), "")) for name in weights)
    return {name.removesuffix(end) + old.get(end, ""): weights[name] for name, end in pairs}


def safe(weights: Weights, folder: Path) -> None:
    save_file(weights, folder / "model.safetensors")


FORMS: dict[str, Callable[[Weights, Path], None]] = {
    "safetensors": safe,
    "sharded safetensors": lambda weights, folder: sharded(weights, folder, "model", "safetensors", save_file),
    "bin": lambda weights, folder: torch.save(weights, folder / "pytorch_model.bin"),
    "old bin": lambda weights, folder: torch.save(
        weights, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False
    ),
    "sharded bin": lambda weights, folder: sharded(weights, folder, "pytorch_model", "bin", torch.save),
    "parameters": lambda weights, folder: torch.save(
        {name: torch.nn.Parameter(each) for name, each in weights.items()}, folder / "pytorch_model.bin"
    ),
    "without a prefix": lambda weights, folder: safe(
        {name.removeprefix("bert."): each for name, each in weights.items()}, folder
    ),
    "old names": lambda weights, folder: safe(old_names(weights), folder),
    "wider": lambda weights, folder: safe({name: each.double() for name, each in weights.items()}, folder),
    "half": lambda weights, folder: safe({name: each.half() for name, each in weights.items()}, folder),
    "brain": lambda weights, folder: safe({name: each.bfloat16() for name, each in weights.items()}, folder),
    "half bin": lambda weights, folder: torch.save(
        {name: each.half() for name, each in weights.items()}, folder / "pytorch_model.bin"
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_same_weights_gives_the_same_run(form: str, folder: Path, tmp_path: Path, call: Call) -> None:
    weights = load_file(folder / "model.safetensors")
    kind = {"half": torch.float16, "half bin": torch.float16, "brain": torch.bfloat16}.get(form, torch.float32)
    safe({name: each.to(kind).float() for name, each in weights.items()}, folder)
    done = call("import", folder, "-o", tmp_path / "before")
    assert done.code == 0, done.err
    assert "Left out" in done.err and "seq_relationship" in done.err
    (folder / "model.safetensors").unlink()
    FORMS[form](weights, folder)
    again = call("import", folder, "-o", tmp_path / "run")
    assert again.code == 0, again.err
    assert "pooler.dense" in again.err and "seq_relationship" in again.err
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (
        tmp_path / "before" / "model.safetensors"
    ).read_bytes()
    assert {each.dtype for each in read_tensors(tmp_path / "run" / "model.safetensors")[0].values()} == {torch.float32}


def test_a_body_alone_has_no_head_and_gives_vectors(folder: Path, tmp_path: Path, call: Call) -> None:
    """As in a folder of sentence-transformers."""
    body = transformers.BertModel.from_pretrained(folder).eval()
    body.save_pretrained(folder)
    (folder / "modules.json").write_text("[]")
    done = call("import", folder, "-o", tmp_path / "run")
    assert done.code == 0 and "--vectors" in done.err and "pooler.dense" in done.err
    run = regard.load(tmp_path / "run")
    read = transformers.AutoTokenizer.from_pretrained(folder)(LIST[0], return_tensors="pt")
    with torch.no_grad():
        near(run.embed(LIST[0]), body(**read).last_hidden_state[0].mean(0))
    done = call("predict", tmp_path / "run", "a [MASK] .")
    one_sentence(done)
    assert "--vectors" in done.err


def test_labels_without_names_are_numbered(folder: Path, tmp_path: Path) -> None:
    """`transformers` leaves out the names of two labels that have none."""
    transformers.BertForSequenceClassification.from_pretrained(folder).save_pretrained(folder)
    assert "id2label" not in json.loads((folder / "config.json").read_text())
    import_folder(folder, tmp_path / "run")
    assert regard.load(tmp_path / "run").fields.names() == ["LABEL_0", "LABEL_1"]


# --- hostile and broken folders ---


class Bomb:
    """Runs code when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return Path.touch, (self.canary,)


def config(**changes: Any) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return spoil


def content(name: str, text: str | bytes) -> Callable[[Path], None]:
    return lambda folder: void((folder / name).write_bytes(text if isinstance(text, bytes) else text.encode()))


def void(_: object) -> None:
    return None


def weights(change: Callable[[Weights], Weights]) -> Callable[[Path], None]:
    return lambda folder: safe(change(load_file(folder / "model.safetensors")), folder)


def as_bin(make: Callable[[Weights, Path], Any], **how: Any) -> Callable[[Path], None]:
    """The weights in a .bin, changed; `make` may need the place of a canary."""

    def spoil(folder: Path) -> None:
        found = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        torch.save(make(found, folder.parent / "canary"), folder / "pytorch_model.bin", **how)

    return spoil


def raw_bin(make: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """The bytes of a .bin, changed."""

    def spoil(folder: Path) -> None:
        as_bin(lambda found, _: found)(folder)
        file = folder / "pytorch_model.bin"
        file.write_bytes(make(file.read_bytes()))

    return spoil


def plain_pickle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(folder.parent / "canary")))


def compressed(folder: Path) -> None:
    """An archive of 1 MB whose first record has 1 GB."""
    as_bin(lambda found, _: found)(folder)
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("archive/data.pkl", "w", force_zip64=True) as record:
            for _ in range(64):
                record.write(bytes(1 << 24))
        archive.writestr("archive/version", "3\n")


def index(*files: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "part.safetensors")
        places = dict(zip(("a", "b", "c"), files, strict=False))
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))

    return spoil


def instead(name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return spoil


def header(length: int, text: str = "{}") -> Callable[[Path], None]:
    return content("model.safetensors", length.to_bytes(8, "little") + text.encode())


def bit(place: float) -> Callable[[Path], None]:
    """Cut the file of the weights off there."""
    return lambda folder: os.truncate(
        folder / "model.safetensors", int(place * (folder / "model.safetensors").stat().st_size)
    )


def expanded(found: Weights, _: Path) -> Weights:
    """A tensor of 4 GB that is one number in the file."""
    name = "bert.embeddings.word_embeddings.weight"
    return found | {name: torch.zeros(1).expand(1000, 1_000_000)}


WORD = "bert.embeddings.word_embeddings.weight"
LINEAR = "bert.encoder.layer.1.output.dense.weight"
HUGE: dict[str, Callable[[Path], None]] = {  # refused quickly and without memory
    "hidden_size": config(hidden_size=10**9),
    "hidden_size below its limit": config(hidden_size=999_999),
    "layers": config(num_hidden_layers=10**9),
    "layers below their limit": config(num_hidden_layers=1000),
    "vocabulary": config(vocab_size=10**9),
    "vocabulary below its limit": config(vocab_size=1_000_000),
    "positions": config(max_position_embeddings=10**6),
    "segments": config(type_vocab_size=10**18),
    "number": config(hidden_size=10**30),
    "labels": config(architectures=["BertForSequenceClassification"], id2label={str(i): i for i in range(100_000)}),
    "compressed": compressed,
    "expanded": as_bin(expanded),
    "header": header(1 << 62),
    "header of the file's size": header(100_000_000),
    "settings": content("config.json", "{" * 17_000_000),
}
BROKEN: dict[str, Callable[[Path], None]] = {
    "code in a .bin": as_bin(lambda found, canary: found | {"x": Bomb(canary)}),
    "code in an old .bin": as_bin(
        lambda found, canary: found | {"x": Bomb(canary)}, _use_new_zipfile_serialization=False
    ),
    "code in a plain pickle": plain_pickle,
    "a list in a .bin": as_bin(lambda found, _: list(found.values())),
    "texts in a .bin": as_bin(lambda found, _: found | {"x": "y"}),
    "a sparse tensor": as_bin(lambda found, _: found | {LINEAR: found[LINEAR].to_sparse()}),
    "a tensor without values": as_bin(lambda found, _: found | {LINEAR: found[LINEAR].to("meta")}),
    "half a .bin": raw_bin(lambda found: found[: len(found) // 2]),
    "a .bin without its end": raw_bin(lambda found: found[:-30]),
    "an empty .bin": raw_bin(lambda found: b""),
    "a .bin of noise": raw_bin(lambda found: bytes(random.Random(1).randbytes(5000))),
    "a .bin of text": raw_bin(lambda found: b"version https://git-lfs.github.com/spec/v1\n"),
    "half": bit(0.5),
    "no end": bit(0.999),
    "empty weights": bit(0),
    "noise": content("model.safetensors", bytes(random.Random(1).randbytes(5000))),
    "a page": content("model.safetensors", "<html>not found</html>"),
    "an unknown type": header(52, '{"a":{"dtype":"X9","shape":[],"data_offsets":[0,0]}}'),
    "no tensor": weights(lambda found: {"a": torch.zeros(2)}),
    "a missing tensor": weights(lambda found: {name: found[name] for name in found if name != LINEAR}),
    "a missing head": weights(lambda found: {name: found[name] for name in found if "cls.predictions" not in name}),
    "another shape": weights(lambda found: found | {LINEAR: torch.zeros(5, 7)}),
    "another number of axes": weights(lambda found: found | {WORD: torch.zeros(5)}),
    "no axes": weights(lambda found: found | {WORD: torch.tensor(1.0)}),
    "fewer words": weights(lambda found: found | {WORD: found[WORD][:50].clone()}),
    "whole numbers": weights(lambda found: found | {LINEAR: found[LINEAR].to(torch.int8)}),
    "a larger model": config(hidden_size=24),
    "a smaller model": config(hidden_size=6),
    "more layers": config(num_hidden_layers=3),
    "more words": config(vocab_size=5000),
    "fewer words than tokens": config(vocab_size=20),
    "no words": config(vocab_size=0),
    "no width": config(hidden_size=0),
    "a negative width": config(hidden_size=-3),
    "a text for a number": config(hidden_size="12"),
    "a list for a number": config(num_hidden_layers=[2]),
    "nothing for a number": config(max_position_embeddings=None),
    "a text for positions": config(max_position_embeddings="x"),
    "a share for a number": config(num_hidden_layers=1.5),
    "not a number": config(layer_norm_eps=math.nan),
    "infinite": config(hidden_dropout_prob=math.inf),
    "not a number of layers": config(num_hidden_layers=math.nan),
    "heads that do not divide": config(num_attention_heads=5),
    "an unknown activation": config(hidden_act="quick_gelu"),
    "an activation that is a list": config(hidden_act=["gelu"]),
    "an unknown family": config(model_type="llama"),
    "no family": config(model_type=None),
    "a family that is a list": config(model_type=["bert"]),
    "an unknown architecture": config(architectures=["BertForTokenClassification"]),
    "another family's architecture": config(architectures=["RobertaForMaskedLM"]),
    "no architecture": config(architectures=None),
    "an architecture that is a number": config(architectures=[3]),
    "a decoder": config(is_decoder=True),
    "other positions": config(position_embedding_type="relative_key"),
    "several labels at once": config(
        architectures=["BertForSequenceClassification"], problem_type="multi_label_classification"
    ),
    "labels without numbers": config(architectures=["BertForSequenceClassification"], id2label={"a": "b", "c": "d"}),
    "labels that are not numbered": config(architectures=["BertForSequenceClassification"], id2label=[1]),
    "labels in a list": config(architectures=["BertForSequenceClassification"], id2label=["a", "b"]),
    "the same label twice": config(architectures=["BertForSequenceClassification"], id2label={"0": "a", "1": "a"}),
    "settings that are empty": content("config.json", ""),
    "settings that are no JSON": content("config.json", "{'a': 1}"),
    "settings in another code": content("config.json", b"\xff\xfe{\x00"),
    "settings that are a list": content("config.json", "[1]"),
    "deep settings": content("config.json", "[" * 100_000),
    "settings of many digits": content("config.json", '{"hidden_size": ' + "9" * 10_000 + "}"),
    "no settings": lambda folder: (folder / "config.json").unlink(),
    "settings in a pipe": instead("config.json", os.mkfifo),
    "settings from a device": instead("config.json", lambda path: path.symlink_to("/dev/zero")),
    "weights in a pipe": instead("model.safetensors", os.mkfifo),
    "weights from a device": instead("model.safetensors", lambda path: path.symlink_to("/dev/zero")),
    "weights that are a folder": instead("model.safetensors", Path.mkdir),
    "a dead link": instead("model.safetensors", lambda path: path.symlink_to("nowhere")),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "an index to above": index("../../etc/passwd"),
    "an index to a root": index("/etc/passwd"),
    "an index to its parent": index(".."),
    "an index to a file beside": index("part.safetensors", "../folder/part.safetensors"),
    "an index to what is missing": index("part.safetensors", "other.safetensors"),
    "an empty index": index(),
    "an index of numbers": content("model.safetensors.index.json", '{"weight_map": {"a": 3, "b": ["c"]}}'),
    "an index that is a list": content("model.safetensors.index.json", '{"weight_map": ["a"]}'),
    "an index that is no JSON": content("model.safetensors.index.json", "{"),
    "no tokenizer": lambda folder: (folder / "vocab.txt").unlink(),
    "an empty tokenizer": content("vocab.txt", ""),
    "a tokenizer of noise": content("vocab.txt", b"\xff\xfe\xfd"),
    "a tokenizer that is no JSON": content("tokenizer.json", "{"),
    "a tokenizer without a model": content("tokenizer.json", "{}"),
    "a tokenizer in a pipe": instead("vocab.txt", os.mkfifo),
    "an empty folder": lambda folder: void([path.unlink() for path in folder.iterdir()]),
}
SLOWER = ["vocabulary below its limit", "compressed", "layers below their limit"]


def refused(name: str, folder: Path, call: Call) -> Result:
    {**BROKEN, **HUGE}[name](folder)
    done = call("import", folder, "-o", folder.parent / "runs" / "run")
    one_sentence(done)
    assert len(done.err) < 600, done.err
    assert not (folder.parent / "canary").exists()
    assert not list(folder.parent.glob("runs/*")) and not list(folder.parent.glob("runs/.*"))
    return done


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_or_hostile_folder_is_refused_and_nothing_is_left(name: str, folder: Path, call: Call) -> None:
    refused(name, folder, call)


@pytest.mark.parametrize("name", [name for name in HUGE if name not in SLOWER])
def test_huge_numbers_are_refused_at_once(name: str, folder: Path, call: Call) -> None:
    started = time.process_time()
    refused(name, folder, call)
    assert time.process_time() - started < 2


PEAK = """
import re, sys, time
from pathlib import Path
from regard.exchange.hugging_face import import_folder, UserError

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

before, started = peak(), time.monotonic()
try:
    import_folder(Path(sys.argv[1]), Path(sys.argv[1]).parent / "run")
except UserError:
    print(peak() - before, time.monotonic() - started)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", HUGE)
def test_huge_numbers_take_neither_memory_nor_time(name: str, folder: Path) -> None:
    HUGE[name](folder)
    done = subprocess.run([sys.executable, "-c", PEAK, folder], capture_output=True, text=True, timeout=120)
    peak, seconds = map(float, done.stdout.split())
    assert peak < 1 << 20 and seconds < 20, (peak, seconds)  # KiB
    assert sorted(path.name for path in folder.parent.iterdir()) == ["folder"]


# --- an imported model is a run ---

LABELLED = [("a good film", "good"), ("the film was bad", "bad"), ("dogs watched a good house", "good")]
LABELLED += [("a bad bad watcher", "bad"), ("naïve and good", "good"), ("don't", "bad")]
FURTHER: dict[str, tuple[str, str, dict[str, Any], str]] = {  # tokenizer, architecture, sizes, task
    "bert": ("bert", "BertForMaskedLM", SMALL, "masked"),
    "bert body": ("bert", "BertModel", SMALL, "masked"),
    "electra": ("electra", "ElectraForMaskedLM", SMALL | {"embedding_size": 7}, "masked"),
    "gpt2": ("gpt2", "GPT2LMHeadModel", {"n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 80}, "language"),
    "t5": ("t5", "T5ForConditionalGeneration",
           {"d_model": 12, "d_kv": 4, "d_ff": 20, "num_layers": 2, "num_heads": 3}, "translation"),
    "bart": ("bart", "BartForConditionalGeneration", SEQ2SEQ, "translation"),
    "marian": ("marian", "MarianMTModel", SEQ2SEQ | {"scale_embedding": True}, "translation"),
}  # fmt: skip


def imported(name: str, folder: Path, run: Path) -> Path:
    """A run from a random model of `transformers`."""
    kind, architecture, sizes, _ = FURTHER[name]
    FAMILIES[kind](folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    written = json.loads((folder / "config.json").read_text())
    ids = {f"{key}_token_id": getattr(tokenizer, f"{key}_token_id") for key in ("pad", "bos", "eos")}
    known = {"vocab_size": len(tokenizer), **ids, **written}
    model_type = known.pop("model_type")
    torch.manual_seed(7)
    made = type(transformers.AutoConfig.for_model(model_type))(**known, **sizes)
    getattr(transformers, architecture)(made).save_pretrained(folder)
    import_folder(folder, run)
    return run


def further(base: Path, task: str, place: Path, **train: Any) -> Path:
    """A recipe that trains an imported model further, on lines of two columns."""
    rows = [(text, text[::-1]) for text, _ in LABELLED] if task == "translation" else LABELLED
    (place / f"{task}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in rows * 4))
    (place / f"{task}.txt").write_text("".join(f"{text}\n" for text, _ in rows * 4))
    name = f"{task}.txt" if task in ("masked", "language") else f"{task}.tsv"
    data: dict[str, Any] = {"name": "text" if name.endswith("txt") else "table", "train": name, "valid": name}
    data |= {"source": "1", "target": "2"} if name.endswith("tsv") else {"unit": "line"}
    settings = tomllib.loads((base / "config.toml").read_text())["model"] | {"dropout": 0.1}
    if settings.get("head") == "none":
        settings.pop("head")
    steps = {"steps": 6, "validate_every": 3, "batch_tokens": 64, "learning_rate": 0.01, "precision": "float32"}
    table = {"task": task, "data": data, "model": settings, "train": steps | train | {"from": str(base)}}
    path = place / f"{task}.toml"
    path.write_text(to_toml(table))
    return path


def to_toml(table: dict[str, Any]) -> str:
    lines = [f"{key} = {json.dumps(value)}" for key, value in table.items() if not isinstance(value, dict)]
    for section, values in table.items():
        if isinstance(values, dict):
            lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


@mostly_slow(FURTHER, ["gpt2"])
def test_an_imported_model_trains_further_on_its_own_task(name: str, place: Path, call: Call) -> None:
    task, tmp_path = FURTHER[name][3], place
    base = imported(name, tmp_path / "theirs", tmp_path / "base")
    recipe_file = further(base, task, tmp_path)
    done = call("train", recipe_file, "-o", tmp_path / "run", "--threads", 1)
    assert done.code == 0, done.err
    run, before = regard.load(tmp_path / "run"), regard.load(base)
    assert run.tokenizer().to_json() == before.tokenizer().to_json()
    if before.recipe.model.__dict__.get("head") != "none":
        seen = [(text, text[::-1]) if task == "translation" else text for text, _ in LABELLED]
        assert sum(run.log_prob(seen)) > sum(before.log_prob(seen))
    half = further(base, task, tmp_path, steps=3)
    assert call("train", half, "-o", tmp_path / "resumed", "--threads", 1).code == 0
    done = call("train", further(base, task, tmp_path), "-o", tmp_path / "resumed", "--threads", 1)
    assert done.code == 0, done.err
    same_weights(*(tmp_path / each / "last" / "state.safetensors" for each in ("resumed", "run")))
    done = call("export", tmp_path / "run", "--to", "hf", "-o", tmp_path / "out")
    assert done.code == 0, done.err
    import_folder(tmp_path / "out", tmp_path / "again")
    scaled = 1e-6 if task == "translation" else 0.0  # T5's embeddings are multiplied on the way in
    same_weights(tmp_path / "again" / "model.safetensors", tmp_path / "run" / "model.safetensors", rounded=scaled)


def same_weights(one: Path, two: Path, *, rounded: float = 0.0) -> None:
    first, second = read_tensors(one)[0], read_tensors(two)[0]
    assert first.keys() == second.keys()
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=rounded, atol=0, msg=name)


def test_an_imported_body_reads_under_a_new_head(place: Path, call: Call) -> None:
    base = imported("bert", place / "theirs", place / "base")
    recipe_file = further(base, "classification", place)
    assert call("train", recipe_file, "-o", "run", "--threads", 1).code == 0
    run, before = regard.load("run"), regard.load(base)
    assert run.tokenizer().to_json() == before.tokenizer().to_json()
    assert set(run.fields.names()) == {"good", "bad"}
    assert call("train", further(base, "classification", place, steps=3), "-o", "resumed", "--threads", 1).code == 0
    done = call("train", further(base, "classification", place), "-o", "resumed", "--threads", 1)
    assert done.code == 0, done.err
    same_weights(*(place / each / "last" / "state.safetensors" for each in ("resumed", "run")))
    done = call("look", "run", "a good film", "--html", "look.html", "--threads", 1)
    assert done.code == 0 and Path("look.html").exists(), done.err
    assert "accuracy" in call("score", "run", "classification.tsv", "--threads", 1).out.lower()
    assert call("predict", "run", "a good film", "--threads", 1).code == 0
    assert call("export", "run", "--to", "hf", "-o", "out").code == 0
    model = transformers.AutoModelForSequenceClassification.from_pretrained("out").eval()
    read = transformers.AutoTokenizer.from_pretrained("out")("a good film", return_tensors="pt")
    with torch.no_grad():
        near(list((run.predict("a good film").probabilities or {}).values()), model(**read).logits[0].softmax(-1))


def test_its_first_weights_are_the_imported_ones(tmp_path: Path) -> None:
    base = imported("bert", tmp_path / "theirs", tmp_path / "base")
    read, _ = read_recipe(further(base, "classification", tmp_path))
    started, body = (
        weights_by_name(Session(read, tmp_path / "run").run.model),
        read_tensors(base / "model.safetensors")[0],
    )
    same = {name for name in started if name in body and torch.equal(started[name], body[name])}
    assert same == {name for name in body if name.startswith("encoder.")}


@pytest.mark.slow
def test_classifiers_from_an_imported_body_can_be_compared(place: Path, call: Call) -> None:
    base = imported("bert", place / "theirs", place / "base")
    for name in ("one", "two"):
        assert call("train", further(base, "classification", place), "-o", name, "--threads", 1).code == 0
    done = call("compare", "one", "two", "--test", "classification.tsv", "--threads", 1)
    assert done.code == 0, done.err
    assert call("info").code == 0


def test_imported_runs_are_listed_and_their_recipes_say_that_there_is_no_data(place: Path, call: Call) -> None:
    imported("bert", place / "theirs", place / "runs" / "bert")
    done = call("runs")
    assert done.code == 0 and "bert" in done.out and "masked" in done.out, done
    done = call("train", "runs/bert/config.toml", "-o", "other")
    one_sentence(done)
    assert "without data" in done.err and "train.from" in done.err
    done = call("train", "runs/bert/config.toml")
    one_sentence(done)
    done = call("compare", "runs/bert", "runs/bert")
    assert done.code == 1 and "Traceback" not in done.err
    done = call("import", place / "theirs", "-o", "runs/bert")
    one_sentence(done)
    assert "is not empty" in done.err
    done = call("import", "runs/bert", "-o", "again")
    one_sentence(done)
    assert "is a run already" in done.err


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FURTHER if name != "bert body"])
def test_an_imported_model_is_compared_with_what_was_trained_from_it(name: str, place: Path, call: Call) -> None:
    task = FURTHER[name][3]
    base = imported(name, place / "theirs", place / "base")
    assert call("train", further(base, task, place), "-o", "run", "--threads", 1).code == 0
    test = f"{task}.tsv" if task == "translation" else f"{task}.txt"
    done = call("compare", base, "run", "--test", test, "--threads", 1)
    assert done.code == 0, done
