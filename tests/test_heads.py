"""Laws of heads: the loss is PyTorch's cross-entropy, summed over real tokens, in pieces of any size; features see
what came last, hashed alike on every machine; an adaptive head is a distribution."""

import pytest
import torch
from made import side
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from regard.interface import PAD, Padded, UserError
from regard.layers import heads
from regard.layers.heads import AdaptiveHead, FeatureHead, Features, SoftmaxHead, adaptive_cutoffs, log_probs_of

BATCH, TIME, DIM, VOCAB = 3, 5, 7, 11
REACH, ROWS = 2, 13


def history(reach: int = REACH) -> torch.Tensor:
    """The last tokens before each target; texts begin here, so the first have less behind them."""
    tokens = torch.randint(1, VOCAB, (BATCH, TIME))
    padded = torch.cat((torch.full((BATCH, reach - 1), PAD), tokens), 1)
    return padded.unfold(1, reach, 1)  # (batch, time, reach)


def feature_head(smoothing: float = 0.0) -> FeatureHead:
    head = FeatureHead(dim=DIM, vocab=VOCAB, reach=REACH, rows=ROWS, smoothing=smoothing).double()
    torch.nn.init.normal_(head.features.table)
    return head


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

    loss = head.loss(hidden, side(targets))
    flat = head.logits(hidden).flatten(0, 1)
    reference = cross_entropy(flat, targets.flatten(), ignore_index=PAD, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(loss.objective, reference)
    torch.testing.assert_close(loss.nll, cross_entropy(flat, targets.flatten(), ignore_index=PAD, reduction="sum"))
    assert loss.tokens == int((targets != PAD).sum())
    ours = torch.autograd.grad(0.3 * loss.objective, wanted)
    theirs = torch.autograd.grad(0.3 * reference, wanted)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("made", [lambda: SoftmaxHead(dim=DIM, vocab=VOCAB).double(), feature_head])
@pytest.mark.parametrize("aside", [torch.no_grad, torch.inference_mode])
def test_where_no_gradient_is_wanted_none_is_computed(made, aside):
    head, targets, recent = made(), torch.randint(1, VOCAB, (BATCH, TIME)), history()
    hidden = torch.randn(BATCH, TIME, DIM, dtype=torch.float64, requires_grad=True)
    with FlopCounterMode(display=False) as learning:
        expected = head.loss(hidden, side(targets), recent)
    with aside(), FlopCounterMode(display=False) as measuring:
        loss = head.loss(hidden, side(targets), recent)
    assert torch.equal(loss.objective, expected.objective) and torch.equal(loss.nll, expected.nll)
    once = 2 * BATCH * TIME * DIM * VOCAB  # one product: the logits
    assert measuring.get_total_flops() == once and learning.get_total_flops() == 3 * once


def test_smoothing_is_for_training_only():
    head = SoftmaxHead(dim=DIM, vocab=VOCAB, smoothing=0.1).eval()
    loss = head.loss(torch.randn(BATCH, TIME, DIM), side(torch.randint(1, VOCAB, (BATCH, TIME))))
    assert torch.equal(loss.objective.detach(), loss.nll)


def test_tied_head_shares_its_matrix():
    matrix = torch.nn.Parameter(torch.randn(VOCAB, DIM))
    assert SoftmaxHead(dim=DIM, vocab=VOCAB, tied=matrix).weight is matrix


# hashed n-gram features


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("at_once", [2, 2048])
def test_loss_and_gradients_with_features_equal_cross_entropy(monkeypatch, smoothing, at_once):
    monkeypatch.setattr(heads, "ROWS_AT_ONCE", at_once)
    torch.manual_seed(0)
    head = feature_head(smoothing)
    hidden = torch.randn(BATCH, TIME, DIM, dtype=torch.float64, requires_grad=True)
    targets, recent = torch.randint(1, VOCAB, (BATCH, TIME)), history()
    targets[0, 3:] = PAD
    wanted = [hidden, head.softmax.weight, head.softmax.bias, head.features.table]

    loss = head.loss(hidden, side(targets), recent)
    flat = head.logits(hidden, recent).flatten(0, 1)
    reference = cross_entropy(flat, targets.flatten(), ignore_index=PAD, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(loss.objective, reference)
    torch.testing.assert_close(loss.nll, cross_entropy(flat, targets.flatten(), ignore_index=PAD, reduction="sum"))
    assert loss.tokens == int((targets != PAD).sum())
    ours = torch.autograd.grad(0.3 * loss.objective, wanted)
    theirs = torch.autograd.grad(0.3 * reference, wanted)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_the_gradient_with_features_is_that_of_small_differences():
    torch.manual_seed(0)
    targets, recent = torch.tensor([3, 1, 4]), torch.tensor([[PAD, 1], [1, 3], [1, 3]])
    places = Features(vocab=5, reach=2, rows=3).places(recent)
    inputs = [torch.randn(*shape, dtype=torch.float64).requires_grad_() for shape in ((3, 2), (5, 2), (5,), (6, 5))]

    def objective(hidden, weight, bias, table):
        return heads._SoftmaxLoss.apply(hidden, weight, bias, targets, 0.1, table, places, True)[0]

    assert torch.autograd.gradcheck(objective, inputs)


def test_logits_are_the_softmax_heads_and_one_row_of_each_order():
    head, hidden, recent = feature_head(), torch.randn(BATCH, TIME, DIM).double(), history()
    table = head.features.table.view(REACH, ROWS, VOCAB)
    by_hand = head.softmax.logits(hidden)
    for row in range(BATCH):
        for time in range(TIME):
            for order in range(1, min(REACH, time + 1) + 1):
                place = hashed(recent[row, time, -order:].tolist()) % ROWS
                by_hand[row, time] += table[order - 1, place]
    torch.testing.assert_close(head.logits(hidden, recent), by_hand)
    step = head.logits(hidden[:, 2], recent[:, 2])  # (rows, dim), as generating asks
    torch.testing.assert_close(step, by_hand[:, 2])


def hashed(context: list[int]) -> int:
    """The documented hash in unbounded integers."""
    mixed = 0
    for token in reversed(context):
        mixed = (mixed ^ token) * 0x9E3779B97F4A7C15 % 2**64
        mixed ^= mixed >> 32
    return mixed % 2**63


def test_the_hash_is_the_documented_one_and_spreads_contexts_evenly():
    rows, contexts = 101, torch.randint(1, 50_021, (20_011, 3))
    places = Features(vocab=1, reach=3, rows=rows).places(contexts) - rows * torch.arange(3)
    for context, found in zip(contexts[:97].tolist(), places.tolist(), strict=False):
        assert found == [hashed(context[-order:]) % rows for order in (1, 2, 3)]
    for order in range(3):
        counts = torch.bincount(places[:, order], minlength=rows).double()
        expected = len(contexts) / rows
        assert len(counts) == rows
        assert ((counts - expected).square() / expected).sum() < 160  # chi-squared, 100 degrees: 1 in 10,000
    swapped = Features(vocab=1, reach=3, rows=1_000_003).places(torch.tensor([[5, 6, 7], [6, 5, 7], [5, 6, 8]]))
    assert swapped[0, 0] == swapped[1, 0] and swapped[0, 1] != swapped[1, 1] and swapped[0, 2] != swapped[1, 2]
    assert (swapped[0] != swapped[2]).all()


def test_what_lies_before_the_text_has_no_feature_and_learns_nothing():
    head, hidden = feature_head(), torch.randn(1, 1, DIM).double()
    targets = torch.tensor([[5]])
    nothing, one = torch.tensor([[[PAD, PAD]]]), torch.tensor([[[PAD, 3]]])
    assert torch.equal(head.logits(hidden, nothing), head.softmax.logits(hidden))
    head.loss(hidden, side(targets), nothing).objective.backward()
    assert not head.features.table.grad.any()
    head.loss(hidden, side(targets), one).objective.backward()
    assert head.features.table.grad.any(1).nonzero().flatten().tolist() == [hashed([3]) % ROWS]


def test_features_begin_at_nothing_so_the_head_begins_as_a_softmax_head():
    matrix = torch.nn.Parameter(torch.randn(VOCAB, DIM))
    plain = SoftmaxHead(dim=DIM, vocab=VOCAB, tied=matrix)
    head = FeatureHead(dim=DIM, vocab=VOCAB, reach=REACH, rows=ROWS, tied=matrix)
    assert head.softmax.weight is matrix
    hidden, targets, recent = torch.randn(BATCH, TIME, DIM), torch.randint(1, VOCAB, (BATCH, TIME)), history()
    assert torch.equal(plain.logits(hidden), head.logits(hidden, recent))
    assert torch.equal(plain.loss(hidden, side(targets)).nll, head.loss(hidden, side(targets), recent).nll)


def test_a_feature_head_without_recent_tokens_is_refused():
    with pytest.raises(ValueError, match="recent"):
        feature_head().logits(torch.randn(1, DIM).double())


# the adaptive softmax


def adaptive(vocab: int = 31, dim: int = 17) -> AdaptiveHead:
    torch.manual_seed(0)
    return AdaptiveHead(dim=dim, vocab=vocab, cutoffs=adaptive_cutoffs(vocab))


def test_adaptive_logits_are_log_probabilities_and_the_loss_is_their_sum():
    head = adaptive().double()
    hidden = torch.randn(BATCH, TIME, 17, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(1, 31, (BATCH, TIME))
    targets[0, 3:] = PAD
    log_probs = head.logits(hidden)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(BATCH, TIME, dtype=torch.float64))
    reference = cross_entropy(log_probs.flatten(0, 1), targets.flatten(), ignore_index=PAD, reduction="sum")
    loss = head.loss(hidden, side(targets))
    torch.testing.assert_close(loss.objective, reference)
    assert torch.equal(loss.nll, loss.objective.detach()) and not loss.nll.requires_grad
    assert loss.tokens == int((targets != PAD).sum())
    wanted = [hidden, *head.parameters()]
    for one, other in zip(
        torch.autograd.grad(loss.objective, wanted), torch.autograd.grad(reference, wanted), strict=True
    ):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(head.logits(hidden[:, 2]), log_probs[:, 2])  # (rows, dim), as generating asks


@pytest.mark.parametrize("token", [PAD, 1, 9, 30])  # nobody; a word of its own; either cluster
def test_clusters_that_are_absent_leave_everything_finite(token):
    head = adaptive()
    hidden = torch.randn(1, 3, 17, requires_grad=True)
    loss = head.loss(hidden, side(torch.full((1, 3), token)))
    loss.objective.backward()
    assert loss.objective.isfinite() and hidden.grad.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in head.parameters())
    assert (loss.objective > 0) == (token != PAD)


def test_an_adaptive_head_keeps_its_precision_where_others_halve_it():
    head, hidden, targets = adaptive(), torch.randn(1, 3, 17).to(torch.bfloat16), torch.tensor([[1, 9, 30]])
    with torch.autocast("cpu", torch.bfloat16):
        halved, log_probs = head.loss(hidden, side(targets)), head.logits(hidden)
    assert torch.equal(halved.nll, head.loss(hidden.float(), side(targets)).nll)
    assert torch.equal(log_probs, head.logits(hidden.float()))


@pytest.mark.parametrize("vocab", [2, 3, 4, 5, 11, 31, 997, 50_021])
def test_cutoffs_fit_any_vocabulary(vocab):
    cutoffs = adaptive_cutoffs(vocab)
    assert cutoffs and list(cutoffs) == sorted(set(cutoffs)) and cutoffs[0] > 0 and cutoffs[-1] < vocab
    log_probs = AdaptiveHead(dim=16, vocab=vocab, cutoffs=cutoffs).logits(torch.randn(2, 16))
    assert log_probs.shape == (2, vocab)


def test_a_width_that_narrows_to_nothing_is_refused():
    adaptive(dim=16)
    with pytest.raises(UserError, match="narrows 15 features .* at least 16"):
        adaptive(dim=15)


# every head


ALL = {
    "softmax": lambda: SoftmaxHead(dim=17, vocab=VOCAB),
    "features": lambda: FeatureHead(dim=17, vocab=VOCAB, reach=REACH, rows=ROWS),
    "adaptive": lambda: adaptive(vocab=VOCAB),
}


@pytest.mark.parametrize("name", ALL)
def test_every_head_keeps_the_promise(name):
    head = ALL[name]()
    hidden = torch.randn(BATCH, TIME, 17, requires_grad=True)
    targets = torch.randint(1, VOCAB, (BATCH, TIME))
    recent = history(head.reach) if head.reach else torch.empty(BATCH, TIME, 0, dtype=torch.long)
    loss = head.loss(hidden, side(targets), recent)
    log_probs = head.logits(hidden, recent).log_softmax(-1)
    loss.objective.backward()
    assert hidden.grad.any(-1).all() and not loss.nll.requires_grad
    nll = -log_probs.gather(-1, targets[..., None]).sum()
    assert loss.nll.item() == pytest.approx(nll.item())
    empty = head.loss(hidden, side(torch.zeros_like(targets)), recent)
    assert empty.objective.item() == 0 and empty.tokens == 0


@pytest.mark.parametrize("name", ALL)
def test_the_mask_says_what_counts_and_not_the_ids(name):
    """A target whose first number is 0, as labels' are: id 0 is learnt where it is real, and others not where not."""
    head = ALL[name]()
    hidden, mask = torch.randn(1, 3, 17), torch.tensor([[True, False, True]])
    recent = torch.ones(1, 3, head.reach, dtype=torch.long)
    targets = Padded(torch.tensor([[0, 5, 3]]), mask)
    log_probs = head.logits(hidden, recent).log_softmax(-1)[0].detach()
    loss = head.loss(hidden, targets, recent)
    assert loss.tokens == 2
    assert loss.nll.item() == pytest.approx(-(log_probs[0, 0] + log_probs[2, 3]).item())
    found = log_probs_of(head.logits(hidden, recent).detach(), targets)
    torch.testing.assert_close(found, torch.tensor([[log_probs[0, 0], 0.0, log_probs[2, 3]]]))


@pytest.mark.parametrize("name", ALL)
def test_shapes_on_the_meta_device(name):
    with torch.device("meta"):
        head = ALL[name]()
        logits = head.logits(torch.empty(BATCH, TIME, 17), torch.ones(BATCH, TIME, head.reach, dtype=torch.long))
    assert logits.is_meta and logits.shape == (BATCH, TIME, VOCAB)
