"""Laws of gated convolutions: they are PyTorch's, they reach so far and no further, and deep stacks keep their size."""

from __future__ import annotations

import math

import pytest
import torch
from made import pairs, side
from torch.nn.functional import conv1d, glu, pad

from regard.interface import Ids, Shapes
from regard.layers.attention import watch
from regard.layers.convolution import GatedConvolution, with_ends
from regard.models import convs2s
from regard.models.convs2s import Config
from regard.models.encoder_decoder import EncoderDecoder

VOCAB = 23


def build(**settings: object) -> EncoderDecoder:
    torch.manual_seed(1)
    config = Config(**{"embedding": 5, "hidden": 7, "dropout": 0.0, **settings})  # type: ignore[arg-type]
    return convs2s.build(config, Shapes(Ids(VOCAB), Ids(VOCAB))).double()


def tokens(rows: int, time: int, *, seed: int = 2) -> torch.Tensor:
    return torch.randint(4, VOCAB, (rows, time), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_a_gated_convolution_equals_pytorchs(width: int) -> None:
    convolution = GatedConvolution(dim=5, width=width).double()
    torch.nn.init.normal_(convolution.kernel.bias)
    weight = convolution.kernel.weight.view(10, width, 5).transpose(1, 2)  # (out, in, width)
    x = torch.randn(3, 11, 5, dtype=torch.float64)

    def theirs(before: int) -> torch.Tensor:
        """With so many zeros before it, and the rest of width − 1 after."""
        padded = pad(x.transpose(1, 2), (before, width - 1 - before))
        return glu(conv1d(padded, weight, convolution.kernel.bias), 1).transpose(1, 2)

    torch.testing.assert_close(convolution(with_ends(x, width)), theirs((width - 1) // 2))
    causal = convolution(torch.cat([x.new_zeros(3, width - 1, 5), x], 1))
    torch.testing.assert_close(causal, theirs(width - 1))
    changed = x.clone()
    changed[:, 7:] = 1.0
    assert torch.equal(convolution(torch.cat([x.new_zeros(3, width - 1, 5), changed], 1))[:, :7], causal[:, :7])


@pytest.mark.parametrize("layers, width", [(1, 2), (1, 3), (2, 3), (3, 2)])
@torch.no_grad()
def test_a_token_changes_all_positions_that_it_reaches_and_no_others(layers: int, width: int) -> None:
    model, source, target = build(layers=layers, width=width), tokens(2, 13), tokens(2, 14, seed=3)
    place = 6
    other = source.clone()
    other[:, place] = 4 + (other[:, place] - 3) % (VOCAB - 4)
    changed = (model.encoder(side(other)).states != model.encoder(side(source)).states).any(-1)  # (batch, source)
    ahead, behind = layers * (width // 2), layers * ((width - 1) // 2)  # how far a state reads either way
    reached = [place - ahead <= here <= place + behind for here in range(13)]
    assert changed.tolist() == [reached] * 2
    other = target.clone()
    other[:, place] = 4 + (other[:, place] - 3) % (VOCAB - 4)
    changed = (model.logits(pairs(source, other)) != model.logits(pairs(source, target))).any(-1)
    reached = [place <= here <= place + layers * (width - 1) for here in range(13)]
    assert changed.tolist() == [reached] * 2


@torch.no_grad()
def test_a_layer_is_its_equation() -> None:
    """One layer, one target token at a time, written out."""
    model, source, target = build(layers=1), tokens(1, 6), tokens(1, 5, seed=3)
    encoder, decoder = model.encoder, model.decoder
    e = encoder.positions(encoder.embed(source), torch.arange(6))[0]
    z = model.encoder(side(source)).states[0]
    g = decoder.positions(decoder.embed(target), torch.arange(5))[0]
    x, layer = decoder.enter(g), decoder.layers[0]
    for place in range(4):
        window = torch.cat([torch.zeros(2, 7, dtype=torch.float64), x])[place : place + 3].flatten()
        linear, gate = layer.convolution.kernel(window).chunk(2)
        y = linear * torch.sigmoid(gate)
        d = (layer.query(y) + g[place]) / math.sqrt(2)
        a = (z @ d / math.sqrt(5)).softmax(0)
        c = math.sqrt(6) * sum(a[j] * (z[j] + e[j]) / math.sqrt(2) for j in range(6))
        h = (x[place] + (y + layer.told(c)) / math.sqrt(2)) / math.sqrt(2)
        found = model.hidden(pairs(source, target))[0, place]
        torch.testing.assert_close(found, decoder.leave(h))
    with watch(model) as seen:
        model.hidden(pairs(source, target))
    torch.testing.assert_close(seen.of(layer.attention)[0][0, 0, 3], a)  # of (batch, heads, target, source)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@torch.no_grad()
def test_however_deep_a_stack_enlarges_nothing_and_is_not_silent(dropout: float) -> None:
    for layers in (1, 10, 30):
        model = build(embedding=64, hidden=64, layers=layers, dropout=dropout).train()
        source, target = tokens(16, 12), tokens(16, 12, seed=3)
        encoded, hidden = model.encoder(side(source)), model.hidden(pairs(source, target))
        assert 0 < encoded.states.std() < 2
        assert 0.4 < hidden.std() < 2
