"""Laws of Kneser-Ney: as the textbook has it; every context sums to 1; windows, steps and neighbours change nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made import side, text
from numpy.typing import NDArray

from regard.config import parse
from regard.interface import BOS, EOS, PAD, UNK, Carries, Fits, Generates, Ids, Scores, Shapes, UserError
from regard.models.ngram import DESIGN, FALLBACK, Config, NGram, discounts_of

VOCAB = 11
Lines = list[list[int]]

texts = st.lists(st.lists(st.integers(UNK, VOCAB - 1), max_size=7), max_size=13)
settled = st.builds(
    Config, order=st.integers(1, 5), discounts=st.sampled_from(["one", "three"]), open=st.sampled_from([True, False])
)


class Flat(NamedTuple):
    tokens: NDArray[Any]
    offsets: NDArray[Any]


def encoded(lines: Sequence[Sequence[int]]) -> Flat:
    offsets = np.cumsum([0, *map(len, lines)])
    return Flat(np.array([token for line in lines for token in line], dtype=np.int32), offsets)


def whole(lines: Sequence[Sequence[int]], *, more: int = 0) -> torch.Tensor:
    """<bos> … <eos>, and then so much more padding."""
    return torch.nn.functional.pad(side([[BOS, *line, EOS] for line in lines]).values, (0, more), value=PAD)


def fitted(lines: Sequence[Sequence[int]], config: Config = Config(), vocab: int = VOCAB) -> NGram:  # noqa: B008
    model = DESIGN.build(config, Shapes(None, Ids(vocab)))
    assert isinstance(model, NGram)
    model.fit(encoded(lines))
    return model


def skewed(lines: int, vocab: int, seed: int = 0) -> Lines:
    """Text whose words are as unequally frequent as real ones, so that every count of counts is there."""
    random = np.random.default_rng(seed)
    text = [np.minimum(UNK + random.zipf(1.5, random.integers(0, 17)), vocab - 1).tolist() for _ in range(lines)]
    return [line + line[:3] for line in text]  # something longer repeats as well


class Textbook:
    """Equation by equation, with dictionaries."""

    def __init__(self, lines: Lines, config: Config, vocab: int) -> None:
        self.order, self.vocab = config.order, vocab
        self.count: Counter[tuple[int, ...]] = Counter()
        for line in lines:
            text = (BOS, *line, EOS)
            for n in range(1, config.order + 1):
                self.count.update(text[i : i + n] for i in range(len(text) - n + 1))
        before: dict[tuple[int, ...], set[int]] = {}
        for gram in self.count:
            before.setdefault(gram[1:], set()).add(gram[0])
        self.a = {
            gram: self.count[gram] if len(gram) == config.order or gram[0] == BOS else len(before[gram])
            for gram in self.count
            if gram != (BOS,)
        }
        self.d = [self.discounts(n, config) for n in range(config.order + 1)]
        barred = {PAD, BOS} if config.open or (UNK,) in self.count else {PAD, BOS, UNK}
        self.predicted = set(range(vocab)) - barred
        self.prob = cache(self.prob)

    def discounts(self, n: int, config: Config) -> list[float]:
        n1, n2, n3, n4 = (sum(len(gram) == n and a == c for gram, a in self.a.items()) for c in (1, 2, 3, 4))
        if config.discounts == "one":
            return [n1 / (n1 + 2 * n2) if n1 and n2 else 0.5] * 3
        if n1 and n2 and n3:
            y = n1 / (n1 + 2 * n2)
            closed = [1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3]
            if min(closed) > 0:
                return closed
        return [0.5, 1.0, 1.5]

    def prob(self, word: int, context: tuple[int, ...]) -> float:
        below = self.prob(word, context[1:]) if context else (word in self.predicted) / len(self.predicted)
        d = self.d[len(context) + 1]
        after = {v: a for v in range(self.vocab) if (a := self.a.get((*context, v), 0))}
        total = sum(after.values())
        if not total:
            return below
        spared = sum(d[min(a, 3) - 1] for a in after.values())
        own = after[word] - d[min(after[word], 3) - 1] if word in after else 0
        return own / total + spared / total * below


def contexts_of(lines: Lines, order: int, seed: int = 0) -> list[list[int]]:
    """Those of a text and some that were never met, <bos> first or cut off, as a prompt."""
    random = np.random.default_rng(seed)
    met = [[BOS, *line[:end]] for line in lines for end in range(len(line) + 1)]
    other = [[BOS, *random.integers(UNK, VOCAB, length).tolist()] for length in range(order + 1) for _ in range(3)]
    return met + other


def rows_for(model: NGram, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
    """Log-probabilities after each prompt, all as one batch of steps."""
    logits, _ = model.step(torch.tensor([prompt[-1] for prompt in prompts]), model.start(text(prompts)))
    return logits


# estimation


@settings(max_examples=60, deadline=None)
@given(texts, settled)
def test_it_equals_the_textbook_formula(lines, config):
    model, book = fitted(lines, config), Textbook(lines, config, VOCAB)
    prompts = contexts_of(lines[:3], config.order)
    for prompt, row in zip(prompts, rows_for(model, prompts).tolist(), strict=True):
        context = tuple(prompt[len(prompt) - min(config.order - 1, len(prompt)) :])
        for word, log_prob in enumerate(row):
            assert math.exp(log_prob) == pytest.approx(book.prob(word, context), rel=1e-5), (word, context)


@pytest.mark.parametrize("discounts", ["one", "three"])
@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_with_discounts_from_counts_of_counts_too(discounts, order):
    lines, vocab, config = skewed(211, 53), 53, Config(order=order, discounts=discounts)
    model, book = fitted(lines, config, vocab), Textbook(lines, config, vocab)
    assert all(d != list(FALLBACK) and d != [0.5] * 3 for d in book.d[1:])
    prompts = [[BOS, *line[:end]] for line in lines[:5] for end in range(len(line) + 1)]
    for prompt, row in zip(prompts, rows_for(model, prompts).tolist(), strict=True):
        context = tuple(prompt[len(prompt) - min(order - 1, len(prompt)) :])
        assert [math.exp(each) for each in row] == pytest.approx(
            [book.prob(word, context) for word in range(vocab)], rel=1e-5
        )


def test_discounts_fall_back_as_kenlms_do():
    def counts(*how_many: int) -> np.ndarray:
        return np.repeat(np.arange(1, 1 + len(how_many)), how_many)

    y = 7 / (7 + 2 * 5)
    assert discounts_of(counts(7, 5, 3, 2), "three").tolist() == [0, y, 2 - 3 * y * 3 / 5, 3 - 4 * y * 2 / 3]
    assert discounts_of(counts(7, 5, 3, 0, 1), "three")[3] == 3  # none has a count of 4: allowed
    fallback = [0, 0.5, 1, 1.5]
    for lacking in (counts(0, 5, 3, 2), counts(7, 0, 3, 2), counts(7, 5, 0, 2), counts(7, 1, 5, 2), counts(7, 5, 1, 9)):
        assert discounts_of(lacking, "three").tolist() == fallback
    assert discounts_of(counts(7, 5), "one").tolist() == [0, y, y, y]
    assert discounts_of(counts(7, 0, 3), "one").tolist() == [0, 0.5, 0.5, 0.5]


@settings(max_examples=100, deadline=None)
@given(texts, settled, st.data())
def test_every_context_sums_to_1(lines, config, data):
    model = fitted(lines, config)
    never_met = data.draw(st.lists(st.lists(st.integers(EOS, VOCAB - 1), min_size=1, max_size=7), max_size=5))
    rows = rows_for(model, contexts_of(lines, config.order) + never_met)
    assert rows.double().exp().sum(1).tolist() == pytest.approx([1] * len(rows), abs=1e-6)
    assert rows[:, [PAD, BOS]].eq(-torch.inf).all()


def test_every_context_of_a_longer_text_sums_to_1():
    lines = skewed(499, 211, seed=1)
    model = fitted(lines, Config(), 211)
    rows = rows_for(model, [[BOS, *line[:end]] for line in lines[:97] for end in range(len(line) + 1)])
    assert rows.double().exp().sum(1).tolist() == pytest.approx([1] * len(rows), abs=1e-6)


def test_who_may_be_predicted():
    met, unmet = [[5, UNK], [7]], [[5], [7]]
    for lines, is_open, possible in ((met, True, True), (met, False, True), (unmet, True, True), (unmet, False, False)):
        row = rows_for(fitted(lines, Config(order=3, open=is_open)), [[BOS, 5]])[0]
        assert (row[UNK] > -math.inf).item() is possible
        assert row[[EOS, 4, 5, 6, 7, 10]].isfinite().all()  # types never met have a share too
        assert row[4] == row[6] == row[10]


@pytest.mark.parametrize("lines", [[], [[]], [[], []], [[5]]])
@pytest.mark.parametrize("order", [1, 2, 5])
def test_little_text_is_enough(lines, order):
    rows = rows_for(fitted(lines, Config(order=order)), [[BOS], [BOS, 5, 7, 5, 7, 5]])
    assert rows.exp().sum(1).tolist() == pytest.approx([1, 1], abs=1e-6)
    if lines:
        assert rows[0, EOS] > rows[0, 4]


def test_an_ngram_never_crosses_from_text_to_text():
    apart, together = fitted([[5, 7], [8, 9]] * 3, Config(order=3)), fitted([[5, 7, 8, 9]] * 3, Config(order=3))
    prompts = [[BOS, 5, 7]]
    assert rows_for(apart, prompts)[0, 8] < rows_for(apart, prompts)[0, EOS]
    assert rows_for(together, prompts)[0, 8] > rows_for(together, prompts)[0, EOS]
    assert torch.equal(rows_for(fitted([[8, 9], [5, 7]] * 3, Config(order=3)), prompts), rows_for(apart, prompts))


@pytest.mark.parametrize("token", [PAD, BOS, VOCAB])
def test_ids_that_are_no_text_are_refused(token):
    with pytest.raises(ValueError, match="ids must be from 2 to 10"):
        fitted([[5, token]])


def test_a_vocabulary_of_a_million_needs_no_wider_numbers():
    vocab = 1_000_003
    model = fitted([[vocab - 1, vocab - 2, vocab - 1, vocab - 2]] * 2, Config(order=5), vocab)
    scored, _ = model.log_probs(text(whole([[vocab - 1, vocab - 2, vocab - 1]])))
    assert scored[0, :3].exp().min() > 0.5
    assert scored[0, 3] < scored[0, 2]


# windows, steps, neighbours


@settings(max_examples=60, deadline=None)
@given(texts, settled, st.lists(st.integers(EOS, VOCAB - 1), max_size=13), st.data())
def test_windows_change_nothing(lines, config, scored, data):
    model = fitted(lines, config)
    target = whole([scored, scored[::-1]])
    straight, last = model.log_probs(text(target))
    cuts = sorted(data.draw(st.sets(st.integers(1, target.shape[1] - 1))) | {target.shape[1] - 1})
    state, parts, begin = None, [], 0
    for end in cuts:
        part, state = model.log_probs(text(target[:, begin : end + 1], state))
        parts.append(part)
        begin = end
    assert torch.equal(torch.cat(parts, 1), straight)
    assert torch.equal(state, last)
    assert straight.shape == (2, len(scored) + 1)
    assert state.shape == (2, config.order - 1)


@settings(max_examples=60, deadline=None)
@given(texts, settled, st.lists(st.lists(st.integers(UNK, VOCAB - 1), max_size=7), min_size=1, max_size=5))
def test_steps_and_scores_agree(lines, config, scored):
    model = fitted(lines, config)
    target = whole(scored)
    expected, _ = model.log_probs(text(target))
    state = model.start(text(target[:, :1]))
    for place in range(target.shape[1] - 1):
        logits, state = model.step(target[:, place], state)
        answers = target[:, place + 1]
        chosen = logits.gather(1, answers[:, None])[:, 0]
        assert torch.equal(chosen[answers != PAD], expected[answers != PAD, place])
    assert (expected[target[:, 1:] == PAD] == 0).all()


@settings(max_examples=60, deadline=None)
@given(texts, settled, st.lists(st.lists(st.integers(UNK, VOCAB - 1), max_size=7), min_size=2, max_size=5))
def test_neighbours_change_nothing(lines, config, prompts):
    model = fitted(lines, config)
    prompts = [[BOS, *prompt] for prompt in prompts]
    together = rows_for(model, prompts)
    for row, prompt in zip(together, prompts, strict=True):
        assert torch.equal(rows_for(model, [prompt])[0], row)
    target = whole([prompt[1:] for prompt in prompts], more=1)
    scores, _ = model.log_probs(text(target))
    for row, prompt in zip(scores, prompts, strict=True):
        alone, _ = model.log_probs(text(whole([prompt[1:]])))
        assert torch.equal(row[: len(prompt)], alone[0])


def test_a_state_can_be_picked_and_prompts_continued():
    model = fitted([[5, 7, 9, 8], [5, 9, 7, 4]] * 3, Config(order=4))
    state = model.start(text(torch.tensor([[BOS, 5, 7], [BOS, 5, 9]])))
    swapped, _ = model.step(torch.tensor([9, 7]), state.pick(torch.tensor([1, 0])))
    straight, _ = model.step(torch.tensor([7, 9]), state)
    assert torch.equal(swapped.flip(0), straight)
    _, read = model.log_probs(text(torch.tensor([[BOS, 5]])))
    later = model.start(text(torch.tensor([[5, 7]]), read))
    assert torch.equal(model.step(torch.tensor([7]), later)[0][0], straight[0])


def test_its_promises():
    model = fitted([])
    for promise in (Fits, Scores, Carries, Generates):
        assert isinstance(model, promise)
    assert torch.equal(model.begin(2), torch.full((2, 4), PAD))


def test_settings():
    assert parse(Config, {"order": 7, "discounts": "one", "open": False}, where="model") == Config(7, "one", False)
    for wrong in ({"order": 0}, {"discounts": "two"}):
        with pytest.raises(UserError):
            parse(Config, wrong, where="model")


# saving


def test_what_was_saved_comes_back():
    lines = skewed(47, VOCAB)
    model, other = fitted(lines), fitted([])
    other.restore(model.state_dict())
    prompts = contexts_of(lines[:7], 5)
    assert torch.equal(rows_for(other, prompts), rows_for(model, prompts))


def test_what_is_saved_is_all_there_is():
    model = fitted([[5, 7]])
    assert not list(model.parameters())
    assert len(model.state_dict()) == 3 * 5


NONSENSE = {
    "a name is missing": lambda t: t.pop("orders.1.keys"),
    "a name is new": lambda t: t.update(more=torch.zeros(1)),
    "has 2 axes": lambda t: t.update({"orders.2.keys": t["orders.2.keys"][None]}),
    "is torch.int32": lambda t: t.update({"orders.2.keys": t["orders.2.keys"].int()}),
    "is torch.float64": lambda t: t.update({"orders.0.log_prob": t["orders.0.log_prob"].double()}),
    "orders.0.log_prob has": lambda t: t.update({"orders.0.log_prob": t["orders.0.log_prob"][1:]}),
    "orders.0.keys has": lambda t: t.update({"orders.0.keys": torch.arange(VOCAB)}),
    "orders.3.log_prob has": lambda t: t.update({"orders.3.log_prob": t["orders.3.log_prob"][1:]}),
    "orders.3.log_backoff has": lambda t: t.update({"orders.3.log_backoff": t["orders.3.log_backoff"][1:]}),
    "orders.4.log_backoff has": lambda t: t.update({"orders.4.log_backoff": t["orders.4.log_prob"]}),
    "orders.2.keys is not sorted": lambda t: t["orders.2.keys"][1:3].copy_(t["orders.2.keys"][1:3].flip(0)),
    "orders.3.keys is not sorted": lambda t: t["orders.3.keys"][1:2].copy_(t["orders.3.keys"][:1]),
    "orders.1.keys holds": lambda t: t["orders.1.keys"][-1:].fill_(VOCAB * VOCAB),
    "orders.4.keys holds": lambda t: t["orders.4.keys"][0].fill_(-1),
    "orders.1.log_prob has values": lambda t: t["orders.1.log_prob"][0].fill_(0.1),
    "orders.2.log_prob has values": lambda t: t["orders.2.log_prob"][0].fill_(math.nan),
    "orders.2.log_backoff has values": lambda t: t["orders.2.log_backoff"][0].fill_(math.nan),
    "orders.1.log_backoff has values": lambda t: t["orders.1.log_backoff"][0].fill_(math.inf),
    "orders.0.log_prob predicts": lambda t: t["orders.0.log_prob"][BOS].fill_(-1),
    "orders.1.log_prob predicts": lambda t: t["orders.1.keys"][0].fill_(BOS * VOCAB + PAD),
}


@pytest.mark.parametrize("what", NONSENSE)
def test_nonsense_is_refused(what):
    model = fitted(skewed(47, VOCAB))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    tensors = {name: tensor.clone() for name, tensor in before.items()}
    NONSENSE[what](tensors)
    with pytest.raises(UserError, match="is in one of them only" if what.startswith("a name") else what):
        model.restore(tensors)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_another_order_is_refused():
    with pytest.raises(UserError, match="'orders.3.keys' is in one of them only"):
        fitted([], Config(order=3)).restore(fitted([], Config(order=4)).state_dict())
