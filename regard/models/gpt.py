"""gpt: the decoder of a Transformer as a language model.

Every token attends to itself and to earlier tokens (causal self-attention), and predicts the next.
    gpt1   post-norm, learned positions, GELU   Radford 2018        gpt2   the same, pre-norm   Radford 2019
It sees `context` tokens. When it generates more, it reads the last half of them again and continues.
For other tasks a head reads the state of the last <eos>, which has seen the whole text, or pools all states.
Fine-tuning may have an auxiliary language-model loss beside the task's, L₂ + λ L₁, each a mean as in the paper's code
(section 3.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.config import Amount, Length
from regard.interface import Ids, Label, Scalar, Shapes, Tree, UserError, joined, picked
from regard.layers.encoders import CausalEncoder, Embedding
from regard.layers.heads import AdaptiveHead, HeadName, SoftmaxHead, head
from regard.layers.pooling import POOLS
from regard.layers.transformer import ActivationName, Cache, Caches, causal
from regard.models.design import READING, Design, size_of
from regard.models.encoder_head import EncoderWithHead, headed
from regard.models.language_model import WindowedModel
from regard.models.parts import Epsilon, StackSettings, refuse_tied, stack_of


@dataclass(frozen=True)
class Config(StackSettings):
    context: Length = 256  # context length in tokens
    activation: ActivationName = "gelu"  # inside the feed-forward layers
    epsilon: Epsilon = 1e-5  # added to the variance in layer normalisation
    scaled: bool = True  # embeddings are multiplied by √dim
    tie: bool = True  # weight tying: the output matrix is the embedding
    head_bias: bool = True  # the output layer has a bias
    head: HeadName = "softmax"  # output layer: softmax, or adaptive (adaptive softmax: cheaper for rare words)
    pool: Literal["end", "mean", "max", "attention"] = "end"  # for one answer per text: pooling; end is the last <eos>
    auxiliary: Amount = 0.0  # for a label or number: weight of the language model's loss beside it (Radford 2018: 0.5)
    both_orders: bool = False  # for a label or number: read two texts in both orders, and add the states (Radford 2018)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_tied(self.head, self.tie)
        if self.both_orders and self.pool != "end":
            raise ValueError('both_orders adds the states of the last <eos>: set pool = "end", or leave it out.')


class CausalStack(nn.Module):
    """A causal Stack with a context of `context` tokens."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.stack = stack_of(config, longest=config.context, causal=True)
        self.context = config.context

    def start(self, rows: int) -> Tree:
        """The KV caches, and the vectors from which they were computed: a cache of one head, without values."""
        caches = self.stack.caches(rows)
        none = caches[0].keys.new_zeros(rows, 1, 0, 0)
        return caches, Cache(none.new_zeros(rows, 1, 0, self.stack.dim), none, None, 0)

    def forward(self, x: Tensor, real: Tensor | None = None, state: Tree = None) -> tuple[Tensor, Tree]:
        """x (batch, time, dim) -> (batch, time, dim). When it continues from a state, only the output at the last
        position is defined, and texts of which several tokens are read have one length."""
        if state is None:
            return self.stack(x, mask=causal(x.shape[1], x.device))[0], None
        if real is not None and not bool((real.any(0) == real.all(0)).all()):
            raise ValueError("texts that are continued together must have one length")
        x = x if real is None else x[:, : int(real.sum(1).max())]
        for few in torch.split(x, max(1, self.context // 2), 1):
            hidden, state = self._read(few, *state)
        return hidden, state

    def _read(self, x: Tensor, caches: Caches, seen: Cache) -> tuple[Tensor, Tree]:
        """Read a few vectors. Rows that would outgrow the context read its later half again."""
        time = x.shape[1]
        if seen.longest + time > self.context:
            over = seen.row_lengths() + time > self.context  # (rows,)
            if bool(over.all()):
                late = torch.cat([seen.keys[:, 0, : seen.longest], x], 1)[:, -max(1, self.context // 2) :]
                return self._read(late, *self.start(len(x)))
            if bool(over.any()):
                parts = [rows.nonzero()[:, 0] for rows in (~over, over)]
                (rest, kept), (late, again) = (self._read(x[rows], *picked((caches, seen), rows)) for rows in parts)
                order = torch.cat(parts).argsort()
                hidden = torch.cat([rest[:, -1:], late[:, -1:]])
                return hidden.index_select(0, order), picked(joined(kept, again), order)
        hidden, caches = self.stack(x, caches=caches)
        return hidden, (caches, seen.append(x[:, None], x.new_empty(x.shape[0], 1, time, 0)))


def build(config: Config, shapes: Shapes) -> WindowedModel | EncoderWithHead:
    writes = isinstance(shapes.target, Ids)
    vocab = size_of(shapes.target if writes else shapes.source)
    embed = Embedding(vocab=vocab, dim=config.dim, scaled=config.scaled)
    body = CausalStack(config)
    tied = embed.weight if config.tie else None

    def words() -> SoftmaxHead | AdaptiveHead:
        return head(config.head, dim=config.dim, vocab=vocab, tied=tied, biased=config.head_bias)

    if (config.both_orders or config.auxiliary) and not isinstance(shapes.target, Label | Scalar):
        raise UserError(
            "both_orders and auxiliary are for one label or number per text, and this task asks for something else: "
            "set model.both_orders to false and model.auxiliary to 0."
        )
    if writes:
        return WindowedModel(embed=embed, body=body, head=words(), context=config.context)
    encoder = CausalEncoder(embed=embed, body=body, both_orders=config.both_orders)
    most = body.stack.positions.longest
    longest = None if most is None else most - encoder.extra
    model = headed(encoder, shapes, dim=config.dim, pool=POOLS[config.pool], dropout=config.dropout, longest=longest)
    if config.auxiliary:
        model.words, model.auxiliary = words(), config.auxiliary
    return model


BASE: dict[str, Any] = {"dim": 768, "heads": 12, "feed_forward": 3072, "layers": 12}

DESIGN = Design(
    name="gpt",
    paper="Radford et al.: Improving language understanding by generative pre-training",
    year=2018,
    tasks=("language", *READING),
    config=Config,
    build=build,
    path="1, within its context",
    sizes=(
        Config(dim=128, heads=4, feed_forward=512, layers=3, context=128),
        Config(dim=256, heads=4, feed_forward=1024, layers=4),
        Config(dim=384, heads=6, feed_forward=1536, layers=6),
        Config(dim=512, heads=8, feed_forward=2048, layers=8),
    ),
    presets={
        "gpt1": Config(**BASE, context=512, norm="post", activation="gelu-tanh", scaled=False, head_bias=False),
        "gpt2": Config(**BASE, context=1024, activation="gelu-tanh", scaled=False, head_bias=False),
    },
)
