"""The built-in scenes: the picture determines the caption, splits share no picture, every word has its region."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import combinations, islice, permutations
from typing import get_args

import numpy as np
import pytest

from regard.data.world import Split
from regard.data.world.captions import FEMININE, Language, Relation, describe, nested, read, write
from regard.data.world.drawing import COLOURS, GRAIN, RADII, Colour, Mask, Shape, Size, Texture, draw, masks
from regard.data.world.scenes import HELD_OUT, Scene, Thing, coverage, held_out, scenes, vocabulary

SPLITS: tuple[Split, ...] = ("train", "valid", "test")
LANGUAGES: tuple[Language, ...] = ("english", "french")
AXES: dict[Relation, tuple[str, int]] = {  # which coordinate decides, and its sign
    "left of": ("x", -1),
    "right of": ("x", 1),
    "above": ("y", -1),
    "below": ("y", 1),
}


@cache
def sample(split: Split, count: int, fewest: int = 1, most: int = 2, seed: int = 0) -> tuple[Scene, ...]:
    return tuple(islice(scenes(split, seed=seed, fewest=fewest, most=most), count))


def some() -> tuple[Scene, ...]:
    """Scenes of every number of things."""
    return tuple(scene for most in (1, 2, 3, 4) for scene in sample("train", 53, most, most))


def thing(text: str, x: float, y: float) -> Thing:
    """A thing by its shape, colour, size and texture."""
    shape, colour, size, *texture = text.split()
    return Thing(shape, colour, size, texture[0] if texture else "plain", x, y, RADII[size][0])  # type: ignore[arg-type]


def said(*things: Thing) -> tuple[str, str]:
    scene = Scene(things)
    return " ".join(scene.english), " ".join(scene.french)


def looks(scene: Scene) -> tuple[tuple[str, ...], ...]:
    return tuple(sorted(describe(each, "english") for each in scene.things))


def grown(mask: Mask) -> Mask:
    """The mask and all pixels beside it."""
    padded = np.pad(mask, 1)
    size = len(mask)
    shifted = [padded[row : row + size, column : column + size] for row in range(3) for column in range(3)]
    return np.any(shifted, axis=0)


def covers(mask: Mask, other: Mask, share: float = 1.0) -> bool:
    """Whether this share of the other mask, at least, is in the first."""
    return bool((mask & other).sum() >= share * other.sum())


# ── the stream ─────────────────────────────────────────────────────────────────────────────────────


def test_the_same_seed_gives_the_same_scenes_and_pictures_whatever_the_hash_seed() -> None:
    code = (
        "from itertools import islice; from zlib import crc32; from regard.data.world.scenes import scenes\n"
        "for split in ('train', 'valid', 'test'):\n"
        "    for scene in islice(scenes(split, seed=7, most=4), 11):\n"
        "        print(scene, scene.english, scene.french, crc32(scene.draw()))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for salt in ("1", "2")
    ]
    assert outputs[0] == outputs[1] != ""
    assert sample("train", 97, seed=7) == tuple(islice(scenes("train", seed=7), 97)) != sample("train", 97, seed=8)


def test_no_two_splits_share_a_picture_nor_a_set_of_several_things() -> None:
    several = {split: {looks(s) for s in sample(split, 401, 2, 3)} for split in SPLITS}
    single = {
        split: {(looks(s), int(8 * s.things[0].x), int(8 * s.things[0].y)) for s in sample(split, 151, 1, 1)}
        for split in SPLITS
    }
    for one, other in combinations(SPLITS, 2):
        assert not several[one] & several[other]
        assert not single[one] & single[other]
        assert {looks(s) for s in sample(one, 151, 1, 1)} & {looks(s) for s in sample(other, 151, 1, 1)}


def test_training_never_sees_a_held_out_combination_and_the_other_splits_do() -> None:
    for index, parts in enumerate((get_args(Colour), get_args(Shape))):
        assert sorted(pair[index] for pair in HELD_OUT) == sorted(parts)  # each is once left out, and so else seen
    for most in (2, 4):
        seen = {(each.colour, each.shape) for scene in sample("train", 601, 1, most) for each in scene.things}
        assert len(seen) == 30 and not seen & HELD_OUT
    assert not any(map(held_out, some()))
    for split in ("valid", "test"):
        assert 0.1 < np.mean([held_out(scene) for scene in sample(split, 201)]) < 0.5
        only = {choice: tuple(islice(scenes(split, seed=3, held_out=choice), 41)) for choice in (True, False)}
        assert all(map(held_out, only[True])) and not any(map(held_out, only[False]))
    test = {(each.colour, each.shape) for scene in sample("test", 301, 1, 4) for each in scene.things}
    assert test >= HELD_OUT


@pytest.mark.parametrize("fewest, most", [(1, 1), (1, 2), (2, 3), (4, 4)])
def test_scenes_have_as_many_things_as_asked(fewest: int, most: int) -> None:
    counts = {len(scene.things) for scene in sample("valid", 53, fewest, most)}
    assert counts == set(range(fewest, most + 1))


def test_what_cannot_be_is_refused_with_a_remedy() -> None:
    with pytest.raises(ValueError, match="train, valid, test"):
        scenes("dev")  # type: ignore[arg-type]
    for fewest, most in ((0, 2), (3, 2), (1, 5)):
        with pytest.raises(ValueError, match="from 1 to 4"):
            scenes("train", fewest=fewest, most=most)
    with pytest.raises(ValueError, match="choose valid or test"):
        scenes("train", held_out=True)
    with pytest.raises(ValueError, match="multiple of 8"):
        some()[0].draw(50)
    with pytest.raises(ValueError, match="english, french"):
        some()[0].regions("german")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="move them apart"):
        said(thing("circle red small", 0.3, 0.3), thing("star blue large", 0.6, 0.6))  # diagonal
    ring, cross = thing("ring red large", 0.5, 0.5), thing("cross blue small", 0.5, 0.5)
    with pytest.raises(ValueError, match="move them apart"):
        said(ring, cross, replace(cross, colour="white"))
    with pytest.raises(ValueError, match="move them apart"):
        said(*(thing("circle red small", x, 0.5) for x in (0.2, 0.5, 0.8)))  # in line: which two are a pair?
    with pytest.raises(ValueError, match="move them apart"):
        said(*(thing("circle red small", x, 0.5) for x in (0.12, 0.37, 0.62, 0.87)))  # four are read in two rows


# ── captions ───────────────────────────────────────────────────────────────────────────────────────


def test_the_places_of_the_things_alone_determine_the_caption() -> None:
    for scene in some():
        for things in permutations(scene.things):
            other = Scene(things, seed=scene.seed + 1)
            assert (other.english, other.french) == (scene.english, scene.french)


def test_relations_hold_with_a_clear_margin() -> None:
    met = Counter[Relation]()
    for scene in sample("train", 401, 2, 2):
        reading = read(scene.things)
        assert reading is not None and reading.first.relation is not None
        one, other = (scene.things[index] for index in reading.first.things)
        met[reading.first.relation] += 1
        if reading.first.relation == "inside":
            assert nested(one, other)
        else:
            axis, sign = AXES[reading.first.relation]
            along, across = (sign * (getattr(one, name) - getattr(other, name)) for name in (axis, "xy".strip(axis)))
            assert along > 2 * abs(across) and along > one.reach + other.reach
            assert (one.size, other.size) != ("large", "small")
            assert one.size != other.size or sign < 0  # between equals, the left or upper thing is first
    assert set(met) == {*get_args(Relation)} and min(met.values()) > 20


def test_both_says_where_two_things_are_from_the_others() -> None:
    met = Counter[Relation]()
    for scene in sample("train", 301, 3, 4):
        reading = read(scene.things)
        assert reading is not None and reading.relation is not None and reading.second is not None
        axis, sign = AXES[reading.relation]
        for first in reading.first.things:
            for second in reading.second.things:
                one, other = scene.things[first], scene.things[second]
                assert sign * (getattr(one, axis) - getattr(other, axis)) > 0
        met[reading.relation] += 1
    assert set(met) == {*AXES}


def test_things_that_change_places_change_the_relation() -> None:
    opposite = {"left": "right", "right": "left", "above": "below", "below": "above"}
    for scene in sample("train", 401, 2, 2):
        one, other = scene.things
        reading = read(scene.things)
        if reading is None or reading.first.relation == "inside":
            continue
        swapped = Scene((replace(one, x=other.x, y=other.y), replace(other, x=one.x, y=one.y)))
        assert swapped.english != scene.english
        if one.size != other.size:
            assert swapped.english == tuple(opposite.get(word, word) for word in scene.english)


def test_captions_of_known_scenes() -> None:
    circle, square = thing("circle red small", 0.5, 0.2), thing("square blue large striped", 0.5, 0.7)
    star, cross = thing("star green large", 0.25, 0.25), thing("cross white large dotted", 0.75, 0.25)
    ring = thing("ring purple large", 0.5, 0.75)
    assert said(circle) == ("a small red circle", "un petit cercle rouge")
    assert said(square, circle) == (
        "a small red circle above a large striped blue square",
        "un petit cercle rouge au-dessus d' un grand carré bleu rayé",
    )
    assert said(replace(circle, y=0.72), square) == (
        "a small red circle inside a large striped blue square",
        "un petit cercle rouge dans un grand carré bleu rayé",
    )
    assert said(ring, cross, star) == (
        "a large green star left of a large dotted white cross , both above a large purple ring",
        "une grande étoile verte à gauche d' une grande croix blanche à pois , "
        "toutes deux au-dessus d' un grand anneau violet",
    )
    assert said(star, replace(square, x=0.75, y=0.25), replace(circle, x=0.5, y=0.75), ring) == (
        "a large green star left of a large striped blue square , both above a small red circle inside a large "
        "purple ring",
        "une grande étoile verte à gauche d' un grand carré bleu rayé , tous deux au-dessus d' un petit cercle rouge "
        "dans un grand anneau violet",
    )
    small = thing("triangle yellow small", 0.25, 0.75), thing("square white small", 0.75, 0.75)
    assert said(*small, star, cross)[0] == (
        "a large green star left of a large dotted white cross , both above a small yellow triangle left of a small "
        "white square"
    )
    assert said(replace(star, y=0.5), replace(small[1], y=0.5))[1] == (
        "un petit carré blanc à droite d' une grande étoile verte"
    )
    assert said(replace(star, x=0.5), small := replace(small[0], x=0.5))[1] == (
        "un petit triangle jaune au-dessous d' une grande étoile verte"
    )


@pytest.mark.parametrize(
    "look, french",
    [
        ("star white small striped", "une petite étoile blanche rayée"),
        ("cross purple large", "une grande croix violette"),
        ("cross green small dotted", "une petite croix verte à pois"),
        ("star blue large", "une grande étoile bleue"),
        ("star yellow large striped", "une grande étoile jaune rayée"),
        ("circle white large striped", "un grand cercle blanc rayé"),
        ("ring purple small dotted", "un petit anneau violet à pois"),
        ("square green large", "un grand carré vert"),
        ("triangle red small striped", "un petit triangle rouge rayé"),
    ],
)
def test_french_agrees(look: str, french: str) -> None:
    assert said(thing(look, 0.5, 0.5))[1] == french


def test_french_both_agrees_with_the_two_things() -> None:
    met = set()
    for scene in sample("train", 301, 3, 4):
        reading = read(scene.things)
        if reading is not None and "deux" in scene.french:
            feminine = all(scene.things[index].shape in FEMININE for index in reading.first.things)
            assert scene.french[scene.french.index("deux") - 1] == ("toutes" if feminine else "tous")
            met.add(feminine)
    assert met == {True, False}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_word_of_the_vocabulary_occurs_and_no_other(language: Language) -> None:
    chosen = sample("train", 601, 1, 4)
    words = {word for scene in chosen for word in (scene.english if language == "english" else scene.french)}
    assert words == vocabulary(language)


# ── pictures ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("side", [32, 48, 72])
def test_a_picture_is_its_background_but_for_its_things(side: int) -> None:
    for scene in some()[::7]:
        picture = scene.draw(side)
        assert picture.shape == (side, side, 3) and picture.dtype == np.uint8
        differs = (picture != scene.background(side)).any(2)
        seen = np.any(scene.masks(side), axis=0)
        assert covers(grown(seen), differs, 0.97) and covers(grown(grown(seen)), differs)  # points are thin
        assert covers(differs, seen, 0.98)


def test_a_region_is_where_taking_its_thing_away_changes_the_picture() -> None:
    for scene in some()[::2]:
        picture = scene.draw()
        for index, seen in enumerate(scene.masks()):
            without = draw(scene.things[:index] + scene.things[index + 1 :], scene.seed)
            differs = (picture != without).any(2)
            assert covers(grown(seen), differs, 0.95) and covers(grown(grown(seen)), differs)
            assert covers(differs, seen, 0.98)


def test_things_do_not_overlap_and_lie_in_the_picture() -> None:
    for scene in some():
        alone = [masks([each])[0] for each in scene.things]
        for (one, first), (other, second) in combinations(zip(scene.things, alone, strict=True), 2):
            if not nested(one, other) and not nested(other, one):
                assert not (grown(first) & second).any()
        for each, mask in zip(scene.things, alone, strict=True):
            assert min(each.x, each.y) > each.reach and max(each.x, each.y) < 1 - each.reach
            assert mask.any()
        assert np.sum(scene.masks(), axis=0).max() == 1


def test_a_thing_inside_another_is_surrounded_by_it() -> None:
    for scene in sample("train", 401, 2, 2):
        for (one, mask), (other, outer) in permutations(zip(scene.things, scene.masks(), strict=True), 2):
            if nested(one, other) and other.shape != "ring":
                assert not (grown(mask) & ~mask & ~outer).any()


def test_large_things_are_much_larger_than_small_ones() -> None:
    areas: dict[tuple[Shape, Size], list[int]] = {}
    for scene in sample("train", 801, 1, 1):
        areas.setdefault((scene.things[0].shape, scene.things[0].size), []).append(int(scene.masks()[0].sum()))
    for shape in get_args(Shape):
        assert min(areas[shape, "large"]) > 2 * max(areas[shape, "small"])


def test_the_mean_colour_of_a_region_is_nearest_to_the_colour_that_is_named() -> None:
    right = []
    for scene in sample("train", 601, 1, 4)[::2]:
        picture = scene.draw().astype(np.float64)
        for each, seen in zip(scene.things, scene.masks(), strict=True):
            mean = picture[seen].mean(0)
            nearest = min(COLOURS, key=lambda colour: float(np.square(mean - COLOURS[colour]).sum()))
            right.append(nearest == each.colour)
    assert np.mean(right) > 0.99


@pytest.mark.parametrize("size", get_args(Size))
@pytest.mark.parametrize("shape", get_args(Shape))
def test_shapes_and_textures_differ_by_much_more_than_noise(shape: Shape, size: Size) -> None:
    one = Thing(shape, "green", size, "plain", 0.5, 0.5, RADII[size][0])
    region = masks([one])[0]
    drawn = [draw([replace(one, texture=texture)], 3)[region].astype(float) for texture in get_args(Texture)]
    for first, second in combinations(drawn, 2):
        assert np.abs(first - second)[:, 1].max() > 2 * GRAIN  # the channel in which green is bright
    picture, background = draw([one], 3).astype(float), draw([], 3)
    for other in get_args(Shape):
        change = np.abs(picture - draw([replace(one, shape=other)], 3)).sum()
        assert shape == other or change > 0.15 * np.abs(picture - background).sum()


def test_another_texture_can_be_seen_also_under_a_thing_inside() -> None:
    for scene in sample("train", 29, 2, 4):
        picture = scene.draw().astype(int)
        for index, each in enumerate(scene.things):
            for texture in {*get_args(Texture)} - {each.texture}:
                others = (*scene.things[:index], replace(each, texture=texture), *scene.things[index + 1 :])
                assert (np.abs(picture - draw(others, scene.seed)).max(2) > 2 * GRAIN).sum() > 3


def test_the_background_never_looks_like_a_thing() -> None:
    """No pixel of it is near the colour of a thing, and yet it is busy."""
    spread = []
    for scene in sample("train", 97):
        pixels = scene.background().astype(np.float64)
        for colour in COLOURS.values():
            assert np.sqrt(np.square(pixels - colour).sum(2)).min() > 25
        spread.append(pixels.std((0, 1)).mean())
    assert min(spread) > 8


# ── regions ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_word_has_the_region_that_it_is_about(language: Language) -> None:
    for scene in some()[::3]:
        words = scene.english if language == "english" else scene.french
        regions, seen = scene.regions(language), scene.masks()
        assert len(regions) == len(words) == len(write(scene.things, language))
        assert all(region.shape == (48, 48) and region.dtype == np.bool_ and region.any() for region in regions)
        place = 0
        reading = read(scene.things)
        assert reading is not None
        for group in (reading.first, *([reading.second] if reading.second else [])):
            for index in group.things:
                phrase = describe(scene.things[index], language)
                place = next(at for at in range(place, len(words)) if words[at : at + len(phrase)] == phrase)
                for region in regions[place : place + len(phrase)]:
                    assert (region == seen[index]).all()
                place += len(phrase)


def test_a_relation_is_about_both_and_both_about_the_two_before_it() -> None:
    above = Scene((thing("circle red small", 0.5, 0.2), thing("square blue large", 0.5, 0.7)))
    circle, square = above.masks()
    for language, places in (("english", (4,)), ("french", (4, 5))):
        regions = above.regions(language)
        assert all((regions[place] == (circle | square)).all() for place in places)
    three = Scene((*above.things[:1], replace(above.things[1], x=0.25), thing("star green large", 0.75, 0.7)))
    regions, (circle, square, star) = three.regions("english"), three.masks()
    words = three.english
    assert " ".join(words) == "a large blue square left of a large green star , both below a small red circle"
    for place, region in enumerate(regions):
        if words[place] in ("left", "of", ",", "both"):
            assert (region == (square | star)).all()
        elif words[place] == "below":
            assert (region == (circle | square | star)).all()


@pytest.mark.parametrize("rows, columns", [(6, 6), (7, 5), (1, 1), (48, 48), (96, 50)])
def test_coverage_sums_to_the_area_of_the_mask(rows: int, columns: int) -> None:
    for scene in some()[::11]:
        for mask in scene.masks():
            shares = coverage(mask, rows, columns)
            assert shares.shape == (rows, columns) and shares.min() >= 0 and shares.max() < 1 + 1e-5
            assert shares.mean() * mask.size == pytest.approx(mask.sum(), rel=1e-4)
    corner = np.zeros((48, 48), np.bool_)
    corner[:12, 24:] = True
    assert coverage(corner, 2, 2).tolist() == [[0, 0.5], [0, 0]]
