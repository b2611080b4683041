"""The model behind every masked language model: an encoder that sees the whole text, and a head for the hidden tokens.

P(wᵢ | the text with wᵢ hidden). The encoder reads both sides of a blank, so it scores no text from left to right.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.interface import Batch, Inside, Loss, Padded, UserError
from regard.layers.encoders import Encoded, TransformerEncoder, extra_states, prompt_length
from regard.layers.heads import SoftmaxHead
from regard.layers.inside import attentions_in, inside_of, seen
from regard.layers.transformer import ACTIVATIONS, norm_of
from regard.models.encoder_head import ClassHead, without


class WordHead(nn.Module):
    """softmax(E norm(gelu(W h + b)) + c), E the embedding (Devlin 2019, and its code)."""

    def __init__(
        self, *, dim: int, tied: nn.Parameter, activation: str, epsilon: float, smoothing: float = 0.0
    ) -> None:
        super().__init__()
        vocab, width = tied.shape
        self.linear = nn.Linear(dim, width)
        self.norm = norm_of("layer", width, epsilon)
        self.activation = ACTIVATIONS[activation]
        self.softmax = SoftmaxHead(dim=width, vocab=vocab, tied=tied, smoothing=smoothing)

    def hidden(self, states: Tensor) -> Tensor:
        hidden: Tensor = self.norm(self.activation(self.linear(states)))
        return hidden

    def logits(self, states: Tensor) -> Tensor:
        return self.softmax.logits(self.hidden(states))  # (…, dim) -> (…, vocab)

    def loss(self, states: Tensor, targets: Padded) -> Loss:
        """Compute the loss of the tokens where the targets' mask is True; the others cost no time."""
        real = targets.mask
        hidden = self.hidden(states[real])[:, None]
        return self.softmax.loss(hidden, Padded(targets.values[real][:, None], real[real][:, None]))


class MaskedModel(nn.Module):
    head: nn.Module | None

    def __init__(
        self,
        encoder: TransformerEncoder,
        head: nn.Module | None,
        *,
        follows: ClassHead | None = None,
        longest: int | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head  # None: a body alone, which encodes and does not predict
        self.follows = follows  # predicts whether the second text follows the first
        self.longest = longest  # maximum length in tokens, <eos> included; None: no limit

    def encode(self, batch: Batch) -> Padded:
        encoded: Encoded = self.encoder(batch.source)
        return Padded(encoded.states, encoded.mask)

    def states(self, batch: Batch) -> Tensor:
        """Return the state of each token of the source: (batch, source, dim)."""
        return without(self.encoder(batch.source), extra_states(self.encoder)).states

    def fill(self, batch: Batch) -> Tensor:
        """Return the logits of the hidden tokens, where batch.target's mask is True, row by row: (hidden, vocab)."""
        assert batch.target is not None
        return self.predicts().logits(self.states(batch)[batch.target.mask])

    def loss(self, batch: Batch) -> Loss:
        """Compute the loss of the hidden tokens: batch.target has the tokens, and True where they were hidden.

        For pairs of texts, the mean loss of `follows` is added to that of the tokens (Devlin 2019, A.2)."""
        assert batch.target is not None
        encoded: Encoded = self.encoder(batch.source)
        loss = self.predicts().loss(without(encoded, extra_states(self.encoder)).states, batch.target)
        if self.follows is None or "follows" not in batch.beside:
            return loss
        labels = batch.beside["follows"]
        pairs = self.follows.loss(encoded, Padded(labels, torch.ones_like(labels, dtype=torch.bool)))
        return loss._replace(objective=loss.objective + pairs.objective * loss.tokens / pairs.tokens)

    def predicts(self) -> WordHead:
        if not isinstance(self.head, WordHead):
            raise UserError(
                "This model is an encoder without a head for words, so it cannot fill in blanks: use its vectors "
                "(regard predict RUN --vectors), or train a head on it (train.from)."
            )
        return self.head

    def inspect(self) -> Inside:
        before = extra_states(self.encoder) + prompt_length(self.encoder)
        attentions = seen(attentions_in(self.encoder), "self", "source", "source", before, before)
        return inside_of(self.encoder, attentions, ())
