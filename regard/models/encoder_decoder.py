"""The encoder-decoder behind every translator: an encoder reads the source, a decoder writes the target.

P(y | x) = ∏ₜ P(yₜ | y₁ … yₜ₋₁, x). Training feeds the reference (teacher forcing); decoding feeds back the prediction.
"""

from __future__ import annotations

from copy import copy
from typing import Protocol, TypeVar

from torch import Tensor, nn

from regard.interface import Batch, Inside, Loss, Padded, State, Tree, UserError
from regard.layers.attention import Attention
from regard.layers.encoders import Encoded, extra_states
from regard.layers.heads import Head, SoftmaxHead, log_probs_of
from regard.layers.inside import attentions_in, inside_of, recurrences_in, seen


class Decoder(Protocol):
    """A decoder: it reads a known target in one pass (teacher forcing) and generates one token at a time.

    `looks_back` lists the cross-attentions, first layer first; `start` gives memory and carry."""

    @property
    def head(self) -> Head: ...

    def __call__(self, target: Padded, encoded: Encoded) -> Tensor: ...  # -> (batch, target, dim)

    def looks_back(self) -> tuple[Attention, ...]: ...

    def start(self, encoded: Encoded) -> tuple[Tree, Tree]: ...

    def step(self, tokens: Tensor, memory: Tree, carry: Tree) -> tuple[Tensor, Tree]: ...  # (rows,) -> (rows, dim)


M = TypeVar("M", bound=nn.Module)


def with_part(module: M, name: str, part: nn.Module) -> M:
    """Return a copy of a module that shares everything with it but this part."""
    other = copy(module)
    other._modules = module._modules | {name: part}
    return other


class EncoderDecoder(nn.Module):
    def __init__(self, encoder: nn.Module, decoder: Decoder, *, longest: int | None = None) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.longest = longest  # maximum length of either side, in tokens; None: no limit

    def encode(self, batch: Batch) -> Padded:
        encoded: Encoded = self.encoder(batch.source)
        return Padded(encoded.states, encoded.mask)

    def hidden(self, batch: Batch) -> Tensor:
        """Compute the decoder's hidden states over the reference (teacher forcing)."""
        assert batch.target is not None
        return self.decoder(batch.target.before(), self.encoder(batch.source))  # (batch, target - 1, dim)

    def logits(self, batch: Batch) -> Tensor:
        return self.decoder.head.logits(self.hidden(batch))  # (batch, target - 1, vocab)

    def log_probs(self, batch: Batch) -> tuple[Tensor, Tree]:
        """Score whole pairs: there is no state to continue from."""
        assert batch.target is not None
        return log_probs_of(self.logits(batch), batch.target.after()), None  # (batch, target - 1)

    def loss(self, batch: Batch) -> Loss:
        assert batch.target is not None
        return self.decoder.head.loss(self.hidden(batch), batch.target.after())

    def start(self, batch: Batch) -> State:
        memory, carry = self.decoder.start(self.encoder(batch.source))
        return State(memory, carry)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        hidden, carry = self.decoder.step(tokens, state.memory, state.carry)
        return self.decoder.head.logits(hidden), State(state.memory, carry, state.width)

    def narrowed(self, ids: Tensor) -> EncoderDecoder:
        """Return this model with a head for these types only; all other weights are shared."""
        if not isinstance(self.decoder.head, SoftmaxHead):
            kind = type(self.decoder.head).__name__
            raise UserError(f"shortlist needs a SoftmaxHead, and this model has a {kind}: leave it out.")
        head = self.decoder.head.narrowed(ids)
        return with_part(self, "decoder", with_part(self.get_submodule("decoder"), "head", head))

    def inspect(self) -> Inside:
        encoder, decoder = self.get_submodule("encoder"), self.get_submodule("decoder")
        across = self.decoder.looks_back()
        within = [part for part in attentions_in(decoder) if part not in across]
        read, lead = extra_states(encoder), int(getattr(decoder, "lead", None) is not None)
        attentions = (
            *seen(across, "cross", "target", "source", read, lead),
            *seen(within, "self", "target", "target", lead, lead),
            *seen(attentions_in(encoder), "self", "source", "source", read, read),
        )
        return inside_of(encoder, attentions, (*recurrences_in(encoder, "source"), *recurrences_in(decoder, "target")))
