"""Laws of CTC: sums over paths equal brute force, decoding as wide as the space is exact, alignments are best paths."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard.interface import BLANK, BOS, EOS, PAD, Batch, Padded, State
from regard.layers.ctc import CTCHead, aligned, collapsed, total
from regard.models.fusion import Fused, LanguageModel
from regard.predict.decoding import Decoding
from regard.predict.prefix_search import best_path, prefix_search
from regard.predict.search import generate

A, B, C = 4, 5, 6
VOCAB, STEPS = 7, 4


def random_steps(seed: int, steps: int = STEPS) -> Tensor:
    """ln P (steps, vocab) of tokens and blanks; <bos>, <eos> and <unk> are never emitted."""
    logits = torch.randn(steps, VOCAB, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2
    logits[:, [BOS, EOS, 3]] = -torch.inf
    return logits.log_softmax(-1)


def by_brute_force(log_probs: Tensor) -> dict[tuple[int, ...], float]:
    """P of every text, from all paths."""
    found: dict[tuple[int, ...], float] = {}
    for path in product((BLANK, A, B, C), repeat=len(log_probs)):
        text = tuple(collapsed(path))
        found[text] = found.get(text, 0.0) + float(log_probs[range(len(path)), path].sum().exp())
    return found


def texts(*rows: tuple[int, ...]) -> Padded:
    most = max(map(len, rows))
    return Padded.of_ids(torch.tensor([[BOS, *row, EOS, *[PAD] * (most - len(row))] for row in rows]))


def alone(log_probs: Tensor) -> Padded:
    return Padded(log_probs[None], torch.ones(1, len(log_probs), dtype=torch.bool))


@pytest.mark.parametrize("seed", range(3))
def test_the_probability_of_a_text_is_the_sum_over_its_paths(seed: int) -> None:
    log_probs = random_steps(seed)
    every = by_brute_force(log_probs)
    assert sum(every.values()) == pytest.approx(1)
    for text, probability in every.items():
        assert float(total(alone(log_probs), texts(text)).exp()) == pytest.approx(probability)


def test_the_loss_is_pytorchs_and_an_impossible_text_has_probability_0() -> None:
    torch.manual_seed(1)
    head = CTCHead(dim=5, vocab=VOCAB)
    states = Padded(
        torch.randn(3, 6, 5), torch.tensor([[True] * 6, [True] * 4 + [False] * 2, [True] * 2 + [False] * 4])
    )
    target = texts((A, B, B), (C,), (A, A))  # the last needs a blank between its tokens: three steps
    log_probs = head(states)
    want = nn.functional.ctc_loss(
        log_probs.values.transpose(0, 1), torch.tensor([A, B, B, C, A, A]), (6, 4, 2), (3, 1, 2), reduction="none"
    )
    assert torch.allclose(-total(log_probs, target), want)
    assert total(log_probs, target)[2] == -torch.inf
    loss = head.loss(states, target)
    assert torch.allclose(loss.nll, want[:2].sum()) and loss.tokens == 9
    loss.objective.backward()
    assert all(bool(parameter.grad.isfinite().all()) for parameter in head.parameters())


def test_padding_and_mates_of_a_batch_change_nothing() -> None:
    log_probs = random_steps(7, 6)
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    both = Padded(torch.stack([log_probs, random_steps(8, 6)]), mask)
    want = [float(total(alone(log_probs), texts((A, B)))), float(total(alone(both.values[1, :4]), texts((C,))))]
    assert total(both, texts((A, B), (C,))).tolist() == pytest.approx(want)


@pytest.mark.parametrize("seed", range(4))
def test_a_beam_as_wide_as_the_space_is_exact(seed: int) -> None:
    log_probs = random_steps(seed)
    every = by_brute_force(log_probs)
    found = prefix_search(log_probs, Decoding(beam=1000))
    assert {each.tokens for each in found} == every.keys()
    assert all(each.log_prob == pytest.approx(np.log(every[each.tokens])) for each in found)
    assert [each.log_prob for each in found] == sorted((each.log_prob for each in found), reverse=True)


def test_the_best_path_is_the_text_of_the_likeliest_steps() -> None:
    log_probs = random_steps(3)
    best = best_path(log_probs)
    assert list(best.tokens) == collapsed(log_probs.argmax(-1).tolist())
    assert best.log_prob == pytest.approx(float(log_probs.amax(-1).sum()))
    assert collapsed([A, A, BLANK, A, B, B, BLANK]) == [A, A, B]


@pytest.mark.parametrize("seed", range(4))
def test_the_alignment_of_a_text_is_its_most_probable_path(seed: int) -> None:
    log_probs = random_steps(seed, 5)
    for text in ((A,), (A, B), (A, A), (C, B, C)):
        paths = [path for path in product((BLANK, A, B, C), repeat=5) if tuple(collapsed(path)) == text]
        best = max(paths, key=lambda path: float(log_probs[range(5), path].sum()))
        spans, place = [], 0
        for token in text:
            while best[place] != token:
                place += 1
            start = place
            while place < 5 and best[place] == token:
                place += 1
            spans.append((start, place - 1))
        assert aligned(log_probs, text) == spans


def test_a_text_that_no_path_has_is_spread_over_the_steps() -> None:
    spans = aligned(random_steps(1, 2), (A, A, B))
    assert len(spans) == 3 and all(0 <= first <= last < 2 for first, last in spans)
    assert aligned(random_steps(1, 2), ()) == []


# --- with a language model ---------------------------------------------------------------------------------------


class Bigrams(nn.Module):
    """ln P of a token given the one before it; its state is the last token, as a tensor with a row per hypothesis."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        logits = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(seed))
        self.table = nn.Parameter(logits)

    def start(self, batch: Batch) -> State:
        assert batch.target is not None
        return State((), batch.target.values[:, 0])

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return self.table[tokens], State((), tokens, state.width)

    def of(self, text: tuple[int, ...]) -> float:
        each = self.table.detach().log_softmax(-1)
        return float(sum(each[a, b] for a, b in zip((BOS, *text), (*text, EOS), strict=True)))


