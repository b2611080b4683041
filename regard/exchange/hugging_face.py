"""Hugging Face folders as runs, and runs as Hugging Face folders.

A folder has config.json, weights (safetensors, perhaps in several files, or .bin) and the files of a tokenizer. Weights
are read one at a time, where they lie, and written in our names and order (architectures.py); no model is built, and
nothing in a folder is executed: a .bin is read by PyTorch's weights-only loader.
"""

from __future__ import annotations

import json
import os
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from regard import machine
from regard.checkpoint import Folder
from regard.config import choose, shown, to_toml, values_of
from regard.data.fields import Field, Fields, LabelField, TextField
from regard.data.files import open_regular, read_limited, reason, refuse_to_overwrite, whole_folder, write_atomically
from regard.data.imported_tokens import Imported
from regard.data.pictures import PictureField
from regard.data.tensors import read_tensors, write_safetensors, write_tensors
from regard.data.tokens import Tokenizer
from regard.exchange.architectures import (
    DISCRIMINATOR,
    EMBEDDED,
    FAMILIES,
    LABELS,
    NO_BIAS,
    PREFIXES,
    SEGMENTS,
    Family,
    Names,
    Vocabulary,
)
from regard.exchange.own_tokenizers import write_own
from regard.exchange.tokenizer_files import read_tokenizers
from regard.interface import BOS, EOS, PAD, UserError
from regard.layers.fast.without_values import without_values
from regard.layers.lora import merged
from regard.loading import open_run
from regard.models import design_of
from regard.recipe import Recipe, parse_recipe
from regard.tasks.registry import TASKS
from regard.train.weights import Weights, misfit, weights

CONFIG = "config.json"
MOST = 16 << 20  # bytes of a config or an index
AT_ONCE = 32 << 20  # bytes that are read before a file is mapped again
MOST_SHARED = 3  # times the size of a file that its tensors may have together, some of which are the same
BIN, SAFE = "pytorch_model.bin", "model.safetensors"
SHARD = re.compile(r"[\w.-]+\.(safetensors|bin)")
NUMBERS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
RESTORE = "restore the folder's own file"
OLD_NAMES = ((".gamma", ".weight"), (".beta", ".bias"))  # of norms, in files from before 2020
STANDARDISED = {"mean": "image_mean", "spread": "image_std"}  # of pixels from 0 to 1
ONLY_IN_TRAINING = ("generator.", "follows.")  # parts of ours that serve pre-training alone
LEFT_OUT = re.compile(  # buffers, and other names of weights that are shared
    r"position_ids$|attn\.(masked_)?bias$|embed_tokens\.|decoder\.(weight|bias)$|embed_positions\."
    r"|(^lm_head|generator_lm_head|vocab_projector)\.weight$"
)


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_limited(path, most=MOST))
        if not isinstance(content, dict):
            raise ValueError("it is not an object")
        return content
    except (OSError, ValueError, RecursionError) as problem:
        raise UserError(f"{path} cannot be read ({reason(problem)}): {RESTORE}.") from None


class TheirWeights:
    """The tensors of a folder by name, each read when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.places: dict[str, Mapping[str, Tensor]] = {}
        for file in self._files():
            tensors = _read_bin(file) if file.suffix == ".bin" else Mapped(file)
            self.places |= dict.fromkeys(tensors, tensors)
        self.known = {_modern(name): name for name in self.places}
        self.used: set[str] = set()

    def _files(self) -> list[Path]:
        for name in (SAFE, BIN):
            if (self.folder / f"{name}.index.json").is_file():
                index = read_json(self.folder / f"{name}.index.json").get("weight_map")
                shards = list(index.values()) if isinstance(index, dict) else []
                if not shards or not all(isinstance(each, str) and SHARD.fullmatch(each) for each in shards):
                    wrong = "does not list files of weights in the same folder"
                    raise UserError(f"{self.folder / name}.index.json {wrong}: {RESTORE}.")
                return [self.folder / shard for shard in sorted(set(shards))]
            if (self.folder / name).is_file():
                return [self.folder / name]
        raise UserError(f"{self.folder} has no weights: put {SAFE} or {BIN} there.")

    def find(self, name: str, prefix: str) -> str | None:
        """The name in the folder; the part before the body's own names may be missing."""
        for each in (name, name.removeprefix(prefix)):
            if each in self.known:
                return self.known[each]
        return None

    def get(self, name: str) -> Tensor:
        self.used.add(name)
        tensor = self.places[name][name]
        if tensor.dtype not in NUMBERS:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise UserError(f"{self.folder} has {name} as {kind}: import a folder that is not quantised.")
        return tensor.to(torch.float32)


