"""Laws of heads: the loss is PyTorch's cross-entropy, summed over real tokens, in pieces of any size."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from regard.interface import PAD
from regard.layers import heads
from regard.layers.heads import SoftmaxHead

BATCH, TIME, DIM, VOCAB = 3, 5, 7, 11


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("at_once", [2, 2048])
def test_loss_and_gradients_equal_cross_entropy(monkeypatch, smoothing, at_once):
    monkeypatch.setattr(heads, "ROWS_AT_ONCE", at_once)
    torch.manual_seed(0)
    head = SoftmaxHead(dim=DIM, vocab=VOCAB, smoothing=smoothing).double()
    hidden = torch.randn(BATCH, TIME, DIM, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(1, VOCAB, (BATCH, TIME))
    targets[0, 3:] = PAD
    wanted = [hidden, head.weight, head.bias]

    loss = head.loss(hidden, targets)
    flat = head.logits(hidden).flatten(0, 1)
    reference = cross_entropy(flat, targets.flatten(), ignore_index=PAD, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(loss.objective, reference)
    torch.testing.assert_close(loss.nll, cross_entropy(flat, targets.flatten(), ignore_index=PAD, reduction="sum"))
    assert loss.tokens == int((targets != PAD).sum())
    ours = torch.autograd.grad(0.3 * loss.objective, wanted)
    theirs = torch.autograd.grad(0.3 * reference, wanted)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_smoothing_is_for_training_only():
    head = SoftmaxHead(dim=DIM, vocab=VOCAB, smoothing=0.1).eval()
    loss = head.loss(torch.randn(BATCH, TIME, DIM), torch.randint(1, VOCAB, (BATCH, TIME)))
    assert torch.equal(loss.objective.detach(), loss.nll)


def test_tied_head_shares_its_matrix():
    matrix = torch.nn.Parameter(torch.randn(VOCAB, DIM))
    assert SoftmaxHead(dim=DIM, vocab=VOCAB, tied=matrix).weight is matrix
