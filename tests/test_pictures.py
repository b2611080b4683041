"""Laws of pictures: patches are a convolution, mates change nothing, and every command serves an .npz of pictures."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from command import Call

from regard import load
from regard.data.fields import Fields, LabelField
from regard.data.pictures import PictureField, read_pictures
from regard.interface import Label, Padded, Picture, Shapes, UserError
from regard.layers.attention import watch
from regard.look.weights import rollout
from regard.models import vit
from regard.tasks.pictures import patch_side

HEIGHT, WIDTH, PATCH = 12, 8, 4


def model(**settings: object) -> vit.Classifier:
    torch.manual_seed(1)
    config = vit.Config(patch=PATCH, dim=12, heads=3, feed_forward=17, layers=2, dropout=0.0, **settings)  # type: ignore[arg-type]
    return vit.build(config, Shapes(Picture(HEIGHT, WIDTH, 3), Label(5))).double().eval()


def pictures(count: int = 5) -> Padded:
    values = torch.randn(count, HEIGHT, WIDTH * 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    return Padded(values, torch.ones(count, HEIGHT, dtype=torch.bool))


def batch(source: Padded, label: int = 0):
    fields = Fields({"source": PictureField(HEIGHT, WIDTH, 3, 0.0, 1.0), "target": LabelField("abcde")})
    made = fields.batch({"target": [[label]] * len(source.values)})
    return type(made)(source, made.target)


def test_the_projection_of_patches_is_a_convolution_of_their_width_and_stride():
    encoder, source = model().encoder, pictures()
    seen: list[torch.Tensor] = []
    hook = encoder.embed.register_forward_hook(lambda part, given, made: seen.append(made))
    encoder(source)
    hook.remove()
    kernel = encoder.embed.weight.view(12, PATCH, PATCH, 3).permute(0, 3, 1, 2)  # (dim, channels, patch, patch)
    images = source.values.view(-1, HEIGHT, WIDTH, 3).permute(0, 3, 1, 2)
    wanted = torch.nn.functional.conv2d(images, kernel, encoder.embed.bias, stride=PATCH).flatten(2).transpose(1, 2)
    assert torch.allclose(seen[0], wanted)
    assert encoder.grid == (HEIGHT // PATCH, WIDTH // PATCH)


@pytest.mark.parametrize("pool", ["first", "mean"])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "sinusoidal-2d", "rotary", "alibi", "t5"])
def test_mates_and_watching_change_nothing(pool, positions):
    made, source = model(pool=pool, positions=positions), pictures()
    together = made.classify(batch(source))
    for row in range(5):
        alone = made.classify(batch(Padded(source.values[row : row + 1], source.mask[row : row + 1])))
        assert torch.allclose(alone[0], together[row])
    with watch(made):
        assert torch.equal(made.classify(batch(source)), together)
    assert torch.allclose(together.exp().sum(-1), torch.ones(5, dtype=torch.float64))


def test_a_rollout_is_the_product_of_the_layers_with_what_passes_them_by():
    made, read = model(), batch(pictures(2))
    with torch.no_grad(), watch(made) as seen:
        made.classify(read)
    mixed = torch.eye(7, dtype=torch.float64).expand(2, 7, 7)  # six patches after the class token
    for each in made.inspect().attentions:
        (weights,) = seen.of(each.part)
        here = 0.5 * weights.mean(1) + 0.5 * torch.eye(7, dtype=torch.float64)
        mixed = here @ mixed
    wanted = mixed[:, 0, 1:] / mixed[:, 0, 1:].sum(-1, keepdim=True)
    found = rollout(made, read)
    assert found is not None and torch.allclose(found, wanted)


def test_a_picture_that_cannot_be_cut_and_a_text_are_refused():
    with pytest.raises(UserError, match="cannot be cut into patches of 5 x 5"):
        vit.build(vit.Config(patch=5), Shapes(Picture(12, 8, 3), Label(5)))
    with pytest.raises(UserError, match="vit reads pictures"):
        vit.build(vit.Config(), Shapes(Label(3), Label(5)))


def test_a_field_takes_mean_and_spread_out_and_comes_back_from_its_file():
    random = np.random.default_rng(1)
    raws = [random.integers(0, 256, (HEIGHT, WIDTH, 1), np.uint8) for _ in range(40)]
    field = PictureField.train(raws)
    side = field.pad(field.encode(raws))
    assert side.values.shape == (40, HEIGHT, WIDTH) and bool(side.mask.all())
    assert float(side.values.mean()) == pytest.approx(0, abs=1e-5)
    assert float(side.values.std(correction=0)) == pytest.approx(1, abs=1e-5)
    again = PictureField.from_json(json.loads(json.dumps(field.to_json())))
    assert torch.equal(again.pad(again.encode(raws)).values, side.values)
    with pytest.raises(UserError, match="resize it first"):
        field.encode([raws[0][:-1]])


def write_npz(path: Path, count: int, seed: int, **more: object) -> Path:
    """Bright above or bright below, in noise."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, count)
    images = random.integers(0, 100, (count, 8, 8), np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[4 * label : 4 * label + 4] += 120
    np.savez(path, images=images, labels=labels, names=np.array(["above", "below"]), **more)
    return path


def test_every_command_serves_pictures(call: Call, place: Path) -> None:
    train, test = write_npz(place / "train.npz", 300, 1), write_npz(place / "test.npz", 60, 2)
    done = call("new", "pictures", train, "--valid", test, "-o", "p.toml")
    assert done.code == 0, done.err
    done = call("check", "p.toml")
    assert done.code == 0 and "300 pictures" in done.out and "above" in done.out, done.err
    settings = (
        "train.precision=float32",
        "train.smooth=0.0",
        "model.dim=12",
        "model.heads=2",
        "model.feed_forward=12",
        "model.layers=1",
        "train.learning_rate=0.02",
    )
    budget = ("train.epochs=0", "train.steps=90", "train.validate_every=45", "train.batch_tokens=400")
    done = call("train", "p.toml", *settings, *budget, "-o", "run", "--threads", 1)
    assert done.code == 0 and "accuracy" in done.out, done.err
    found = json.loads(call("score", "run", test, "--json").out)
    assert found["accuracy"] > 90 and found["count"] == 60
    lines = call("predict", "run", test).out.splitlines()
    assert len(lines) == 60 and lines[0].split("\t")[0] in ("above", "below")
    entry = json.loads(call("predict", "run", test, "--json").out.splitlines()[0])
    assert set(entry["probabilities"]) == {"above", "below"}
    seen = call("look", "run", f"{test}:2")
    assert seen.code == 0 and "attention rollout" in seen.out, seen.err
    shown = json.loads(call("look", "run", f"{test}:2", "--json").out)
    assert np.sum(shown["weights"]) == pytest.approx(1, abs=1e-3) and len(shown["source"]) == 64
    assert len(json.loads(call("look", "run", f"{test}:2", "--target", "below", "--json").out)["source"]) == 64
    assert call("look", "run", f"{test}:2", "-o", "map.svg").code == 0
    ElementTree.fromstring(Path("map.svg").read_text(encoding="utf-8"))
    assert call("look", "run", f"{test}:2", "--html", "map.html").code == 0
    assert "pictures" in call("runs", ".").out
    done = call("compare", "run", "--test", test, "-o", "r.html", "--threads", 1)
    assert done.code == 0 and "accuracy" in done.out, done.err
    answer = load("run").predict([next(read_pictures(test))[0]])[0]
    assert answer.text == lines[0].split("\t")[0]


def test_a_convolutional_network_is_trained_and_looked_into_like_the_others(call: Call, place: Path) -> None:
    train, test = write_npz(place / "train.npz", 90, 1), write_npz(place / "test.npz", 60, 2)
    done = call("new", "pictures", train, "--valid", test, "--model", "convnet", "-o", "c.toml")
    assert done.code == 0, done.err
    budget = ("train.epochs=0", "train.steps=12", "train.validate_every=6", "train.batch_tokens=400")
    done = call("train", "c.toml", "model.width=4", "model.stages=2", *budget, "-o", "run", "--threads", 1)
    assert done.code == 0 and "accuracy" in done.out, done.err
    for answer in ([], ["--target", "below"]):
        shown = json.loads(call("look", "run", f"{test}:2", *answer, "--json").out)
        assert len(shown["source"]) == 64 and np.sum(shown["weights"]) == pytest.approx(1, abs=1e-3)
        assert "saliency" in shown["kind"] and shown["target"] == [answer[1]] if answer else True


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"images": np.zeros((2, 8, 8), np.uint8)}, "not images and labels"),
        ({"images": np.zeros((2, 8, 8)), "labels": np.zeros(2, int)}, "float64"),
        ({"images": np.zeros((2, 8, 8), np.uint8), "labels": np.zeros(3, int)}, "3 labels"),
        ({"images": np.zeros((2, 8, 8, 7), np.uint8), "labels": np.zeros(2, int)}, "channels"),
        (
            {"images": np.zeros((1, 8, 8), np.uint8), "labels": np.array([4]), "names": np.array(["a"])},
            "cannot be read",
        ),
        ({"images": np.zeros((1, 8, 8), np.uint8), "labels": np.array([{}], object)}, "cannot be read"),
        ({"images": np.zeros((2, 8, 8), np.uint8), "labels": np.eye(2)}, r"labels have the shape \(2, 2\), not"),
        ({"images": np.zeros((1, 8, 8), np.uint8), "labels": np.array("a")}, r"labels have the shape \(\), not"),
        *(
            (
                {"images": np.zeros((1, 8, 8), np.uint8), "labels": np.array([label]), "names": np.array(["a", "b"])},
                said,
            )
            for said in ["whole numbers from 0 to 1, one for each"]
            for label in (-1, 2, 0.5, float("nan"), "a")
        ),
    ],
)
def test_a_file_that_holds_no_pictures_is_a_sentence(tmp_path, arrays, said):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(UserError, match=said):
        list(read_pictures(tmp_path / "x.npz"))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 broken", b"just text\n"])
