"""Every model × every promise, in one table; sizes are distinct primes, so a swapped axis fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental import _config as symbolic

from regard.checkpoint import read_tensors, write_tensors
from regard.data.batches import SPELT
from regard.interface import BOS, EOS, PAD, Batch, Classifies, Generates, Learns, Tags
from regard.layers.attention import KERNELS, SCORES, watch
from regard.layers.cells import CELLS
from regard.models import MODELS, convs2s, gpt, neural_lm, rnn_lm, rnnsearch, seq2seq, transformer
from regard.models.design import Vocabulary
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.encoder_head import EncoderWithHead
from regard.models.language_model import LanguageModel
from regard.train.weights import load_weights, weights

SOURCE_VOCAB, TARGET_VOCAB = 11, 13
SOURCE_LENGTHS, TARGET_LENGTHS = (7, 4, 2), (3, 5, 4)  # <eos> included, <bos> not
WIDTH = 2
APART = Vocabulary(SOURCE_VOCAB, TARGET_VOCAB)
JOINT = Vocabulary(TARGET_VOCAB, TARGET_VOCAB, joint=True)
PER_WORD = Vocabulary(SOURCE_VOCAB, TARGET_VOCAB, per_word=True)

Case = tuple[str, Any, Vocabulary]


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
    stack: dict[str, Any] = {"dim": 15, "heads": 3, "feed_forward": 17, "layers": 2, "longest": 19, "dropout": 0.0}
    options = product(("pre", "post"), ("layer", "batch"), ("sinusoidal", "learned"))
    for number, (norm, normalisation, positions) in enumerate(options):
        tie = number in (0, 3, 5, 6)  # so that any three options meet in every combination
        config = transformer.Config(**stack, norm=norm, normalisation=normalisation, positions=positions, tie=tie)
        tied = "tied" if tie else "untied"
        cases[f"transformer {norm} {normalisation} {positions} {tied}"] = ("transformer", config, APART)
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
        cases[f"neural_lm direct={direct}"] = ("neural_lm", config, JOINT)
    apart: dict[str, Any] = {"embedding": 5, "hidden": 17, "tie": False, "dropout": 0.0}
    for cell in CELLS:
        cases[f"rnn_lm {cell}"] = ("rnn_lm", rnn_lm.Config(**apart, cell=cell, layers=2), JOINT)
    for head in ("softmax", "adaptive", "features"):
        cases[f"rnn_lm {head}"] = ("rnn_lm", rnn_lm.Config(**apart, head=head, reach=3, rows=19), JOINT)
    tied: dict[str, Any] = {"embedding": 7, "hidden": 7, "dropout": 0.0}
    cases["rnn_lm tied"] = ("rnn_lm", rnn_lm.Config(**tied), JOINT)
    cases["rnn_lm tied features"] = ("rnn_lm", rnn_lm.Config(**tied, head="features", reach=1, rows=5), JOINT)
    stack = {"dim": 12, "heads": 3, "feed_forward": 17, "layers": 2, "context": 19, "dropout": 0.0}
    options = product(("pre", "post"), ("learned", "sinusoidal", "rotary"))
    for number, (norm, positions) in enumerate(options):
        config = gpt.Config(**stack, norm=norm, positions=positions, tie=number % 2 == 0)
        cases[f"gpt {norm} {positions}"] = ("gpt", config, JOINT)
    return cases | naming_table()


def naming_table() -> dict[str, Case]:
    """What gives names, to sentences (labels) and to words (tags)."""
    recurrent: dict[str, Any] = {"embedding": 5, "hidden": 7}
    sizes = {
        "birnn": recurrent,
        "attentive_birnn": recurrent,
        "encoder": {"dim": 15, "heads": 3, "feed_forward": 17, "layers": 2, "longest": 19},
        "cnn": {"embedding": 5, "filters": 7, "widths": (2, 3)},
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
        ("cnn", {"pool": "max"}),
        ("cnn", {"pool": "mean", "layers": 2}),
    )
    cases: dict[str, Case] = {}
    for model, options in labels:
        name = " ".join([model, "labels", *map(str, options.values())])
        cases[name] = (model, MODELS[model].config(**sizes[model], **options, dropout=0.0), APART)
    for model, head, letters in product(("birnn", "encoder", "cnn"), ("softmax", "crf"), (0, 3)):
        config = MODELS[model].config(**sizes[model], head=head, letters=letters, dropout=0.0)
        cases[f"{model} tags {head}{' letters' if letters else ''}"] = (model, config, PER_WORD)
    return cases


CASES = table()
TRANSLATING = [name for name, (model, _, _) in CASES.items() if "translation" in MODELS[model].tasks]
ATTENDING = [name for name in TRANSLATING if not name.startswith("seq2seq")]
ELSEWHERE = [name for number, name in enumerate(CASES) if number % 3 == 0]  # running on meta is slow
NAMING = [name for name, (model, _, _) in CASES.items() if "classification" in MODELS[model].tasks]
LABELS = [name for name in NAMING if CASES[name][2] == APART]
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
    model, config, vocabulary = CASES[name]
    torch.manual_seed(seed)
    built = MODELS[model].build(config, vocabulary)
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
    """(3, 7) source and (3, 6) target tokens, of different lengths; a language model's source is (3, 0); names are
    (3, 1), or (3, 7) with each word spelt out."""
    vocabulary = CASES[name][2]
    random = torch.Generator().manual_seed(seed)
    source = torch.randint(4, vocabulary.source, (3, 7), generator=random)
    target = torch.randint(4, vocabulary.target, (3, 6), generator=random)
    target[:, 0] = BOS
    for row in range(3):
        source[row, SOURCE_LENGTHS[row] - 1 :] = EOS
        source[row, SOURCE_LENGTHS[row] :] = PAD
        target[row, TARGET_LENGTHS[row] :] = EOS
        target[row, TARGET_LENGTHS[row] + 1 :] = PAD
    if name in LABELS:
        return Batch(source, target[:, 1:2].clamp(min=4))
    if name in NAMING:
        words = source > EOS
        tags = torch.randint(4, vocabulary.target, source.shape, generator=random)
        letters = torch.randint(1, 257, (*source.shape, SPELT), generator=random)
        letters[..., 5:] = 0
        return Batch(source, tags * words, spelling=letters * words[..., None])
    return Batch(source, target) if name in TRANSLATING else Batch.of_text(target)


def answers(model: Any, batch: Batch) -> Tensor:
    """Before any choice is made: (batch, target, vocab), (batch, labels) or (batch, source, tags)."""
    if isinstance(model, EncoderDecoder | LanguageModel):
        return model.logits(batch)
    encoded = model.encoded(batch)
    scores: Tensor = model.head.logits(encoded) if isinstance(model, Classifies) else model.head.emissions(encoded)
    return scores


def begun(batch: Batch) -> Batch:
    """With nothing written yet."""
    return Batch(batch.source, target_of(batch)[:, :1])


def target_of(batch: Batch) -> Tensor:
    assert batch.target is not None
    return batch.target


def close(left: Tensor, right: Tensor, tolerance: float = 1e-10) -> bool:
    return left.shape == right.shape and bool((left - right).abs().max() < tolerance)


# Learns


@every
def test_it_keeps_its_promises(name: str) -> None:
    model = build(name)
    promised = {Learns: True, Generates: name in GENERATING, Classifies: name in LABELS}
    promised[Tags] = name in NAMING and name not in LABELS
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


@generating
def test_no_logit_knows_the_future(name: str) -> None:
    model, batch = lively(name), batch_of(name)
    target = target_of(batch).clone()
    target[target == PAD] = EOS
    before = model.logits(Batch(batch.source, target))
    for place in range(1, 5):
        changed = target.clone()
        changed[:, place] = 4 + (changed[:, place] - 3) % (TARGET_VOCAB - 4)
        assert (changed[:, place] != target[:, place]).all()
        after = model.logits(Batch(batch.source, changed))
        assert close(after[:, :place], before[:, :place])
        assert ((after[:, place:] - before[:, place:]).abs().amax((1, 2)) > 1e-9).all()


@translating
def test_the_source_is_read(name: str) -> None:
    model, batch = lively(name), batch_of(name)
    source = batch.source.clone()
    source[:, 0] = 4 + (source[:, 0] - 3) % (SOURCE_VOCAB - 4)
    change = model.logits(Batch(source, batch.target)) - model.logits(batch)
    assert (change.abs().amax((1, 2)) > 1e-9).all()


def alone(batch: Batch, row: int) -> Batch:
    """One example without its padding."""
    target = target_of(batch)[row : row + 1, : TARGET_LENGTHS[row] + 1]
    return Batch(batch.source[row : row + 1, : SOURCE_LENGTHS[row]], target)


def padded(batch: Batch, *, source: int, target: int, rows: int) -> Batch:
    """With so much more padding on either side, and the first example so many more times."""
    longer_source = torch.nn.functional.pad(batch.source, (0, source), value=PAD)
    longer_target = torch.nn.functional.pad(target_of(batch), (0, target), value=PAD)
    again = torch.tensor([*range(batch.size), *[0] * rows])
    return Batch(longer_source[again], longer_target[again])


@generating
def test_batch_mates_and_padding_change_nothing(name: str) -> None:
    model, batch = lively(name), batch_of(name)
    together = model.logits(batch)
    for row, length in enumerate(TARGET_LENGTHS):
        assert close(model.logits(alone(batch, row))[0], together[row, :length])
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
    for row, length in enumerate(TARGET_LENGTHS):
        separate = model.logits(alone(batch, row)).log_softmax(-1)[0]
        assert torch.allclose(separate, together[row, :length], atol=1e-4, rtol=1e-5)


@generating
def test_a_state_widened_picked_and_kept_goes_on_from_the_right_rows(name: str) -> None:
    """Whatever was done to a state, a step gives the teacher-forced logits of the row's own prefix."""
    model, batch = lively(name), batch_of(name)
    examples = [0, 1, 2]
    prefixes: list[list[int]] = [[]] * 6

    def expected() -> Tensor:
        """Each row's prefix read in one go."""
        target = torch.tensor([[*prefix, EOS] for prefix in prefixes])
        source = batch.source[torch.tensor(examples).repeat_interleave(WIDTH)]
        return model.logits(Batch(source, target))[:, -1]

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
def test_picking_leaves_the_first_state_as_it_was(name: str) -> None:
    model, batch = lively(name), batch_of(name)
    _, state = model.step(torch.full((3,), BOS), model.start(begun(batch)))
    copy = state.pick(torch.arange(3))
    model.step(torch.tensor([4, 5, 6]), copy)
    logits, _ = model.step(target_of(batch)[:, 1], state)
    assert close(logits, model.logits(batch)[:, 1])