class Mapped(Mapping[str, Tensor]):
    """The tensors of a safetensors file, each read where it lies. The file is mapped again now and then, so that what
    was read does not stay in memory."""

    def __init__(self, file: Path) -> None:
        self.file, self.read = file, 0
        self.names: dict[str, None] = dict.fromkeys(self._open().keys())

    def _open(self) -> Any:
        try:
            open_regular(self.file).close()
            self.opened = safetensors.safe_open(str(self.file), framework="pt", device="cpu")
            return self.opened
        except (OSError, safetensors.SafetensorError) as problem:
            wrong = f"cannot be read as weights ({reason(problem)})"
            raise UserError(f"{self.file} {wrong}: copy or download it again.") from None

    def __getitem__(self, name: str) -> Tensor:
        if self.read > AT_ONCE:
            self.read = 0
            self._open()
        try:
            tensor: Tensor = self.opened.get_tensor(name)  # type: ignore[no-untyped-call]
        except (OSError, RuntimeError, safetensors.SafetensorError) as problem:
            wrong = f"is damaged: {name} cannot be read ({reason(problem)})"
            raise UserError(f"{self.file} {wrong}: copy or download it again.") from None
        self.read += tensor.nbytes
        return tensor

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def _read_bin(file: Path) -> dict[str, Tensor]:
    """Read a .bin without executing what is in it: anything but tensors is refused."""
    try:
        with open_regular(file) as opened:
            size, mapped = os.fstat(opened.fileno()).st_size, zipfile.is_zipfile(opened)  # older files are no archives
            if mapped and any(each.compress_type != zipfile.ZIP_STORED for each in zipfile.ZipFile(opened).filelist):
                raise ValueError("it is compressed")
        with warnings.catch_warnings(action="ignore"):
            found = torch.load(file, map_location="cpu", weights_only=True, mmap=mapped)
        if not isinstance(found, dict) or not all(map(_is_plain, found.values())):
            raise ValueError("it does not hold tensors by name")
        if sum(tensor.numel() * tensor.element_size() for tensor in found.values()) > MOST_SHARED * size:
            raise ValueError("its tensors are larger than the file")
    except Exception as problem:  # whatever is wrong in a file of somebody else: torch has no one exception for it
        known = type(problem) is ValueError or isinstance(problem, OSError)
        wrong = reason(problem) if known else "it is damaged, or holds code and not only tensors"
        raise UserError(f"{file} cannot be read as weights ({wrong}): use {SAFE}, or download it again.") from None
    return {str(name): tensor for name, tensor in found.items()}


def _is_plain(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout == torch.strided and value.device.type == "cpu"


def _modern(name: str) -> str:
    for old, new in OLD_NAMES:
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


class Ours(Mapping[str, Tensor]):
    """Our weights, each made of theirs when it is asked for."""

    def __init__(self, theirs: TheirWeights, names: Names, prefix: str, expected: Weights, words: Vocabulary | None):
        self.theirs, self.names, self.words, self.expected = theirs, names, words, expected
        self.found: dict[str, str] = {}
        for name in expected:
            place = theirs.find(names[name].theirs, prefix) if name in names else None
            if place is None:
                lacking = names[name].theirs if name in names else name
                raise UserError(f"{theirs.folder} lacks the weights {lacking}: {RESTORE}.")
            self.found[name] = place

    def __getitem__(self, name: str) -> Tensor:
        theirs, form = self.theirs.get(self.found[name]), self.names[name].form
        try:
            ours = form.inward(theirs, self.words).contiguous()
            odd = misfit({name: self.expected[name]}, {name: ours})
        except (IndexError, RuntimeError) as problem:
            odd = f"{name} is made of {tuple(theirs.shape)} ({reason(problem)[:80]})"
        if odd:
            raise UserError(f"The weights in {self.theirs.folder} do not fit its {CONFIG}: {odd}; {RESTORE}.")
        return ours

    def __iter__(self) -> Iterator[str]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)


def family_of(config: Mapping[str, Any], folder: Path) -> tuple[Family, str, str]:
    """The family, the architecture and our task of a folder."""
    family = choose(FAMILIES, config.get("model_type"), f"In {folder}, model_type =")
    named = config.get("architectures")
    architecture = str(named[0]) if isinstance(named, list) and named else ""
    tasks = {prefix_of(config["model_type"]) + end: task for end, task in family.heads.items()}
    task = choose(tasks, architecture, f"In {folder / CONFIG}, the architecture")
    for key, value in family.fixed.items():
        if config.get(key, value) not in (value, None):
            raise UserError(f"{folder} has {key} = {shown(config[key])}: only {value!r} can be imported.")
    return family, architecture, task


