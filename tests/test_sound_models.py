"""Laws of models that read recordings: padding and mates change nothing, steps are teacher forcing, CTC and attention
share one encoder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from regard.interface import (
    Batch,
    Classifies,
    Emits,
    Frames,
    Generates,
    Ids,
    Inspects,
    Label,
    Learns,
    Padded,
    Scores,
    Shapes,
    UserError,
)
from regard.layers.attention import watch
from regard.layers.ctc import total
from regard.layers.sound import joined_pairs
from regard.models import MODELS, abilities, ctc, las, speech_transformer

BANDS, VOCAB, LABELS = 5, 11, 3
LENGTHS = (23, 17, 9)  # frames
TEXTS = [[1, 4, 5, 6, 7, 2], [1, 8, 9, 2, 0, 0], [1, 10, 2, 0, 0, 0]]
STACK: dict[str, Any] = {"dim": 12, "heads": 3, "feed_forward": 13, "layers": 2, "dropout": 0.0}
SPELL: dict[str, Any] = {"embedding": 7, "hidden": 6, "layers": 3, "dropout": 0.0}
CASES: dict[str, Any] = {
    "ctc": ctc.Config(**STACK, hidden=7),
    "ctc gru": ctc.Config(**STACK, hidden=7, cell="gru", halvings=1),
    "ctc attention": ctc.Config(**STACK, body="attention", positions="rotary"),
    "las": las.Config(**SPELL),
    "las attention alone": las.Config(**SPELL, ctc=0.0, score="bilinear", tie=False, halvings=3),
    "speech_transformer": speech_transformer.Config(**STACK, decoder_layers=1),
    "speech_transformer attention alone": speech_transformer.Config(
        **STACK, ctc=0.0, norm="post", tie=False, positions="alibi"
    ),
}
EMITTING = [name for name in CASES if "alone" not in name]
WRITING = [name for name in CASES if not name.startswith("ctc")]
every = pytest.mark.parametrize("name", CASES)
emitting = pytest.mark.parametrize("name", EMITTING)
writing = pytest.mark.parametrize("name", WRITING)


def built(name: str, *, seed: int = 1) -> Any:
    torch.manual_seed(seed)
    module = {"ctc": ctc, "las": las, "speech_transformer": speech_transformer}[name.split()[0]]
    model = module.build(CASES[name], Shapes(Frames(BANDS), Ids(VOCAB))).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.rand_like(parameter))
    return model


def frames(lengths: tuple[int, ...] = LENGTHS, seed: int = 2) -> Padded:
    """What lies in the padding is noise, so that a model that reads it is found out."""
    values = torch.randn(
        len(lengths), max(lengths), BANDS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    return Padded(values, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])


def recordings(seed: int = 2) -> Batch:
    return Batch(frames(seed=seed), Padded.of_ids(torch.tensor(TEXTS)))


@every
def test_a_model_keeps_its_promises_and_says_what_a_state_covers(name: str) -> None:
    model, batch = built(name), recordings()
    assert isinstance(model, Learns) and isinstance(model, Inspects)
    assert isinstance(model, Emits) == (name in EMITTING) and isinstance(model, Generates) == (name in WRITING)
    stride = model.inspect().stride
    assert stride == 2 ** CASES[name].halvings
    with torch.no_grad():
        encoded = model.encode(batch)
    assert encoded.lengths.tolist() == [-(-length // stride) for length in LENGTHS]
    assert encoded.values.shape[:2] == encoded.mask.shape


@every
def test_padding_and_recordings_beside_it_change_nothing(name: str) -> None:
    model, batch = built(name), recordings()
    with torch.no_grad():
        together = model.encode(batch)
        for row, alone in enumerate(batch.rows()):
            own = model.encode(alone)
            torch.testing.assert_close(own.values[0], together.values[row, : own.values.shape[1]])
            torch.testing.assert_close(model.loss(alone).nll, model.loss(take(batch, row)).nll)
        torch.testing.assert_close(sum(model.loss(one).nll for one in batch.rows()), model.loss(batch).nll)


def take(batch: Batch, row: int) -> Batch:
    """One recording with its padding."""
    assert batch.source is not None and batch.target is not None
    return Batch(
        *(Padded(side.values[row : row + 1], side.mask[row : row + 1]) for side in (batch.source, batch.target))
    )


@every
def test_every_frame_matters(name: str) -> None:
    model, batch = built(name), recordings()
    assert batch.source is not None
    before = model.loss(take(batch, 0)).nll
    for frame in range(0, LENGTHS[0], 3):
        values = batch.source.values.clone()
        values[0, frame] += 1
        after = model.loss(take(replace(batch, source=Padded(values, batch.source.mask)), 0)).nll
        assert not torch.isclose(after, before, rtol=1e-9)


@emitting
def test_emissions_are_distributions_without_begin_and_end_and_the_loss_is_their_ctc(name: str) -> None:
    model, batch = built(name), recordings()
    with torch.no_grad():
        emitted = model.emit(batch)
        torch.testing.assert_close(emitted.values.exp().sum(-1), torch.ones(emitted.mask.shape, dtype=torch.float64))
        assert bool((emitted.values[..., 1:3] == -torch.inf).all())
        assert batch.target is not None
        if not isinstance(model, Generates):
            torch.testing.assert_close(model.loss(batch).nll, -total(emitted, batch.target).sum())


@pytest.mark.parametrize("name", ["las", "speech_transformer"])
def test_the_joint_loss_is_a_weighted_mean_of_both(name: str) -> None:
    model, batch = built(name), recordings()
    assert batch.target is not None
    with torch.no_grad():
        by_ctc = -total(model.emit(batch), batch.target).sum()
        hidden = model.hidden(batch)
        by_words = model.decoder.head.loss(hidden, batch.target.after())
        loss = model.loss(batch)
    torch.testing.assert_close(loss.objective, 0.7 * by_words.objective + 0.3 * by_ctc)
    torch.testing.assert_close(loss.nll, -model.log_probs(batch)[0].sum())
    assert loss.tokens == 5 + 3 + 2


@writing
def test_step_by_step_is_teacher_forcing(name: str) -> None:
    model, batch = built(name), recordings()
    assert batch.target is not None and isinstance(model, Scores)
    with torch.no_grad():
        wanted = model.logits(batch)  # (batch, target - 1, vocab)
        state = model.start(replace(batch, target=None)).widen(2, torch.arange(3))
        for step in range(wanted.shape[1]):
            logits, state = model.step(batch.target.values[:, step].repeat_interleave(2), state)
            real = batch.target.mask[:, step + 1]
            torch.testing.assert_close(logits.view(3, 2, -1)[real], wanted[real, step][:, None].expand(-1, 2, -1))


@writing
def test_attention_is_a_distribution_over_real_states_and_watching_changes_nothing(name: str) -> None:
    model, batch = built(name), recordings()
    (first, *_) = model.inspect().of_kind("cross")
    with torch.no_grad():
        unwatched = model.logits(batch)
        with watch(model) as seen:
            assert torch.equal(model.logits(batch), unwatched)
        real = model.encode(batch).mask
    found = torch.cat(seen.of(first.part), 2)  # (batch, heads, target, states)
    torch.testing.assert_close(found.sum(-1), torch.ones_like(found[..., 0]))
    assert bool((found[~real[:, None, None].expand_as(found)] == 0).all())


def test_two_neighbours_become_one_and_padding_stays_apart() -> None:
    source = frames((5, 2))
    joined = joined_pairs(source)
    assert joined.values.shape == (2, 3, 2 * BANDS) and joined.lengths.tolist() == [3, 1]
    torch.testing.assert_close(joined.values[0, 0], torch.cat([source.values[0, 0], source.values[0, 1]]))
    torch.testing.assert_close(joined.values[0, 2, :BANDS], source.values[0, 4])
    assert bool((joined.values[0, 2, BANDS:] == 0).all()) and bool((joined.values[1, 1:] == 0).all())


@pytest.mark.parametrize("model", ["birnn", "attentive_birnn", "encoder"])
def test_the_encoders_of_words_read_recordings_too(model: str) -> None:
    torch.manual_seed(3)
    shapes = Shapes(Frames(BANDS), Label(LABELS))
    found: Any = MODELS[model].build(MODELS[model].config(dropout=0.0), shapes).double().eval()
    assert isinstance(found, Classifies) and isinstance(found, Inspects) and found.inspect().stride == 4
    batch = Batch(frames(), Padded(torch.tensor([[0], [1], [2]]), torch.ones(3, 1, dtype=torch.bool)))
    with torch.no_grad():
        together = found.classify(batch)
        for row, alone in enumerate(batch.rows()):
            torch.testing.assert_close(found.classify(alone)[0], together[row])
    torch.testing.assert_close(found.loss(batch).nll, -together[range(3), range(3)].sum())


def test_models_of_recordings_say_what_they_can_do_and_refuse_other_sides() -> None:
    assert abilities(ctc.DESIGN) == ["train", "emit"]
    for module in (las, speech_transformer):
        assert abilities(module.DESIGN) == ["train", "generate", "emit", "score", "attend"]
    for module in (ctc, las, speech_transformer):
        for shapes in (Shapes(Ids(7), Ids(7)), Shapes(Frames(5), Label(3))):
            with pytest.raises(UserError, match="choose another model or task"):
                module.build(module.Config(), shapes)
    with pytest.raises(ValueError, match="must be at most layers"):
        las.Config(layers=1, halvings=2)
