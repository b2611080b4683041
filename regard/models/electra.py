"""electra: BERT's encoder, trained to find the words that a small generator has put in the place of others.

P(wᵢ was replaced) = σ(w · gelu(W hᵢ + b) + c)                                                          Clark 2020
The generator is a small masked language model: its head predicts words, as bert's does. In pre-training it fills in the
hidden words by sampling, and the discriminator judges every token of the result:
    objective = L_words(generator) + 50 · L_replaced, each a mean; a sample that is the original word was not replaced
Both read the same embeddings. No gradient goes through the samples. For other tasks the discriminator is taken.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import Count, Share
from regard.interface import Batch, Ids, Loss, Padded, Shapes
from regard.layers.encoders import TransformerEncoder, extra_states
from regard.models import bert
from regard.models.bert import BASE, LARGE, SIZES, TASKS
from regard.models.design import Design
from regard.models.encoder_head import EncoderWithHead, without
from regard.models.masked_model import MaskedModel

WEIGHT = 50.0  # of the discriminator's loss beside the generator's (section 3, and appendix A)


@dataclass(frozen=True)
class Config(bert.BodySettings):
    embedding: Count = 128  # width of the embeddings, before they are widened to dim; 0: they are as wide as dim
    head: Literal["words", "replaced", "none"] = "words"  # predicts hidden words, or which were replaced, or nothing
    generator: Share = 0.0  # pre-training: width of the generator as a share of dim; 0: there is none
    pooler: Literal["tanh", "gelu", "relu"] = "gelu"  # for one answer per text: activation of the layer above it

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.generator and self.head != "replaced":
            raise ValueError(f'generator = {self.generator} needs head = "replaced", and got {self.head!r}: set it so.')


class ReplacedHead(nn.Module):
    """The discriminator: ln P(replaced) − ln P(original) of each token."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, 1)

    def logits(self, states: Tensor) -> Tensor:
        logits: Tensor = self.out(F.gelu(self.linear(states)))
        return logits[..., 0]  # (…, dim) -> (…)


class TwoPlayers(MaskedModel):
    """A discriminator, `encoder` and `head`, and a `generator`, which fills in blanks and is measured by them."""

    head: ReplacedHead

    def __init__(
        self, encoder: TransformerEncoder, head: ReplacedHead, generator: MaskedModel, *, longest: int | None
    ) -> None:
        super().__init__(encoder, head, longest=longest)
        self.generator = generator

    def fill(self, batch: Batch) -> Tensor:
        return self.generator.fill(batch)

    def loss(self, batch: Batch) -> Loss:
        """Compute the loss of both; nll and tokens are the generator's."""
        assert batch.source is not None and batch.target is not None
        states = self.generator.states(batch)
        loss = self.generator.predicts().loss(states, batch.target)
        read = self.filled(batch, states)
        replaced = batch.target.mask & (read.values != batch.target.values)
        logits = self.judged(read)[read.mask]  # every token, and not only the hidden ones
        wrong = F.binary_cross_entropy_with_logits(logits, replaced[read.mask].to(logits.dtype))
        return loss._replace(objective=loss.objective + WEIGHT * wrong * loss.tokens)

    @torch.no_grad()
    def filled(self, batch: Batch, states: Tensor) -> Padded:
        """Fill in the hidden tokens, given the generator's states: by sampling in training, else the most probable."""
        assert batch.source is not None and batch.target is not None
        hidden = batch.target.mask
        logits = self.generator.predicts().logits(states[hidden]).float()  # (hidden, vocab)
        words = sampled(logits) if self.training else logits.argmax(-1)
        return Padded(batch.source.values.masked_scatter(hidden, words), batch.source.mask)

    def judged(self, read: Padded) -> Tensor:
        """ln P(replaced) − ln P(original) of each token: (batch, source)."""
        states = without(self.encoder(read), extra_states(self.encoder)).states
        logits = self.head.logits(states)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


def sampled(logits: Tensor) -> Tensor:
    """Sample a token from each row, by one random number in its cumulative distribution: (rows, vocab) -> (rows,)."""
    below = logits.softmax(-1).cumsum(-1)
    dice = torch.rand_like(below[:, :1]) * below[:, -1:]
    return torch.searchsorted(below, dice, right=True)[:, 0].clamp(max=logits.shape[1] - 1)


def generator_of(config: Config, read: bert.Reader) -> MaskedModel:
    """Build the generator: as many layers as the discriminator has, but narrower, above the same embeddings."""
    heads = max(1, int(config.heads * config.generator))
    dim = heads * max(1, int(config.dim * config.generator / heads))
    feed_forward = max(1, int(config.feed_forward * config.generator))
    width = config.embedding or config.dim
    small = dataclasses.replace(config, dim=dim, heads=heads, feed_forward=feed_forward, embedding=width)
    own = bert.Reader(small, len(read.embed.weight))  # only its map to the generator's width stays
    own.embed, own.positions, own.segments, own.norm = read.embed, read.positions, read.segments, read.norm
    return MaskedModel(bert.encoder_of(small, own), bert.word_head_of(small, own))


def build(config: Config, shapes: Shapes) -> MaskedModel | EncoderWithHead:
    model = bert.build(config, shapes)
    if not isinstance(shapes.target, Ids) or config.head != "replaced":
        return model
    assert isinstance(model, MaskedModel)
    model.head = ReplacedHead(config.dim)
    if not config.generator:
        return model
    read = model.encoder.embed
    assert isinstance(read, bert.Reader)
    return TwoPlayers(model.encoder, model.head, generator_of(config, read), longest=model.longest)


DESIGN = Design(
    name="electra",
    paper="Clark et al.: ELECTRA: Pre-training text encoders as discriminators rather than generators",
    year=2020,
    tasks=TASKS,
    config=Config,
    build=build,
    path="1",
    sizes=tuple(Config(**size, embedding=size["dim"] // 2) for size in SIZES),
    presets={
        "small": Config(dim=256, heads=4, feed_forward=1024, layers=12),
        "base": Config(**BASE, embedding=0),
        "large": Config(**LARGE, embedding=0),
    },
    objective={"head": "replaced", "generator": 0.25},
)
