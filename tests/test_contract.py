"""Every model × every promise, in one table; sizes are distinct primes, so a swapped axis fails."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import pytest
import torch
from made import labelled, pairs, source_of, tagged, target_of, text
from torch import Tensor
from torch.fx.experimental import _config as symbolic

from regard.data.tensors import read_tensors, write_tensors
from regard.interface import (
    BOS,
    EOS,
    PAD,
    Batch,
    Carries,
    Classifies,
    Generates,
    Ids,
    Inspects,
    Label,
    Learns,
    Padded,
    Shapes,
    State,
    TagIds,
    Tags,
    Windowed,
)
from regard.layers.attention import KERNELS, SCORES, watch
from regard.layers.cells import CELLS
from regard.layers.encoders import Embedding
from regard.layers.fast.packed import pack
from regard.layers.positions import POSITIONS
from regard.layers.recurrent import trace
from regard.models import MODELS, bart, convs2s, elmo, gpt, neural_lm, rnn_lm, rnnsearch, seq2seq, t5, transformer
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.encoder_head import EncoderWithHead
from regard.models.language_model import LanguageModel
from regard.train.weights import load_weights, weights

SOURCE_VOCAB, TARGET_VOCAB = 11, 13
SOURCE_LENGTHS, TARGET_LENGTHS = (7, 4, 2), (3, 5, 4)  # <eos> included, <bos> not
WIDTH = 2
NAMES, BYTES = 9, 8  # labels or tags; bytes of a word's spelling
APART = Shapes(Ids(SOURCE_VOCAB), Ids(TARGET_VOCAB))
JOINT = Shapes(Ids(TARGET_VOCAB), Ids(TARGET_VOCAB), joint=True)
TEXT = Shapes(None, Ids(TARGET_VOCAB))
LABEL = Shapes(Ids(SOURCE_VOCAB), Label(NAMES))
TAGS = Shapes(Ids(SOURCE_VOCAB), TagIds(NAMES))

Case = tuple[str, Any, Shapes]
RELATIVES = ("bert", "roberta", "albert", "electra")


def table() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    small: dict[str, Any] = {"embedding": 5, "hidden": 7, "dropout": 0.0}
    for context, cell in product(("first", "every", "mean"), ("lstm", "gru", "tanh")):
        config = seq2seq.Config(**small, context=context, cell=cell)
        cases[f"seq2seq {context} {cell}"] = ("seq2seq", config, APART)
        cases[f"seq2seq {context} {cell} lexical"] = ("seq2seq", dataclasses.replace(config, lexical=True), APART)
    cases["seq2seq forwards"] = ("seq2seq", seq2seq.Config(**small, layers=1, reverse=False), APART)
    for score in (*SCORES, *KERNELS):
        cases[f"rnnsearch {score}"] = ("rnnsearch", rnnsearch.Config(**small, score=score), APART)
        several = {**small, "hidden": 15, "heads": 3}
        cases[f"rnnsearch {score} 3 heads"] = ("rnnsearch", rnnsearch.Config(**several, score=score), APART)
    for score in ("bilinear", "additive", "mlp"):
        config = rnnsearch.Config(**small, score=score, project=True)
        cases[f"rnnsearch {score} project"] = ("rnnsearch", config, APART)
    for name, sizes in (("", small), (" 3 heads", several)):
        cases[f"rnnsearch lexical{name}"] = ("rnnsearch", rnnsearch.Config(**sizes, lexical=True), APART)
    for cell in ("lstm", "gru-after", "tanh"):
        cases[f"rnnsearch {cell}"] = ("rnnsearch", rnnsearch.Config(**small, cell=cell), APART)
    for cell in ("gru", "lstm"):
        cases[f"rnnsearch 2 layers {cell}"] = ("rnnsearch", rnnsearch.Config(**small, layers=2, cell=cell), APART)
    stack: dict[str, Any] = {"dim": 18, "heads": 3, "feed_forward": 17, "layers": 2, "longest": 19, "dropout": 0.0}
    options = product(("pre", "post"), ("layer", "batch"), ("sinusoidal", "learned"))
    for number, (norm, normalisation, positions) in enumerate(options):
        tie = number in (0, 3, 5, 6)  # so that any three options meet in every combination
        config = transformer.Config(**stack, norm=norm, normalisation=normalisation, positions=positions, tie=tie)
        tied = "tied" if tie else "untied"
        cases[f"transformer {norm} {normalisation} {positions} {tied}"] = ("transformer", config, APART)
    for positions in ("rotary", "alibi", "t5"):
        cases[f"transformer {positions}"] = ("transformer", transformer.Config(**stack, positions=positions), APART)
    for tie in (True, False):
        cases[f"transformer joint tie={tie}"] = ("transformer", transformer.Config(**stack, tie=tie), JOINT)
    windows: dict[str, Any] = {"embedding": 5, "hidden": 7, "longest": 19, "dropout": 0.0}
    for layers, width, positions, tie in (
        (1, 3, "learned", True),
        (2, 2, "sinusoidal", True),
        (3, 3, "learned", False),
        (2, 4, "sinusoidal", False),
    ):
        config = convs2s.Config(**windows, layers=layers, width=width, positions=positions, tie=tie)
        cases[f"convs2s {layers} x {width} {positions}"] = ("convs2s", config, APART)
    for tie in (True, False):
        cases[f"convs2s joint tie={tie}"] = ("convs2s", convs2s.Config(**windows, tie=tie, layers=2), JOINT)
    for direct in (True, False):
        config = neural_lm.Config(order=3, embedding=5, hidden=7, direct=direct, dropout=0.0)
        cases[f"neural_lm direct={direct}"] = ("neural_lm", config, TEXT)
    apart: dict[str, Any] = {"embedding": 5, "hidden": 17, "tie": False, "dropout": 0.0}
    for cell in CELLS:
        cases[f"rnn_lm {cell}"] = ("rnn_lm", rnn_lm.Config(**apart, cell=cell, layers=2), TEXT)
    for head in ("softmax", "adaptive", "features"):
        cases[f"rnn_lm {head}"] = ("rnn_lm", rnn_lm.Config(**apart, head=head, reach=3, rows=19), TEXT)
    tied: dict[str, Any] = {"embedding": 7, "hidden": 7, "dropout": 0.0}
    cases["rnn_lm tied"] = ("rnn_lm", rnn_lm.Config(**tied), TEXT)
    cases["rnn_lm tied features"] = ("rnn_lm", rnn_lm.Config(**tied, head="features", reach=1, rows=5), TEXT)
    stack = {"dim": 12, "heads": 3, "feed_forward": 17, "layers": 2, "context": 19, "dropout": 0.0}
    options = product(("pre", "post"), POSITIONS)
    for number, (norm, positions) in enumerate(options):
        config = gpt.Config(**stack, norm=norm, positions=positions, tie=number % 2 == 0)
        cases[f"gpt {norm} {positions}"] = ("gpt", config, TEXT)
    config = gpt.Config(**stack, scaled=False, head_bias=False, activation="gelu-tanh", epsilon=0.01)
    cases["gpt as GPT-2"] = ("gpt", config, TEXT)
    for layers, hidden, skip in ((1, 7, "none"), (2, 7, "highway"), (3, 5, "residual")):
        config = elmo.Config(embedding=5, hidden=hidden, layers=layers, skip=skip, tie=layers != 2, dropout=0.0)
        cases[f"elmo {layers} x {hidden} {skip}"] = ("elmo", config, TEXT)
    wide: dict[str, Any] = {"embedding": 17, "hidden": 7, "dropout": 0.0}
    cases["elmo adaptive"] = ("elmo", elmo.Config(**wide, head="adaptive", tie=False), TEXT)
    sides: dict[str, Any] = {"dim": 18, "heads": 3, "feed_forward": 17, "layers": 2, "dropout": 0.0}
    for shapes, joint in ((APART, ""), (JOINT, " joint")):
        cases[f"t5{joint}"] = ("t5", t5.Config(**sides, head_dim=5), shapes)
        cases[f"t5 gated{joint}"] = ("t5", t5.Config(**sides, gated=True, activation="gelu-tanh", tie=False), shapes)
        cases[f"bart{joint}"] = ("bart", bart.Config(**sides, longest=19), shapes)
    cases["bart pre scaled"] = ("bart", bart.Config(**sides, longest=19, norm="pre", scaled=True, tie=False), APART)
    marian = transformer.Config(**sides, positions="sinusoidal-halves", norm="post", activation="silu")
    cases["transformer as Marian"] = ("transformer", marian, JOINT)
    return cases | naming_table()


def naming_table() -> dict[str, Case]:
    """What gives names, to sentences (labels) and to words (tags)."""
    recurrent: dict[str, Any] = {"embedding": 5, "hidden": 7}
    sizes = {
        "birnn": recurrent,
        "attentive_birnn": recurrent,
        "elmo": recurrent,
        "encoder": {"dim": 18, "heads": 3, "feed_forward": 17, "layers": 2, "longest": 19},
        "cnn": {"embedding": 5, "filters": 7, "widths": (2, 3)},
        "gpt": {"dim": 18, "heads": 3, "feed_forward": 17, "layers": 2, "context": 19},
        "t5": {"dim": 18, "heads": 3, "feed_forward": 17, "layers": 2},
        "bart": {"dim": 18, "heads": 3, "feed_forward": 17, "layers": 2, "longest": 19},
        **dict.fromkeys(RELATIVES, {"dim": 18, "heads": 3, "feed_forward": 17, "layers": 2, "longest": 19}),
    }
    labels: tuple[tuple[str, dict[str, Any]], ...] = (
        ("birnn", {"pool": "last"}),
        ("birnn", {"pool": "mean", "layers": 2, "skip": "highway"}),
        ("birnn", {"pool": "max", "cell": "gru"}),
        ("birnn", {"pool": "last", "bidirectional": False, "cell": "gru-after"}),
        *(("attentive_birnn", {"score": score}) for score in SCORES),
        ("attentive_birnn", {"score": "additive", "cell": "mut1", "layers": 2}),
        ("encoder", {"pool": "first"}),
        ("encoder", {"pool": "mean", "positions": "learned", "norm": "post"}),
        ("encoder", {"pool": "max"}),
        *(("encoder", {"positions": positions}) for positions in ("rotary", "alibi", "t5")),
        ("cnn", {"pool": "max"}),
        ("cnn", {"pool": "mean", "layers": 2}),
        *((model, {"pooler": "tanh", "embedding": 5}) for model in RELATIVES),
        ("bert", {"pooler": "relu", "segments": 0}),
        *(("elmo", {"pool": pool}) for pool in ("attention", "mean", "max", "last")),
        ("t5", {"gated": True}),
        ("bart", {"positions": "sinusoidal"}),
        ("gpt", {"norm": "post"}),
        *((model, {"pool": pool}) for model in ("gpt", "bert") for pool in ("mean", "max", "attention")),
        ("gpt", {"positions": "rotary", "auxiliary": 0.5, "both_orders": True}),
    )
    cases: dict[str, Case] = {}
    for model, options in labels:
        name = " ".join([model, "labels", *map(str, options.values())])
        cases[name] = (model, MODELS[model].config(**sizes[model], **options, dropout=0.0), LABEL)
    for model, head, letters in product(("birnn", "encoder", "cnn"), ("softmax", "crf"), (0, 3)):
        config = MODELS[model].config(**sizes[model], head=head, letters=letters, dropout=0.0)
        cases[f"{model} tags {head}{' letters' if letters else ''}"] = (model, config, TAGS)
    for model in (*RELATIVES, "gpt", "elmo", "t5", "bart"):
        cases[f"{model} tags"] = (model, MODELS[model].config(**sizes[model], dropout=0.0), TAGS)
    return cases


CASES = table()
TRANSLATING = [name for name, (_, _, shapes) in CASES.items() if shapes in (APART, JOINT)]
ATTENDING = [name for name in TRANSLATING if not name.startswith("seq2seq")]
ELSEWHERE = [name for number, name in enumerate(CASES) if number % 3 == 0]  # running on meta is slow
NAMING = [name for name, (_, _, shapes) in CASES.items() if shapes in (LABEL, TAGS)]
LABELS = [name for name in NAMING if CASES[name][2] == LABEL]
GENERATING = [name for name in CASES if name not in NAMING]
every = pytest.mark.parametrize("name", CASES)
generating = pytest.mark.parametrize("name", GENERATING)
naming = pytest.mark.parametrize("name", NAMING)
labelling = pytest.mark.parametrize("name", LABELS)
translating = pytest.mark.parametrize("name", TRANSLATING)
attending = pytest.mark.parametrize("name", ATTENDING)


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def build(name: str, *, seed: int = 1) -> Any:
    model, config, shapes = CASES[name]
    torch.manual_seed(seed)
    built = MODELS[model].build(config, shapes)
    shell = EncoderDecoder if name in TRANSLATING else EncoderWithHead if name in NAMING else LanguageModel
    assert isinstance(built, shell)
    return built


@torch.no_grad()
def lively(name: str, *, dtype: torch.dtype = torch.float64, seed: int = 1) -> Any:
    """In evaluation mode, no parameter at a value such as 0 or 1 that could hide what it does."""
    model = build(name, seed=seed).to(dtype)
    for tensor in weights(model).values():
        tensor.add_(0.1 * torch.rand_like(tensor))
    for path, parameter in model.named_parameters():
        if name.startswith(("rnnsearch boxcar", "rnnsearch epanechnikov")) and ".attention." in path:
            parameter.mul_(0.5)  # so that kernels of finite reach have something within it
    return model.eval()


def batch_of(name: str, *, seed: int = 2) -> Batch:
    """(3, 7) source and (3, 6) target tokens, of different lengths; a language model has no source; names are (3, 1),
    or (3, 7) with each word spelt out."""
    random = torch.Generator().manual_seed(seed)
    source = torch.randint(4, SOURCE_VOCAB, (3, 7), generator=random)
    target = torch.randint(4, TARGET_VOCAB, (3, 6), generator=random)
    target[:, 0] = BOS
    for row in range(3):
        source[row, SOURCE_LENGTHS[row] - 1 :] = EOS
        source[row, SOURCE_LENGTHS[row] :] = PAD
        target[row, TARGET_LENGTHS[row] :] = EOS
        target[row, TARGET_LENGTHS[row] + 1 :] = PAD
    if name in LABELS:
        return labelled(source, torch.randint(NAMES, (3,), generator=random))
    if name in NAMING:
        tags = torch.randint(NAMES, source.shape, generator=random)
        letters = torch.randint(1, 257, (*source.shape, BYTES), generator=random)
        letters[..., 5:] = 0
        return tagged(source, tags, spelling=letters * (source > EOS)[..., None])
    return pairs(source, target) if name in TRANSLATING else text(target)


def answers(model: Any, batch: Batch) -> Tensor:
    """Before any choice is made: (batch, target, vocab), (batch, labels) or (batch, source, tags)."""
    if isinstance(model, EncoderDecoder | LanguageModel):
        return model.logits(batch)
    encoded = model.encoded(batch)
    scores: Tensor = model.head.logits(encoded) if isinstance(model, Classifies) else model.head.emissions(encoded)
    return scores


def begun(batch: Batch) -> Batch:
    """With nothing written yet."""
    return with_target(batch, target_of(batch)[:, :1])


def with_target(batch: Batch, ids: Tensor) -> Batch:
    return dataclasses.replace(batch, target=Padded.of_ids(ids))


def with_source(batch: Batch, ids: Tensor) -> Batch:
    return dataclasses.replace(batch, source=Padded.of_ids(ids))


def close(left: Tensor, right: Tensor, tolerance: float = 1e-10) -> bool:
    return left.shape == right.shape and bool((left - right).abs().max() < tolerance)


# Learns


@every
def test_it_keeps_its_promises(name: str) -> None:
    model = build(name)
    promised = {Learns: True, Generates: name in GENERATING, Classifies: name in LABELS}
    promised[Tags] = name in NAMING and name not in LABELS
    # a text is read on from a carried state or in windows: one or the other
    promised[Windowed] = name.startswith(("gpt", "elmo")) and name not in NAMING
    promised[Carries] = name.startswith(("neural_lm", "rnn_lm"))
    promised[Inspects] = True
    assert {promise: isinstance(model, promise) for promise in promised} == promised


@generating
def test_nll_is_the_sum_of_minus_log_p(name: str) -> None:
    model, batch = lively(name), batch_of(name)
    loss, expected = model.loss(batch), 0.0
    log_probs = model.logits(batch).log_softmax(-1)  # (batch, target, vocab)
    for row, length in enumerate(TARGET_LENGTHS):
        for step in range(length):
            expected -= float(log_probs[row, step, target_of(batch)[row, step + 1]])
    assert loss.tokens == sum(TARGET_LENGTHS)
    assert float(loss.nll) == pytest.approx(expected, rel=1e-6)
    if not name.startswith("elmo"):  # whose objective is that of two language models
        assert float(loss.objective) == pytest.approx(expected, rel=1e-6)  # no smoothing outside training


def flat(name: str, path: str) -> bool:
    """Parameters that cannot matter: a constant added to all of a query's scores, and anything inside a boxcar."""
    if name.startswith("rnnsearch boxcar"):
        return path.startswith(("decoder.attention.query", "decoder.attention.key"))
    return path.endswith(("attention.key.bias", "score.out.bias"))


