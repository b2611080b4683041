"""reach: how far apart words are to a model: by gradients that arrive, and by time.

‖∂ ln p(target) / ∂x‖ against the distance of x: of a translator, tokens between x and the end of what it read, where a
fixed vector would be taken; of a language model, tokens between x and the one that is predicted last.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from regard.data.batches import SPELT, pad
from regard.interface import BOS, PAD, UNK, Batch, Bounded, Classifies, Generates, State, Tags, Windowed
from regard.layers.encoders import RecurrentEncoder
from regard.look.attention import reading
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.language_model import LanguageModel
from regard.run import Run

ROWS = 32  # texts over which gradients are averaged
FAR = 60  # tokens
FEWEST = 4  # texts that are long enough for a distance to have a mean
LENGTHS = (8, 16, 32, 64, 128, 256)
REPEATS = 3


def gradients(run: Run, texts: Sequence[tuple[str, str]]) -> list[tuple[int, float]]:
    """(distance, mean norm), for what it reads its tokens with; nothing of a model that counts or names."""
    model = run.model
    if not isinstance(model, EncoderDecoder | LanguageModel):
        return []
    longest = sorted(texts, key=lambda pair: -len(pair[0].split()))[: 4 * ROWS : 4]
    source = [run.tokenizers.source.encode(text)[:FAR] for text, _ in longest]
    target = [run.tokenizers.target.encode(text)[:FAR] for _, text in longest]
    if isinstance(model, LanguageModel):
        room = min(FAR, model.context or FAR, *(len(ids) for ids in target)) if target else 0
        if room < 2:
            return []
        batch = Batch.of_text(torch.tensor([[BOS, *ids[:room]] for ids in target]))
        backwards = True
    else:
        batch = Batch(pad(source), pad(target, begin=True))
        encoder = model.encoder
        backwards = not (isinstance(encoder, RecurrentEncoder) and encoder.reverse)
    batch = batch.to(run.device)
    with torch.enable_grad(), reading(model) as embedded:
        log_probs = model.log_probs(batch)[0]
        felt = log_probs[:, -1] if isinstance(model, LanguageModel) else log_probs
        (slopes,) = torch.autograd.grad(felt.sum(), embedded[0])
    real = batch.source_mask if batch.source.shape[1] else torch.ones_like(log_probs, dtype=torch.bool)
    return _by_distance(slopes.norm(dim=-1), real, backwards=backwards)


def _by_distance(norms: Tensor, real: Tensor, *, backwards: bool) -> list[tuple[int, float]]:
    """The mean over rows (rows, time) at each distance from the last real token, or from the first."""
    places = torch.arange(norms.shape[1], device=norms.device)
    distances = real.sum(1, keepdim=True) - 1 - places if backwards else places.expand_as(norms)
    found = []
    for distance in range(int(distances.max()) + 1):
        here = (distances == distance) & real
        if here.sum() >= min(FEWEST, len(norms)):
            found.append((distance, float(norms[here].mean())))
    return found


def times(run: Run) -> list[tuple[int, float]]:
    """(tokens, seconds) to read so many and, where it writes, to write as many: one text at a time, the least of a few
    tries."""
    model = run.model
    longest = model.longest if isinstance(model, Bounded) else None
    context = model.context if isinstance(model, Windowed) else None
    room = min(longest or max(LENGTHS) + 2, context or max(LENGTHS) + 2)
    found = []
    with torch.inference_mode():
        for length in LENGTHS:
            if length + 2 > room:
                break
            _once(run, 8)
            found.append((length, min(_once(run, length) for _ in range(REPEATS))))
    return found


def _once(run: Run, length: int) -> float:
    model = run.model
    tokens = torch.full((1, length), UNK, device=run.device)
    began = time.perf_counter()
    if isinstance(model, Generates):
        source = tokens if run.recipe.task == "translation" else tokens[:, :0]
        state: State = model.start(Batch(source, torch.full((1, 1), BOS, device=run.device)))
        for place in range(length):
            _, state = model.step(tokens[:, place], state)
    elif isinstance(model, Classifies):
        model.classify(Batch(tokens))
    elif isinstance(model, Tags):
        letters = torch.full((1, length, SPELT), PAD, device=run.device)
        model.tag(Batch(tokens, spelling=letters))
    return time.perf_counter() - began
