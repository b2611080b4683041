"""Packed products: near the plain ones, whichever kernel runs for so many rows."""

from __future__ import annotations

import pytest
import torch

from regard.interface import Batch, Ids, Padded, Shapes
from regard.layers.fast.packed import FEW, Byte, Few, Half, pack
from regard.layers.heads import SoftmaxHead
from regard.models import MODELS
from regard.predict.decoding import Decoding
from regard.predict.search import Search, generate

VOCAB = 192


def matrix(outputs: int = 128, inputs: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(outputs + inputs)
    return torch.randn(outputs, inputs, generator=random), torch.randn(outputs, generator=random)


@pytest.mark.parametrize("rows", [1, 2, 5, FEW])
@pytest.mark.parametrize("kind", [Half, Byte, Few])
def test_a_product_is_near_the_plain_one(kind, rows):
    weight, bias = matrix()
    x = torch.randn(rows, 3, 64)[:, 1:]  # not contiguous
    with torch.inference_mode():
        exact = torch.nn.functional.linear(x, weight, bias)
        apart = kind(weight, bias)(x) - exact
        assert apart.shape == exact.shape
        assert float(apart.square().mean().sqrt()) < 0.01 * float(exact.std())
        assert torch.allclose(kind(weight, bias)(torch.zeros_like(x)), bias.expand_as(exact), rtol=2**-8, atol=1e-6)
        without = kind(weight, None)(x) - (exact - bias)
        assert float(without.square().mean().sqrt()) < 0.01 * float(exact.std())


def test_both_kernels_of_int8_multiply_by_the_same_weights():
    weight, _ = matrix()
    eye = torch.eye(64)[:FEW]  # each row chooses a column of the matrix
    with torch.inference_mode():
        few, many = Few(weight, None)(eye), Byte(weight, None)(eye)
    assert torch.allclose(few, many, rtol=2**-7, atol=1e-6)


@pytest.mark.parametrize("kind", [Byte, Few])
def test_a_row_of_int8_does_not_depend_on_the_rows_beside_it(kind):
    weight, bias = matrix()
    product, x = kind(weight, bias), torch.randn(FEW, 64)
    x[1] *= 1000
    with torch.inference_mode():
        assert torch.equal(product(x)[:1], product(x[:1]))


def model(precision):
    torch.manual_seed(1)
    design = MODELS["transformer"]
    config = design.config(dim=64, heads=4, feed_forward=128, layers=2, dropout=0.0)
    made = design.build(config, Shapes(Ids(VOCAB), Ids(VOCAB), joint=True)).eval()
    with torch.no_grad():
        for weight in made.parameters():
            weight.mul_(1.5)  # so that some tokens are much more probable than others
    pack(made, precision, least=0)
    return made


def sentences(*lengths):
    ids = [torch.randint(4, VOCAB, (1, length), generator=torch.Generator().manual_seed(length)) for length in lengths]
    longest = max(lengths)
    padded = [torch.nn.functional.pad(each, (0, longest - each.shape[1])) for each in ids]
    return Batch(source=Padded.of_ids(torch.cat(padded)))


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_one_sentence_or_many_give_nearly_the_same_probabilities(precision):
    """Alone it takes the kernel of a few rows, among twelve that of many."""
    made, batch = model(precision), sentences(*range(3, 15))
    tokens = torch.arange(4, 16)
    with torch.inference_mode():
        together, _ = made.step(tokens, made.start(batch))
        for row, alone in enumerate(batch.rows()):
            logits, _ = made.step(tokens[row : row + 1], made.start(alone))
            apart = (logits[0] - together[row]).square().mean().sqrt()
            assert float(apart) < {"fp32": 1e-5, "bf16": 0.03, "int8": 0.05}[precision] * float(together.std())


@pytest.mark.parametrize("how", [Decoding(), Decoding(beam=3, n_best=3), Decoding(sample=True, n_best=2, seed=4)])
@pytest.mark.parametrize("more", [{}, {"min_length": 4}, {"no_repeat": 2}])
def test_sentences_that_join_later_are_decoded_as_if_alone(how, more):
    how = how.__class__(**{**how.__dict__, **more})
    made, batch = model("fp32").double(), sentences(5, 9, 3, 7, 4, 6)
    parts, limits = list(batch.rows()), [6, 9, 5, 12, 4, 8]
    alone = []
    for number, part in enumerate(parts):
        lines, most = torch.tensor([number]), torch.tensor([limits[number]])
        alone += generate(made, part, how, limits=most, lines=lines)
    search, found, waiting = Search(made, how), {}, list(range(6))
    step = 0
    while waiting or search:
        if waiting and step % 2 == 0:  # one joins at every second step
            name = waiting.pop()
            search.add(parts[name], names=[name], lines=[name], limits=[limits[name]])
        found.update(search.step())
        step += 1
    for number, expected in enumerate(alone):
        assert [each.tokens for each in found[number]] == [each.tokens for each in expected]
        for each, other in zip(found[number], expected, strict=True):
            assert each.log_prob == pytest.approx(other.log_prob, abs=1e-9)
            assert each.finished == other.finished


@pytest.mark.parametrize("precision", ["bf16", "int8"])
@pytest.mark.parametrize("vocab", [997, 4999])  # a small matrix, and one that int8 multiplies in int8
def test_logits_are_not_rounded_to_bfloat16(precision, vocab):
    """Of two tokens whose logits differ by little, the better one is still the better one."""
    torch.manual_seed(1)
    head = SoftmaxHead(dim=128, vocab=vocab)
    plain = head.logits(hidden := 3 * torch.randn(19, 128)).detach()
    pack(head, precision)
    with torch.inference_mode():
        logits = head.logits(hidden)
    assert float((logits == logits.bfloat16()).float().mean()) < 0.1
    assert float((logits - plain).norm() / plain.norm()) < 0.02
