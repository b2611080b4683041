"""bert: a Transformer encoder that is trained to fill in hidden words, and then reads for other tasks.

x = norm(E wᵢ + pᵢ + sᵢ),  h = Stack(x₀ … x_T), x₀ is <cls>,   P(wᵢ) = softmax(E norm(gelu(W hᵢ + b)) + c)
P(label) = softmax(W₂ tanh(W₁ h₀ + b₁) + b₂)                                                       Devlin 2019
sᵢ is the vector of the text that token i belongs to: 0 up to the first <eos>, 1 after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.config import Count, Length, Share
from regard.interface import EOS, Ids, Shapes
from regard.layers.encoders import SMALL, Embedding, Encoded, TransformerEncoder
from regard.layers.pooling import POOLS
from regard.layers.positions import Learned
from regard.layers.transformer import ACTIVATIONS, ActivationName, norm_of
from regard.models.design import READING, Design, size_of
from regard.models.encoder_head import ClassHead, EncoderWithHead, headed
from regard.models.masked_model import MaskedModel, WordHead
from regard.models.parts import BlockSettings, Epsilon, stack_of


@dataclass(frozen=True)
class BodySettings(BlockSettings):
    """The settings of the encoder and of what is above it for classification."""

    norm: Literal["pre", "post"] = "post"  # pre-norm or post-norm: normalise before each part, or after adding it
    longest: Length = 512  # learned positions: the maximum length in tokens, with <cls> and <eos>
    embedding: Count = 0  # width of the embeddings, before they are widened to dim; 0: they are as wide as dim
    segments: Count = 2  # kinds of sentences in a pair, each with its own vector; 0: none
    activation: ActivationName = "gelu"  # inside the feed-forward layers and the head
    epsilon: Epsilon = 1e-12  # added to the variance in layer normalisation
    masked: Share = 0.15  # pre-training: share of the tokens that are hidden (Wettig 2023 prefer 0.4)
    follows = False  # a constant here, and a setting of bert
    pool: Literal["first", "mean", "max", "attention"] = "first"  # for one answer per text: pooling; first is <cls>
    pooler: Literal["tanh", "gelu", "relu"] = "tanh"  # for one answer per text: activation of the layer above it
    dropout: Share = 0.1  # on embeddings, inside the feed-forward layers, on each part's output and before the output


@dataclass(frozen=True)
class Config(BodySettings):
    head: Literal["words", "none"] = "words"  # what predicts hidden words; none: the body alone
    follows: bool = False  # pre-training: predict whether the second text follows the first (next-sentence prediction)


class Reader(nn.Module):
    """norm(E wᵢ + pᵢ + sᵢ), widened to the stack's width where the embeddings are narrower."""

    def __init__(self, config: BodySettings, vocab: int) -> None:
        super().__init__()
        width = config.embedding or config.dim
        self.embed = Embedding(vocab=vocab, dim=width, scaled=False)
        self.positions = Learned(dim=width, longest=config.longest)
        self.segments: nn.Parameter | None = None
        if config.segments:
            self.segments = nn.Parameter(nn.init.normal_(torch.empty(config.segments, width), std=SMALL))
        self.norm = norm_of("layer", width, config.epsilon)
        self.enter = nn.Linear(width, config.dim) if config.embedding else None

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.positions.add(self.embed(tokens), torch.arange(tokens.shape[1], device=tokens.device))
        if self.segments is not None:
            ends = (tokens == EOS).int()
            texts = (ends.cumsum(1) - ends).clamp(max=len(self.segments) - 1)  # the number of each token's text
            x = x + nn.functional.embedding(texts, self.segments).to(x.dtype)
        normed: Tensor = self.norm(x)
        return normed if self.enter is None else self.enter(normed)  # (batch, time, dim)


class Pooler(nn.Module):
    """activation(W h + b), h the state of <cls>, or what pools the states otherwise."""

    def __init__(self, dim: int, *, pool: str, activation: str) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim)
        self.states = POOLS[pool](dim)
        self.activation = ACTIVATIONS[activation]

    def forward(self, encoded: Encoded) -> Tensor:
        return self.activation(self.linear(self.states(encoded)))


def encoder_of(config: BodySettings, read: Reader) -> TransformerEncoder:
    return TransformerEncoder(embed=read, stack=stack_of(config, longest=config.longest), begins=True)


def word_head_of(config: BodySettings, read: Reader) -> WordHead:
    tied = read.embed.weight
    return WordHead(dim=config.dim, tied=tied, activation=config.activation, epsilon=config.epsilon)


def build(config: Any, shapes: Shapes) -> MaskedModel | EncoderWithHead:
    read = Reader(config, size_of(shapes.source))
    encoder = encoder_of(config, read)
    longest = config.longest - encoder.extra
    pool = partial(Pooler, pool=config.pool, activation=config.pooler)
    if isinstance(shapes.target, Ids):
        head = word_head_of(config, read) if config.head == "words" else None
        follows = None
        if config.follows:
            follows = ClassHead(pool=pool(config.dim), dim=config.dim, labels=2, dropout=config.dropout)
        return MaskedModel(encoder, head, follows=follows, longest=longest)
    return headed(encoder, shapes, dim=config.dim, pool=pool, dropout=config.dropout, longest=longest)


TASKS = ("masked", *READING)
SIZES: tuple[dict[str, Any], ...] = (
    {"dim": 64, "heads": 4, "feed_forward": 256, "layers": 2},
    {"dim": 128, "heads": 4, "feed_forward": 512, "layers": 3},
    {"dim": 256, "heads": 4, "feed_forward": 1024, "layers": 4},
    {"dim": 512, "heads": 8, "feed_forward": 2048, "layers": 8},
)
BASE: dict[str, Any] = {"dim": 768, "heads": 12, "feed_forward": 3072, "layers": 12}
LARGE: dict[str, Any] = {"dim": 1024, "heads": 16, "feed_forward": 4096, "layers": 24}

DESIGN = Design(
    name="bert",
    paper="Devlin et al.: BERT: Pre-training of deep bidirectional Transformers for language understanding",
    year=2019,
    tasks=TASKS,
    config=Config,
    build=build,
    path="1",
    sizes=tuple(Config(**size) for size in SIZES),
    presets={
        "base": Config(**BASE),
        "large": Config(**LARGE),
        "distilbert": Config(**(BASE | {"layers": 6}), segments=0, pooler="relu"),
    },
)