@every
@torch.enable_grad()
def test_every_parameter_gets_a_gradient(name: str) -> None:
    model = lively(name).train()
    loss = model.loss(batch_of(name))
    assert loss.objective.isfinite()
    loss.objective.backward()
    for path, parameter in model.named_parameters():
        if not flat(name, path):
            assert parameter.grad is not None, path
            assert parameter.grad.isfinite().all(), path
            assert parameter.grad.abs().max() > 0, path


@every
@torch.enable_grad()
def test_a_step_downhill_lowers_the_loss(name: str) -> None:
    model, batch = lively(name).train(), batch_of(name)
    before = model.loss(batch).objective
    before.backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    torch.optim.SGD(model.parameters(), lr=float(1e-3 / norm)).step()
    # to first order the loss falls by length of step × length of gradient
    assert model.loss(batch).objective < before - 0.5e-3 * norm


# Generates


@generating
def test_stepwise_equals_teacher_forced(name: str) -> None:
    model, batch = lively(name), batch_of(name)
    forced = model.logits(batch)  # (batch, target, vocab)
    state = model.start(begun(batch))
    for step in range(5):
        logits, state = model.step(target_of(batch)[:, step], state)
        assert close(logits, forced[:, step])


TOLERANCE = {"fp32": 1e-5, "bf16": 0.1, "int8": 0.25}  # of what these models, narrow as they are, answer


