"""Attention: a weighted mean of values, context = Σᵢ α(q, kᵢ) vᵢ, with one weight per key.

Scores become weights by softmax, α = softmaxᵢ score(q, kᵢ):
    dot       qᵀk                            scaled   qᵀk / √d            Vaswani 2017, 3.2.1
    bilinear  qᵀ W k                                                      Luong 2015, 3.1
    additive  wᵀ tanh(W_q q + W_k k)                                      Bahdanau 2015, A.1.2
    mlp       w₂ᵀ relu(W₁ [q; k] + b₁) + b₂
Kernels become weights by their sum, α = κ(q, kᵢ) / Σⱼ κ(q, kⱼ):          Nadaraya 1964, Watson 1964
    gaussian  exp(−½‖q − k‖²)                boxcar   1[‖q − k‖ ≤ 1]      epanechnikov  max(0, 1 − ‖q − k‖)
Multi-head: headᵢ = attention(q Wᵢ^q, k Wᵢ^k, v Wᵢ^v), then [head₁; …; head_h] W_o.

A query whose keys are all masked gets weights, and so a context, of exactly 0.
`with watch(model) as seen:` records the weights of every Attention inside, and does not change the output.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import choose
from regard.interface import UserError
from regard.layers.fast.packed import Product, joined, runs
from regard.layers.fast.switch import held, kernels_run

Turn = Callable[[Tensor], Tensor]
SHORT = 16  # queries for which two small products are faster than the fused kernel
SHORT_TO_LEARN = 128  # and positions for which plain products learn faster than it
ScoreName = Literal["dot", "scaled", "bilinear", "additive", "mlp", "gaussian", "boxcar", "epanechnikov"]


class Linear(nn.Linear):
    """Build a linear layer with Glorot initialisation (Glorot and Bengio 2010) and a bias of 0."""

    __call__: Callable[..., Tensor]

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class Memory(NamedTuple):
    """Keys and values, prepared once per example (a KV cache when decoding), with their mask."""

    keys: Tensor  # (batch, [heads,] source, key_dim), as the score prepared them
    values: Tensor  # (batch, [heads,] source, value_dim)
    mask: Tensor | None  # broadcasts to (batch, [heads,] target, source); True = may attend, or a bias: −∞ = may not
    open: bool = False  # every query may attend to some key


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Compute the softmax over the last axis: exactly 0 where the mask is False, also if the whole row is masked.

    A mask of numbers is added to the scores; −∞ masks."""
    if mask is None:
        return scores.softmax(-1)
    if mask.is_floating_point():
        scores, mask = (scores + mask).to(scores.dtype), mask > -torch.inf
    # The lowest finite number, not −∞: softmax of a row of −∞ is NaN, and its gradient too, on the way to 0.
    weights = torch.where(mask, scores, torch.finfo(scores.dtype).min).softmax(-1)
    return torch.where(mask, weights, 0.0)


class Score(nn.Module):
    """The score of each key for each query; softmax turns scores into weights."""

    def prepare(self, keys: Tensor) -> Tensor:
        """Do the work that depends on the keys alone, once for all queries."""
        return keys

    def fused_scale(self, dim: int) -> float | None:
        """Return the factor before qᵀk if the score is nothing else, so that a fused kernel may compute it."""
        return None

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        """(…, target, query_dim), (…, source, prepared_dim) -> (…, target, source)."""
        raise NotImplementedError

    def weights(self, query: Tensor, prepared: Tensor, mask: Tensor | None) -> Tensor:
        return masked_softmax(self(query, prepared), mask)


class Dot(Score):
    def fused_scale(self, dim: int) -> float:
        return 1.0

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return query @ prepared.transpose(-2, -1)


class Scaled(Dot):
    """The dot product scaled to variance 1, whatever the width."""

    def fused_scale(self, dim: int) -> float:
        return 1 / math.sqrt(dim)

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return super().forward(query / math.sqrt(query.shape[-1]), prepared)


class Bilinear(Score):
    def __init__(self, *, query_dim: int, key_dim: int, hidden: int | None = None) -> None:
        """Build W; there is no hidden layer, so `hidden` is not used."""
        super().__init__()
        self.keys = Linear(key_dim, query_dim, bias=False)

    def prepare(self, keys: Tensor) -> Tensor:
        return self.keys(keys)

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return query @ prepared.transpose(-2, -1)


