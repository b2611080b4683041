"""The models that turn a recording into text: an encoder of frames, and CTC, an attending decoder, or both.

ctc        P(y | x) = Σ over paths of steps that collapse to y: `Emits`
attention  an EncoderDecoder whose encoder reads frames: `Generates`
joint      loss = λ · CTC + (1 − λ) · attention, on one encoder: both                     Kim, Hori, Watanabe 2017
"""

from __future__ import annotations

from torch import Tensor, nn

from regard.interface import Batch, Inside, Loss, Padded
from regard.layers.ctc import CTCHead
from regard.layers.encoders import Encoded, SoundEncoder
from regard.layers.inside import attentions_in, inside_of, seen
from regard.models.encoder_decoder import Decoder, EncoderDecoder


class Transcriber(nn.Module):
    """An encoder, and a token or nothing at each of its states."""

    def __init__(self, encoder: SoundEncoder, head: CTCHead) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def encode(self, batch: Batch) -> Padded:
        encoded: Encoded = self.encoder(batch.source)
        return Padded(encoded.states, encoded.mask)

    def emit(self, batch: Batch) -> Padded:
        emitted: Padded = self.head(self.encode(batch))
        return emitted

    def loss(self, batch: Batch) -> Loss:
        assert batch.target is not None
        return self.head.loss(self.encode(batch), batch.target)

    def inspect(self) -> Inside:
        return inside_of(self.encoder, seen(attentions_in(self.encoder), "self", "source", "source"), ())


class JointTranscriber(EncoderDecoder):
    """An encoder-decoder whose encoder learns by CTC as well, which shows it early where the words are."""

    def __init__(self, encoder: SoundEncoder, decoder: Decoder, *, ctc: CTCHead, share: float) -> None:
        super().__init__(encoder, decoder)
        self.ctc, self.share = ctc, share

    def emit(self, batch: Batch) -> Padded:
        emitted: Padded = self.ctc(self.encode(batch))
        return emitted

    def loss(self, batch: Batch) -> Loss:
        """−ln p is that of the decoder, so that it can be compared with other models'."""
        assert batch.target is not None
        encoded: Encoded = self.encoder(batch.source)
        written = self.decoder.head.loss(self.decoder(batch.target.before(), encoded), batch.target.after())
        emitted = self.ctc.loss(Padded(encoded.states, encoded.mask), batch.target)
        both: Tensor = (1 - self.share) * written.objective + self.share * emitted.objective
        return written._replace(objective=both)


def listening(encoder: SoundEncoder, decoder: Decoder, *, vocab: int, share: float, dropout: float) -> EncoderDecoder:
    """Build an encoder-decoder of recordings; with a share of CTC, one that also emits."""
    if not share:
        return EncoderDecoder(encoder, decoder)
    head = CTCHead(dim=encoder.dim, vocab=vocab, dropout=dropout)
    return JointTranscriber(encoder, decoder, ctc=head, share=share)