def pack_all(model: Any, precision: Any) -> None:
    """Pack even the smallest matrix."""
    pack(model, precision, least=0, small=0, large=0)


@pytest.mark.parametrize("precision", TOLERANCE)
@every
def test_packed_products_answer_nearly_the_same(name: str, precision: Any) -> None:
    model, batch = lively(name, dtype=torch.float32), batch_of(name)
    plain = answers(model, batch)
    pack_all(model, precision)
    packed = answers(model, batch)
    likely = plain > plain.amax(-1, keepdim=True) - 20  # an adaptive softmax has tokens of hardly any probability
    spread = float(plain[likely].std())
    assert float((packed - plain)[likely].square().mean().sqrt()) < TOLERANCE[precision] * spread
    with torch.enable_grad():  # gradients are those of the weights themselves
        assert close(answers(model, batch), plain, 1e-5 * spread)
    with trace(model):  # cells then run instead of recurrent kernels, which have no packed products
        assert precision == "fp32" or not torch.equal(answers(model, batch), plain)
    assert torch.equal(answers(copy.deepcopy(model), batch), packed)


@pytest.mark.parametrize("precision", TOLERANCE)
@generating
def test_packed_stepwise_is_near_teacher_forced(name: str, precision: Any) -> None:
    model, batch = lively(name, dtype=torch.float32), batch_of(name)
    pack_all(model, precision)
    forced = model.logits(batch)
    state = model.start(begun(batch))
    for step in range(5):
        logits, state = model.step(target_of(batch)[:, step], state)
        likely = forced[:, step] > forced[:, step].amax(-1, keepdim=True) - 20
        apart = (logits - forced[:, step])[likely].square().mean().sqrt()
        assert float(apart) < TOLERANCE[precision] * float(forced.std())