def prefix_of(kind: str) -> str:
    """What the names of their architectures begin with."""
    return PREFIXES.get(kind, kind.capitalize())


def settings_of(family: Family, architecture: str, config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Our [model] section."""
    try:
        settings = {ours: config[theirs] for ours, theirs in family.settings.items() if theirs in config}
        settings |= family.also(config)
        if "dropout" in settings:
            settings["dropout"] = float(settings["dropout"])
    except KeyError as problem:
        raise UserError(f"{folder / CONFIG} has no {problem}: {RESTORE}.") from None
    except UserError as problem:
        raise UserError(f"{folder} cannot be imported: {problem}") from None
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{folder / CONFIG} has something else where a number belongs: {RESTORE}.") from None
    if "ForMaskedLM" in family.heads:
        head = "words" if architecture.endswith(("ForMaskedLM", "ForPreTraining")) else "none"
        settings["head"] = "replaced" if architecture == DISCRIMINATOR else head
    return settings


def fields_of(kinds: Mapping[str, Any], config: Mapping[str, Any], folder: Path) -> tuple[Fields, Vocabulary | None]:
    """The fields of a folder, for the sides that our task has; and the order of its rows of tokens."""
    texts = read_tokenizers(folder) if any(issubclass(kind, TextField) for kind in kinds.values()) else {}
    sides: dict[str, Field] = {}
    for side, kind in kinds.items():
        if issubclass(kind, TextField):
            sides[side] = kind(texts[side], begins=side == "target")
        elif kind is PictureField:
            sides[side] = picture_field(config, folder)
        else:
            sides[side] = label_field(config, folder)
    rows = next((Vocabulary(each.theirs, each.predicted) for each in texts.values()), None)
    return Fields(sides), rows


def label_field(config: Mapping[str, Any], folder: Path) -> LabelField:
    names = config.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"})  # two labels without names are not listed
    try:
        field = LabelField.from_json({"names": [str(names[key]) for key in sorted(names, key=int)]})
        if config.get("problem_type") not in (None, "single_label_classification") or len(field.names) < 2:
            raise ValueError
        return field
    except (TypeError, ValueError, LookupError, UserError):
        wrong = "does not give one label out of several"
        raise UserError(f"{folder} {wrong}: only such classifiers can be imported.") from None


def picture_field(config: Mapping[str, Any], folder: Path) -> PictureField:
    how = read_json(folder / "preprocessor_config.json") if (folder / "preprocessor_config.json").is_file() else {}
    size = config.get("image_size", 224)
    height, width = size if isinstance(size, list) and len(size) == 2 else (size, size)
    try:
        if not how.get("do_rescale", True) or not how.get("do_normalize", True):
            raise ValueError("it gives pixels another scale")
        channels = config.get("num_channels", 3)
        each = {ours: how.get(theirs, [0.5]) for ours, theirs in STANDARDISED.items()}
        about = {
            key: [255.0 * number for number in (some * channels if len(some) == 1 else some)]
            for key, some in each.items()
        }
        return PictureField.from_json({"size": [height, width, channels], **about})
    except (ValueError, TypeError):
        wrong = "does not standardise the colours of a picture, or has no valid size of pictures"
        raise UserError(f"{folder} {wrong}: it cannot be imported.") from None


def import_folder(folder: Path, out: Path) -> tuple[list[str], str]:
    """Create a run from a Hugging Face folder; return remarks on what was left out, and what follows `predict RUN`."""
    refuse_to_overwrite(out)
    if Folder(folder).is_run():
        raise UserError(f"{folder} is a run already: use it as it is.")
    if not (folder / CONFIG).exists():
        raise UserError(f"{folder} is not a Hugging Face folder (it has no {CONFIG}): give the folder of a model.")
    config = read_json(folder / CONFIG)
    family, architecture, task_name = family_of(config, folder)
    task = TASKS[task_name]
    fields, words = fields_of(task.fields, config, folder)
    settings = settings_of(family, architecture, config, folder)
    if settings.get("head") == "words" and task.specials and not has_mask(fields):
        raise UserError(f"{folder} predicts hidden words, but its tokenizer has no mask token: {RESTORE}.")
    table: dict[str, Any] = {
        "task": task.name,
        "data": {"name": "imported", "origin": str(folder.resolve())},
        "model": {"name": family.model, **settings},
        "train": {"steps": 1},
    }
    try:
        recipe = parse_recipe(table, tasks=TASKS, folder=folder.resolve().parent)
        expected = weights_of(recipe, fields)
    except (UserError, RuntimeError, OverflowError, TypeError) as problem:
        wrong = reason(problem).removesuffix(".")
        raise UserError(f"{folder / CONFIG} describes no model that can be built ({wrong}): {RESTORE}.") from None
    with whole_folder(out) as beside:
        target = Folder(beside)
        theirs = TheirWeights(folder)
        ours = Ours(theirs, family.names(config, architecture), family.prefix, expected, words)
        facts = {**machine.facts(), "files": {"origin": str(folder)}, "data": "", "precision": "float32"}
        target.write_facts(facts)
        write_atomically(target.fields, fields.to_json(), own=True)
        write_tensors(target.best, ours, {"step": 1})
        write_atomically(target.config, recipe.to_toml(placed=True), own=True)
    unused = [name for name in theirs.places if name not in theirs.used and not LEFT_OUT.search(name)]
    parts = sorted({name.rpartition(".")[0] or name for name in unused})
    several = f"{', '.join(parts[:4])}{' …' if parts[4:] else ''}"
    remarks = [f"Left out, since the model here has no such part: {several}."] if parts else []
    if values_of(recipe.model).get("head") in ("none", "replaced") and task.decoding is not None:
        remarks.append(
            "It has no head for words, so it gives vectors (predict --vectors), and can be trained from (train.from)."
        )
        return remarks, " --vectors"
    return remarks, task.words.try_with


def has_mask(fields: Fields) -> bool:
    tokenizer = fields.tokenizer()
    return isinstance(tokenizer, Imported) and tokenizer.mask is not None


def weights_of(recipe: Recipe, fields: Fields) -> Weights:
    """The weights of the model, without memory."""
    with without_values():
        return weights(design_of(recipe.model_name).build(recipe.model, fields.shapes))


# --- the way out -------------------------------------------------------------------------------------------------


def export_folder(run: Path, output: Path | None = None, *, trust_code: bool = False) -> Path:
    """Write a run as a Hugging Face folder, from which `transformers` loads a model with the same outputs; by default
    inside the run. Return the folder."""
    folder = output or run / "hf"
    refuse_to_overwrite(folder)
    opened, recipe, fields = open_run(run, trust_code=trust_code)
    if recipe.train.tune == "prompt":
        raise UserError(
            f"{run} has learnt vectors before its input, and a Hugging Face folder cannot hold them: train another way."
        )
    kind, family = fitting_family(recipe, run)
    texts = {side: field.tokenizer for side in fields if isinstance(field := fields[side], TextField)}
    if len(texts) > 1 and not fields.joint:
        raise UserError(f"{run} has a vocabulary for each side, and {kind} has one: train with tokens.joint = true.")
    words, special = rows_and_specials(texts, family)
    architecture, settings = architecture_of(kind, family, recipe), values_of(recipe.model)
    config = {
        "model_type": kind,
        "architectures": [architecture],
        "dtype": "float32",
        **family.fixed,
        **{theirs: settings[ours] for ours, theirs in family.settings.items()},
        **special,
        **family.back(recipe.model, special),
    }
    if names := fields.names():
        config["id2label"] = {str(number): name for number, name in enumerate(names)}
        config["label2id"] = {name: number for number, name in enumerate(names)}
    if isinstance(picture := fields.get("source"), PictureField):
        height, width, channels = picture.size
        config |= {"image_size": height if height == width else [height, width], "num_channels": channels}
    pairs, own = family.names(config, architecture), own_weights(opened, weights_of(recipe, fields))
    if SEGMENTS in pairs and SEGMENTS not in own:  # theirs have at least one kind of sentence
        own = {**own, SEGMENTS: torch.zeros(1, own[EMBEDDED].shape[1])}
    different = [name for name in sorted(own.keys() ^ pairs.keys()) if not name.startswith(ONLY_IN_TRAINING)]
    if odd := [name for name in different if "head." not in name or name in own]:
        differ = f"{run} and {architecture} differ in {odd[0]}"
        raise UserError(f"{differ}: train with the model.embedding of a preset to export it.")
    with whole_folder(folder) as beside:
        if isinstance(picture, PictureField):
            write_preprocessor(picture, beside)
        for tokenizer in list(texts.values())[:1]:
            if isinstance(tokenizer, Imported):
                other = list(texts.values())[-1]
                tokenizer.write(beside, other if isinstance(other, Imported) else None)
            else:
                write_own(tokenizer, beside, template=family.reads)
        write_safetensors(beside / SAFE, Theirs(pairs, own, words), {"format": "pt"})
        write_atomically(beside / CONFIG, json.dumps(config, indent=2) + "\n")
    return folder


def own_weights(folder: Folder, expected: Weights) -> Mapping[str, Tensor]:
    """The weights of a run, LoRA's changes added; where there are none, each read when it is used, after a check."""
    read, _ = read_tensors(folder.best)
    saved = merged(read)
    if odd := misfit(expected, saved):
        raise UserError(f"The weights in {folder.best} do not fit the model: {odd}; restore the run's own files.")
    return Mapped(folder.best) if saved.keys() == read.keys() else saved


class Theirs(Mapping[str, Tensor]):
    """Their weights, each made of ours when it is asked for; they keep GPT-2's query, key and value in one."""

    def __init__(self, names: Names, ours: Mapping[str, Tensor], words: Vocabulary | None) -> None:
        self.names, self.ours, self.words = names, ours, words
        self.parts: dict[str, list[str]] = {}
        for name, (theirs, form) in names.items():
            if name in ours and form is not NO_BIAS:
                self.parts.setdefault(theirs, []).append(name)

    def __getitem__(self, theirs: str) -> Tensor:
        parts = [self.names[name].form.outward(self.ours[name], self.words) for name in self.parts[theirs]]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)


