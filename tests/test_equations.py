"""The papers' equations, written out one token at a time, and where dropout falls."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from made import labelled, pairs, tagged, text
from torch import Tensor, nn

from regard.config import help_texts
from regard.interface import BOS, EOS, PAD, UNK, Batch, Ids, Label, Padded, Shapes, TagIds
from regard.layers.attention import Additive, watch
from regard.layers.dropout import Dropout
from regard.models import MODELS, rnnsearch, seq2seq
from regard.models.encoder_head import Classifier, EncoderWithHead, reader

VOCAB, OTHER, NAMES = 11, 13, 5
PAIRS = Shapes(Ids(VOCAB), Ids(OTHER))
SOURCE = [[4, 5, 6, 7, 8, EOS], [9, 10, EOS]]
TARGET = [[BOS, 4, 5, EOS], [BOS, 12, 11, 10, 9, EOS]]


def lively(model: Any) -> Any:
    """In evaluation mode and float64, no parameter at a value such as 0 that could hide what it does."""
    with torch.no_grad():
        for parameter in model.double().parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def vectors(embed: Any, tokens: list[int]) -> list[Tensor]:
    """A row of the table each, √dim times."""
    return [embed.weight[token] * math.sqrt(embed.weight.shape[1]) for token in tokens]


def gru(cell: Any, x: Tensor, s: Tensor) -> Tensor:
    """R, Z = σ(W x + U s + b), s̃ = tanh(W x + U (R ⊙ s) + b), Z ⊙ s + (1 − Z) ⊙ s̃; x is W x + b already."""
    to_reset, to_keep, told = x.chunk(3)
    from_reset, from_keep = (cell.weight_gates @ s).chunk(2)
    r, z = torch.sigmoid(to_reset + from_reset), torch.sigmoid(to_keep + from_keep)
    return z * s + (1 - z) * torch.tanh(told + cell.weight_candidate @ (r * s))


# rnnsearch: Bahdanau 2015, A.1 and A.2


def rnnsearch_by_hand(model: Any, source: list[int], target: list[int], *, lexical: bool) -> Tensor:
    """(target - 1, vocab)"""
    encoder, decoder = model.encoder, model.decoder
    x = vectors(encoder.embed, source)
    directions = []
    for cell, order in (
        (encoder.recurrent.forwards[0], range(len(x))),
        (encoder.recurrent.backwards[0], reversed(range(len(x)))),
    ):
        states, s = {}, torch.zeros(cell.hidden, dtype=torch.float64)
        for place in order:
            s = gru(cell, cell.weight_ih @ x[place] + cell.bias_ih, s)
            states[place] = s
        directions.append(states)
    ahead, back = directions
    h = [torch.cat([ahead[place], back[place]]) for place in range(len(x))]
    score, cell, logits = decoder.attention.score, decoder.cell, []
    s = torch.tanh(decoder.first.weight @ back[0] + decoder.first.bias)
    for y in vectors(decoder.embed, target[:-1]):
        e = torch.stack(
            [(score.out.weight @ torch.tanh(score.query.weight @ s + score.keys.weight @ each))[0] for each in h]
        )
        alpha = e.exp() / e.exp().sum()
        brought = [torch.cat([x[place], h[place]]) if lexical else h[place] for place in range(len(x))]
        c = sum(alpha[place] * brought[place] for place in range(len(x)))
        s = gru(cell, cell.weight_ih @ y + cell.bias_ih + decoder.told.weight @ c, s)
        t = torch.tanh(decoder.readout.weight @ torch.cat([s, c, y]) + decoder.readout.bias)
        logits.append(decoder.head.weight @ t + decoder.head.bias)
    return torch.stack(logits)


@pytest.mark.parametrize("lexical", [False, True])
@torch.no_grad()
def test_rnnsearch_is_its_equations(lexical: bool) -> None:
    torch.manual_seed(1)
    config = rnnsearch.Config(embedding=5, hidden=7, lexical=lexical, tie=False, cell="gru", score="additive")
    model = lively(rnnsearch.build(config, PAIRS))
    found = model.logits(pairs(SOURCE, TARGET))
    for row, (source, target) in enumerate(zip(SOURCE, TARGET, strict=True)):
        by_hand = rnnsearch_by_hand(model, source, target, lexical=lexical)
        torch.testing.assert_close(found[row, : len(by_hand)], by_hand)


@torch.no_grad()
def test_an_untrained_decoder_attends_uniformly() -> None:
    """w of wᵀ tanh(W s + U h) begins near 0, with a standard deviation of 0.01 (Bahdanau 2015, B.1)."""
    torch.manual_seed(1)
    score = Additive(query_dim=3, key_dim=3, hidden=20_000)
    assert score.out.weight.std().item() == pytest.approx(0.01, rel=0.05)
    assert abs(score.out.weight.mean().item()) < 0.001
    model: Any = rnnsearch.build(rnnsearch.Config(), PAIRS).eval()
    with watch(model) as seen:
        model.logits(pairs(SOURCE[:1], TARGET[:1]))
    torch.testing.assert_close(
        torch.cat(seen.of(model.decoder.attention), 2), torch.full((1, 1, 3, 6), 1 / 6), atol=0.01, rtol=0
    )


# seq2seq: where the fixed vector enters


def seq2seq_by_hand(model: Any, config: seq2seq.Config, source: list[int], target: list[int]) -> Tensor:
    """(target - 1, vocab)"""

    def read(recurrent: Any, x: list[Tensor], states: list[tuple[Tensor, ...]]) -> tuple[list[Tensor], list[Any]]:
        """Layer upon layer, one step at a time: the top layer's outputs and every layer's last state."""
        after = list(states)
        outputs = []
        for step in x:
            for layer, cell in enumerate(recurrent.forwards):
                after[layer] = cell.step(cell.inputs(step[None]), after[layer])
                step = after[layer][0][0]
            outputs.append(step)
        return outputs, after

    encoder, decoder, n = model.encoder, model.decoder, len(source)
    x = vectors(encoder.embed, source[::-1] if config.reverse else source)
    h, final = read(encoder.recurrent, x, [cell.start(1) for cell in encoder.recurrent.forwards])
    told = {"first": [], "every": [h[-1]], "mean": [torch.stack(h).sum(0) / n]}[config.context]
    if config.lexical:
        told.append(torch.stack(x).sum(0) / math.sqrt(n))
    first = [cell.start(1) for cell in decoder.recurrent.forwards] if config.context == "mean" else final
    y = [torch.cat([vector, *told]) for vector in vectors(decoder.embed, target[:-1])]
    states, _ = read(decoder.recurrent, y, first)
    return torch.stack([decoder.head.weight @ s + decoder.head.bias for s in states])


@pytest.mark.parametrize("context", ["first", "every", "mean"])
@pytest.mark.parametrize("lexical", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@torch.no_grad()
def test_seq2seq_is_its_equations(context: Any, lexical: bool, reverse: bool) -> None:
    torch.manual_seed(1)
    config = seq2seq.Config(embedding=5, hidden=7, context=context, lexical=lexical, reverse=reverse)
    model = lively(seq2seq.build(config, PAIRS))
    found = model.logits(pairs(SOURCE, TARGET))
    for row, (source, target) in enumerate(zip(SOURCE, TARGET, strict=True)):
        by_hand = seq2seq_by_hand(model, config, source, target)
        torch.testing.assert_close(found[row, : len(by_hand)], by_hand)


# word dropout


@torch.no_grad()
def test_word_dropout_reads_a_share_of_the_words_as_unknown_and_enlarges_none() -> None:
    torch.manual_seed(1)
    read = reader(Shapes(Ids(VOCAB), Label(NAMES)), dim=5, word_dropout=0.3)
    tokens = torch.randint(UNK + 1, VOCAB, (100, 100))
    tokens[:, -1], tokens[:, 0] = PAD, EOS
    plain = read.embed(tokens)
    found = read.train()(tokens)
    hidden = (found != plain).any(-1)  # (batch, source)
    assert torch.equal(found[hidden], read.embed(torch.full((int(hidden.sum()),), UNK)))
    assert torch.equal(found[~hidden], plain[~hidden])  # not a bit larger than in use: nothing is made up for
    assert hidden[:, 1:-1].float().mean().item() == pytest.approx(0.3, abs=0.02)  # 4 standard deviations
    assert not hidden[:, [0, -1]].any()  # <eos> and padding are no words
    assert torch.equal(read.eval()(tokens), plain)


# where dropout falls

P = 0.375  # in 256ths
RECURRENT = {"embedding": 6, "hidden": 6, "layers": 2}
STACK = {"dim": 6, "heads": 2, "feed_forward": 10, "layers": 2}
# what zeros in its place would do: words have no say; the source's words have none; a word has none two places on
DEAF, DEAF_TO_SOURCE, ALONE = "deaf", "deaf to the source", "alone"


def blocks(stack: str, *parts: str) -> str:
    return " ".join(f"{stack}.stack.blocks.{block}.{part}" for block in range(2) for part in parts)


# model: its settings, its target, and for each phrase of its Config's comment the modules that drop ("." is the model
# itself), and what zeros would do there
Falls = dict[str, tuple[str, str | None]]
DROPOUT: dict[str, tuple[dict[str, Any], Any, Falls]] = {
    "seq2seq": (
        RECURRENT | {"context": "mean"},
        Ids(OTHER),
        {
            "embeddings": ("encoder.embed decoder.embed", DEAF),
            "between layers": ("encoder.recurrent decoder.recurrent", DEAF),
            "before the output": ("decoder", DEAF),
        },
    ),
    "rnnsearch": (
        RECURRENT,
        Ids(OTHER),
        {
            "embeddings": ("encoder.embed decoder.embed", DEAF),
            "source states": ("encoder encoder.recurrent", DEAF_TO_SOURCE),
            "before the output": ("decoder", DEAF),
        },
    ),
    "convs2s": (
        {"embedding": 6, "hidden": 6, "layers": 1, "width": 5},
        Ids(OTHER),
        {
            "embeddings": ("encoder decoder", DEAF),
            "each convolution's input": ("encoder.convolutions.0 decoder.layers.0.convolution", ALONE),
            "before the output": ("decoder", DEAF),  # by the same module, once more
        },
    ),
    "transformer": (
        STACK,
        Ids(OTHER),
        {
            "embeddings": ("encoder.stack decoder.stack", DEAF),
            "inside the feed-forward layers": (
                f"{blocks('encoder', 'feed_forward')} {blocks('decoder', 'feed_forward')}",
                None,
            ),
            "each part's output": (
                f"{blocks('encoder', 'self_residual', 'feed_residual')} "
                f"{blocks('decoder', 'self_residual', 'cross_residual', 'feed_residual')}",
                ALONE,
            ),
        },
    ),
    "gpt": (
        STACK,
        Ids(OTHER),
        {
            "embeddings": ("body.stack", DEAF),
            "inside the feed-forward layers": (blocks("body", "feed_forward"), None),
            "each part's output": (blocks("body", "self_residual", "feed_residual"), ALONE),
        },
    ),
    "rnn_lm": (
        RECURRENT,
        Ids(OTHER),
        {"embeddings": ("embed", DEAF), "between layers": ("body", DEAF), "before the output": (".", DEAF)},
    ),
    "neural_lm": (
        {"embedding": 6, "hidden": 6, "direct": False},
        Ids(OTHER),
        {"embeddings": ("embed", DEAF), "before the output": ("body", DEAF)},
    ),
    "birnn": (
        RECURRENT | {"letters": 3},
        TagIds(NAMES),
        {
            "embeddings": ("encoder.embed.embed encoder.embed.spelling.embed", DEAF),
            "states": ("encoder encoder.recurrent", DEAF),
            "before the output": ("head", DEAF),
        },
    ),
    "attentive_birnn": (
        RECURRENT,
        Label(NAMES),
        {
            "embeddings": ("encoder.embed.embed", DEAF),
            "states": ("encoder encoder.recurrent", DEAF),
            "before the output": ("head", DEAF),
        },
    ),
    "cnn": (
        {"embedding": 6, "filters": 6, "widths": (3,), "layers": 2, "letters": 3},
        TagIds(NAMES),
        {
            "embeddings": ("encoder.embed.embed encoder.embed.spelling.embed", DEAF),
            "between layers": ("encoder", ALONE),
            "before the output": ("head", DEAF),
        },
    ),
    "encoder": (
        STACK | {"letters": 3},
        TagIds(NAMES),
        {
            "embeddings": ("encoder.stack", DEAF),
            "inside the feed-forward layers": (blocks("encoder", "feed_forward"), None),
            "each part's output": (blocks("encoder", "self_residual", "feed_residual"), ALONE),
            "before the output": ("head", DEAF),
        },
    ),
}


def made(name: str) -> tuple[Any, Batch]:
    settings, target, _ = DROPOUT[name]
    torch.manual_seed(1)
    model = lively(MODELS[name].build(MODELS[name].config(**settings, dropout=P), Shapes(Ids(VOCAB), target)))
    if isinstance(target, Label):
        return model, labelled(SOURCE, [0, 1])
    if isinstance(target, TagIds):
        letters = torch.randint(1, 257, (2, 6, 4))
        return model, tagged(SOURCE, torch.randint(NAMES, (2, 6)), spelling=letters)
    return model, text(TARGET) if name in ("gpt", "rnn_lm", "neural_lm") else pairs(SOURCE, TARGET)


def answers(model: Any, batch: Batch) -> Tensor:
    """Before a choice is made: (batch, target, vocab), (batch, labels) or (batch, source, tags)."""
    if not isinstance(model, EncoderWithHead):
        return model.logits(batch)  # type: ignore[no-any-return]
    encoded = model.encoded(batch)
    return model.head.logits(encoded) if isinstance(model, Classifier) else model.head.emissions(encoded)


def other_words(side: Padded, *places: int) -> Padded:
    """Another word at these places, or everywhere."""
    values, chosen = side.values.clone(), list(places or range(side.mask.shape[1]))
    values[:, chosen] = (values[:, chosen] + 1) % VOCAB
    return Padded(values, side.mask)


def dropouts(model: nn.Module) -> dict[str, Dropout]:
    """Those that drop, by the path of what each is a part of."""
    found = {path: part for path, part in model.named_modules() if isinstance(part, Dropout) and part.p}
    return {path.removesuffix("dropout").removesuffix(".") or ".": part for path, part in found.items()}


@contextmanager
def zeros_at(model: nn.Module, paths: str) -> Iterator[None]:
    parts = dropouts(model)
    hooks = [parts[path].register_forward_hook(lambda part, given, left: left * 0) for path in paths.split()]
    yield
    for hook in hooks:
        hook.remove()


@pytest.mark.parametrize("name", DROPOUT)
def test_dropout_is_applied_only_where_the_settings_put_it(name: str) -> None:
    model, batch = made(name)
    said = re.split(r", | and ", help_texts(MODELS[name].config)["dropout"])
    falls = DROPOUT[name][2]
    assert [place.removeprefix("on ") for place in said] == list(falls)
    ran: Counter[str] = Counter()
    for path, part in dropouts(model).items():
        assert part.p == P
        part.register_forward_hook(lambda part, given, left, path=path: ran.update([path]))
    model.train().loss(batch)
    assert ran == Counter(path for paths, _ in falls.values() for path in paths.split())


@pytest.mark.parametrize(("name", "place"), [(name, place) for name, (*_, falls) in DROPOUT.items() for place in falls])
@torch.no_grad()
def test_dropout_cuts_the_paths_that_the_settings_name(name: str, place: str) -> None:
    """Zeros in its place cut the way that words take."""
    _, target, falls = DROPOUT[name]
    paths, effect = falls[place]
    model, batch = made(name)

    def changes(side: str, *places: int) -> Tensor:
        """Where another word makes a difference, (batch, time): to the answers; of the source alone, to its states."""
        other = dataclasses.replace(batch, **{side: other_words(vars(batch)[side], *places)})
        if side == "source" and effect == ALONE:
            beside = [batch.beside[each] for each in model.beside] if isinstance(model, EncoderWithHead) else []
            found = [model.encoder(each.source, *beside).states for each in (batch, other)]
        else:
            found = [answers(model, each) for each in (batch, other)]
        return (found[0] != found[1]).any(-1)

    sides = [] if batch.source is None else ["source"]
    if isinstance(target, Ids) and effect != DEAF_TO_SOURCE:
        sides.append("target")
    for side in sides:
        if effect == ALONE:
            assert changes(side, 0)[:, 2:].any()
            with zeros_at(model, paths):
                assert changes(side, 0)[:, 0].all() and not changes(side, 0)[:, 2:].any()
        elif effect is not None:
            assert changes(side).any()
            with zeros_at(model, paths):
                assert not changes(side).any()