@generating
def test_no_logit_knows_the_future(name: str) -> None:
    model, batch = lively(name), batch_of(name)
    target = target_of(batch).clone()
    target[target == PAD] = EOS
    before = model.logits(with_target(batch, target))
    for place in range(1, 5):
        changed = target.clone()
        changed[:, place] = 4 + (changed[:, place] - 3) % (TARGET_VOCAB - 4)
        assert (changed[:, place] != target[:, place]).all()
        after = model.logits(with_target(batch, changed))
        assert close(after[:, :place], before[:, :place])
        assert ((after[:, place:] - before[:, place:]).abs().amax((1, 2)) > 1e-9).all()


@translating
def test_the_source_is_read(name: str) -> None:
    model, batch = lively(name), batch_of(name)
    source = source_of(batch).clone()
    source[:, 0] = 4 + (source[:, 0] - 3) % (SOURCE_VOCAB - 4)
    change = model.logits(with_source(batch, source)) - model.logits(batch)
    assert (change.abs().amax((1, 2)) > 1e-9).all()


def padded(batch: Batch, *, source: int, target: int, rows: int) -> Batch:
    """With so much more padding on either side, and the first example so many more times."""
    again = [*range(batch.size), *[0] * rows]
    longer = with_target(batch, torch.nn.functional.pad(target_of(batch)[again], (0, target), value=PAD))
    if batch.source is None:
        return longer
    return with_source(longer, torch.nn.functional.pad(source_of(batch)[again], (0, source), value=PAD))


