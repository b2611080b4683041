"""Heads: from hidden states to a distribution over the vocabulary, and the loss that trains it.

    softmax    logits = h Wᵀ + b
    features   logits = h Wᵀ + b + Σₖ tableₖ[hashₖ(the last k tokens)], k = 1 … reach          Mikolov 2011
    adaptive   p(v) = p(cluster of v) p(v | cluster); a frequent word is its own cluster    Grave 2017

loss = −Σₜ [(1 − ε) log p(yₜ) + ε/V Σᵥ log p(v)]   (label smoothing ε: Szegedy 2016, section 7)
∂loss/∂logits = p − (1 − ε) onehot(y) − ε/V, so the gradient can overwrite the logits, a few rows at a time.

A head may read the latest `reach` tokens itself: `recent` (…, reach), the latest last, <pad> where there is none yet.
The hash of a context, latest token first: h₀ = 0, hₖ = mix(hₖ₋₁ ⊕ tokenₖ), mix(h) = g ⊕ (g ⋙ 32) with
g = h · 0x9E3779B97F4A7C15 mod 2⁶⁴; its row is (hₖ mod 2⁶³) mod rows. Integers only, so it is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.interface import Loss, Padded, UserError
from regard.layers.fast.packed import Product, runs

ROWS_AT_ONCE = 2048  # tokens whose logits are in memory together
NONE = -1  # no feature; as an index, the extra row after all others
MIX = 0x9E3779B97F4A7C15 - 2**64  # the same bits as a signed number
NARROWING = 4  # each cluster's vectors are narrower by this factor than those before


class Head(Protocol):
    """Computes logits or the loss from hidden states."""

    reach: int  # how many of the latest tokens it reads

    def logits(self, hidden: Tensor, recent: Tensor | None = None) -> Tensor: ...

    def loss(self, hidden: Tensor, targets: Padded, recent: Tensor | None = None) -> Loss: ...


def log_probs_of(logits: Tensor, answers: Padded) -> Tensor:
    """Compute ln p of each answer, 0 at padding: (batch, time, vocab) -> (batch, time); at least in float32."""
    exact = logits if logits.dtype is torch.float64 else logits.float()
    return exact.log_softmax(-1).gather(-1, answers.values[..., None])[..., 0] * answers.mask


class Features(nn.Module):
    """Σₖ tableₖ[row of the last k tokens]; a context that reaches before the beginning of the text has no row."""

    __call__: Callable[..., Tensor]
    pace = 10.0  # a row occurs in few steps: at the usual learning rate it would stay near 0

    def __init__(self, *, vocab: int, reach: int, rows: int) -> None:
        super().__init__()
        self.reach, self.rows = reach, rows
        self.table = nn.Parameter(torch.zeros(reach * rows, vocab))  # tableₖ is its k-th block of rows

    def places(self, recent: Tensor) -> Tensor:
        """Return rows of the table, order by order: (…, reach) -> (…, reach), NONE where <pad> is in the context."""
        recent = recent.long()
        mixed, there = torch.zeros_like(recent[..., 0]), torch.ones_like(recent[..., 0], dtype=torch.bool)
        places = []
        for order, token in enumerate(recent.flip(-1).unbind(-1)):
            mixed = (mixed ^ token) * MIX  # wraps around
            mixed = mixed ^ (mixed >> 32 & 0xFFFFFFFF)
            there = there & Padded.of_ids(token).mask
            row = (mixed & 0x7FFFFFFFFFFFFFFF) % self.rows + order * self.rows
            places.append(torch.where(there, row, NONE))
        return torch.stack(places, -1)

    def forward(self, recent: Tensor) -> Tensor:
        """(…, reach) -> (…, vocab)."""
        places = self.places(recent)
        return _summed_rows(self.table, places.flatten(0, -2)).view(*places.shape[:-1], -1)


def _summed_rows(table: Tensor, places: Tensor) -> Tensor:
    """table (rows, vocab), places (tokens, orders) -> (tokens, vocab)."""
    there = (places != NONE).to(table.dtype)
    return nn.functional.embedding_bag(places.clamp(min=0), table, mode="sum", per_sample_weights=there)


class _SoftmaxLoss(torch.autograd.Function):
    """Sums the objective and −log p(y); the gradient overwrites the array of logits."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        smoothing: float,
        table: Tensor | None,
        places: Tensor | None,
        wanted: bool,  # whether gradients are needed, which a Function cannot ask PyTorch
    ) -> tuple[Tensor, Tensor]:
        learning = wanted and any(ctx.needs_input_grad)
        exact = torch.promote_types(hidden.dtype, torch.float32)
        matrix = weight.to(hidden.dtype)  # under autocast the hidden states come in bf16
        objective = nll = torch.zeros((), dtype=exact, device=hidden.device)
        slopes, matrix_slope, bias_slope = [], torch.zeros_like(weight), torch.zeros_like(bias)
        table_slope = None
        if table is not None and learning:  # one more row than the table, for tokens without a feature
            table_slope = table.new_zeros(len(table) + 1, table.shape[1])
        for start in range(0, max(len(hidden), 1), ROWS_AT_ONCE):
            now = slice(start, start + ROWS_AT_ONCE)
            few, answers = hidden[now], targets[now]
            logits = nn.functional.linear(few, matrix).to(exact).add_(bias)  # (tokens, vocab)
            if table is not None and places is not None:
                logits += _summed_rows(table, places[now])
            mean = logits.mean(-1) if smoothing else None
            few_nll, total, slope = _softmax_of(logits, answers)
            spread = few_nll if mean is None else (total - mean).sum()
            nll = nll + few_nll
            objective = objective + (1 - smoothing) * few_nll + smoothing * spread
            if learning:
                slope[torch.arange(len(answers), device=answers.device), answers] -= 1 - smoothing
                if smoothing:
                    slope -= smoothing / slope.shape[-1]
                bias_slope += slope.sum(0)
                if table_slope is not None and places is not None:
                    for place in (places[now] % len(table_slope)).unbind(1):
                        table_slope.index_add_(0, place, slope.to(table_slope.dtype))
                slope = slope.to(hidden.dtype)
                slopes.append(slope @ matrix)
                matrix_slope += slope.t() @ few
        if learning:
            ctx.save_for_backward(
                torch.cat(slopes), matrix_slope, bias_slope, None if table_slope is None else table_slope[:-1]
            )
        ctx.mark_non_differentiable(nll)
        return objective, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, share: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, table = ctx.saved_tensors
        table = None if table is None else table * share
        return hidden * share.to(hidden.dtype), weight * share, bias * share, None, None, table, None, None


