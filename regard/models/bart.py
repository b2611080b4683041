"""bart: a Transformer for sequences that learns to restore a corrupted text, and then writes for other tasks.

Vaswani's encoder-decoder after GPT's manner: gelu, learned positions, a norm after the embeddings.          Lewis 2020
The source begins with <bos>, and the decoder reads <eos> before the target, as in the paper's code.
For labels, numbers and tags, the encoder alone reads the text; the state of <bos> stands for the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.config import Length, Share
from regard.interface import EOS, Ids, Shapes
from regard.layers.encoders import Embedding, TransformerEncoder
from regard.layers.pooling import POOLS
from regard.layers.transformer import ActivationName
from regard.models.design import READING, Design, size_of
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.encoder_head import EncoderWithHead, headed
from regard.models.parts import PAIR_SIZES, StackSettings, embeddings_of, head_of, stack_of
from regard.models.transformer import TransformerDecoder


@dataclass(frozen=True)
class Config(StackSettings):
    entry = True  # not a setting
    norm: Literal["pre", "post"] = "post"  # pre-norm or post-norm: normalise before each part, or after adding it
    activation: ActivationName = "gelu"  # inside the feed-forward layers
    longest: Length = 1024  # positions a learned table holds, one of which is for <bos> or <eos> at the beginning
    scaled: bool = False  # embeddings are multiplied by √dim
    tie: bool = True  # the output matrix is the embedding of both sides
    label_smoothing: Share = 0.1  # label smoothing: share of the target's probability spread over the vocabulary


def build(config: Config, shapes: Shapes) -> EncoderDecoder | EncoderWithHead:
    if not isinstance(shapes.target, Ids):
        encoder, longest = read_by(
            config, Embedding(vocab=size_of(shapes.source), dim=config.dim, scaled=config.scaled)
        )
        return headed(encoder, shapes, dim=config.dim, pool=POOLS["first"], dropout=config.dropout, longest=longest)
    source, target = embeddings_of(config, shapes, config.dim, scaled=config.scaled)
    encoder, longest = read_by(config, source)
    head = head_of(config, target)
    written = stack_of(config, longest=config.longest, cross=True, causal=True)
    return EncoderDecoder(encoder, TransformerDecoder(target, written, head, lead=EOS), longest=longest)


def read_by(config: Config, embed: Embedding) -> tuple[TransformerEncoder, int | None]:
    """Build the encoder, and return the maximum length that its positions leave beside <bos>."""
    stack = stack_of(config, longest=config.longest)
    longest = None if stack.positions.longest is None else stack.positions.longest - 1
    return TransformerEncoder(embed=embed, stack=stack, begins=True), longest


DESIGN = Design(
    name="bart",
    paper="Lewis et al.: BART: Denoising sequence-to-sequence pre-training for generation and translation",
    year=2020,
    tasks=("translation", "denoising", *READING),
    config=Config,
    build=build,
    path="1",
    sizes=tuple(Config(**size) for size in PAIR_SIZES),
    presets={
        "base": Config(dim=768, heads=12, feed_forward=3072, layers=6),
        "large": Config(dim=1024, heads=16, feed_forward=4096, layers=12),
    },
)