@generating
def test_batch_mates_and_padding_change_nothing(name: str) -> None:
    model, batch = lively(name), batch_of(name)
    together = model.logits(batch)
    for row, (alone, length) in enumerate(zip(batch.rows(), TARGET_LENGTHS, strict=True)):
        assert close(model.logits(alone)[0], together[row, :length])
    for more in ({"source": 3, "target": 0, "rows": 0}, {"source": 0, "target": 2, "rows": 0}):
        assert close(model.logits(padded(batch, **more))[:, :5], together)
    assert close(model.logits(padded(batch, source=1, target=1, rows=2))[:3, :5], together)
    for more in ({"source": 3, "target": 2, "rows": 0}, {"source": 0, "target": 0, "rows": 2}):
        logits, _ = model.step(torch.full((3 + more["rows"],), BOS), model.start(begun(padded(batch, **more))))
        assert close(logits[:3], together[:, 0])


@generating
def test_batch_mates_change_little_in_float32(name: str) -> None:
    model, batch = lively(name, dtype=torch.float32), batch_of(name)
    together = model.logits(batch).log_softmax(-1)
    for row, (alone, length) in enumerate(zip(batch.rows(), TARGET_LENGTHS, strict=True)):
        separate = model.logits(alone).log_softmax(-1)[0]
        assert torch.allclose(separate, together[row, :length], atol=1e-4, rtol=1e-5)


@generating
def test_a_state_widened_picked_and_kept_continues_the_right_rows(name: str) -> None:
    """Whatever was done to a state, a step gives the teacher-forced logits of the row's own prefix."""
    model, batch = lively(name), batch_of(name)
    examples = [0, 1, 2]
    prefixes: list[list[int]] = [[]] * 6

    def expected() -> Tensor:
        """Each row's prefix read in one go."""
        own = with_target(batch, torch.tensor([[*prefix, EOS] for prefix in prefixes]))
        if batch.source is not None:
            own = with_source(own, source_of(batch)[torch.tensor(examples).repeat_interleave(WIDTH)])
        return model.logits(own)[:, -1]  # type: ignore[no-any-return]

    def stepped(tokens: list[int]) -> None:
        nonlocal state, prefixes
        prefixes = [[*prefix, token] for prefix, token in zip(prefixes, tokens, strict=True)]
        logits, state = model.step(torch.tensor(tokens), state)
        assert close(logits, expected())

    state = model.start(begun(batch)).widen(WIDTH, torch.arange(3))
    stepped([BOS] * 6)
    stepped([4, 5, 6, 7, 8, 9])
    parents = [1, 0, 2, 2, 5, 4]  # swapped, copied, swapped
    state = state.pick(torch.tensor(parents))
    prefixes = [prefixes[parent] for parent in parents]
    stepped([10, 11, 12, 4, 5, 6])
    examples = [0, 2]
    state = state.keep(torch.tensor(examples))
    prefixes = prefixes[:2] + prefixes[4:]
    assert state.width == WIDTH
    stepped([7, 8, 9, 10])


@generating
def test_examples_that_join_later_go_on_as_if_alone(name: str) -> None:
    """Whoever joins whom, and whoever leaves: a step gives the teacher-forced logits of the row's own prefix."""
    model, batch = lively(name), batch_of(name)
    forced, target, parts = model.logits(batch), target_of(batch), list(batch.rows())

    def stepped(state: State, rows: list[int], places: list[int]) -> State:
        logits, state = model.step(target[rows, places], state)
        assert close(logits, forced[rows, places])
        return state

    state = stepped(model.start(begun(parts[2])), [2], [0])
    state = stepped(state.join(model.start(begun(parts[0]))), [2, 0], [1, 0])
    state = stepped(state.join(model.start(begun(parts[1]))), [2, 0, 1], [2, 1, 0])
    state = stepped(state.keep(torch.tensor([2, 0])), [1, 2], [1, 3])
    state = stepped(state.keep(torch.tensor([0])), [1], [2])
    first, second = (model.start(begun(part)) for part in parts[:2])
    stepped(stepped(first.join(second), [0, 1], [0, 0]).keep(torch.tensor([1, 0])), [1, 0], [1, 1])


