"""Laws of the models that read pictures: grids and their positions, convolutions, captions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental import _config as symbolic

from regard.config import fields_of, help_texts, is_setting
from regard.data.tensors import read_tensors, write_tensors
from regard.interface import (
    BOS,
    EOS,
    PAD,
    Batch,
    Generates,
    Ids,
    Inspects,
    Label,
    Learns,
    Padded,
    Picture,
    Scores,
    Shapes,
    UserError,
)
from regard.layers.attention import watch
from regard.layers.heads import log_probs_of
from regard.layers.lora import add_low_rank
from regard.layers.pictures import GridPositions, grid_of, interpolated, refitted
from regard.layers.positions import Sinusoidal
from regard.look.weights import cross_attention, forced_weights
from regard.models import abilities, captioner, convnet, show_attend_tell, vit
from regard.train.weights import load_weights, weights

PICTURE = Picture(11, 7, 3)
LABELS, VOCAB = 5, 13


def pictures(count: int = 3, shape: Picture = PICTURE, seed: int = 2) -> Padded:
    random = torch.Generator().manual_seed(seed)
    values = torch.randn(count, shape.height, shape.width * shape.channels, dtype=torch.float64, generator=random)
    return Padded(values, torch.ones(count, shape.height, dtype=torch.bool))


def labelled(source: Padded) -> Batch:
    labels = torch.arange(len(source.mask))[:, None] % LABELS
    return Batch(source, Padded(labels, torch.ones_like(labels, dtype=torch.bool)))


def rows(side: Padded, places: list[int]) -> Padded:
    return Padded(side.values[places], side.mask[places])


# positions on a grid


@pytest.mark.parametrize(("dim", "lead"), [(14, 0), (13, 1)])
def test_a_position_on_a_grid_is_the_code_of_its_row_and_then_of_its_column(dim: int, lead: int) -> None:
    rows, columns = 3, 5
    x = torch.zeros(2, lead + rows * columns, dim, dtype=torch.float64)
    codes = GridPositions(dim=dim, columns=columns, lead=lead)(x, torch.arange(x.shape[1]))
    line = torch.arange(max(rows, columns))
    by_row, by_column = (Sinusoidal(dim=half).codes(line, x) for half in (dim - dim // 2, dim // 2))
    for row in range(rows):
        for column in range(columns):
            wanted = torch.cat([by_row[row], by_column[column]])
            torch.testing.assert_close(codes[1, lead + row * columns + column], wanted)
    assert not codes[:, :lead].any()


def test_interpolation_keeps_the_same_grid_a_constant_and_a_slope() -> None:
    table = torch.randn(15, 7, generator=torch.Generator().manual_seed(1))
    assert torch.equal(interpolated(table, (3, 5), (3, 5)), table)
    constant = table[:1].expand(15, -1)
    torch.testing.assert_close(interpolated(constant, (3, 5), (7, 2)), table[:1].expand(14, -1))
    rows = torch.arange(4.0).repeat_interleave(2)[:, None]  # (4 · 2, 1): the number of the row
    finer = interpolated(rows, (4, 2), (8, 2)).view(8, 2)
    assert torch.equal(finer[:, 0], finer[:, 1])
    torch.testing.assert_close(finer[1:-1, 0].diff(), torch.full((5,), 0.5))


@pytest.mark.parametrize(
    ("picture", "patches", "grid"),
    [
        (Picture(12, 8, 3), 6, (3, 2)),
        (Picture(28, 28, 1), 16, (4, 4)),
        (Picture(28, 28, 1), 17, None),
        (Picture(12, 8, 3), 0, None),
        (Picture(2, 2, 1), 50, None),
    ],
)
def test_a_grid_follows_from_the_number_of_patches(picture: Picture, patches: int, grid: object) -> None:
    assert grid_of(picture, patches) == grid


def test_only_positions_on_a_grid_are_refitted() -> None:
    weight = torch.randn(7, 3)
    model = torch.nn.Linear(3, 7)
    assert refitted(model, "weight", weight, Picture(12, 8, 3)) is weight


# a convolutional network


def network(shape: Picture = PICTURE, **settings: Any) -> Any:
    torch.manual_seed(1)
    config = convnet.Config(**{"width": 3, "stages": 2, "dropout": 0.0, **settings})
    return convnet.build(config, Shapes(shape, Label(LABELS))).double().eval()


@pytest.mark.parametrize(("stages", "blocks", "grid"), [(1, 1, (6, 4)), (2, 1, (3, 2)), (3, 2, (2, 1)), (5, 1, (1, 1))])
def test_a_network_gives_one_state_for_each_place_of_its_last_map(stages: int, blocks: int, grid: Any) -> None:
    model = network(stages=stages, blocks=blocks)
    encoded = model.encoder(pictures())
    assert model.encoder.grid == grid and len(model.encoder.blocks) == stages * blocks
    assert encoded.states.shape == (3, grid[0] * grid[1], 3 * 2 ** (stages - 1)) and bool(encoded.mask.all())
    assert model.inspect().attentions == model.inspect().recurrences == ()


def test_its_states_are_ordered_row_by_row() -> None:
    """A change in the last pixel reaches the last place and not the first. Norms, which see all places, are removed."""
    model = network(Picture(44, 28, 3), stages=2).encoder
    for part in model.modules():
        for name, child in list(part.named_children()):
            if isinstance(child, torch.nn.GroupNorm):
                setattr(part, name, torch.nn.Identity())
    source = pictures(1, Picture(44, 28, 3))
    before = model(source).states[0].unflatten(0, (11, 7))
    source.values[0, -1, -3:] += 1
    moved = (model(source).states[0].unflatten(0, (11, 7)) != before).any(-1)
    assert moved[-1, -1] and not moved[:5].any() and not moved[:, :3].any()


def test_pictures_beside_it_change_nothing() -> None:
    model, source = network(), pictures(5)
    together = model.classify(labelled(source))
    turned = model.classify(labelled(rows(source, [3, 1, 4, 0, 2])))
    for place, row in enumerate([3, 1, 4, 0, 2]):
        alone = model.classify(labelled(rows(source, [row])))[0]
        torch.testing.assert_close(alone, together[row])
        torch.testing.assert_close(turned[place], together[row])
    torch.testing.assert_close(together.exp().sum(-1), torch.ones(5, dtype=torch.float64))


def test_a_block_that_adds_nothing_hands_its_input_on() -> None:
    model = network(stages=1, blocks=2).encoder
    source, seen = pictures(), []
    hook = model.enter.register_forward_hook(lambda part, given, made: seen.append(made))
    for block in model.blocks:
        torch.nn.init.zeros_(block.second.weight)
    states = model(source).states
    hook.remove()
    assert torch.equal(states, torch.relu(model.norm(seen[0])).flatten(2).transpose(1, 2))


def test_a_network_follows_its_module_to_another_device() -> None:
    model, batch = network(dropout=0.2).to("meta"), labelled(pictures()).to("meta")
    for training in (True, False):
        assert model.train(training).loss(batch).objective.is_meta


def test_a_network_refuses_what_is_not_a_picture() -> None:
    with pytest.raises(UserError, match="convnet reads pictures"):
        convnet.build(convnet.Config(), Shapes(Ids(VOCAB), Label(LABELS)))
    with pytest.raises(UserError, match="Label"):
        convnet.build(convnet.Config(), Shapes(PICTURE, Ids(VOCAB)))
    with pytest.raises(ValueError, match="stages"):
        convnet.Config(stages=9)


def test_low_rank_changes_of_its_kernels_are_nothing_at_first() -> None:
    model, source = network(), pictures()
    before = model.classify(labelled(source))
    add_low_rank(model, 2, lambda path: path.startswith("encoder."))
    assert sum(name.endswith("0.b") for name, _ in model.named_parameters()) == 6  # five 3 x 3 kernels, one 1 x 1
    torch.testing.assert_close(model.classify(labelled(source)), before)


# captions

CAPTIONS = [[BOS, 4, 5, 6, 7, EOS], [BOS, 8, 9, EOS, PAD, PAD], [BOS, 10, 11, 12, EOS, PAD]]
GRID = {"tell": 6, "patches": 11 * 7}  # places: 3 x 2, and patches of one pixel
TELL: dict[str, Any] = {
    "width": 3,
    "stages": 2,
    "embedding": 5,
    "hidden": 7,
    "dropout": 0.0,
    "coverage": 0.7,
}
PATCHES: dict[str, Any] = {"patch": 1, "dim": 12, "heads": 3, "feed_forward": 17, "layers": 2, "dropout": 0.0}
CASES: dict[str, Any] = {
    "soft": show_attend_tell.Config(**TELL),
    "hard": show_attend_tell.Config(**TELL, attention="hard"),
    "none": show_attend_tell.Config(**TELL, attention="none"),
    "soft 2 layers gru": show_attend_tell.Config(**TELL, cell="gru", layers=2, tie=False),
    "soft additive": show_attend_tell.Config(**TELL, score="additive", positions="none"),
    "captioner": captioner.Config(**PATCHES, decoder_layers=1),
    "captioner 2d": captioner.Config(**PATCHES, class_token=False, positions="sinusoidal-2d", norm="post", tie=False),
}
ATTENDING = [name for name in CASES if name != "none"]
every = pytest.mark.parametrize("name", CASES)
attending = pytest.mark.parametrize("name", ATTENDING)


def describer(name: str, *, seed: int = 1, shape: Picture = PICTURE, **settings: Any) -> Any:
    """In evaluation mode, and no parameter at a value such as 0 or 1 that could hide what it does."""
    config = replace(CASES[name], **settings)
    torch.manual_seed(seed)
    module = captioner if isinstance(config, captioner.Config) else show_attend_tell
    model = module.build(config, Shapes(shape, Ids(VOCAB))).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.rand_like(parameter))
    return model


def captions(source: Padded | None = None, rows: list[list[int]] = CAPTIONS) -> Batch:
    return Batch(pictures() if source is None else source, Padded.of_ids(torch.tensor(rows)))


def places_of(name: str) -> int:
    return GRID["patches"] if name.startswith("captioner") else GRID["tell"]


@every
def test_a_captioner_keeps_its_promises(name: str) -> None:
    model = describer(name)
    assert all(isinstance(model, promise) for promise in (Learns, Scores, Generates, Inspects))
    loss = model.loss(captions())
    log_probs, _ = model.log_probs(captions())
    torch.testing.assert_close(loss.nll, -log_probs.sum())
    assert loss.tokens == 5 + 3 + 4


def test_a_place_knows_where_it_is() -> None:
    """Away from the edge, one colour everywhere gives one state everywhere, unless places have positions."""
    shape = Picture(64, 64, 1)
    plain = Padded(torch.ones(1, 64, 64, dtype=torch.float64), torch.ones(1, 64, dtype=torch.bool))
    for positions, apart in (("none", False), ("sinusoidal-2d", True)):
        model = describer("soft", shape=shape, positions=positions)
        with torch.no_grad():
            states = model.encoder(plain).states.view(16, 16, -1)[6:10, 6:10].flatten(0, 1)
        for one, other in product(range(16), repeat=2):
            same = torch.allclose(states[one], states[other])
            assert same == (one == other or not apart)


@every
def test_step_by_step_is_teacher_forcing(name: str) -> None:
    model, batch = describer(name), captions()
    assert batch.target is not None
    with torch.no_grad():
        wanted = model.logits(batch)  # (batch, target - 1, vocab)
        state = model.start(replace(batch, target=None)).widen(2, torch.arange(3))
        for step in range(wanted.shape[1]):
            logits, state = model.step(batch.target.values[:, step].repeat_interleave(2), state)
            real = batch.target.mask[:, step + 1]
            torch.testing.assert_close(logits.view(3, 2, -1)[real], wanted[real, step][:, None].expand(-1, 2, -1))


@every
def test_pictures_and_captions_beside_it_change_nothing(name: str) -> None:
    model, batch = describer(name), captions()
    with torch.no_grad():
        together = model.log_probs(batch)[0]
        order = [2, 0, 1]
        turned = captions(rows(pictures(), order), [CAPTIONS[row] for row in order])
        torch.testing.assert_close(model.log_probs(turned)[0], together[order])
        for row, alone in enumerate(batch.rows()):
            own = model.log_probs(alone)[0][0]
            torch.testing.assert_close(own, together[row, : len(own)])


@every
def test_a_picture_and_an_earlier_word_matter_and_a_later_word_does_not(name: str) -> None:
    model, batch = describer(name), captions()
    with torch.no_grad():
        before = model.logits(batch)
        other = model.logits(captions(pictures(seed=3)))
        changed = [row.copy() for row in CAPTIONS]
        changed[0][2] = 12
        after = model.logits(captions(rows=changed))
    assert not torch.isclose(other, before).all(-1).any()
    torch.testing.assert_close(after[0, :2], before[0, :2])
    assert not torch.isclose(after[0, 2], before[0, 2]).all()


@attending
def test_weights_are_distributions_over_places_and_watching_changes_nothing(name: str) -> None:
    model, batch = describer(name), captions()
    (first, *_) = crossings = model.inspect().of_kind("cross")
    assert all((each.queries, each.keys) == ("target", "source") for each in crossings)
    with torch.no_grad():
        unwatched = model.logits(batch)
        with watch(model) as seen:
            assert torch.equal(model.logits(batch), unwatched)
        found = torch.cat(seen.of(first.part), 2)  # (batch, heads, target, places)
        assert found.shape[2:] == (5, first.extra + places_of(name))
        torch.testing.assert_close(found.sum(-1), torch.ones_like(found[..., 0]))
        assert cross_attention(model, batch).shape[3:] == (5, places_of(name))


def test_without_attention_the_mean_annotation_is_read_at_every_step() -> None:
    model, batch = describer("none"), captions()
    assert model.inspect().attentions == ()
    with torch.no_grad():
        encoded = model.encoder(batch.source)
        gated, shares, _ = model.decoder.read(batch.target.before(), encoded)[1]  # type: ignore[union-attr]
        query = model.decoder.start(encoded)[1].attending[0]
        open_ = torch.sigmoid(model.decoder.attention.gate(query))
    torch.testing.assert_close(shares, torch.full((3, 5, 6), 1 / 6, dtype=torch.float64))
    torch.testing.assert_close(gated[:, 0], open_ * encoded.states.mean(1))
    pixels = forced_weights(model, batch)  # saliency
    assert pixels.shape == (3, 5, 11 * 7)
    torch.testing.assert_close(pixels.sum(-1), batch.target.after().mask.double())  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["soft", "hard"])
def test_the_objective_adds_the_doubly_stochastic_term(name: str) -> None:
    model, batch = describer(name), captions()
    assert batch.target is not None
    with torch.no_grad(), watch(model) as seen:
        loss = model.loss(batch)
    alphas = torch.cat(seen.of(model.inspect().of_kind("cross")[0].part), 2)[:, 0]  # (batch, target, places)
    wanted = 0.0
    for row in range(3):
        for place in range(6):
            over_time = sum(float(alphas[row, t, place]) for t in range(5) if CAPTIONS[row][t + 1] != PAD)
            wanted += 0.7 * (1 - over_time) ** 2
    assert float(loss.objective - loss.nll) == pytest.approx(wanted)


def test_the_gate_is_a_share_and_an_open_one_passes_the_context_unchanged() -> None:
    model = describer("soft")
    look = model.decoder.attention
    annotations = torch.randn(3, 6, 6, dtype=torch.float64)
    memory = look.memory(annotations, annotations, torch.ones(3, 6, dtype=torch.bool))
    query = 5 * torch.randn(3, 2, 7, dtype=torch.float64)
    with torch.no_grad():
        gated, alphas, _ = look(query, memory)
        plain = alphas @ annotations
        share = gated / plain
        assert bool(((share > 0) & (share < 1)).all())
        torch.testing.assert_close(share, share[..., :1].expand_as(share))  # one gate for the whole vector
        look.gate.bias.fill_(1e3)
        torch.testing.assert_close(look(query, memory)[0], plain)
        look.gate.bias.fill_(-1e3)
        assert not look(query, memory)[0].any()


# hard attention


def gradients(model: Any, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    objective = model.loss(batch).objective
    objective.backward()
    return objective.detach(), {name: each.grad for name, each in model.named_parameters()}


def test_one_place_leaves_nothing_to_choose() -> None:
    soft, hard = (describer(name, stages=5).train() for name in ("soft", "hard"))
    load_weights(hard, weights(soft) | {"baseline": torch.tensor(-3.0, dtype=torch.float64)})
    torch.testing.assert_close(gradients(hard, captions()), gradients(soft, captions()))


def test_the_mean_instead_of_samples_is_soft_attention() -> None:
    soft, hard = describer("soft").train(), describer("hard", sampled=0.0, entropy=0.0).train()
    load_weights(hard, weights(soft) | {"baseline": torch.tensor(-3.0, dtype=torch.float64)})
    torch.testing.assert_close(gradients(hard, captions()), gradients(soft, captions()))


def test_in_evaluation_the_most_probable_place_is_read() -> None:
    model, batch = describer("hard"), captions()
    with torch.no_grad():
        _, alphas, chosen = model.decoder.read(batch.target.before(), model.encoder(batch.source))[1]  # type: ignore[union-attr]
    assert torch.equal(chosen.argmax(-1), alphas.argmax(-1))
    assert torch.equal(chosen.sum(-1), torch.ones_like(chosen[..., 0])) and set(chosen.unique().tolist()) == {0.0, 1.0}


def test_the_mean_gradient_of_all_samples_is_that_of_the_expectation() -> None:
    """Two words and three places: the nine ways to look, each as often as it is probable, whatever the baseline is."""
    shape = Picture(2, 6, 1)
    model = describer("hard", shape=shape, stages=1, coverage=0.0, reward=1.0, entropy=0.0).train()
    look, batch = model.decoder.attention, captions(pictures(1, shape), [[BOS, 4, EOS]])
    parameters = dict(model.named_parameters())
    found, expected = {name: torch.zeros_like(each) for name, each in parameters.items()}, torch.zeros(())
    for way in product(range(3), repeat=2):
        look.choose = forced(way)
        model.baseline.fill_(-2.5)
        _, own = gradients(model, batch)
        look.choose = forced(way)
        hidden, (_, alphas, _) = model.decoder.read(batch.target.before(), model.encoder(batch.source))
        chance = torch.stack([alphas[0, step, place] for step, place in enumerate(way)]).prod()
        log_p = log_probs_of(model.decoder.head.logits(hidden), batch.target.after()).sum()
        expected = expected - chance * log_p
        found = {name: each + chance.detach() * own[name] for name, each in found.items()}
    exact = dict(zip(parameters, torch.autograd.grad(expected, [*parameters.values()]), strict=True))
    torch.testing.assert_close(found, exact)
    assert all(bool(exact[name].any()) for name in exact if ".attention." in name)


def forced(way: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    """Choose these places, one after the other."""
    places = iter(way)
    return lambda alphas: torch.eye(alphas.shape[-1], dtype=alphas.dtype)[next(places)].expand_as(alphas)


def test_places_are_sampled_as_often_as_they_are_probable() -> None:
    alphas = torch.tensor([0.5, 0.1, 0.4, 0.0]).expand(5000, 2, 4)
    for sampled in (1.0, 0.3):
        choose = describer("hard", sampled=sampled).train().decoder.attention.choose
        torch.manual_seed(4)
        chosen = choose(alphas)
        one = (chosen == 1).any(-1)
        assert float(one.float().mean()) == pytest.approx(sampled, abs=0.02)
        torch.testing.assert_close(chosen[one].mean(0), alphas[0, 0], atol=0.02, rtol=0)
        torch.testing.assert_close(chosen[~one], alphas[~one])


def test_the_baseline_is_a_moving_mean_and_part_of_what_is_saved(tmp_path: Any) -> None:
    model, batch = describer("hard", entropy=0.3).train(), captions()
    before = {name: tensor.clone() for name, tensor in weights(model).items()}
    torch.manual_seed(5)
    loss = model.loss(batch)
    mean = -loss.nll / 3  # of ln p(caption): the nll of what was sampled
    torch.testing.assert_close(model.baseline, 0.1 * mean)
    write_tensors(tmp_path / "weights", weights(model))
    random = torch.get_rng_state()
    straight = gradients(model, batch)
    other = describer("hard", entropy=0.3, seed=7).train()
    load_weights(other, read_tensors(tmp_path / "weights")[0])
    torch.set_rng_state(random)
    torch.testing.assert_close(gradients(other, batch), straight, rtol=0, atol=0)
    assert torch.equal(other.baseline, model.baseline)
    model.eval()
    model.loss(batch)
    assert torch.equal(other.baseline, model.baseline) and "baseline" in before


# weights of a classifier, and other devices


@pytest.mark.parametrize("name", ["soft", "soft additive", "captioner", "captioner 2d"])
def test_the_encoder_of_a_classifier_fits_by_name(name: str) -> None:
    config, shapes = CASES[name], Shapes(PICTURE, Label(LABELS))
    if isinstance(config, captioner.Config):
        settings = {key: vars(config)[key] for key in (*PATCHES, "positions", "norm")}
        teacher = vit.build(vit.Config(**settings, pool="first" if config.class_token else "mean"), shapes)
    else:
        teacher = convnet.build(convnet.Config(**{key: TELL[key] for key in ("width", "stages", "dropout")}), shapes)
    model = describer(name)
    own = {key: tensor.shape for key, tensor in weights(model).items() if key.startswith("encoder.")}
    theirs = {key: tensor.shape for key, tensor in weights(teacher).items() if key.startswith("encoder.")}
    assert own == theirs and own
    load_weights(model, weights(model) | {key: weights(teacher.double())[key] for key in own})
    states, wanted = model.encode(captions()).values, teacher.eval().encode(captions()).values
    if name == "soft":  # beside the codes of its places
        codes = model.encoder.positions.add(torch.zeros_like(wanted), torch.arange(wanted.shape[1]))
        wanted = wanted + codes
    torch.testing.assert_close(states, wanted)


@every
def test_saved_and_loaded_is_the_same(name: str, tmp_path: Any) -> None:
    model, other = describer(name), describer(name, seed=5)
    write_tensors(tmp_path / "weights", weights(model))
    load_weights(other, read_tensors(tmp_path / "weights")[0])
    assert torch.equal(other.logits(captions()), model.logits(captions()))


@contextmanager
def all_nonzero() -> Iterator[None]:
    """On the meta device there are no values to find the padding by: all words count as real."""
    was = symbolic.meta_nonzero_assume_all_nonzero
    symbolic.meta_nonzero_assume_all_nonzero = True
    try:
        yield
    finally:
        symbolic.meta_nonzero_assume_all_nonzero = was


@every
def test_everything_follows_its_module_to_another_device(name: str) -> None:
    model, batch = describer(name).to("meta"), captions().to("meta")
    for training in (True, False):
        with all_nonzero():
            assert model.train(training).loss(batch).objective.is_meta
    state = model.start(batch).widen(2, torch.arange(3, device="meta"))
    logits, _ = model.step(torch.full((6,), BOS, device="meta"), state)
    assert logits.is_meta and logits.shape == (6, VOCAB)


def test_captioners_train_write_score_and_attend_and_explain_their_settings() -> None:
    for module in (captioner, show_attend_tell):
        assert abilities(module.DESIGN) == [
            "train",
            "generate",
            "score",
            "attend",
        ]  # they are built without values, too
        assert all(map(is_setting, fields_of(module.Config).values()))
        assert all(help_texts(module.Config)[key] for key in fields_of(module.Config))
        assert len(module.DESIGN.sizes) == 4 and module.DESIGN.tasks == ("captioning",)


def test_captioners_refuse_what_is_not_a_picture_with_a_text() -> None:
    for module in (captioner, show_attend_tell):
        with pytest.raises(UserError, match="reads pictures"):
            module.build(module.Config(), Shapes(Ids(VOCAB), Ids(VOCAB)))
        with pytest.raises(UserError, match="Ids"):
            module.build(module.Config(), Shapes(Picture(16, 16, 1), Label(LABELS)))
    with pytest.raises(UserError, match="cannot be cut"):
        captioner.build(captioner.Config(patch=5), Shapes(Picture(16, 16, 1), Ids(VOCAB)))
    with pytest.raises(ValueError, match="sampled"):
        show_attend_tell.Config(sampled=1.5)
