"""Captioning, from a table or the built-in scenes to captions, scores and maps."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import Call

import regard
from regard.data.captions import Captions, Scenes, caption_fields, images_beside
from regard.data.text import BETWEEN
from regard.interface import UserError
from regard.loading import read_recipe
from regard.look.captions import grid_of
from regard.tasks.captioning import gold

TINY = ("model.width=4", "model.stages=2", "model.embedding=6", "model.hidden=7", "--threads", 1)
BUDGET = (
    "train.epochs=0",
    "train.steps=4",
    "train.validate_every=2",
    "train.precision=float32",
    "train.schedule=constant",
)
SCENES = """
task = "captioning"
data = {name = "scenes", scenes = 23, side = 16, valid = 5, test = 3}
tokens = {kind = "words", size = 0}
model = {name = "show_attend_tell", width = 4, stages = 2, embedding = 6, hidden = 7}
train = {steps = 4, validate_every = 2, precision = "float32", metric = "chrf"}
"""
PICTURES = np.random.default_rng(1).integers(0, 256, (31, 16, 16, 3), np.uint8)
COLOURS = ("red", "green", "blue")


def caption(number: int) -> str:
    return f"a {COLOURS[number % 3]} thing"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Captions beside an .npz file of pictures, in two languages, one with several for each picture."""
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "data.npz", images=PICTURES)
    lines = ({"en": caption(n), "de": [f"Ding {n % 3}", f"ein Ding {n % 3}"]} for n in range(len(PICTURES)))
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> regard.Run:
    folder = tmp_path_factory.mktemp("scenes")
    (folder / "s.toml").write_text(SCENES)
    return regard.train(folder / "s.toml", folder / "run")


# --- data ---


def test_to_learn_from_each_caption_is_an_example_and_to_score_they_are_references(place: Path) -> None:
    data = Captions(train="data.jsonl", hold_out=0.3, target="de")
    train, valid = (list(data.lines(split, place)) for split in ("train", "valid"))  # type: ignore[arg-type]
    assert len(train) / 2 + len(valid) == len(PICTURES) and valid
    assert all(BETWEEN not in text for _, _, text in train) and all(BETWEEN in text for _, _, text in valid)
    assert not {picture.tobytes() for _, picture, _ in train} & {picture.tobytes() for _, picture, _ in valid}
    for number, picture, _ in (*train, *valid):
        assert np.array_equal(picture, PICTURES[number - 1])


def test_a_tab_inside_a_caption_does_not_make_two_of_it(place: Path) -> None:
    (place / "data.jsonl").write_text(json.dumps({"en": f"a{BETWEEN}b"}) + "\n")
    np.savez(place / "data.npz", images=PICTURES[:1])
    data = Captions(train="data.jsonl", valid="data.jsonl", target="en")
    for split in ("train", "valid"):
        assert [text.split() for _, _, text in data.lines(split, place)] == [["a", "b"]]  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["", " \t", ["a thing", " "]])
