"""Where each word of a transcript is in its recording: the attention of the decoder while it writes the word, or the
steps at which CTC emits it.

The probability of a token under CTC is shown between its neighbours on the most probable path of the text, since the
same token may occur elsewhere. A long recording is looked at as far as `predict` reads it in one piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.frames import HOP, band_edges
from regard.data.recordings import Recording, recording_of
from regard.data.silences import pieces
from regard.data.sounds import SoundField
from regard.data.tokens import Piece
from regard.interface import Emits, UserError
from regard.layers.ctc import aligned
from regard.look.attention import words_of
from regard.look.weights import Weights, attends, attention_weights, forced_weights, inside, merge
from regard.predict.transcribing import LONGEST
from regard.run import Run
from regard.show.sound_map import SoundMap
from regard.show.sound_page import Moments, Times, Transcribed, Wave

CTC = "CTC: probability of each token"
Path = Sequence[tuple[int, int]]  # the first and the last step of each token


@dataclass(frozen=True)
class Heard:
    """The beginning of a recording, as a model reads it."""

    piece: Recording
    frames: NDArray[np.floating]  # (frames, bands)
    stride: int  # frames of a step
    rate: int  # samples per second
    note: str  # what is left out

    @property
    def hertz(self) -> tuple[float, ...]:
        """Return the middle of each band."""
        return tuple(band_edges(self.rate, self.frames.shape[1])[1:-1].round(1).tolist())

    @property
    def seconds(self) -> float:
        return len(self.frames) * HOP

    @property
    def steps(self) -> int:
        """Return how many there are, the padding of a batch left out."""
        return -(-len(self.frames) // self.stride)

    def times(self, path: Path) -> Times:
        """Return seconds."""
        step = self.stride * HOP
        return tuple((first * step, min((last + 1) * step, self.seconds)) for first, last in path)


@dataclass(frozen=True)
class Listened:
    """The beginning of a recording, with the text to look at."""

    sound: Heard
    text: str
    tokens: list[Piece]


def first_piece(run: Run, raw: Any) -> Recording:
    """Return a recording as far as it is transcribed in one piece."""
    field = sound_field(run)
    return next(iter(pieces(recording_of(raw, field.rate), field.rate, LONGEST)))


def sound_field(run: Run) -> SoundField:
    field = run.fields["source"]
    assert isinstance(field, SoundField)
    return field


def heard(run: Run, raw: Any, piece: Recording | None = None) -> Heard:
    """Read a piece of a recording, by default as much as is transcribed in one piece."""
    field = sound_field(run)
    whole, piece = recording_of(raw, field.rate), piece or first_piece(run, raw)
    cut = piece.seconds + HOP < whole.seconds
    note = f"Only the first {piece.seconds:.1f} s of {whole.seconds:.1f} s are shown." if cut else ""
    return Heard(piece, field.frames(piece).astype(np.float32), inside(run.model).stride, field.rate, note)


def listened(run: Run, raw: Any, target: str | None) -> Listened:
    """Read a recording with `target`, or with the model's own transcript."""
    sound = heard(run, raw)
    text = run.predict([sound.piece])[0].text if target is None else target
    tokens = run.tokenizer("target").pieces(text)
    if not tokens:
        raise UserError("The transcript of this recording is empty: give one with words in it, as the target.")
    return Listened(sound, text, tokens)


def batch_of(run: Run, read: Listened) -> Any:
    return run.batch(source=[read.sound.piece], target=[read.text], multiple=1)


def emitted(run: Run, read: Listened) -> tuple[Weights, Path]:
    """Return the probability of each token at each step of CTC, (tokens, steps), 0 where its neighbours are; and the
    most probable path."""
    assert isinstance(run.model, Emits)
    with torch.inference_mode():
        log_probs = run.model.emit(run.batch(source=[read.sound.piece], multiple=1)).row(0).values[0]
    ids = [token.id for token in read.tokens]
    path = aligned(log_probs, ids)
    weights = log_probs[:, ids].T.float().exp().cpu().numpy()  # (tokens, steps)
    for token in range(len(ids)):
        weights[token, : path[token - 1][1] + 1 if token else 0] = 0
        weights[token, path[token + 1][0] if token + 1 < len(ids) else weights.shape[1] :] = 0
    return weights, path


def of_words(read: Listened, values: Weights) -> Weights:
    """Return the largest of each word's tokens."""
    words = np.array([token.word for token in read.tokens])
    return np.stack([values[words == word].max(0) for word in range(words.max() + 1)])


def path_of_words(read: Listened, path: Path) -> Path:
    words: dict[int, list[tuple[int, int]]] = {}
    for token, span in zip(read.tokens, path, strict=True):
        words.setdefault(token.word, []).append(span)
    return [(some[0][0], some[-1][1]) for some in words.values()]


def refuse_unseen(run: Run) -> None:
    if not attends(run.model) and not isinstance(run.model, Emits):
        raise UserError(
            f"{run.model_title} neither attends to a recording nor emits tokens over it: choose another run."
        )


def look_at_recording(run: Run, raw: Any, target: str | None = None, layer: int | None = None) -> SoundMap:
    """For each word of `target`, or of the model's own transcript, its weight at each step of the recording."""
    refuse_unseen(run)
    if layer is not None and not attends(run.model):
        raise UserError(f"layer = {layer}: {run.model_title} has no layers of attention to its input; leave it out.")
    read = listened(run, raw, target)
    times = None
    if isinstance(run.model, Emits):
        weights, path = emitted(run, read)
        times, weights, kind = read.sound.times(path_of_words(read, path)), of_words(read, weights), CTC
    if attends(run.model):
        found = (
            forced_weights(run.model, batch_of(run, read), layer=layer)[0, :, : read.sound.steps].float().cpu().numpy()
        )
        each = [*range(found.shape[1] - 1)]  # every step on its own, the last of which is where <eos> would be
        weights, kind = merge(found, each, [token.word for token in read.tokens]), "attention"
    return SoundMap(
        spectrogram=read.sound.frames,
        seconds=read.sound.seconds,
        words=tuple(words_of(read.tokens)),
        weights=weights,
        stride=read.sound.stride,
        kind=kind,
        answer=read.text,
        times=times,
        hertz=read.sound.hertz,
        note=read.sound.note,
        near=lambda: closely(run, read),
    )


def recording_closely(run: Run, raw: Any, target: str | None = None) -> Transcribed:
    """The same for every layer and head, token by token, and the sound."""
    refuse_unseen(run)
    return closely(run, listened(run, raw, target))


def closely(run: Run, read: Listened) -> Transcribed:
    crossings, views, times = inside(run.model).of_kind("cross"), [], None
    found = attention_weights(run.model, batch_of(run, read), crossings) if crossings else []
    for each, of_heads in zip(crossings, found, strict=True):
        written = slice(each.lead, each.lead + len(read.tokens))  # without <eos>
        steps = slice(each.extra, each.extra + read.sound.steps)
        heads = of_heads[0, :, written, steps]
        views.append(Moments(f"attention, layer {each.layer}", heads.float().cpu().numpy(), read.sound.stride))
    if isinstance(run.model, Emits):
        weights, path = emitted(run, read)
        times = read.sound.times(path)
        views.append(Moments(CTC, weights[None], read.sound.stride))
    rate = read.sound.rate
    return Transcribed(
        title=read.text,
        seconds=read.sound.seconds,
        spectrogram=read.sound.frames,
        words=tuple(token.text for token in read.tokens),
        views=tuple(views),
        times=times,
        hertz=read.sound.hertz,
        wave=Wave(read.sound.piece.samples(rate), rate),
        note=read.sound.note,
    )