@pytest.mark.parametrize("seed", range(3))
def test_a_language_model_is_added_with_its_weight_and_a_reward_for_each_token(seed: int) -> None:
    log_probs, lm = random_steps(seed), Bigrams(seed)
    every = by_brute_force(log_probs)
    how = Decoding(beam=1000, lm_weight=0.7, length_reward=0.3)
    want = {text: np.log(p) + 0.7 * lm.of(text) + 0.3 * len(text) for text, p in every.items()}
    found = prefix_search(log_probs, how, LanguageModel(lm, ids=range(VOCAB), opening=[BOS]))
    assert [each.tokens for each in found] == sorted(want, key=want.__getitem__, reverse=True)
    assert all(each.log_prob == pytest.approx(want[each.tokens], abs=1e-5) for each in found)


def test_the_tokens_of_the_language_model_may_have_other_ids() -> None:
    log_probs, lm = random_steps(5), Bigrams(5)
    turned = [0, 1, 2, 3, C, A, B]  # token 4 here is token 6 there …
    other = Bigrams(5)
    other.table = nn.Parameter(torch.empty(VOCAB, VOCAB))
    for one, two in product(range(VOCAB), repeat=2):
        other.table.data[turned[one], turned[two]] = lm.table.data[one, two]
    how = Decoding(beam=50, lm_weight=1.0)
    want = prefix_search(log_probs, how, LanguageModel(lm, ids=range(VOCAB), opening=[BOS]))
    assert prefix_search(log_probs, how, LanguageModel(other, ids=turned, opening=[BOS])) == want


class Writer(nn.Module):
    """A decoder that ignores its source: bigrams."""

    longest = None

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.bigrams = Bigrams(seed)

    def start(self, batch: Batch) -> State:
        return State(torch.zeros(batch.size), torch.zeros(batch.size))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return self.bigrams.table[tokens], state


def test_shallow_fusion_adds_the_scores_of_two_models_in_the_same_search() -> None:
    writer, lm = Writer(1), Bigrams(2)
    fused: Any = Fused(writer, LanguageModel(lm, ids=range(VOCAB), opening=[BOS]), weight=0.6, reward=0.2)
    source = Batch(source=Padded(torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool)))
    how = Decoding(beam=1000, length_penalty=0.0)
    found = generate(fused, source, how, limits=torch.tensor([4, 4]))
    for hypotheses in found:
        for each in hypotheses[:50]:
            if not each.finished:
                continue
            want = writer.bigrams.of(each.tokens) + 0.6 * lm.of(each.tokens) + 0.2 * len(each.tokens)
            assert each.log_prob == pytest.approx(want, abs=1e-4)
        ended = [each.log_prob for each in hypotheses if each.finished]
        assert ended == sorted(ended, reverse=True)
        rest = [t for t in product((3, A, B, C), repeat=3)]
        texts_ = [t[:n] for t in rest for n in range(4)]
        best = max(texts_, key=lambda t: writer.bigrams.of(t) + 0.6 * lm.of(t) + 0.2 * len(t))
        assert hypotheses[0].tokens == best