# Classifies, Tags


def among(batch: Batch, rows: list[int], *, extra: int = 0, short: int = 0) -> Batch:
    """These examples of the batch, with so much more padding or so much less."""

    def with_padding(sides: Tensor) -> Tensor:
        more = [0, 0] * (sides.dim() - 2) + [0, extra - short]
        return torch.nn.functional.pad(sides[rows], more)

    target = target_of(batch)
    longer = with_padding(target) if target.shape[1] > 1 else target[rows]
    return Batch(
        with_padding(batch.source), longer, spelling=None if batch.spelling is None else with_padding(batch.spelling)
    )


def said(model: Any, batch: Batch) -> Tensor:
    found: Tensor = model.classify(batch) if isinstance(model, Classifies) else model.tag(batch)
    return found


@naming
def test_padding_company_and_order_change_no_name_and_no_loss(name: str) -> None:
    model, batch = lively(name), batch_of(name)
    scores, names, loss = answers(model, batch), said(model, batch), model.loss(batch)
    wide = scores.shape[1]
    for rows, extra in (([0, 1, 2], 3), ([2, 1, 0], 0), ([1, 0, 1, 2], 1)):
        other = among(batch, rows, extra=extra)
        assert close(answers(model, other)[:, :wide], scores[rows])
        assert close(said(model, other)[:, :wide], names[rows])
    losses = 0.0
    for row, length in enumerate(SOURCE_LENGTHS):
        alone = among(batch, [row], short=7 - length)
        found = answers(model, alone)[0]
        assert close(found, scores[row, : len(found)])
        losses += float(model.loss(alone).nll)
    assert float(loss.nll) == pytest.approx(losses)
    assert loss.tokens == (3 if name in LABELS else sum(SOURCE_LENGTHS) - 3)  # <eos> has no tag