class HiddenLayer(Score):
    """wᵀ φ(W_q q + W_k k), with or without biases. φ works in place: the sum is not needed again, neither here nor by
    its gradient."""

    phi: Callable[[Tensor], Tensor]

    def __init__(self, *, query_dim: int, key_dim: int, hidden: int, bias: bool) -> None:
        super().__init__()
        self.query = Linear(query_dim, hidden, bias=False)
        self.keys = Linear(key_dim, hidden, bias=bias)
        self.out = Linear(hidden, 1, bias=bias)

    def prepare(self, keys: Tensor) -> Tensor:
        return self.keys(keys)

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        mixed = self.query(query)[..., :, None, :] + prepared[..., None, :, :]  # (…, target, source, hidden)
        return self.out(self.phi(mixed)).squeeze(-1)  # (…, target, source)


class Additive(HiddenLayer):
    phi = staticmethod(torch.tanh_)

    def __init__(self, *, query_dim: int, key_dim: int, hidden: int) -> None:
        super().__init__(query_dim=query_dim, key_dim=key_dim, hidden=hidden, bias=False)
        nn.init.normal_(self.out.weight, std=0.01)  # at first the weights are nearly uniform (Bahdanau 2015, B.1)


class MLP(HiddenLayer):
    """W₁ [q; k] + b₁ is computed as W_q q + (W_k k + b₁), so that the keys' part is done once."""

    phi = staticmethod(torch.relu_)

    def __init__(self, *, query_dim: int, key_dim: int, hidden: int) -> None:
        super().__init__(query_dim=query_dim, key_dim=key_dim, hidden=hidden, bias=True)


class Kernel(Score):
    """A similarity ≥ 0 of query and key; its share of the sum is the weight. If all are 0, so are the weights."""

    def weights(self, query: Tensor, prepared: Tensor, mask: Tensor | None) -> Tensor:
        nearness: Tensor = self(query, prepared)
        if mask is not None:
            nearness = torch.where(mask, nearness, 0.0)
        total = nearness.sum(-1, keepdim=True)
        return nearness / torch.where(total > 0, total, 1.0)


class Gaussian(Kernel):
    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return (-0.5 * _distance(query, prepared).square()).exp()

    def weights(self, query: Tensor, prepared: Tensor, mask: Tensor | None) -> Tensor:
        # The same weights by softmax: far from every key, exp would underflow.
        return masked_softmax(-0.5 * _distance(query, prepared).square(), mask)


class Boxcar(Kernel):
    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return (_distance(query, prepared) <= 1).to(query.dtype)


class Epanechnikov(Kernel):
    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return (1 - _distance(query, prepared)).relu()


def _distance(query: Tensor, keys: Tensor) -> Tensor:
    """Compute ‖q − k‖ without the matrix-product shortcut, which loses the digits of small distances."""
    if not kernels_run():
        apart: Tensor = torch.linalg.vector_norm(query[..., :, None, :] - keys[..., None, :, :], dim=-1)
        return apart
    distance: Tensor = torch.cdist(query, keys, compute_mode="donot_use_mm_for_euclid_dist")
    return distance


SCORES: dict[str, type[Score]] = {"dot": Dot, "scaled": Scaled, "bilinear": Bilinear, "additive": Additive, "mlp": MLP}
KERNELS: dict[str, type[Kernel]] = {"gaussian": Gaussian, "boxcar": Boxcar, "epanechnikov": Epanechnikov}
ONE_WIDTH = {"dot", "scaled", *KERNELS}  # need queries and keys of equal width


def score(name: str, *, query_dim: int, key_dim: int, hidden: int) -> Score:
    """Build the score or kernel of that name."""
    kind = choose({**SCORES, **KERNELS}, name, "The score")
    if name not in ONE_WIDTH:
        return kind(query_dim=query_dim, key_dim=key_dim, hidden=hidden)
    if query_dim != key_dim:
        raise UserError(
            f"The score {name!r} needs queries and keys of equal width, and got {query_dim} and {key_dim}: "
            "make them equal, or choose bilinear, additive or mlp."
        )
    return kind()


