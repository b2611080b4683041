"""Where each word of a transcript is in its recording: weights below its spectrogram, in the terminal and as SVG.

A spectrogram is (frames, bands), natural logs of energies; weights are (words, steps), and a step covers `stride`
frames. Each word's weights are shown as shares of its largest, since attention is spread over many steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from regard.show.colours import LEGEND, paper_colour, shade, terminal_colour
from regard.show.heat_map import svg_begin, svg_text
from regard.show.picture_map import ACCENT, shares_of, svg_image
from regard.show.sound_page import Times, Transcribed, sound_frame
from regard.show.spectrogram import clock, levels, pitch_marks, refuse_unfit, sound_scale, spectrogram_pixels, ticks
from regard.show.text import brief, visible

LINES = 8  # of a spectrogram in the terminal
SOUND_WIDE, SOUND_HIGH, STRIP = 760, 150, 18  # of the spectrogram and of a word's strip in an SVG, in pixels
AROUND, FONT = 14, 13
LONGEST = 24  # characters of a word in an SVG
FRAME = "#{:02x}{:02x}{:02x}".format(*ACCENT)  # around the time of a word


@dataclass(frozen=True)
class SoundMap:
    """The weight of each step of a recording for each word of its transcript."""

    spectrogram: NDArray[np.floating]  # (frames, bands)
    seconds: float  # that the frames cover
    words: tuple[str, ...]
    weights: NDArray[np.floating]  # (words, steps)
    stride: int  # frames of a step
    kind: str  # "attention", for example
    answer: str  # the transcript
    times: Times | None = None
    hertz: tuple[float, ...] = ()  # the middle of each band, from low to high; (): not known
    note: str = ""
    near: Callable[[], Transcribed] | None = field(default=None, repr=False, compare=False)  # every layer and head

    def __post_init__(self) -> None:
        refuse_unfit(self.spectrogram, self.seconds, self.words, self.weights, self.stride)
        if self.weights.ndim != 2 or (self.times is not None and len(self.times) != len(self.words)):
            raise ValueError("a map has weights (words, steps), and one time for each word or none at all.")

    def __str__(self) -> str:
        return self.text(100).plain

    @property
    def step(self) -> float:
        """Return the seconds of a step."""
        return self.stride * self.seconds / len(self.spectrogram)

    @property
    def by_frame(self) -> NDArray[np.floating]:
        """Return the weights with one column for each frame, 0 after the last step."""
        frames = len(self.spectrogram)
        found = self.weights.repeat(self.stride, 1)[:, :frames]
        return np.pad(found, ((0, 0), (0, frames - found.shape[1])))

    def text(self, width: int) -> Text:
        """Return the spectrogram for a terminal, and a line for each word; a column is the mean of its time."""
        names = [visible(word) for word in self.words]
        pitches = {int(LINES * (1 - place)): pitch for pitch, place in pitch_marks(self.hertz)}
        side = min(max(map(cell_len, [*names, *pitches.values()])), max(4, width // 3))
        across = max(1, min(width - side - 1, len(self.spectrogram)))
        text = Text()
        if self.answer:
            text.append(f"→ {brief(visible(self.answer).replace('␣', ' '), max(4, width - 2))}\n", style="bold")
        scale = sound_scale()
        cells = spread(spread(levels(self.spectrogram).T[::-1], across).T, LINES).T
        for number, line in enumerate(((cells - cells.min()) / max(float(np.ptp(cells)), 1e-9)).tolist()):
            text.append(f"{to_the_right(pitches.get(number, ''), side)} ", style="dim")
            for level in line:
                colour = scale[round(255 * level)]
                mark = " " if shade(level) == "·" else shade(level)
                text.append(mark, style="rgb({},{},{})".format(*colour) if mark != " " else "")
            text.append("\n")
        text.append(f"{' ' * (side + 1)}{self._axis(across)}\n", style="dim")
        weights = spread(self.by_frame, across)
        for name, row in zip(names, shares_of(weights[:, None])[:, 0].tolist(), strict=True):
            text.append(f"{to_the_right(name, side)} ", style="bold")
            for share in row:
                mark = shade(share)
                text.append(mark, style="dim" if mark == "·" else "rgb({},{},{})".format(*terminal_colour(share)))
            text.append("\n")
        if self.note:
            text.append(f"{self.note}\n")
        text.append(f"{self.kind}, of each row's largest weight: {LEGEND}", style="dim")
        return text

    def _axis(self, across: int) -> str:
        """Return a line with the times at which columns begin."""
        line = [" "] * across
        for time in ticks(self.seconds, max(1, across // 8)):
            place, words = int(time / self.seconds * across), f"{clock(time)}s"
            if place + len(words) <= across:
                line[place : place + len(words)] = words
        return "".join(line).rstrip()

    def svg(self) -> str:
        """Return the spectrogram, and below it a strip for each word."""
        names = [brief(visible(word), LONGEST) for word in self.words]
        pitches = pitch_marks(self.hertz)
        left = AROUND + 10 + round(0.62 * FONT * max(map(cell_len, [*names, *(pitch for pitch, _ in pitches)])))
        top, bottom = AROUND + 6, AROUND + 6 + SOUND_HIGH + STRIP * len(names) + 8
        wide, high = left + SOUND_WIDE + AROUND + 12, bottom + 48 + 18 * bool(self.note)
        parts = [*svg_begin(wide, high, FONT), f'<g transform="translate({left} {top})">']
        parts.append(svg_image(spectrogram_pixels(self.spectrogram), SOUND_WIDE, SOUND_HIGH, smooth=True))
        for pitch, place in pitches:
            y = SOUND_HIGH * (1 - place)
            parts.append(f'<path d="M-5 {y:.1f}h5" stroke="#666"/>')
            parts.append(f'<text x="-8" y="{y + FONT / 3:.1f}" fill="#444" text-anchor="end">{pitch}</text>')
        for number, (name, shares) in enumerate(zip(names, shares_of(self.by_frame[:, None])[:, 0], strict=True)):
            parts.append(self._strip(number, name, shares, SOUND_HIGH + 8 + STRIP * number))
        parts.append("</g>")
        for time in ticks(self.seconds, 10):
            x = left + time / self.seconds * SOUND_WIDE
            parts.append(f'<path d="M{x:.1f} {bottom + 2}v5" stroke="#666"/>')
            parts.append(f'<text x="{x:.1f}" y="{bottom + 20}" fill="#444" text-anchor="middle">{clock(time)} s</text>')
        for line, words in enumerate(filter(None, (self._caption, self.note))):
            parts.append(f'<text x="{left}" y="{bottom + 42 + 18 * line}" fill="#444">{svg_text(words)}</text>')
        return "\n".join([*parts, "</svg>"]) + "\n"

    @property
    def _caption(self) -> str:
        return f"{self.kind}; dark at each row's largest weight{', framed where the word is' if self.times else ''}"

    def _strip(self, number: int, name: str, shares: NDArray[np.floating], y: int) -> str:
        """Return the weights of a word as an element, (0, y) its top left."""
        colours = np.array([paper_colour(share) for share in shares.tolist()], np.uint8)[None]
        middle, most = STRIP / 2 + FONT / 3, (int(shares.argmax()) + 0.5) * self.seconds / len(shares)
        label = svg_text(f"{name}: most at {most:.2f} s, {self.weights[number].max():.3g}")
        frame = ""
        if self.times is not None:
            start, end = (SOUND_WIDE * min(1.0, time / self.seconds) for time in self.times[number])
            size = f'width="{max(1.0, end - start):.1f}" height="{STRIP - 3}"'
            frame = f'<rect x="{start:.1f}" y="0.5" {size} fill="none" stroke="{FRAME}"/>'
        return (
            f'<g transform="translate(0 {y})"><title>{label}</title>'
            f'<text x="-8" y="{middle:.1f}" text-anchor="end" fill="#222">{svg_text(name)}</text>'
            f"{svg_image(colours, SOUND_WIDE, STRIP - 2)}{frame}</g>"
        )

    def facts(self, digits: int = 6) -> dict[str, Any]:
        """Return the map for JSON: a row for each word; its columns are steps, which begin at `source` seconds."""
        return {
            "source": [round(number * self.step, 4) for number in range(self.weights.shape[1])],
            "target": list(self.words),
            "kind": self.kind,
            "grid": [1, self.weights.shape[1]],
            "answer": self.answer,
            "seconds": round(self.seconds, 4),
            "seconds_per_step": round(self.step, 6),
            "times": None if self.times is None else [[round(time, 4) for time in each] for each in self.times],
            "weights": self.weights.round(digits).tolist(),
            **({"note": self.note} if self.note else {}),
        }

    def _repr_html_(self) -> str:  # in a notebook
        return sound_frame(self.near()) if self.near else self.svg()


def spread(values: NDArray[np.floating], columns: int) -> NDArray[np.floating]:
    """Return values (…, time) in so many columns: the mean of those in each, or the nearest where there are fewer."""
    edges = np.arange(columns + 1) * values.shape[-1] / columns
    first = np.floor(edges[:-1]).astype(int)
    count = np.maximum(1, np.floor(edges[1:]).astype(int) - first)
    sums = np.add.reduceat(values.astype(float), first, -1)
    found: NDArray[np.floating] = sums / count
    return found


def to_the_right(name: str, cells: int) -> str:
    """Return a name that ends after so many cells; a longer one is cut."""
    if cell_len(name) > cells:
        return f"{set_cell_size(name, cells - 1)}…"
    return " " * (cells - cell_len(name)) + name