def _softmax_of(logits: Tensor, answers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return −Σₜ log p(yₜ), log Σᵥ exp(logitᵥ) of each row, and p, which overwrites the logits. The logarithm is read
    off the most probable token, so that one exponential of each logit is enough."""
    right, most = logits.gather(-1, answers[:, None])[:, 0], logits.amax(-1)
    torch.softmax(logits, -1, out=logits)
    total = most - logits.amax(-1).log()
    return (total - right).sum(), total, logits


class SoftmaxHead(nn.Module):
    """A linear layer over the vocabulary, whose matrix may be shared with an embedding (weight tying).

    With `biased` false nothing is learned in the bias; it may exclude tokens that an imported model does not have.
    """

    reach = 0
    bias: Tensor

    def __init__(
        self, *, dim: int, vocab: int, tied: nn.Parameter | None = None, smoothing: float = 0.0, biased: bool = True
    ) -> None:
        super().__init__()
        if tied is None:
            tied = nn.Parameter(torch.empty(vocab, dim))
            nn.init.xavier_uniform_(tied)
        self.weight = tied  # (vocab, dim)
        if biased:
            self.bias = nn.Parameter(torch.zeros(vocab))
        else:
            self.register_buffer("bias", torch.zeros(vocab))
        self.smoothing = smoothing
        self.packed: Product | None = None
        self.make: Callable[..., Product] | None = None  # what packed it

    def pack(self, make: Callable[..., Product]) -> tuple[nn.Linear, ...]:
        self.packed, self.make = make(self.weight, self.bias, exact=True), make
        return ()

    def narrowed(self, ids: Tensor) -> SoftmaxHead:
        """Return a head that computes the logits of these types only, packed as this one is; it is not trained."""
        weight, bias = (each.detach().index_select(0, ids) for each in (self.weight, self.bias))
        head = SoftmaxHead(dim=weight.shape[1], vocab=len(ids), tied=nn.Parameter(weight, False), biased=False)
        head.bias = bias
        if self.make is not None:
            head.pack(self.make)
        return head

    def logits(self, hidden: Tensor, recent: Tensor | None = None) -> Tensor:
        if self.packed is not None and runs(hidden):
            return self.packed(hidden)
        return nn.functional.linear(hidden, self.weight, self.bias)  # (…, dim) -> (…, vocab)

    def loss(self, hidden: Tensor, targets: Padded, recent: Tensor | None = None) -> Loss:
        """hidden (batch, target, dim), targets (batch, target); padding costs neither loss nor time."""
        return self.loss_beside(None, None, hidden, targets)

    def loss_beside(self, table: Tensor | None, places: Tensor | None, hidden: Tensor, targets: Padded) -> Loss:
        """Compute the loss; rows of a feature table are added to the logits: places (batch, target, orders)."""
        real = targets.mask
        answers = targets.values[real]
        smoothing = self.smoothing if self.training else 0.0
        places = None if places is None else places[real]
        given = (hidden[real], self.weight, self.bias, answers, smoothing, table, places, torch.is_grad_enabled())
        objective, nll = _SoftmaxLoss.apply(*given)  # type: ignore[no-untyped-call]
        return Loss(objective, nll.detach(), answers.numel())


class FeatureHead(nn.Module):
    """A SoftmaxHead with hashed n-gram features added: the direct evidence of the last few tokens.

    Two contexts may share a row; more rows make that rarer, and cost rows · vocab parameters for each order.
    """

    def __init__(
        self,
        *,
        dim: int,
        vocab: int,
        reach: int,
        rows: int,
        tied: nn.Parameter | None = None,
        smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.reach = reach
        self.softmax = SoftmaxHead(dim=dim, vocab=vocab, tied=tied, smoothing=smoothing)
        self.features = Features(vocab=vocab, reach=reach, rows=rows)

    def logits(self, hidden: Tensor, recent: Tensor | None = None) -> Tensor:
        return self.softmax.logits(hidden) + self.features(_given(recent))  # (…, dim), (…, reach) -> (…, vocab)

    def loss(self, hidden: Tensor, targets: Padded, recent: Tensor | None = None) -> Loss:
        """hidden (batch, time, dim), targets (batch, time), recent (batch, time, reach)."""
        places = self.features.places(_given(recent))
        return self.softmax.loss_beside(self.features.table, places, hidden, targets)


def _given(recent: Tensor | None) -> Tensor:
    if recent is None:
        raise ValueError("a FeatureHead needs the recent tokens: pass them")
    return recent


def adaptive_cutoffs(vocab: int) -> tuple[int, ...]:
    """Split the ids into clusters: the most frequent tenth, the ids up to a third, and the rest.

    Ids are ranks: vocabularies of words are sorted by frequency.
    """
    first = max(1, vocab // 10)
    return tuple(cutoff for cutoff in (first, max(first + 1, vocab // 3)) if cutoff < vocab)


class AdaptiveHead(nn.Module):
    """Adaptive softmax: full width for frequent words, less for rare ones; it has no label smoothing."""

    reach = 0
    place: Tensor  # empty; it has the precision of the clusters

    def __init__(self, *, dim: int, vocab: int, cutoffs: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("place", torch.empty(0), persistent=False)
        if dim < NARROWING ** len(cutoffs):
            raise UserError(
                f"An adaptive softmax with {len(cutoffs)} clusters narrows {dim} features by {NARROWING} for each, "
                f"to none: choose a width of at least {NARROWING ** len(cutoffs)}, or a softmax head."
            )
        self.softmax = nn.AdaptiveLogSoftmaxWithLoss(
            dim, vocab, list(cutoffs), div_value=float(NARROWING), head_bias=True
        )

    def logits(self, hidden: Tensor, recent: Tensor | None = None) -> Tensor:
        """Log-probabilities: (…, dim) -> (…, vocab)."""
        with _without_autocast(hidden.device):
            log_probs: Tensor = self.softmax.log_prob(self._exact(hidden).flatten(0, -2))
        return log_probs.view(*hidden.shape[:-1], -1)

    def loss(self, hidden: Tensor, targets: Padded, recent: Tensor | None = None) -> Loss:
        """hidden (batch, time, dim), targets (batch, time)."""
        answers = targets.values[targets.mask]
        with _without_autocast(hidden.device):
            objective = -self.softmax(self._exact(hidden[targets.mask]), answers).output.sum()
        return Loss(objective, objective.detach(), answers.numel())

    def _exact(self, hidden: Tensor) -> Tensor:
        return hidden.to(self.place.dtype)


def _without_autocast(device: torch.device) -> AbstractContextManager[None]:
    """Disable autocast: PyTorch's adaptive softmax collects its clusters in one array, which has one precision."""
    known = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if known else nullcontext()


HeadName = Literal["softmax", "adaptive"]


def head(
    name: HeadName, *, dim: int, vocab: int, tied: nn.Parameter | None = None, biased: bool = True
) -> SoftmaxHead | AdaptiveHead:
    """Build the head of that name; an adaptive one has its own matrices."""
    if name == "softmax":
        return SoftmaxHead(dim=dim, vocab=vocab, tied=tied, biased=biased)
    return AdaptiveHead(dim=dim, vocab=vocab, cutoffs=adaptive_cutoffs(vocab))