class Attention(nn.Module):
    """context = weights @ values."""

    def __init__(self, *, score: Score, dropout: float = 0.0) -> None:
        super().__init__()
        self.score = score
        self.dropout = dropout

    def memory(self, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Memory:
        """mask is (batch, source), or (batch, target, source) if it differs between queries; True = may attend."""
        return Memory(self.score.prepare(keys), values, None if mask is None else _for_targets(mask))

    def forward(self, query: Tensor, memory: Memory) -> Tensor:
        """(batch, [heads,] target, query_dim) -> (batch, [heads,] target, value_dim)."""
        watchers = self._watchers()
        scale = self.score.fused_scale(query.shape[-1])
        if scale is not None and kernels_run() and not any(seen.grad for seen in watchers):
            if is_short(query):
                weights = short_weights(query, memory, scale)
                return product_of(self._show(weights, watchers) if watchers else weights, memory.values)
            if watchers:
                with torch.no_grad():
                    self._show(self.score.weights(query, memory.keys, memory.mask), watchers)
            if is_short_to_learn(query, memory):
                weights = masked_softmax(query * scale @ memory.keys.transpose(-2, -1), memory.mask)
                return F.dropout(weights, self.dropout, self.training) @ memory.values
            dropout = self.dropout if self.training else 0.0
            with as_fast_to_learn(query, memory) as (query, keys, values):
                return F.scaled_dot_product_attention(
                    query, keys, values, attn_mask=memory.mask, dropout_p=dropout, scale=scale
                )

        return F.dropout(self.weights(query, memory), self.dropout, self.training) @ memory.values

    def weights(self, query: Tensor, memory: Memory) -> Tensor:
        """Compute the weights alone, and record them: (batch, [heads,] target, source)."""
        weights = self.score.weights(query, memory.keys, memory.mask)
        watchers = self._watchers()
        return self._show(weights, watchers) if watchers else weights

    def _watchers(self) -> list[Seen]:
        return [seen for seen in _watching.get() if self in seen.names]

    def _show(self, weights: Tensor, watchers: list[Seen]) -> Tensor:
        """Record the weights and return them from the recorded tensor, so that gradients pass through it."""
        by_head = weights if weights.dim() == 4 else weights[:, None]  # (batch, heads, target, source)
        for seen in watchers:
            seen.of(self).append(by_head if seen.grad else by_head.detach())
        return by_head.view_as(weights)


class MultiHead(nn.Module):
    """Multi-head attention: projections around one Attention; every width can be chosen.

    By default keys are as wide as queries, values as keys, a head query_dim / heads, and the output as queries.
    A `turn` of (batch, heads, time, head_dim) adds rotary positions to queries and keys, the same in each head.
    """

    def __init__(
        self,
        *,
        heads: int,
        query_dim: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        head_dim: int | None = None,
        value_head_dim: int | None = None,
        out_dim: int | None = None,
        score: Score | None = None,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if head_dim is None and query_dim % heads:
            raise UserError(
                f"{heads} heads do not divide a width of {query_dim} evenly: choose a number that divides it."
            )
        key_dim = key_dim or query_dim
        value_dim = value_dim or key_dim
        head_dim = head_dim or query_dim // heads
        value_head_dim = value_head_dim or head_dim
        self.heads = heads
        self.query = Linear(query_dim, heads * head_dim, bias=bias)
        self.key = Linear(key_dim, heads * head_dim, bias=bias)
        self.value = Linear(value_dim, heads * value_head_dim, bias=bias)
        self.out = Linear(heads * value_head_dim, out_dim or query_dim, bias=bias)
        self.attention = Attention(score=score or Scaled(), dropout=dropout)
        self.together: Product | None = None  # query, key and value in one packed product

    def join(self, make: Callable[..., Product]) -> tuple[nn.Linear, ...]:
        """Pack query, key and value as one product, for attention within one side; return what it replaces."""
        three = (self.query, self.key, self.value)
        self.together = joined(make, three)
        return three

    def memory(self, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Memory:
        """keys (batch, source, key_dim), values (batch, source, value_dim); mask as for Attention, or numbers for each
        head, (batch or 1, heads, target, source), that are added to the scores."""
        return self.remember(self.key(keys), self.value(values), mask)

    def remember(self, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Memory:
        """The memory of keys and values that are projected already: (batch, source, heads · head_dim)."""
        each = self._split(keys), self._split(values)  # (batch, heads, source, head_dim)
        if not torch.is_grad_enabled():  # every step of decoding reads them
            each = each[0].contiguous(), each[1].contiguous()
        return self.attention.memory(*each)._replace(mask=for_heads(mask))

    def within(self, x: Tensor, mask: Tensor | None = None, turn: Turn | None = None) -> tuple[Tensor, Memory]:
        """Return the queries, (batch, heads, time, head_dim), and the memory of x (batch, time, dim) itself."""
        if self.together is not None and runs(x):
            widths = [linear.out_features for linear in (self.query, self.key, self.value)]
            query, keys, values = map(self._split, torch.split(self.together(x), widths, -1))
        else:
            query, keys, values = (self._split(linear(x)) for linear in (self.query, self.key, self.value))
        if turn is not None:
            query, keys = turn(query), turn(keys)
        return query, self.attention.memory(keys, values)._replace(mask=for_heads(mask))

    def forward(self, query: Tensor, memory: Memory) -> Tensor:
        """(batch, target, query_dim) -> (batch, target, out_dim)."""
        return self.attend(self._split(self.query(query)), memory)

    def attend(self, by_head: Tensor, memory: Memory) -> Tensor:
        """(batch, heads, target, head_dim) -> (batch, target, out_dim)."""
        context = self.attention(by_head, memory)  # (batch, heads, target, value_head_dim)
        return self.out(context.transpose(1, 2).flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        batch, time, dim = x.shape
        return x.view(batch, time, self.heads, dim // self.heads).transpose(1, 2)  # (batch, heads, time, head_dim)


@contextmanager
def as_fast_to_learn(query: Tensor, memory: Memory) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Convert queries, keys and values to the precision in which the fused kernel's backward pass is fast: on the CPU
    it takes several times as long in bf16 as in float32."""
    each = (query, memory.keys, memory.values)
    if query.device.type != "cpu" or query.dtype is not torch.bfloat16 or not torch.is_grad_enabled():
        yield each
        return
    with torch.autocast("cpu", enabled=False):
        yield each[0].float(), each[1].float(), each[2].float()


def _for_targets(mask: Tensor) -> Tensor:
    return mask[:, None] if mask.dim() == 2 else mask  # (batch, 1 or target, source)


def for_heads(mask: Tensor | None) -> Tensor | None:
    return mask if mask is None or mask.dim() == 4 else _for_targets(mask)[:, None]  # (batch, 1, 1 or target, source)


def is_short(query: Tensor) -> bool:
    """Whether these are a few queries of decoding, in heads, on the CPU."""
    few = query.dim() == 4 and query.shape[2] <= SHORT
    return few and not torch.is_grad_enabled() and query.device.type == "cpu"


def is_short_to_learn(query: Tensor, memory: Memory) -> bool:
    """Whether plain products learn faster than the fused kernel, whose backward pass is slow for short sequences."""
    longest = max(query.shape[-2], memory.keys.shape[-2])
    return torch.is_grad_enabled() and query.device.type == "cpu" and longest <= SHORT_TO_LEARN


def short_weights(query: Tensor, memory: Memory, scale: float) -> Tensor:
    """Compute softmax(scale · query @ keysᵀ), all heads of all examples in one product of many small matrices."""
    flat, keys = query.flatten(0, 1), memory.keys.flatten(0, 1)  # (batch · heads, ·, dim)
    # keys @ queryᵀ reads the keys in the order in which they lie
    scores = torch.baddbmm(flat.new_empty(()), keys, flat.transpose(1, 2), beta=0, alpha=scale)
    scores = scores.transpose(1, 2).reshape(*query.shape[:3], -1)
    if memory.mask is not None and memory.open and memory.mask.is_floating_point():
        return scores.add_(memory.mask).softmax(-1)
    return masked_softmax(scores, memory.mask)


def product_of(weights: Tensor, values: Tensor) -> Tensor:
    """(batch, heads, target, source) @ (batch, heads, source, dim)."""
    return torch.bmm(weights.flatten(0, 1), values.flatten(0, 1)).view(*weights.shape[:3], -1)


class Seen(dict[str, list[Tensor]]):
    """The weights of each Attention of a model, by its path: in call order, each (batch, heads, target, source)."""

    def __init__(self, model: nn.Module, *, grad: bool) -> None:
        self.grad = grad
        attentions = ((part, path) for path, part in model.named_modules() if isinstance(part, Attention))
        self.names: dict[nn.Module, str] = dict(attentions)
        super().__init__({path: [] for path in self.names.values()})

    def paths(self) -> list[str]:
        """Yield the paths in module order, also of attentions that were not called."""
        return list(self)

    def of(self, part: nn.Module) -> list[Tensor]:
        """Return the weights of this Attention."""
        return self[self.names[part]]


_watching: ContextVar[tuple[Seen, ...]] = ContextVar("watching", default=())


@contextmanager
def watch(model: nn.Module, *, grad: bool = False) -> Iterator[Seen]:
    """Record every weight while the model runs; its output stays the same, bit for bit.

    With `grad` the weights are part of the gradient graph: the plain form then runs instead of the fused kernel.
    """
    seen = Seen(model, grad=grad)
    with held(_watching, (*_watching.get(), seen)):
        yield seen


def unwatched() -> AbstractContextManager[None]:
    """Record nothing inside the block: what is read a second time is not shown."""
    return held(_watching, ())
