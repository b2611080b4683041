"""show_attend_tell: a recurrent decoder describes a picture; for each word it attends to places of a convolutional map.

eₜᵢ = score(aᵢ, hₜ₋₁);   αₜ = softmax(eₜ);   ẑₜ = βₜ Σᵢ αₜᵢ aᵢ;   βₜ = σ(f(hₜ₋₁));   hₜ = LSTM([yₜ₋₁; ẑₜ], hₜ₋₁)
h₀, c₀ = tanh(W meanᵢ aᵢ);   p(yₜ) from [hₜ; ẑₜ; yₜ₋₁]                                  Xu 2015, sections 3.1 and 4.2
soft    loss + λ Σᵢ (1 − Σₜ αₜᵢ)²: over the whole caption, each place gets some attention              equation 14
hard    one place sₜ ~ αₜ instead of the mean; REINFORCE: ∂ ln p(y) + λᵣ (R − b) ∂ Σₜ ln αₜ(sₜ) + λₑ ∂H(α), R = ln p(y),
        b its moving mean over batches; in evaluation the most probable place                          section 4.1
none    Σᵢ aᵢ / L, one vector for the picture, at every step                                           Vinyals 2015
Here each aᵢ has the code of its row and column added, since places of the paper's deep network saw more of the picture;
its score was additive, its λ 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from regard.config import Amount, Share, between
from regard.interface import Batch, Loss, Padded, Shapes
from regard.layers.attention import Attention, Linear, Memory, score
from regard.layers.cells import cell_named
from regard.layers.encoders import Embedding, Encoded
from regard.layers.heads import log_probs_of
from regard.models.convnet import ResidualSettings, residual_encoder
from regard.models.design import Design, picture_of, size_of
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.parts import RecurrentSettings, head_of, recurrent_of
from regard.models.rnnsearch import AttentiveDecoder, Looks

Kind = Literal["soft", "hard", "none"]
PACE = 0.1  # share of a new batch in the moving baseline (Xu 2015, section 4.1)


@dataclass(frozen=True)
class Config(ResidualSettings, RecurrentSettings):
    stages: Annotated[int, between(1, 8)] = 2  # stages; each halves height and width, and attention sees the last
    attention: Kind = "soft"  # soft (a weighted mean of places), hard (one place, sampled) or none (the plain mean)
    score: Literal["additive", "bilinear", "mlp"] = "bilinear"  # attention score between a state and a place
    coverage: Amount = 0.0  # λ of the doubly stochastic term: each place is to get a sum of weights of about 1
    reward: Amount = 0.1  # hard attention: λᵣ, the weight of the reward in the gradient of the weights
    entropy: Amount = 0.002  # hard attention: λₑ, the weight of the entropy of the weights
    sampled: Annotated[float, between(0.0, 1.0)] = 0.5  # hard attention: share of steps that sample in training
    positions: Literal["sinusoidal-2d", "none"] = "sinusoidal-2d"  # added to each place's state: its row and column
    tie: bool = True  # weight tying: the output matrix is the embedding
    dropout: Share = 0.1  # on embeddings, channels inside the encoder, between layers and before the output
    label_smoothing: Share = 0.0  # label smoothing: share of the target's probability spread over the vocabulary


class EqualWeights(nn.Module):
    """Weighs all places alike, in the place of an Attention."""

    def memory(self, keys: Tensor, values: Tensor, mask: Tensor) -> Memory:
        return Memory(keys, values, mask[:, None])

    def weights(self, query: Tensor, memory: Memory) -> Tensor:
        assert memory.mask is not None
        real = memory.mask.to(memory.values.dtype)  # (batch, 1, places)
        return (real / real.sum(-1, keepdim=True)).expand(-1, query.shape[1], -1)


class Places(nn.Module):
    """βₜ Σᵢ αₜᵢ aᵢ, the gated context, with the weights α and those that the context is made of."""

    def __init__(self, *, attention: Attention | EqualWeights, query_dim: int) -> None:
        super().__init__()
        self.attention, self.gate = attention, Linear(query_dim, 1)

    def memory(self, keys: Tensor, values: Tensor, mask: Tensor) -> Memory:
        return self.attention.memory(keys, values, mask)

    def forward(self, query: Tensor, memory: Memory) -> Looks:
        """(batch, width, query_dim) -> (batch, width, dim) and twice (batch, width, places)."""
        weights = self.attention.weights(query, memory)
        chosen = self.choose(weights)
        return torch.sigmoid(self.gate(query)) * (chosen.to(memory.values.dtype) @ memory.values), weights, chosen

    def choose(self, weights: Tensor) -> Tensor:
        return weights


class SampledPlaces(Places):
    """Chooses one place: a sample in training, at a share of the steps; otherwise the most probable one."""

    def __init__(self, *, attention: Attention, query_dim: int, sampled: float) -> None:
        super().__init__(attention=attention, query_dim=query_dim)
        self.sampled = sampled

    def choose(self, weights: Tensor) -> Tensor:
        if not self.training:
            return torch.zeros_like(weights).scatter(-1, weights.argmax(-1, keepdim=True), 1.0)
        place = torch.multinomial(weights.detach().flatten(0, -2), 1).view(*weights.shape[:-1], 1)
        samples = torch.rand_like(weights[..., :1]) < self.sampled
        return torch.where(samples, torch.zeros_like(weights).scatter(-1, place, 1.0), weights)


class PlaceDecoder(AttentiveDecoder):
    """Starts from the mean annotation; its attention is a `Places`."""

    def summary(self, encoded: Encoded) -> Tensor:
        return encoded.states.mean(1)  # (batch, dim); a picture has no padding

    def look(self, query: Tensor, memory: Memory) -> Looks:
        looks: Looks = self.attention(query, memory)
        return looks


class AttendingCaptioner(EncoderDecoder):
    """Adds λ Σᵢ (1 − Σₜ αₜᵢ)² to the objective, the sum over the real words of a caption."""

    decoder: PlaceDecoder

    def __init__(self, encoder: nn.Module, decoder: PlaceDecoder, *, coverage: float) -> None:
        super().__init__(encoder, decoder)
        self.coverage = coverage

    def loss(self, batch: Batch) -> Loss:
        assert batch.target is not None
        words = batch.target.after()
        hidden, looks = self.decoder.read(batch.target.before(), self.encoder(batch.source))
        loss = self.decoder.head.loss(hidden, words)
        exact = tuple(part.to(torch.promote_types(part.dtype, torch.float32)) for part in looks)
        return loss._replace(objective=loss.objective + self.terms(hidden, exact, words))

    def terms(self, hidden: Tensor, looks: Looks, words: Padded) -> Tensor:
        """Return what the objective has beside −ln p, from the hidden states and all `looks`, (batch, target, ·)."""
        covered = (looks[1] * words.mask[..., None]).sum(1)  # (batch, places)
        return self.coverage * (1 - covered).square().sum()


class SamplingCaptioner(AttendingCaptioner):
    """Learns by REINFORCE which places to choose; this term changes the gradient, not the value of the objective."""

    baseline: Tensor  # b, a moving mean of ln p(caption)

    def __init__(self, encoder: nn.Module, decoder: PlaceDecoder, config: Config) -> None:
        super().__init__(encoder, decoder, coverage=config.coverage)
        self.reward, self.entropy = config.reward, config.entropy
        self.register_buffer("baseline", torch.zeros(()))

    def terms(self, hidden: Tensor, looks: Looks, words: Padded) -> Tensor:
        terms = super().terms(hidden, looks, words)
        if not self.training:
            return terms
        _, weights, chosen = looks
        logs = weights.clamp_min(torch.finfo(weights.dtype).tiny).log() * words.mask[..., None]
        with torch.no_grad():
            gained = log_probs_of(self.decoder.head.logits(hidden), words).sum(1)  # (batch,): R
            advantage = gained - self.baseline
            self.baseline.lerp_(gained.mean().to(self.baseline.dtype), PACE)
        # Where α itself was chosen, Σᵢ αᵢ ∂ ln αᵢ is 0: only samples are rewarded.
        rewarded = (advantage[:, None, None] * chosen.detach() * logs).sum()
        return terms - self.reward * (rewarded - rewarded.detach()) + self.entropy * (weights * logs).sum()


def places(config: Config, dim: int) -> Places:
    """Build the attention over annotations of width `dim`."""
    if config.attention == "none":
        return Places(attention=EqualWeights(), query_dim=config.hidden)
    attention = Attention(score=score(config.score, query_dim=config.hidden, key_dim=dim, hidden=config.hidden))
    if config.attention == "soft":
        return Places(attention=attention, query_dim=config.hidden)
    return SampledPlaces(attention=attention, query_dim=config.hidden, sampled=config.sampled)


def build(config: Config, shapes: Shapes) -> EncoderDecoder:
    picture, located = picture_of(shapes.source, "show_attend_tell"), config.positions != "none"
    encoder = residual_encoder(config, picture, dropout=config.dropout, located=located)
    embed = Embedding(vocab=size_of(shapes.target), dim=config.embedding, dropout=config.dropout)
    cell = cell_named(config.cell)(input_dim=config.embedding, hidden=config.hidden)
    decoder = PlaceDecoder(
        embed=embed,
        cell=cell,
        attention=places(config, encoder.dim),
        value_dim=encoder.dim,
        summary_dim=encoder.dim,
        started=len(cell.start(1)),
        upper=recurrent_of(config, config.hidden, layers=config.layers - 1) if config.layers > 1 else None,
        head=head_of(config, embed),
        dropout=config.dropout,
    )
    if config.attention == "none":
        return EncoderDecoder(encoder, decoder)
    if config.attention == "soft":
        return AttendingCaptioner(encoder, decoder, coverage=config.coverage)
    return SamplingCaptioner(encoder, decoder, config)


DESIGN = Design(
    name="show_attend_tell",
    paper="Xu et al.: Show, attend and tell: Neural image caption generation with visual attention",
    year=2015,
    tasks=("captioning",),
    config=Config,
    build=build,
    path="1 from target to source; n within the target",
    sizes=(
        Config(embedding=128, hidden=128),
        Config(),
        Config(blocks=2, embedding=384, hidden=384),
        Config(width=64, blocks=2, embedding=512, hidden=512),
    ),
)