def test_a_file_of_another_format_is_a_sentence(tmp_path, content):
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(UserError, match="cannot be read as pictures .*zip archive"):
        list(read_pictures(tmp_path / "x.npz"))
    with pytest.raises(UserError, match="does not exist"):
        list(read_pictures(tmp_path / "y.npz"))


@pytest.mark.parametrize(
    ("size", "side"),
    [
        ((28, 28), 4),
        ((32, 32), 4),
        ((8, 8), 1),
        ((224, 224), 16),
        ((12, 8), 1),
        ((30, 20), 2),
        ((5, 7), 1),
        ((3, 3), 1),
    ],
)
def test_patches_divide_the_picture_and_are_few(size, side):
    assert patch_side(*size) == side


def test_a_small_file_that_unpacks_to_much_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    """What an archive says of its size is believed only if it is small: numpy reads no more than that."""
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, images=np.zeros((1, 1000, 1000), np.uint8), labels=np.zeros(1, np.int64))
    content = bytearray(path.read_bytes())
    for sign, place in ((b"PK\1\2", 24), (b"PK\3\4", 22)):  # where the central directory and the entry say the size
        at = content.find(sign) + place
        content[at : at + 4] = (4_294_967_294).to_bytes(4, "little")
        at = content.rfind(sign) + place
        content[at : at + 4] = (4_294_967_294).to_bytes(4, "little")
    path.write_bytes(bytes(content))
    with pytest.raises(UserError, match="it unpacks to 8.6 GB"):
        list(read_pictures(path))