def test_a_line_without_a_caption_is_refused_and_where_lines_are_reported_others_keep_their_pictures(
    place: Path, call: Call, wrong: object
) -> None:
    lines = [{"en": wrong if n == 2 else caption(n)} for n in range(len(PICTURES))]
    (place / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    data, reported = Captions(train="data.jsonl", valid="data.jsonl", target="en"), list[tuple[int, str]]()
    with pytest.raises(UserError, match="line 3: an empty caption; write one"):
        list(data.lines("train", place))
    found = list(data.lines("train", place, lambda file, line, wrong: reported.append((line, wrong))))
    assert reported == [(3, "an empty caption")] and len(found) == len(PICTURES) - 1
    assert all(np.array_equal(picture, PICTURES[number - 1]) for number, picture, _ in found)
    assert call("new", "captioning", "data.jsonl", "-o", "c.toml").code == 0
    checked = call("check", "c.toml")
    assert checked.code == 1 and checked.out.count("line 3: an empty caption") == 1, checked.out
    assert re.search(r"valid: \d+ pictures, 100.0 % pass", checked.out)


def test_another_table_may_have_other_fields(tmp_path: Path) -> None:
    rows = [(f"{n}.png", caption(n)) for n in range(5)]
    (tmp_path / "a.tsv").write_text("".join(f"{name}\t{text}\n" for name, text in rows))
    (tmp_path / "b.csv").write_text("name,text\n" + "".join(f"{name},{text}\n" for name, text in rows))
    entries = ({"text": text, "id": n, "name": name} for n, (name, text) in enumerate(rows))
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    for trained in ("a.tsv", "b.csv", "c.jsonl"):
        source, target = caption_fields(tmp_path / trained)
        data = Captions(train=trained, hold_out=0.5, source=source, target=target)
        for other in ("a.tsv", "b.csv", "c.jsonl"):
            found = data.reading([tmp_path / other]).lines("valid", tmp_path)
            assert [(picture.path.name, text) for _, picture, text in found] == rows, (trained, other)


@pytest.mark.parametrize(("count", "said"), [(30, "fewer pictures"), (32, "more pictures")])
def test_as_many_pictures_as_captions(place: Path, count: int, said: str) -> None:
    np.savez(place / "data.npz", images=np.resize(PICTURES, (count, 16, 16, 3)))
    with pytest.raises(UserError, match=said):
        list(Captions(train="data.jsonl", hold_out=0.3, target="en").lines("train", place))


def test_check_counts_further_captions_of_a_picture_and_does_not_call_it_repeated(place: Path, call: Call) -> None:
    assert call("new", "captioning", "data.jsonl", "--target", "de", "-o", "c.toml").code == 0
    done = call("check", "c.toml", "--json")
    found = json.loads(done.out)
    train = found["summary"]["train"]
    assert done.code == 0 and not found["findings"] and train["several"] == train["pairs"] / 2 > 0, done.out


def test_check_names_captions_that_training_leaves_out(place: Path, call: Call) -> None:
    assert call("new", "captioning", "data.jsonl", "--target", "en", "-o", "c.toml").code == 0
    for longest, left_out in ((2, True), (3, False)):
        done = call("check", "c.toml", f"tokens.longest={longest}")
        assert ("captions have more than 2 tokens" in done.out) == left_out, done.out


def test_check_refuses_what_leaves_nothing_to_validate_on(place: Path, call: Call) -> None:
    assert call("new", "captioning", "data.jsonl", "--target", "en", "-o", "c.toml").code == 0
    done = call("check", "c.toml", "data.hold_out=0.000001")
    assert done.code == 1 and "valid has no pictures" in done.out and "valid: 0 pictures, 0.0 % pass" in done.out


def test_captions_of_one_file_are_put_together(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    rows = []
    for number in range(4):
        image.fromarray(PICTURES[number]).save(tmp_path / f"{number}.png")
        rows += [(f"{number}.png", caption(number)), (f"{3 - number}.png", "something")]
    (tmp_path / "c.tsv").write_text("".join(f"{name}\t{text}\n" for name, text in rows))
    assert caption_fields(tmp_path / "c.tsv") == ("1", "2")
    data = Captions(train="", valid=str(tmp_path / "c.tsv"), source="1", target="2", side=16)
    valid = list(data.lines("valid", tmp_path))
    assert [text.split(BETWEEN).count("something") for _, _, text in valid] == [1] * 4
    assert np.array_equal(valid[0][1].pixels((16, 16, 3)), PICTURES[0])


def test_a_table_beside_an_npz_needs_no_names_of_files(place: Path) -> None:
    assert caption_fields(place / "data.jsonl") == ("", "de")
    assert images_beside(place / "data.jsonl.gz") == place / "data.npz"


@pytest.mark.parametrize("language", ["english", "french"])
def test_scenes_are_the_same_each_time_and_other_ones_with_another_seed(language: Any) -> None:
    data = Scenes(scenes=5, side=16, language=language)
    (one, again, other) = (
        [(picture.tobytes(), text) for _, picture, text in each.lines("train", Path())]
        for each in (data, Scenes(scenes=5, side=16, language=language), Scenes(scenes=5, side=16, grammar_seed=1))
    )
    assert one == again != other
    assert data.fingerprint(Path()) != Scenes(scenes=5, side=16, grammar_seed=1).fingerprint(Path())
    with pytest.raises(ValueError, match="multiple of 8"):
        Scenes(side=20)


# --- the commands ---


@pytest.mark.parametrize("model", ["show_attend_tell", "captioner"])
def test_from_a_table_to_captions_scores_and_maps(place: Path, call: Call, model: str) -> None:
    said = call("new", "captioning", "data.jsonl", "--model", model, "--target", "en", "-o", "c.toml")
    assert said.code == 0, said.err
    recipe = read_recipe(place / "c.toml")[0]
    assert (recipe.data.target, recipe.data.source, recipe.train.metric) == ("en", "", "chrf")
    assert call("check", "c.toml").code == 0
    small = TINY if model == "show_attend_tell" else ("model.dim=8", "model.heads=2", "model.layers=1")
    for steps in (2, 4):  # interrupted, and resumed
        settings = [*BUDGET, f"train.steps={steps}"]
        assert call("train", "c.toml", *small, *settings, "-o", "half").code == 0
    assert call("train", "c.toml", *small, *BUDGET, "-o", "whole").code == 0
    assert (place / "half/model.safetensors").read_bytes() == (place / "whole/model.safetensors").read_bytes()
    captions = call("predict", "half", "data.npz", "--beam", 2)
    assert captions.code == 0 and len(captions.out.splitlines()) == len(PICTURES)
    as_json = [json.loads(line) for line in call("predict", "half", "data.npz", "--json").out.splitlines()]
    assert len(as_json) == len(PICTURES) and {"text", "score", "tokens"} <= as_json[0].keys()
    scored = call("score", "half", "data.jsonl", "--json")
    assert scored.code == 0 and {"chrf", "bleu", "cider", "exact_caption"} <= json.loads(scored.out).keys()
    german = call("train", "c.toml", *small, *BUDGET, "data.target=de", "-o", "german")
    assert german.code == 0 and "Ding" in german.out
    seen = call("look", "half", "data.npz:3", "--target", "a red thing")
    assert seen.code == 0 and all(word in seen.out for word in ("red", "thing", "attention"))
    facts = json.loads(call("look", "half", "data.npz:3", "--target", "a red thing", "--json").out)
    sums = np.array(facts["weights"]).sum(1)
    assert (sums < 1 + 1e-3).all() and (sums > 0.5).all()  # a class token may have the rest
    assert call("look", "half", "data.npz:3", "--target", "a red thing", "-o", "m.svg").code == 0
    assert call("look", "half", "data.npz:3", "--html", "m.html").code == 0
    assert "<svg" in (place / "m.svg").read_text() and "show" in (place / "m.html").read_text()


def test_a_caption_in_python(place: Path) -> None:
    pytest.importorskip("PIL.Image")
    pairs = [(picture, caption(number)) for number, picture in enumerate(PICTURES)]
    settings = {"model": {"width": 4, "stages": 2, "hidden": 7}, "train": {"steps": 2, "precision": "float32"}}
    with pytest.warns(UserWarning, match="too few to measure"):
        run = regard.train({"task": "captioning", **settings}, place / "run", data=pairs)
    assert run.predict([PICTURES[0]])[0].text == run.predict(PICTURES[0]).text
    assert run.score(pairs[:5])["chrf"] >= 0
    assert run.look(PICTURES[0], "a red thing").words == ("a", "red", "thing")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no"),
        ('{"other": 3}\n', "no field|not a JSON object"),
        ("not json\n", "no field|not a JSON object"),
        ('{"en": []}\n', "not a JSON object"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_in_a_sentence(place: Path, call: Call, text: str, said: str) -> None:
    (place / "data.jsonl").write_text(text)
    np.savez(place / "data.npz", images=PICTURES[: len(text.splitlines())])
    found = call("new", "captioning", "data.jsonl", "--target", "en", "-o", "c.toml")
    assert found.code == 1 and re.search(said, found.err) and not (place / "c.toml").exists()
    assert len(found.err.splitlines()) <= 2


@pytest.mark.parametrize("name", ["data.npz", "photos", "photo.png"])
def test_what_is_no_table_is_called_by_what_it_is(place: Path, call: Call, scenes: regard.Run, name: str) -> None:
    (place / "photos").mkdir()
    (place / "photo.png").write_bytes(b"\x89PNG\r\n")
    for refused in (call("new", "captioning", name, "-o", "c.toml"), call("score", scenes.name, name)):
        assert refused.code == 1 and f"{name} is a" in refused.err and "not a table: give one with" in refused.err


# --- the built-in scenes ---


def test_where_a_caption_points_is_measured(scenes: regard.Run) -> None:
    data = scenes.recipe.data
    assert isinstance(data, Scenes)
    examples = [data.example(scene) for scene in data.drawn("test")]
    known = gold(data, examples)
    assert known is not None and gold(Captions(train="data.jsonl", hold_out=0.3, target="en"), examples) is None
    assert 0 < known.baseline < 100 and 0 < known.metric.over(known.statistics(scenes, examples)) < 100
    everywhere = [np.ones((len(regions), 4, 4)) for regions in known.each]  # points by chance
    assert known.metric.of(everywhere, known.each) == pytest.approx(known.baseline)
    assert known.metric.of([regions.astype(float) for regions in known.each], known.each) == pytest.approx(100)


def test_weights_over_places_follow_the_grid_of_the_picture(scenes: regard.Run) -> None:
    picture = next(iter(scenes.recipe.data.lines("test", Path())))[1]
    assert scenes.look(picture, "a red circle").weights.shape == (3, 4, 4)
    assert grid_of((16, 32, 3), 8) == (2, 4)
    with pytest.raises(UserError, match="do not make a grid"):
        grid_of((16, 16, 3), 7)


def test_a_network_that_named_pictures_starts_one_that_describes_them(place: Path, call: Call) -> None:
    np.savez("labelled.npz", images=PICTURES, labels=[COLOURS[n % 3] for n in range(len(PICTURES))])
    for task, model, file in (
        ("pictures", "convnet", "labelled.npz"),
        ("captioning", "show_attend_tell", "data.jsonl"),
    ):
        assert call("new", task, file, "--model", model, "-o", f"{task}.toml").code == 0
    small = (*BUDGET, "model.width=4", "model.stages=2", "--threads", 1)
    assert call("train", "pictures.toml", "-o", "body", *small).code == 0
    refused = call("new", "captioning", "data.jsonl", "--from", "body", "-o", "c.toml")
    assert refused.code == 1 and "is not for captioning" in refused.err and "train.from=body" in refused.err
    done = call("train", "captioning.toml", "train.from=body", "-o", "run", *BUDGET, *TINY)
    assert done.code == 0 and "loaded: encoder" in done.out, done.err


@pytest.mark.parametrize("way", ["--gates", "--gradients"])
def test_what_is_shown_along_a_text_is_refused_for_pictures(scenes: regard.Run, call: Call, place: Path, way: str):
    picture = ["data.npz"] if way == "--gates" else []
    done = call("look", scenes.name, *picture, way)
    assert done.code == 1 and done.err.startswith("regard: show_attend_tell reads pictures, and "), done.err


def test_without_attention_there_is_nothing_to_look_at(scenes: regard.Run, tmp_path: Path) -> None:
    table = scenes.recipe.to_toml()
    (tmp_path / "none.toml").write_text(table.replace('attention = "soft"', 'attention = "none"'))
    run = regard.train(tmp_path / "none.toml", tmp_path / "none")
    with pytest.raises(UserError, match="does not attend"):
        run.look(PICTURES[0])
    assert run.predict([PICTURES[0]])


def test_a_report_shows_pictures_and_how_far_attention_points(scenes: regard.Run, call: Call, tmp_path: Path) -> None:
    table = scenes.recipe.to_toml()
    (tmp_path / "none.toml").write_text(table.replace('attention = "soft"', 'attention = "none"'))
    assert call("train", tmp_path / "none.toml", "-o", tmp_path / "none").code == 0
    said = call("compare", scenes.name, tmp_path / "none", "-o", tmp_path / "r.html")
    assert said.code == 0, said.err
    found = json.loads((tmp_path / "r.json").read_text())
    attends, none = found["models"]
    assert none["attention"] is None and 0 < attends["attention"]["mean"] < 100 and found["sized"] == "caption"
    assert f"the region's share of the picture: {found['gold']['baseline']['value']:.1f} %" in said.out
    for one in found["alignments"]:
        assert [model["name"] for model in one["models"]] == [attends["name"]] and one["picture"]
        assert f"data:image/png;base64,{one['picture']}" in (tmp_path / "r.html").read_text()
