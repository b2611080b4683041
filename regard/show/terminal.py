"""Heat maps: in the terminal, readable with and without colour, and as an SVG picture; gates beside tokens."""

from __future__ import annotations

from html import escape

from rich.cells import cell_len
from rich.text import Text

from regard.look.attention import Look
from regard.look.gates import Layer
from regard.show.attention_page import visible

SHADES = ((0.75, "█"), (0.45, "▓"), (0.2, "▒"), (0.05, "░"), (0.0, "·"))
LEGEND = "· under 5 %   ░ 5 %   ▒ 20 %   ▓ 45 %   █ 75 % and more"


def shade(weight: float) -> str:
    return next(mark for least, mark in SHADES if weight >= least)


def colour(weight: float) -> tuple[int, int, int]:
    """From near-white to deep blue, evenly."""
    low, high = (236, 242, 250), (8, 64, 129)
    red, green, blue = (round(a + (b - a) * min(1.0, weight) ** 0.8) for a, b in zip(low, high, strict=True))
    return red, green, blue


def heat_map(seen: Look, *, width: int) -> Text:
    """Target words down, source words across; upright headers where the words do not fit side by side."""
    names = max(map(cell_len, seen.target), default=0)
    widths = [max(2, cell_len(word)) for word in seen.source]
    upright = names + sum(widths) + len(widths) > width
    if upright:
        widths = [2] * len(seen.source)
    text = Text()
    for line in (
        _upright(seen.source) if upright else [" ".join(_fit(w, n) for w, n in zip(seen.source, widths, strict=True))]
    ):
        text.append(f"{' ' * names} {line}".rstrip() + "\n", style="bold")
    for word, row in zip(seen.target, seen.weights, strict=True):
        text.append(f"{' ' * (names - cell_len(word))}{word} ", style="bold")
        for size, weight in zip(widths, row, strict=True):
            mark = shade(float(weight))
            style = "dim" if mark == "·" else "rgb({},{},{})".format(*_on_any_background(float(weight)))
            filled = mark.center(size) if mark == "·" else mark * size
            text.append(filled + " ", style=style)
        text.append("\n")
    text.append(f"{seen.kind}: {LEGEND}", style="dim")
    return text


def gate_map(layer: Layer) -> Text:
    """Tokens down; each gate's mean and the mean size of the states across, as a shade and in digits. A column that
    goes beyond 1 is shaded by its largest."""
    means = {name: values.tolist() for name, values in layer.means().items()}
    full = [max(1.0, *values) for values in means.values()]
    tokens = [visible(token) for token in layer.tokens]
    names = max(map(cell_len, tokens))
    widths = [max(7, cell_len(name)) for name in means]
    text = Text(f"{layer.name}\n", style="bold")
    header = "  ".join(_fit(name, size) for name, size in zip(means, widths, strict=True))
    text.append(f"{' ' * names}  {header}".rstrip() + "\n", style="bold")
    for token, row in zip(tokens, zip(*means.values(), strict=True), strict=True):
        text.append(f"{' ' * (names - cell_len(token))}{token}", style="bold")
        for value, most, size in zip(row, full, widths, strict=True):
            mark = shade(value / most)
            style = "dim" if mark == "·" else "rgb({},{},{})".format(*_on_any_background(value / most))
            text.append("  " + mark * 2, style=style)
            text.append(_fit(f" {value:.2f}", size - 2))
        text.append("\n")
    return text


def _on_any_background(weight: float) -> tuple[int, int, int]:
    """Blues that show on black and on white."""
    low, high = (110, 150, 200), (40, 130, 255)
    red, green, blue = (round(a + (b - a) * weight) for a, b in zip(low, high, strict=True))
    return red, green, blue


def _fit(word: str, size: int) -> str:
    return word + " " * (size - cell_len(word))


def _upright(words: tuple[str, ...]) -> list[str]:
    tall = max(map(len, words))
    return [" ".join(_fit(word.rjust(tall)[line], 2) for word in words) for line in range(tall)]


def _label(text: str) -> str:
    """As XML can hold it: no control characters."""
    return escape("".join(character if character.isprintable() else "\ufffd" for character in text))


def svg(seen: Look) -> str:
    """The same picture as a file of its own, for a page or a paper."""
    size, font = 34, 15
    left = 24 + round(0.62 * font * max(len(word) for word in (*seen.target, "")))
    top = 24 + round(0.5 * font * max(len(word) for word in seen.source))
    slant = round(0.42 * font * len(seen.source[-1]))
    wide, high = left + size * len(seen.source) + slant + 24, top + size * len(seen.target) + 44
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" '
        f'font-family="system-ui, sans-serif" font-size="{font}">',
        f'<rect width="{wide}" height="{high}" fill="#ffffff"/>',
    ]
    for column, word in enumerate(seen.source):
        x = left + column * size + size // 2
        parts.append(f'<text transform="translate({x},{top - 8}) rotate(-40)" fill="#222">{_label(word)}</text>')
    for row, (word, weights) in enumerate(zip(seen.target, seen.weights, strict=True)):
        y = top + row * size
        middle = y + size // 2 + font // 3
        parts.append(f'<text x="{left - 8}" y="{middle}" text-anchor="end" fill="#222">{_label(word)}</text>')
        for column, weight in enumerate(weights):
            fill = "#{:02x}{:02x}{:02x}".format(*colour(float(weight)))
            label = f"{word} looks at {seen.source[column]}: {float(weight):.2f}"
            parts.append(
                f'<rect x="{left + column * size}" y="{y}" width="{size - 2}" height="{size - 2}" rx="3" fill="{fill}">'
                f"<title>{_label(label)}</title></rect>"
            )
    caption = f"{seen.kind}; dark is much"
    parts.append(f'<text x="{left}" y="{high - 16}" fill="#666" font-size="12">{_label(caption)}</text></svg>')
    return "\n".join(parts) + "\n"