@naming
def test_every_word_has_a_say(name: str) -> None:
    """Through a maximum not every word need pass, but some do."""
    model, batch = lively(name), batch_of(name)
    before, changes = answers(model, batch)[0], []
    for place in range(6):
        source = batch.source.clone()
        source[0, place] = 4 + (source[0, place] - 3) % (SOURCE_VOCAB - 4)
        changes.append(float((answers(model, dataclasses.replace(batch, source=source))[0] - before).abs().max()))
    heard = [change > 1e-9 for change in changes]
    assert any(heard) if "max" in name else all(heard)


@labelling
def test_labels_are_probabilities(name: str) -> None:
    found = lively(name).classify(batch_of(name)).exp()
    assert found.shape == (3, TARGET_VOCAB - 4)
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
    seen = model.attention(batch)  # (batch, layers, heads, target, source)
    _, config, _ = CASES[name]
    layers = 1 if isinstance(config, rnnsearch.Config) else config.layers
    heads = 1 if isinstance(config, convs2s.Config) else config.heads
    assert seen.shape == (3, layers, heads, 5, 7)
    sums = seen.sum(-1)
    nothing = sums == 0
    if name.startswith(("rnnsearch boxcar", "rnnsearch epanechnikov")):
        assert not nothing.all()  # a query with no key in reach looks at nothing, but some have one
    else:
        assert not nothing.any()
    assert close(sums[~nothing], torch.ones_like(sums[~nothing]))
    assert (seen >= 0).all()
    padding = ~batch.source_mask[:, None, None, None].expand_as(seen)
    assert (seen[padding] == 0).all()
    with watch(model) as stepping:
        model.step(torch.full((3,), BOS), model.start(begun(batch)))
    first = stepping[stepping.names[model.decoder.looks_back()[0]]][0]
    assert close(first[:, :, 0], seen[:, 0, :, 0])


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