def fitting_family(recipe: Recipe, run: Path) -> tuple[str, Family]:
    """The family whose folder can hold this model."""
    of_model = {kind: family for kind, family in FAMILIES.items() if family.model == recipe.model_name}
    if not of_model:
        known = ", ".join(dict.fromkeys(family.model for family in FAMILIES.values()))
        wrong = f"{run} is a run of {recipe.model_title}, which Hugging Face's library does not have"
        raise UserError(f"{wrong}: train one of {known} to export it.")
    settings = values_of(recipe.model)
    odd: dict[str, list[tuple[str, Any]]] = {}
    for kind, family in of_model.items():
        needs = dict(family.needs)
        if family.pooler and family.heads[LABELS] == recipe.task.name:
            needs["pooler"] = family.pooler
        odd[kind] = [(key, value) for key, value in needs.items() if settings.get(key, value) != value]
    fits = [kind for kind, differences in odd.items() if not differences]
    if fits:
        return fits[-1], of_model[fits[-1]]  # distilbert is a bert, too
    kind, ((key, value), *_) = next(iter(odd.items()))
    preset = f', as in model.preset = "{of_model[kind].preset}",' if of_model[kind].preset else ""
    wrong = f"{run} has model.{key} = {to_toml(settings[key])}, which {kind} does not have"
    raise UserError(f"{wrong}: train with model.{key} = {to_toml(value)}{preset} to export it.")