@generating
def test_picking_leaves_the_first_state_as_it_was(name: str) -> None:
    model, batch = lively(name), batch_of(name)
    _, state = model.step(torch.full((3,), BOS), model.start(begun(batch)))
    copy = state.pick(torch.arange(3))
    model.step(torch.tensor([4, 5, 6]), copy)
    logits, _ = model.step(target_of(batch)[:, 1], state)
    assert close(logits, model.logits(batch)[:, 1])


# Classifies, Tags


def among(batch: Batch, rows: list[int], *, extra: int = 0) -> Batch:
    """These examples of the batch, with so much more padding."""

    def longer(values: Tensor) -> Tensor:
        return torch.nn.functional.pad(values[rows], [0, 0] * (values.dim() - 2) + [0, extra])

    assert batch.source is not None and batch.target is not None
    return Batch(
        Padded(*map(longer, batch.source)),
        Padded(*map(longer, batch.target)),
        {name: longer(values) for name, values in batch.beside.items()},
    )


def words(batch: Batch) -> Tensor:
    assert batch.source is not None
    return batch.source.but_end().mask


def said(model: Any, batch: Batch) -> Tensor:
    found: Tensor = model.classify(batch) if isinstance(model, Classifies) else model.tag(batch)
    return found


@naming
def test_padding_company_and_order_change_no_name_and_no_loss(name: str) -> None:
    model, batch = lively(name), batch_of(name)
    scores, names, loss = answers(model, batch), said(model, batch), model.loss(batch)
    wide, real = scores.shape[1], names.new_ones(names.shape).bool() if name in LABELS else words(batch)
    for rows, extra in (([0, 1, 2], 3), ([2, 1, 0], 0), ([1, 0, 1, 2], 1)):
        other = among(batch, rows, extra=extra)
        assert close(answers(model, other)[:, :wide], scores[rows])
        assert close(said(model, other)[:, : names.shape[1]][real[rows]], names[rows][real[rows]])
    losses = 0.0
    for row, alone in enumerate(batch.rows()):
        found = answers(model, alone)[0]
        assert close(found, scores[row, : len(found)])
        losses += float(model.loss(alone).nll)
    assert float(loss.nll) == pytest.approx(losses)
    assert loss.tokens == (3 if name in LABELS else sum(SOURCE_LENGTHS) - 3)  # <eos> has no tag


@naming
def test_every_word_changes_the_output(name: str) -> None:
    """Through a maximum not every word need pass, but some do."""
    model, batch = lively(name), batch_of(name)
    before, changes = answers(model, batch)[0], []
    for place in range(6):
        source = source_of(batch).clone()
        source[0, place] = 4 + (source[0, place] - 3) % (SOURCE_VOCAB - 4)
        changes.append(float((answers(model, with_source(batch, source))[0] - before).abs().max()))
    changed = [change > 1e-9 for change in changes]
    assert any(changed) if "max" in name else all(changed)


