"""Masked language models: what is hidden, how blanks are filled in, and how a text is scored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from command import Call
from made import on_disk

import regard
from regard.data.corruption import MASK, Masked, hide, with_hidden
from regard.interface import EOS, PAD, Batch, Ids, Padded, Shapes
from regard.layers.attention import watch
from regard.models import MODELS, models_for
from regard.predict.blanks import pseudo_log_probs
from regard.recipe import parse_recipe
from regard.tasks.masked import MaskedCorpus
from regard.tasks.registry import TASKS

VOCAB, FIRST = 17, 5
SIZES = {"dim": 12, "heads": 3, "feed_forward": 17, "layers": 2, "longest": 19, "dropout": 0.0}
every_model = pytest.mark.parametrize("name", models_for("masked"))


def texts(lengths: tuple[int, ...] = (7, 4, 2), seed: int = 1) -> Padded:
    random = torch.Generator().manual_seed(seed)
    ids = torch.full((len(lengths), max(lengths) + 1), PAD)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(FIRST, VOCAB, (length,), generator=random)
        ids[row, length] = EOS
    return Padded.of_ids(ids)


def hidden_batch(source: Padded, place: int = 1) -> Batch:
    hidden = torch.zeros_like(source.mask)
    hidden[:, place] = True
    return with_hidden(source, hidden)


def model_of(name: str) -> torch.nn.Module:
    torch.manual_seed(3)
    shapes = Shapes(Ids(VOCAB), Ids(VOCAB), joint=True)
    return MODELS[name].build(MODELS[name].config(**SIZES), shapes).double().eval()


# --- what is hidden ---


def test_what_is_hidden_is_a_function_of_seed_epoch_and_index() -> None:
    class One:
        carries = 0

        def count(self, epoch: int) -> int:
            return 1

        def get(self, epoch: int, index: int) -> Batch:
            return Batch(texts((40, 40, 40)))

    batches = Masked(One(), first=FIRST, vocab=VOCAB, seed=1)  # type: ignore[arg-type]

    def read(epoch: int, index: int) -> list[list[int]]:
        source = batches.get(epoch, index).source
        assert source is not None
        return source.values.tolist()

    assert read(0, 0) == read(0, 0)
    assert read(0, 0) != read(1, 0) != read(1, 1)


def test_of_fifteen_tokens_in_a_hundred_eighty_become_masks_ten_others_and_ten_stay() -> None:
    source = texts((1000,) * 60)
    batch = hide(Batch(source), first=FIRST, vocab=VOCAB, seed=(1,))
    assert batch.source is not None and batch.target is not None
    hidden, read = batch.target.mask, batch.source.values
    words = source.but_end().mask
    assert torch.equal(batch.target.values, source.values)
    assert not (hidden & ~words).any()  # neither padding nor <eos>
    assert torch.equal(read[~hidden], source.values[~hidden])
    assert hidden.sum() / words.sum() == pytest.approx(0.15, abs=0.01)
    masked = float((read[hidden] == MASK).double().mean())
    stayed = float((read[hidden] == source.values[hidden]).double().mean())
    assert masked == pytest.approx(0.8, abs=0.02)
    assert stayed == pytest.approx(0.1 + 0.1 / (VOCAB - FIRST), abs=0.02)  # another token may be the same one
    assert read[hidden & (read != MASK)].min() >= FIRST


def test_a_setting_of_the_model_says_how_many_tokens_are_hidden(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a b c d e f g h i j\n" * 200)
    data = {"name": "text", "train": str(tmp_path / "text.txt"), "hold_out": 0.1}
    small = {"name": "bert", "dim": 8, "heads": 2, "feed_forward": 8, "layers": 1}
    for masked in (0.15, 0.4):
        table = {"task": "masked", "data": data, "model": {**small, "masked": masked}, "train": {"steps": 1}}
        corpus = MaskedCorpus(parse_recipe(table, tasks=TASKS))
        fields = corpus.learn_fields()
        encoded = fields["source"].encode([text for (text,) in corpus.held("train")])
        batch = corpus.batches(fields, {"source": on_disk(tmp_path, str(masked), encoded)}, None).get(0, 0)
        assert batch.source is not None and batch.target is not None
        shares = batch.target.mask.sum() / batch.source.but_end().mask.sum()
        assert float(shares) == pytest.approx(masked, abs=0.05)


def test_a_token_is_hidden_in_every_text_however_short() -> None:
    batch = hide(Batch(texts((1, 2, 1, 3))), first=FIRST, vocab=VOCAB, seed=(7,))
    assert batch.target is not None
    assert (batch.target.mask.sum(1) >= 1).all()


# --- models ---


@every_model
@torch.no_grad()
def test_padding_and_other_texts_change_nothing(name: str) -> None:
    model = model_of(name)
    together = model.fill(hidden_batch(texts()))
    source = texts()
    for row, length in enumerate((7, 4, 2)):
        alone = Padded(source.values[row : row + 1, : length + 1], source.mask[row : row + 1, : length + 1])
        torch.testing.assert_close(model.fill(hidden_batch(alone))[0], together[row])


@every_model
@torch.no_grad()
def test_both_sides_of_a_blank_are_read_and_the_hidden_token_is_not(name: str) -> None:
    model, source = model_of(name), texts()
    before = model.fill(hidden_batch(source))
    for place, changes in ((0, True), (1, False), (3, True)):
        values = source.values.clone()
        values[0, place] = FIRST + (values[0, place] - FIRST + 1) % (VOCAB - FIRST)
        after = model.fill(hidden_batch(Padded(values, source.mask)))
        assert torch.equal(before[0], after[0]) != changes


@every_model
@torch.no_grad()
def test_the_loss_is_minus_the_log_probability_of_the_hidden_tokens(name: str) -> None:
    model, batch = model_of(name), hidden_batch(texts())
    assert batch.target is not None
    answers = batch.target.values[batch.target.mask]
    wanted = -model.fill(batch).log_softmax(-1).gather(1, answers[:, None]).sum()
    loss = model.loss(batch)
    torch.testing.assert_close(loss.nll, wanted)
    assert loss.tokens == 3


@every_model
@torch.no_grad()
def test_watched_equals_unwatched_and_every_layer_is_seen(name: str) -> None:
    model, batch = model_of(name), hidden_batch(texts())
    before = model.fill(batch)
    with watch(model) as seen:
        assert torch.equal(model.fill(batch), before)
    layers = [seen.of(each.part) for each in model.inspect().attentions]
    assert len(layers) == 2 and all(len(each) == 1 and each[0].shape == (3, 3, 9, 9) for each in layers)


def test_the_layers_of_albert_share_their_weights() -> None:
    one, three = (
        sum(p.numel() for p in MODELS["albert"].build(
            MODELS["albert"].config(**{**SIZES, "layers": layers}), Shapes(Ids(VOCAB), Ids(VOCAB), joint=True)
        ).parameters())
        for layers in (1, 3)
    )  # fmt: skip
    assert one == three


# --- runs ---


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> regard.Run:
    folder = tmp_path_factory.mktemp("masked")
    lines = [
        f"the {colour} {animal} sees the {animal}" for colour in ("red", "old", "big", "sad") for animal in "abcdef"
    ]
    recipe = {
        "task": "masked",
        "model": {"name": "bert", **SIZES, "longest": 32},
        "tokens": {"kind": "words", "size": 0},
    }
    settings = {"train.steps": 400, "train.learning_rate": 0.01, "train.validate_every": 50, "train.epochs": 0}
    return regard.train(
        recipe, folder / "run", data=lines * 5, valid=lines, settings=settings, progress=False, threads=1
    )


def test_a_blank_is_filled_from_both_sides(run: regard.Run) -> None:
    assert run.predict("the red [MASK] sees the c").text == "the red c sees the c"
    assert run.predict("the old b sees the _", blank="_").text == "the old b sees the b"
    two = run.predict("the [MASK] a [MASK] the a", n_best=3)
    assert two.tokens[1] == "sees" and len(two.alternatives) == 2
    assert two.score >= two.alternatives[0].score >= two.alternatives[1].score
    assert [each.text for each in run.predict(["nothing missing", "a [MASK]"])][0] == "nothing missing"


def test_a_blank_has_at_most_as_many_answers_as_there_are_tokens(run: regard.Run) -> None:
    assert len(run.predict("the red [MASK]", n_best=1000).alternatives) == run.tokenizer().size - 1


def test_a_text_without_a_blank_is_refused_in_one_sentence(run: regard.Run, call: Call) -> None:
    done = call("predict", run.name, "the red cat")
    assert done.code == 1 and "write [MASK] where a word is missing" in done.err


def test_a_likely_text_has_a_lower_pseudo_perplexity(run: regard.Run, call: Call, tmp_path: Path) -> None:
    (tmp_path / "likely").write_text("the red a sees the a\n")
    (tmp_path / "unlikely").write_text("a a the sees the red\n")
    found = [call("score", run.name, tmp_path / name).out for name in ("likely", "unlikely")]
    values = [float(out.split()[3]) for out in found]
    assert values[0] < values[1]
    each = [float(line) for line in call("score", run.name, tmp_path / "likely", "--each").out.split()]
    assert each == [pytest.approx(float(next(iter(pseudo_log_probs(run, ["the red a sees the a"]))).sum()), abs=1e-4)]
    assert np.exp(-each[0] / 6) == pytest.approx(values[0], abs=0.001)


def test_its_self_attention_can_be_looked_at(run: regard.Run, call: Call, tmp_path: Path) -> None:
    seen = run.look("the red a sees")
    assert seen.weights.shape == (6, 6) and seen.rows[0] == "<bos>" and seen.rows[-1] == "<eos>"
    np.testing.assert_allclose(seen.weights.sum(1), 1, atol=1e-5)
    assert call("look", run.name, "the red a", "--html", tmp_path / "look.html").code == 0
    blank = run.look("the [MASK] a sees")  # read as it is filled in: one token, not its letters
    assert blank.rows == ("<bos>", "the", "<mask>", "a", "sees", "<eos>") and blank.weights.shape == (6, 6)


def test_a_deep_albert_is_loaded_though_its_file_has_one_layer(tmp_path: Path) -> None:
    recipe = {
        "task": "masked",
        "model": {"name": "albert", **SIZES, "layers": 30},
        "tokens": {"kind": "words", "size": 0},
    }
    texts = [f"{a} {b} {c}" for a in "abcde" for b in "fghij" for c in "kl"]
    settings = {"train.steps": 1, "train.validate_every": 1, "train.epochs": 0}
    regard.train(recipe, tmp_path / "run", data=texts, settings=settings, progress=False, threads=1)
    assert len(regard.load(tmp_path / "run").model.inspect().attentions) == 30