def architecture_of(kind: str, family: Family, recipe: Recipe) -> str:
    ends = [end for end, task in family.heads.items() if task == recipe.task.name]
    head = values_of(recipe.model).get("head")
    end = {"none": "Model", "replaced": "ForPreTraining"}.get(str(head), "") if "Model" in ends else ""
    if not ends:
        known = ", ".join(dict.fromkeys(family.heads.values()))
        raise UserError(f"A {kind} for {recipe.task.name} cannot be exported: train one for {known} to export it.")
    return f"{prefix_of(kind)}{end or ends[0]}"


def rows_and_specials(texts: Mapping[str, Tokenizer], family: Family) -> tuple[Vocabulary | None, dict[str, Any]]:
    """Which row each of our ids has in the folder, and the keys of its config for its special tokens."""
    if not texts:
        return None, {}
    tokenizer = next(iter(texts.values()))
    if isinstance(tokenizer, Imported):
        words = Vocabulary(tokenizer.theirs, tokenizer.predicted)
        rows = tokenizer.rows
    else:
        words = Vocabulary(range(tokenizer.size), [True] * tokenizer.size)
        rows = tokenizer.size
    places = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
    special: dict[str, Any] = {key: words.rows[own] for key, own in places.items() if words.rows[own] >= 0}
    if len(texts) > 1:
        special["decoder_start_token_id"] = words.rows[BOS if family.leads is None else family.leads]
        if family.leads is not None:
            special["forced_bos_token_id"] = words.rows[BOS]
    return words, {"vocab_size": rows, **special}


def write_preprocessor(picture: PictureField, folder: Path) -> None:
    height, width, _ = picture.size
    how = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": height, "width": width},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": (picture.mean / 255).tolist(),
        "image_std": (picture.spread / 255).tolist(),
    }
    write_atomically(folder / "preprocessor_config.json", json.dumps(how, indent=2) + "\n")
