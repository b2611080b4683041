"""Laws of the one decoding loop: beams contain greedy and brute force, scores are the model's, mates do not matter."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made import pairs, source_of
from torch import Tensor, nn

from regard.data.tokens import PairTokens
from regard.interface import BOS, EOS, PAD, UNK, Batch, Ids, Shapes, State, UserError
from regard.look.weights import cross_attention
from regard.models import rnnsearch, seq2seq, transformer
from regard.models.encoder_decoder import EncoderDecoder
from regard.predict.decoding import Decoding, Prediction
from regard.predict.search import (
    IMPOSSIBLE,
    Hypothesis,
    Search,
    beam,
    constrain,
    forbid_repeats,
    generate,
    greedy,
    keep_top_p,
    mixed,
    place_at,
    sampler,
    uniform,
)
from regard.predict.text import translate
from regard.recipe import parse_recipe
from regard.run import Run
from regard.tasks.registry import TASKS

VOCAB, KEYS, LONGEST = 7, 11, 5


class Table(nn.Module):
    """Writes by looking up (first source token, all that was written) in a table of random logits."""

    def __init__(self, *, seed: int = 0, spread: float = 2.0) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        size = (KEYS, VOCAB ** (LONGEST - 1), VOCAB)
        self.logits = spread * torch.randn(size, generator=random, dtype=torch.float64)

    def start(self, batch: Batch) -> State:
        key = source_of(batch)[:, 0]
        return State(memory=key, carry=torch.zeros_like(key))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        place = torch.where(tokens == BOS, 0, state.carry * VOCAB + tokens)  # written so far, in base VOCAB
        keys = state.memory.repeat_interleave(state.width)
        return self.logits[keys, place % self.logits.shape[1]], State(state.memory, place, state.width)

    def log_prob(self, key: int, tokens: tuple[int, ...]) -> float:
        """Of writing exactly these."""
        place, total = 0, 0.0
        for token in tokens:
            total += float(self.logits[key, place].log_softmax(-1)[token])
            place = place * VOCAB + token
        return total


def sources(*keys: int) -> Batch:
    return pairs([[key, EOS] for key in keys])


def limits(batch: Batch, most: int) -> Tensor:
    return torch.full((batch.size,), most)


def whole(hypothesis: Hypothesis) -> tuple[int, ...]:
    return (*hypothesis.tokens, EOS) if hypothesis.finished else hypothesis.tokens


def every_output(most: int) -> list[tuple[int, ...]]:
    """All that can be written in at most so many tokens, <eos> included."""
    words = [token for token in range(VOCAB) if token not in (PAD, BOS, EOS)]
    ended = [(*some, EOS) for length in range(most) for some in product(words, repeat=length)]
    return ended + list(product(words, repeat=most))


SMALL = {"embedding": 5, "hidden": 7, "dropout": 0.0}
MODELS: dict[str, object] = {
    "seq2seq": lambda: seq2seq.build(seq2seq.Config(**SMALL, context="every"), Shapes(Ids(11), Ids(VOCAB))),
    "rnnsearch": lambda: rnnsearch.build(rnnsearch.Config(**SMALL), Shapes(Ids(11), Ids(VOCAB))),
    "transformer": lambda: transformer.build(
        transformer.Config(dim=6, heads=2, feed_forward=7, layers=2, dropout=0.0), Shapes(Ids(11), Ids(VOCAB))
    ),
}
each_model = pytest.mark.parametrize("name", MODELS)


def neural(name: str) -> EncoderDecoder:
    """A small model with strong opinions, which end its outputs at different lengths."""
    torch.manual_seed(3)
    model: EncoderDecoder = MODELS[name]().double().eval()  # type: ignore[operator]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
        model.decoder.head.bias[EOS] -= 1.0  # type: ignore[attr-defined]
    return model


def five_sources() -> Batch:
    rows = [[4, 5, 6, 7, EOS], [8, EOS], [9, 10, EOS], [5, 5, 5, 5, EOS], [7, 4, 9, EOS]]
    return pairs(rows)


def forced_log_prob(model: EncoderDecoder, source: Tensor, tokens: tuple[int, ...]) -> float:
    """Read by the model in one go."""
    target = torch.tensor([[BOS, *tokens]])
    log_probs = model.logits(pairs(source[None], target)).log_softmax(-1)
    return float(log_probs.gather(-1, target[:, 1:, None]).sum().detach())


# Beams


@given(seed=st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_a_beam_of_1_chooses_as_greedy_does(seed):
    random = torch.Generator().manual_seed(seed)
    log_probs = torch.randn(5, VOCAB, generator=random, dtype=torch.float64).log_softmax(-1)
    totals = torch.randn(5, 1, generator=random, dtype=torch.float64)
    plain, chosen = greedy(log_probs, totals, torch.arange(5), 0), beam(log_probs, totals, torch.arange(5), 0)
    assert plain.parents is None
    assert chosen.parents is not None
    assert chosen.parents.tolist() == [0, 1, 2, 3, 4]
    assert torch.equal(plain.tokens, chosen.tokens)
    assert torch.equal(plain.totals, chosen.totals)


def test_greedy_takes_the_likeliest_at_every_step():
    model = Table()
    batch = sources(*range(KEYS))
    found = generate(model, batch, Decoding(), limits=limits(batch, 4))
    for key, (hypothesis,) in enumerate(found):
        place = 0
        for token in whole(hypothesis):
            row = model.logits[key, place].clone()
            row[[PAD, BOS]] = IMPOSSIBLE
            assert token == int(row.argmax())
            place = place * VOCAB + token
        assert hypothesis.finished or len(hypothesis.tokens) == 4


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_a_beam_as_wide_as_the_space_is_brute_force(most, penalty):
    model, batch = Table(seed=most), sources(2, 3, 5)
    space = every_output(most)
    how = Decoding(beam=len(space), n_best=len(space), length_penalty=penalty)
    found = generate(model, batch, how, limits=limits(batch, most))
    for key, hypotheses in zip((2, 3, 5), found, strict=True):
        expected = sorted(
            space,
            key=lambda tokens, key=key: (tokens[-1] != EOS, -model.log_prob(key, tokens) / len(tokens) ** penalty),
        )
        assert [whole(hypothesis) for hypothesis in hypotheses] == expected
        for hypothesis in hypotheses:
            assert hypothesis.log_prob == pytest.approx(model.log_prob(key, whole(hypothesis)), abs=1e-9)


@each_model
def test_a_neural_beam_as_wide_as_the_space_is_brute_force(name):
    model, batch = neural(name), five_sources()
    space = every_output(3)
    found = generate(model, batch, Decoding(beam=len(space), length_penalty=0.0), limits=limits(batch, 3))
    for row in (0, 1):
        scores = {tokens: forced_log_prob(model, source_of(batch)[row], tokens) for tokens in space}
        expected = sorted(space, key=lambda tokens: (tokens[-1] != EOS, -scores[tokens]))
        assert [whole(hypothesis) for hypothesis in found[row]] == expected


def test_a_beam_is_never_worse_than_a_beam_of_1_with_room_enough():
    model, batch = Table(seed=1), sources(*range(KEYS))
    alone = generate(model, batch, Decoding(), limits=limits(batch, 4))
    wide = generate(model, batch, Decoding(beam=60, length_penalty=0.0), limits=limits(batch, 4))
    ended = [key for key in range(KEYS) if alone[key][0].finished]  # what was cut off has not paid for its end
    better = [wide[key][0].log_prob - alone[key][0].log_prob for key in ended]
    assert len(ended) > 3
    assert min(better) >= -1e-9
    assert max(better) > 0.1


@pytest.mark.parametrize("penalty", [0.0, 0.7, 1.0])
def test_n_best_is_sorted_and_distinct(penalty):
    model, batch = Table(seed=2), sources(*range(KEYS))
    found = generate(model, batch, Decoding(beam=5, n_best=5, length_penalty=penalty), limits=limits(batch, 4))
    for hypotheses in found:
        assert len(hypotheses) == 5
        assert len({whole(hypothesis) for hypothesis in hypotheses}) == 5
        scores = [(h.finished, h.log_prob / len(whole(h)) ** penalty) for h in hypotheses]
        assert scores == sorted(scores, reverse=True)


def test_a_hypothesis_that_was_cut_off_does_not_beat_one_that_ended():
    """Cut at the limit, it has not paid for its end, and so seems likelier than it is."""
    model, batch = Table(seed=2), sources(*range(KEYS))
    found = generate(model, batch, Decoding(beam=20, n_best=20, length_penalty=0.0), limits=limits(batch, 3))
    beaten = [h for hypotheses in found for h in hypotheses[1:] if h.log_prob > hypotheses[0].log_prob]
    assert beaten and not any(hypothesis.finished for hypothesis in beaten)
    assert all(hypotheses[0].finished for hypotheses in found)


def test_a_length_penalty_favours_longer_outputs():
    model, batch = Table(seed=2), sources(*range(KEYS))
    lengths = []
    for penalty in (0.0, 2.0):
        found = generate(model, batch, Decoding(beam=20, length_penalty=penalty), limits=limits(batch, 4))
        lengths.append(sum(len(whole(hypotheses[0])) for hypotheses in found))
    assert lengths[0] < lengths[1]


# Scores and mates

WAYS = {
    "greedy": Decoding(),
    "beam": Decoding(beam=3, n_best=3),
    "sample": Decoding(sample=True, n_best=3, seed=5),
    "sharp sample": Decoding(sample=True, n_best=2, temperature=0.5, top_k=4, top_p=0.9),
    "constrained beam": Decoding(beam=3, n_best=3, min_length=3, no_repeat=2),
}
each_way = pytest.mark.parametrize("way", WAYS)


@each_way
@each_model
def test_a_score_is_the_models_own_log_probability(name, way):
    model, batch = neural(name), five_sources()
    found = generate(model, batch, WAYS[way], limits=torch.tensor([3, 5, 7, 11, 13]))
    for source, hypotheses in zip(source_of(batch), found, strict=True):
        assert len(hypotheses) == WAYS[way].width
        for hypothesis in hypotheses:
            expected = forced_log_prob(model, source, whole(hypothesis))
            assert hypothesis.log_prob == pytest.approx(expected, abs=1e-9)


@each_way
@each_model
def test_batch_mates_change_nothing(name, way):
    """Alone and unpadded, together, and in another order with examples that leave early: the same outputs."""
    model, batch = neural(name), five_sources()
    most, lines = torch.tensor([2, 11, 7, 13, 5]), torch.tensor([10, 20, 30, 40, 50])
    together = generate(model, batch, WAYS[way], limits=most, lines=lines)
    assert len({len(hypotheses[0].tokens) for hypotheses in together}) > 1
    order = torch.tensor([3, 0, 4, 1, 2])
    shuffled = generate(model, pairs(source_of(batch)[order]), WAYS[way], limits=most[order], lines=lines[order])
    for row in range(5):
        this = slice(row, row + 1)
        (alone,) = generate(model, list(batch.rows())[row], WAYS[way], limits=most[this], lines=lines[this])
        for other in (alone, shuffled[order.tolist().index(row)]):
            assert [whole(hypothesis) for hypothesis in other] == [whole(h) for h in together[row]]
            for mine, its in zip(together[row], other, strict=True):
                assert mine.log_prob == pytest.approx(its.log_prob, abs=1e-9)


@each_way
@each_model
def test_a_forced_beginning_is_written_whatever_is_forbidden_and_mates_stay_as_they_are(name, way):
    model, batch, most = neural(name), five_sources(), [2, 11, 7, 13, 5]
    beginnings = [(), (6, 6, 6, 6), (4,), (), (5, EOS)]
    free = generate(model, batch, WAYS[way], limits=torch.tensor(most))
    search, found = Search(model, WAYS[way]), {}
    search.add(batch, names=range(5), lines=range(5), limits=most, forced=beginnings)
    while search:
        found.update(search.step())
    for row, beginning in enumerate(beginnings):
        for hypothesis, usual in zip(found[row], free[row], strict=bool(not beginning)):
            assert whole(hypothesis)[: len(beginning)] == beginning
            expected = forced_log_prob(model, batch.source.row(row).values[0], whole(hypothesis))
            assert hypothesis.log_prob == pytest.approx(expected, abs=1e-9)
            assert beginning or whole(hypothesis) == whole(usual)
    assert not search.forced and len(found[1]) == WAYS[way].width and whole(found[4][0]) == (5, EOS)


def test_a_beam_as_wide_as_the_space_finds_every_output_with_its_beginning():
    model, batch, space = Table(seed=2), sources(2, 3, 5), every_output(4)
    how = Decoding(beam=len(space), n_best=len(space), length_penalty=0.0)
    beginnings = [(), (4,), (5, 3)]
    search, found = Search(model, how), {}
    search.add(batch, names=(2, 3, 5), lines=(0, 1, 2), limits=[4] * 3, forced=beginnings)
    while search:
        found.update(search.step())
    for key, beginning in zip((2, 3, 5), beginnings, strict=True):
        possible = [each for each in space if each[: len(beginning)] == beginning]
        expected = sorted(possible, key=lambda tokens, key=key: (tokens[-1] != EOS, -model.log_prob(key, tokens)))
        assert [whole(hypothesis) for hypothesis in found[key]] == expected


@each_way
def test_the_name_of_an_example_that_was_dropped_is_free_again(way):
    """What was forced on it is not forced on another one."""
    model, batch, most = Table(seed=3), sources(2, 3, 5), [4] * 3
    free = generate(model, batch, WAYS[way], limits=torch.tensor(most))
    search, found = Search(model, WAYS[way]), {}
    search.add(batch, names=range(3), lines=range(3), limits=most, forced=[(4, 5, 4), (), (5, 4)])
    found.update(search.step())
    search.drop([0, 2])
    for name, one in ((0, 2), (2, 5)):
        search.add(sources(one), names=[name], lines=[name], limits=[4])
    while search:
        found.update(search.step())
    assert [list(map(whole, found[name])) for name in range(3)] == [list(map(whole, each)) for each in free]


@each_way
def test_padding_and_beginning_are_never_written(way):
    model, batch = Table(seed=4), sources(*range(KEYS))
    model.logits[..., [PAD, BOS]] += 5.0
    for hypotheses in generate(model, batch, WAYS[way], limits=limits(batch, 4)):
        for hypothesis in hypotheses:
            assert not {PAD, BOS, EOS} & set(hypothesis.tokens)


# Lengths


@pytest.mark.parametrize("way", [Decoding(), Decoding(beam=4, n_best=4), Decoding(sample=True, n_best=4)])
def test_lengths_are_kept(way):
    model, batch = Table(seed=5), sources(*range(KEYS))
    for least, most in product((0, 2, 3), (3, 4)):
        how = replace(way, min_length=least)
        for hypotheses in generate(model, batch, how, limits=limits(batch, most)):
            for hypothesis in hypotheses:
                assert least <= len(hypothesis.tokens) <= most
                assert hypothesis.finished == (len(whole(hypothesis)) > len(hypothesis.tokens))
                assert hypothesis.finished or len(hypothesis.tokens) == most


def test_each_example_has_its_own_limit():
    model, batch = Table(seed=5), sources(*range(4))
    model.logits[..., EOS] = -50.0
    found = generate(model, batch, Decoding(beam=2), limits=torch.tensor([1, 4, 2, 3]))
    assert [len(hypotheses[0].tokens) for hypotheses in found] == [1, 4, 2, 3]


# Filters

rows = st.lists(st.floats(-20, 20), min_size=VOCAB, max_size=VOCAB)


@given(logits=rows, p=st.floats(0.01, 0.99))
@settings(deadline=None)
def test_top_p_keeps_the_smallest_set_that_reaches_p(logits, p):
    before = torch.tensor(logits, dtype=torch.float64)
    after, probs = keep_top_p(before, p), before.softmax(-1)
    kept = after > IMPOSSIBLE
    assert torch.equal(after[kept], before[kept])
    assert kept[before.argmax()]
    assert probs[kept].sum() >= p - 1e-9
    assert probs[kept].sum() - probs[kept].min() < p + 1e-9  # one fewer would not reach it
    if not kept.all():
        assert probs[~kept].max() <= probs[kept].min()
        ties = before == before[kept].min()
        assert kept[ties].tolist() == sorted(kept[ties].tolist(), reverse=True)  # of equal ones, the first


def test_filters_that_are_off_change_nothing():
    logits = torch.randn(3, VOCAB)
    assert torch.equal(keep_top_p(logits, 1.0), logits)
    assert torch.equal(forbid_repeats(logits, torch.randint(VOCAB, (3, 5)), 0), logits)


@given(written=st.lists(st.integers(3, 5), max_size=9), n=st.integers(1, 4))
@settings(deadline=None)
def test_no_repeat_forbids_exactly_what_would_repeat(written, n):
    logits = torch.zeros(1, VOCAB)
    after = forbid_repeats(logits, torch.tensor([written], dtype=torch.long), n)
    grams = [tuple(written[at : at + n]) for at in range(len(written) - n + 1)]
    for token in range(VOCAB):
        new = tuple([*written, token][-n:])
        assert (float(after[0, token]) == IMPOSSIBLE) == (new in grams)


@pytest.mark.parametrize("n", [1, 2])
def test_outputs_without_repeats(n):
    torch.manual_seed(0)
    model, batch = neural("rnnsearch"), five_sources()
    model.decoder.head.bias.data[EOS] = -9.0  # type: ignore[attr-defined]
    free = generate(model, batch, Decoding(beam=3), limits=limits(batch, 17))
    bound = generate(model, batch, Decoding(beam=3, no_repeat=n), limits=limits(batch, 17))

    def repeats(found: list[list[Hypothesis]]) -> int:
        counts = [Counter(zip(*(h.tokens[i:] for i in range(n)), strict=False)) for hs in found for h in hs]
        return max(max(count.values()) for count in counts)

    assert repeats(free) > 1
    assert repeats(bound) == 1


def test_where_nothing_is_left_the_end_may_come():
    log_probs = torch.randn(2, VOCAB).log_softmax(-1)
    written = torch.tensor([[UNK, 4, 5, 6], [4, 4, 4, 4]])
    allowed = constrain(log_probs, written, np.array([4, 4]), Decoding(min_length=7, no_repeat=1))
    assert (allowed[0] > IMPOSSIBLE).nonzero().flatten().tolist() == [EOS]
    assert allowed[0, EOS] == log_probs[0, EOS]
    assert (allowed[1] > IMPOSSIBLE).nonzero().flatten().tolist() == [UNK, 5, 6]


# Sampling


def draws(model: Table, how: Decoding, *, lines: int, most: int = 1) -> list[list[tuple[int, ...]]]:
    """What is drawn for key 3, line by line."""
    batch = sources(*[3] * lines)
    return [[whole(h) for h in found] for found in generate(model, batch, how, limits=limits(batch, most))]


def chi_square(seen: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> float:
    total = sum(seen.values())
    assert set(seen) <= {outcome for outcome, share in expected.items() if share > 0}
    return sum((seen[outcome] - total * share) ** 2 / (total * share) for outcome, share in expected.items() if share)


@pytest.mark.parametrize(
    "how", [Decoding(), Decoding(temperature=0.5), Decoding(temperature=2.0), Decoding(top_k=3), Decoding(top_p=0.7)]
)
def test_samples_have_the_distribution_they_are_sampled_from(how):
    model = Table(spread=1.0)
    logits = model.logits[3, 0].clone()
    logits[[PAD, BOS]] = IMPOSSIBLE
    if how.top_k:
        logits[logits < logits.sort().values[-how.top_k]] = IMPOSSIBLE
    filtered = keep_top_p(logits / how.temperature, how.top_p)
    shares = filtered.softmax(-1).tolist()
    expected = {(token,): share for token, share in enumerate(shares)}
    found = draws(model, replace(how, sample=True, n_best=7, seed=1), lines=300)
    seen = Counter(tokens for line in found for tokens in line)
    assert chi_square(seen, expected) < 25  # at most 4 degrees of freedom: 1 in 20,000


def test_samples_of_steps_lines_and_seeds_are_independent():
    model = Table()
    model.logits.zero_()
    model.logits[..., [PAD, BOS, EOS]] = -60.0
    words = (3, 4, 5, 6)
    shares = {pair: 1 / 16 for pair in product(words, words)}
    most = 45  # 15 degrees of freedom: 1 in 13,000
    for seed in (0, 1):
        found = draws(model, Decoding(sample=True, n_best=2, seed=seed), lines=600, most=2)
        assert chi_square(Counter(tokens for line in found for tokens in line), shares) < most
        drawn = {
            "samples": [(one[0], other[0]) for one, other in (sorted(line) for line in found) if one < other],
            "lines": [(one[0][0], other[0][0]) for one, other in zip(found[::2], found[1::2], strict=True)],
        }
        assert chi_square(Counter(drawn["lines"]), shares) < most
        assert len(drawn["samples"]) > 500  # two samples of a line mostly differ
    one, other = (draws(model, Decoding(sample=True, seed=seed), lines=600) for seed in (2, 3))
    across = Counter((a[0][0], b[0][0]) for a, b in zip(one, other, strict=True))
    assert chi_square(across, shares) < most


def test_the_same_seed_gives_the_same_samples():
    model = Table()
    how = Decoding(sample=True, n_best=3, seed=7)
    assert draws(model, how, lines=13, most=4) == draws(model, how, lines=13, most=4)
    assert draws(model, how, lines=13, most=4) != draws(model, replace(how, seed=8), lines=13, most=4)


def test_cold_samples_are_greedy():
    model, batch = Table(), sources(*range(KEYS))
    cold = generate(model, batch, Decoding(sample=True, temperature=1e-4), limits=limits(batch, 4))
    assert cold == generate(model, batch, Decoding(), limits=limits(batch, 4))


def test_mixed_numbers_are_those_of_split_mix_64():
    """The first outputs of the reference implementation (Vigna: splitmix64.c) with a seed of 0."""
    first = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [mixed(number) for number in range(3)] == first
    assert mixed(np.arange(3, dtype=np.uint64)).tolist() == first


def shares(count: int, *, seed: int = 1, step: int = 0, width: int = 1) -> np.ndarray:
    return uniform(seed, np.full(count, step), np.arange(count), width).reshape(count, width)


def test_uniform_numbers_are_uniform_and_independent():
    """Pairs of neighbouring seeds, steps, lines and ranks fill an 8 × 8 square evenly."""
    count = 20_000
    both = shares(count, width=2)
    one = shares(count)
    pairs = {
        "seeds": (one, shares(count, seed=2)),
        "steps": (one, shares(count, step=1)),
        "lines": (one[::2], one[1::2]),
        "ranks": (both[:, 0], both[:, 1]),
    }
    for first, second in pairs.values():
        assert 0 <= min(first.min(), second.min()) <= max(first.max(), second.max()) < 1
        cells = (first.ravel() * 8).astype(int) * 8 + (second.ravel() * 8).astype(int)
        expected = first.size / 64
        assert ((np.bincount(cells, minlength=64) - expected) ** 2).sum() / expected < 120  # 63 degrees: 1 in 50,000
    assert len(np.unique(both)) == both.size  # no line has the number of another one's sample
    assert np.array_equal(both[:, :1], one)  # the first sample of a line does not depend on how many there are
    assert np.array_equal(uniform(1, np.zeros(2, int), np.array([7, 3]), 2), both[[7, 3]].reshape(-1, 1))


@pytest.mark.parametrize("width", [1, 65, 1024, 1025, 8003])
def test_the_place_of_a_share_is_where_the_running_sum_passes_it(width):
    random = np.random.default_rng(0)
    weights = torch.from_numpy(random.exponential(size=(1, width)) * (random.random((1, width)) < 0.7)).float()
    weights[0, -1] = 1.0
    shares = np.concatenate([random.random(3000), [0.0, 1e-300, 1 - 2.0**-53]])[:, None]
    places = place_at(weights.expand(len(shares), -1), torch.from_numpy(shares))[:, 0].numpy()
    sums = np.concatenate([[0], weights[0].double().cumsum(0).numpy()])
    assert (weights[0, places] > 0).all()
    assert (sums[places] <= shares[:, 0] * sums[-1] + 1e-9).all()
    assert (shares[:, 0] * sums[-1] <= sums[places + 1] + 1e-9).all()
    assert places[-1] == width - 1
    assert places[-3] == int((weights[0] > 0).nonzero()[0])


@pytest.mark.parametrize(
    "how",
    [Decoding(), Decoding(temperature=0.7), Decoding(top_k=50), Decoding(top_p=0.8), Decoding(top_k=70, top_p=0.9)],
)
def test_samples_of_a_large_vocabulary_have_its_distribution(how):
    """In float32, over 8,003 types, many of which are impossible; counted in 30 groups of similar probability."""
    vocab, rows, steps = 8003, 500, 40
    random = torch.Generator().manual_seed(3)
    log_probs = (3 * torch.randn(1, vocab, generator=random)).log_softmax(-1)
    log_probs[:, ::5] = IMPOSSIBLE
    exact = log_probs[0].double() / how.temperature
    if how.top_k:
        exact[exact < exact.sort().values[-how.top_k]] = IMPOSSIBLE
    expected = keep_top_p(exact, how.top_p).softmax(-1)
    sample = sampler(replace(how, sample=True, seed=11))
    totals, lines = torch.zeros(rows, 1), np.arange(rows)
    seen = torch.zeros(vocab)
    for step in range(steps):
        choice = sample(log_probs.expand(rows, -1), totals, lines, np.full(rows, step))
        assert torch.equal(choice.totals[:, 0], log_probs[0, choice.tokens])
        seen += torch.bincount(choice.tokens, minlength=vocab)
    assert seen[expected == 0].sum() == 0
    order = expected.argsort(descending=True)
    group = (expected[order].cumsum(0) * 29.999).long()
    grouped = [torch.zeros(30).index_add_(0, group, each[order].float()) for each in (seen, expected * rows * steps)]
    possible = grouped[1] > 0
    assert float(((grouped[0] - grouped[1]) ** 2 / grouped[1])[possible].sum()) < 75  # at most 29 degrees: 1 in 100,000


# Settings


@pytest.mark.parametrize(
    "bad",
    [
        {"beam": 0},
        {"temperature": 0.0},
        {"temperature": math.nan},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"n_best": 0},
        {"min_length": -1},
        {"max_length": -2},
        {"no_repeat": -1},
        {"seed": -1},
        {"seed": 1 << 63},
        {"longest_source": 0},
        {"n_best": 2},
        {"n_best": 4, "beam": 3},
        {"sample": True, "beam": 2},
    ],
)
def test_settings_that_cannot_be_are_refused(bad):
    with pytest.raises(UserError, match=next(iter(bad))):
        Decoding(**bad)


# Text


def letters_run(*, best_end: float = 0.0) -> Run:
    tokens = PairTokens(kind="characters", size=0, joint=False)
    fields = TASKS["translation"].learn(lambda: [("abcdefg", "tuvw")], tokens)
    recipe = parse_recipe(
        {
            "task": "translation",
            "data": {"name": "world"},
            "model": {"name": "rnnsearch", **SMALL},
            "train": {"steps": 1},
        },
        tasks=TASKS,
    )
    torch.manual_seed(5)
    model = rnnsearch.build(recipe.model, fields.shapes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
        model.decoder.head.bias[EOS] += best_end  # type: ignore[attr-defined]
    return Run(recipe, fields, model.double().eval(), torch.device("cpu"))


LINES = ["abc", "", "g", "   ", "gfedcbagfedcba", "abc", "é\u2028?", "ab"]


@pytest.mark.parametrize("how", [Decoding(), Decoding(beam=3, n_best=2), Decoding(sample=True, seed=3)])
@pytest.mark.parametrize("batch_tokens", [1, 40, 4096])
def test_one_prediction_per_line_in_order_whatever_the_batches(how, batch_tokens):
    run = letters_run()
    together = translate(run, LINES, replace(how, batch_tokens=batch_tokens), first_line=100)
    assert len(together) == len(LINES)
    for number, line in enumerate(LINES):
        (alone,) = translate(run, [line], how, first_line=100 + number)
        assert alone.text == together[number].text
        assert alone.score == pytest.approx(together[number].score, abs=1e-9)
        assert [a.text for a in alone.alternatives] == [a.text for a in together[number].alternatives]
        assert len(alone.alternatives) == (how.n_best - 1 if line.strip() else 0)
    assert len({prediction.text for prediction in together}) > 2


def test_empty_in_empty_out():
    run = letters_run()
    assert translate(run, []) == []
    assert translate(run, ["", " \t"]) == [Prediction("", 0.0, ())] * 2


def test_a_line_too_long_is_cut_and_flagged():
    run, how = letters_run(), Decoding(longest_source=3)
    long, whole_line, short = translate(run, ["abcdefg", "abc", "ab"], how)
    assert [long.cut, whole_line.cut, short.cut] == [True, False, False]
    assert (long.text, long.score) == (whole_line.text, pytest.approx(whole_line.score))
    assert all(a.cut for a in translate(run, ["abcdefg"], replace(how, beam=2, n_best=2))[0].alternatives)


def test_tokens_spell_the_text_and_length_limits_hold():
    for most in (1, 4):
        for prediction in translate(letters_run(best_end=-99.0), ["abc", "g"], Decoding(max_length=most)):
            assert len(prediction.tokens) == most
            assert "".join(prediction.tokens) == prediction.text
    assert translate(letters_run(best_end=99.0), ["abc"])[0].text == ""
    default = translate(letters_run(best_end=-99.0), ["abc"])[0]
    assert len(default.tokens) == 2 * 4 + 10  # twice the source, <eos> included, and ten


def test_an_unknown_is_replaced_by_the_source_word_it_attends_to_most():
    run, lines = letters_run(best_end=-1.0), ["abcdé", "g", "fgb", "abcdé"]
    with torch.no_grad():
        run.model.decoder.head.bias[UNK] += 4.0  # type: ignore[union-attr,index]
    how = Decoding(beam=3, n_best=3, replace_unknown=True)
    target = run.tokenizer("target")
    replaced = set()
    for line, best, plain in zip(
        lines, translate(run, lines, how), translate(run, lines, replace(how, replace_unknown=False)), strict=True
    ):
        for one, as_written in zip((best, *best.alternatives), (plain, *plain.alternatives), strict=True):
            assert (one.tokens, one.score) == (as_written.tokens, as_written.score)
            ids = [UNK if token == "<unk>" else target.encode(token)[0] for token in one.tokens]
            batch = run.fields.batch({"source": run.fields["source"].encode([line]), "target": [ids]})
            weights = cross_attention(run.model, batch)[0, 0, 0, :, : len(line)]
            words = [line[int(row.argmax())] for row in weights]
            said = [word if token == "<unk>" else token for token, word in zip(one.tokens, words, strict=False)]
            assert one.text == "".join(said)
            replaced |= {word for token, word in zip(one.tokens, words, strict=False) if token == "<unk>"}
    assert len(replaced) > 2


def test_only_a_model_that_attends_can_replace_unknowns():
    seq2seq_model = seq2seq.build(seq2seq.Config(**SMALL), Shapes(Ids(11), Ids(VOCAB)))
    with pytest.raises(UserError, match="replace_unknown needs attention"):
        translate(replace(letters_run(), model=seq2seq_model), ["abc"], Decoding(replace_unknown=True))


def test_a_model_that_does_not_generate_is_refused_by_name():
    run = replace(letters_run(), model=nn.Linear(2, 3))
    with pytest.raises(UserError, match="rnnsearch does not generate"):
        translate(run, ["abc"])


def test_gumbel_noise_is_a_function_of_line_and_step_alone():
    """The line's number, not its place in the batch, decides what is drawn for it."""
    model = Table()
    how = Decoding(sample=True, seed=2)
    batch = sources(3, 3, 3)
    numbered = generate(model, batch, how, limits=limits(batch, 4), lines=torch.tensor([8, 9, 10]))
    (alone,) = generate(model, sources(3), how, limits=torch.tensor([4]), lines=torch.tensor([9]))
    assert alone == numbered[1]
    many = generate(model, sources(*[3] * 50), how, limits=torch.full((50,), 4))
    assert np.unique([h[0].log_prob for h in many]).size > 5


def test_a_side_that_does_not_exist_is_refused_with_the_nearest_name():
    with pytest.raises(UserError, match="did you mean 'source'"):
        letters_run().batch(sorce=["abc"])