@labelling
def test_labels_are_probabilities(name: str) -> None:
    found = lively(name).classify(batch_of(name)).exp()
    assert found.shape == (3, NAMES)
    assert close(found.sum(1), torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize("name", [name for name in NAMING if name.startswith(("attentive", "encoder"))])
def test_watching_a_namer_changes_no_bit(name: str) -> None:
    model, batch = lively(name), batch_of(name)
    plain = answers(model, batch)
    with watch(model) as seen:
        assert torch.equal(answers(model, batch), plain)
    assert seen.paths()
    for path in seen.paths():
        weights_seen = seen[path][0]
        assert close(weights_seen.sum(-1), torch.ones(weights_seen.shape[:-1], dtype=torch.float64))


# attends


def test_who_attends() -> None:
    assert [name for name in TRANSLATING if build(name).decoder.looks_back()] == ATTENDING


@attending
def test_watching_changes_no_bit(name: str) -> None:
    for dtype in (torch.float64, torch.float32):
        model, batch = lively(name, dtype=dtype), batch_of(name)
        plain = model.logits(batch)
        stepped, _ = model.step(torch.full((3,), BOS), model.start(begun(batch)))
        with watch(model) as seen:
            assert torch.equal(model.logits(batch), plain)
            assert torch.equal(model.step(torch.full((3,), BOS), model.start(begun(batch)))[0], stepped)
        assert all(seen[path] for path in seen.paths())


@attending
def test_weights_are_distributions_over_real_tokens(name: str) -> None:
    model, batch = lively(name), batch_of(name)
    crossing = model.inspect().of_kind("cross")
    with watch(model) as looked:
        model.hidden(batch)
    # a recurrent decoder looks once per step, a Transformer at all steps together: both join along the target
    seen = torch.stack([torch.cat(looked.of(each.part), 2) for each in crossing], 1)  # (batch, layers, heads, ·, ·)
    _, config, _ = CASES[name]
    layers = 1 if isinstance(config, rnnsearch.Config) else config.layers
    heads = 1 if isinstance(config, convs2s.Config) else config.heads
    lead, extra = crossing[0].lead, crossing[0].extra  # what is read before either side
    assert seen.shape == (3, layers, heads, lead + 5, extra + 7)
    sums = seen.sum(-1)
    nothing = sums == 0
    if name.startswith(("rnnsearch boxcar", "rnnsearch epanechnikov")):
        assert not nothing.all()  # a query with no key in reach looks at nothing, but some have one
    else:
        assert not nothing.any()
    assert close(sums[~nothing], torch.ones_like(sums[~nothing]))
    assert (seen >= 0).all()
    assert batch.source is not None
    own = seen[..., extra:]
    padding = ~batch.source.mask[:, None, None, None].expand_as(own)
    assert (own[padding] == 0).all()
    with watch(model) as stepping:
        model.step(torch.full((3,), BOS), model.start(begun(batch)))
    first = stepping.of(crossing[0].part)[0]
    assert close(first[:, :, 0], seen[:, 0, :, 0])


# Inspects


def begins_with_bos(name: str) -> bool:
    return CASES[name][0] in ("bart", *RELATIVES) or (CASES[name][0] == "gpt" and name in NAMING)


def attentions_of(name: str) -> list[tuple[str, int, str | None, str, int, int]]:
    """Kind, layer, queries, keys, extra keys and queries: what the settings say of a model's attentions."""
    model, config, shapes = CASES[name]
    if model == "attentive_birnn" or (model == "elmo" and shapes == LABEL and config.pool == "attention"):
        return [("pooling", 1, None, "source", 0, 0)]
    both = [("cross", "target", "source"), ("self", "target", "target"), ("self", "source", "source")]
    kinds: dict[str, list[tuple[str, str, str]]] = {
        "rnnsearch": [("cross", "target", "source")],
        "convs2s": [("cross", "target", "source")],
        **dict.fromkeys(("transformer", "t5", "bart"), both[-1:] if name in NAMING else both),
        "gpt": [("self", "source", "source") if name in NAMING else ("self", "target", "target")],
        **dict.fromkeys(("encoder", *RELATIVES), [("self", "source", "source")]),
    }
    begins = begins_with_bos(name) or (model == "encoder" and shapes == LABEL and config.pool == "first")
    extra = lead = int(begins)
    layers = 1 if model == "rnnsearch" else config.layers if model in kinds else 0
    pools = model in ("gpt", *RELATIVES) and shapes == LABEL and config.pool == "attention"
    return [
        (kind, layer, queries, keys, extra, lead)
        for kind, queries, keys in kinds.get(model, [])
        for layer in range(1, layers + 1)
    ] + [("pooling", 1, None, "source", extra, 0)] * pools


def recurrences_of(name: str) -> list[tuple[int, str, bool, bool]]:
    """Layer, side, backwards, two ways: what the settings say of a model's recurrent layers."""
    model, config, _ = CASES[name]
    sides: dict[str, list[tuple[str, bool, bool]]] = {
        "seq2seq": [("source", model == "seq2seq" and config.reverse, False), ("target", False, False)],
        "rnnsearch": [("source", False, True), ("source", True, True), ("target", False, False)],
        "rnn_lm": [("target", False, False)],
        "birnn": [("source", False, True), ("source", True, True)],
        "attentive_birnn": [("source", False, True), ("source", True, True)],
        "elmo": [("source", False, True), ("source", True, True)] if name in NAMING else [("target", False, False)],
    }
    if model == "birnn" and not config.bidirectional:
        sides["birnn"] = [("source", False, False)]
    return [(layer, *each) for each in sides.get(model, []) for layer in range(1, config.layers + 1)]


@every
def test_a_model_lists_its_attentions_and_recurrent_layers(name: str) -> None:
    inside = build(name).inspect()
    assert [tuple(each)[1:] for each in inside.attentions] == attentions_of(name)
    assert [tuple(each)[1:] for each in inside.recurrences] == recurrences_of(name)


@every
def test_the_listed_attentions_are_those_that_watch_records(name: str) -> None:
    model, batch = lively(name), batch_of(name)
    inside, lengths = model.inspect(), {"source": 7, "target": 5, None: 1}
    with watch(model) as seen:
        answers(model, batch)
    assert {id(each.part) for each in inside.attentions} == {id(part) for part in seen.names}  # each of them, once
    assert len(inside.attentions) == len(seen.names)
    for each in inside.attentions:
        weights_seen = torch.cat(seen.of(each.part), 2)  # (batch, heads, queries, keys)
        assert weights_seen.shape[2:] == (each.lead + lengths[each.queries], each.extra + lengths[each.keys])


@pytest.mark.parametrize("name", [name for name in CASES if recurrences_of(name)])
def test_a_recurrent_layer_reads_in_its_direction(name: str) -> None:
    model = lively(name)
    batch = next(batch_of(name).rows())
    inside = model.inspect()

    def first_states(changed: Batch) -> list[Tensor]:
        with trace(model) as kept:
            answers(model, changed)
        sizes = {"source": SOURCE_LENGTHS[0], "target": TARGET_LENGTHS[0]}
        ran = {id(cell) for cell in kept.names if kept.states_of(cell)}  # elmo generates with its forward half
        assert {id(each.part) for each in inside.recurrences} == ran
        assert [len(kept.states_of(each.part)) for each in inside.recurrences] == [
            sizes[each.side] for each in inside.recurrences
        ]
        assert all(len(kept.gates_of(each.part)) == sizes[each.side] for each in inside.recurrences)
        return [kept.states_of(each.part)[0][0] for each in inside.recurrences]

    def other_word(side: Padded | None, place: int) -> Padded | None:
        if side is None or side.mask.shape[1] == 1:
            return side  # a label
        values = side.values.clone()
        values[:, place] = 4 + (values[:, place] - 3) % (SOURCE_VOCAB - 4)
        return Padded(values, side.mask)

    before = first_states(batch)
    for place, backwards in ((0, False), (-1, True)):
        source = first_states(dataclasses.replace(batch, source=other_word(batch.source, place)))
        for each, was, now in zip(inside.recurrences, before, source, strict=True):
            if each.side == "source" and each.layer == 1:
                assert torch.equal(was, now) == (each.backwards != backwards)
    if name in GENERATING:
        target = first_states(dataclasses.replace(batch, target=other_word(batch.target, 0)))
        for each, was, now in zip(inside.recurrences, before, target, strict=True):
            assert torch.equal(was, now) == (each.side == "source")


@every
def test_a_model_names_its_embedding(name: str) -> None:
    model, batch = lively(name), batch_of(name)
    inside, read = model.inspect(), []
    hook = inside.reader.register_forward_hook(lambda module, tokens, vectors: read.append((tokens[0], vectors)))
    answers(model, batch)
    hook.remove()
    tokens, vectors = read[0]
    begins = int(begins_with_bos(name))
    assert torch.equal(tokens[:, begins:], batch.first.values[:, : tokens.shape[1] - begins])
    assert isinstance(inside.vectors, Embedding)
    if not name.startswith(RELATIVES):  # what they read is positions and segments, too
        assert close(vectors[..., : inside.vectors.dim], inside.vectors(tokens))


# Device, saving, building


@contextmanager
def all_nonzero() -> Iterator[None]:
    """On the meta device there are no values to find the padding by: all tokens count as real."""
    was = symbolic.meta_nonzero_assume_all_nonzero
    symbolic.meta_nonzero_assume_all_nonzero = True
    try:
        yield
    finally:
        symbolic.meta_nonzero_assume_all_nonzero = was


@pytest.mark.parametrize("name", ELSEWHERE)
def test_everything_follows_its_module_to_another_device(name: str) -> None:
    model, batch = build(name).to("meta"), batch_of(name).to("meta")
    with all_nonzero():
        loss = model.loss(batch)
    assert loss.objective.is_meta
    if name in NAMING:
        return
    state = model.start(begun(batch)).widen(WIDTH, torch.arange(3, device="meta"))
    tokens = torch.full((3 * WIDTH,), BOS, device="meta")
    for _ in range(2):
        logits, state = model.step(tokens, state)
        assert logits.is_meta
        assert logits.shape == (3 * WIDTH, TARGET_VOCAB)


class Opaque(torch.nn.Module):
    """A linear map of which nothing can be known but what it makes of x: packed or sharded ones have no `weight`."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.made = [linear]  # in a list, so that it is no part of the model

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.made[0](x)
        return made


@every
def test_linear_maps_are_called_and_never_looked_into(name: str) -> None:
    model, batch = lively(name), batch_of(name)
    before = answers(model, batch)
    for module in list(model.modules()):
        for path, part in module.named_children():
            if isinstance(part, torch.nn.Linear):
                setattr(module, path, Opaque(part))
    assert torch.equal(answers(model, batch), before)
    if name in GENERATING:
        logits, _ = model.step(target_of(batch)[:, 0], model.start(begun(batch)))
        assert close(logits, before[:, 0])


@every
def test_saved_and_loaded_is_the_same(name: str, tmp_path: Any) -> None:
    model, batch = lively(name), batch_of(name)
    write_tensors(tmp_path / "weights", weights(model))
    other = lively(name, seed=5)
    assert not torch.equal(answers(other, batch), answers(model, batch))
    load_weights(other, read_tensors(tmp_path / "weights")[0])
    assert torch.equal(answers(other, batch), answers(model, batch))


@every
def test_a_seed_decides_every_weight(name: str) -> None:
    one, same, other = (weights(build(name, seed=seed)) for seed in (1, 1, 2))
    assert one.keys() == same.keys() == other.keys()
    assert all(torch.equal(one[path], same[path]) for path in one)
    assert any(not torch.equal(one[path], other[path]) for path in one)


def test_tied_matrices_are_one() -> None:
    for apart in ("transformer pre layer sinusoidal tied", "convs2s 1 x 3 learned"):
        model, counts = apart.split()[0], []
        for name in (f"{model} joint tie=True", f"{model} joint tie=False", apart):
            own = weights(build(name))
            counts.append(sum(tensor.dim() == 2 and len(tensor) == TARGET_VOCAB for tensor in own.values()))
        assert counts == [1, 3, 1]  # the third's source vocabulary has another size
