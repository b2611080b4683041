"""Recordings: spoken digits, strings of them, speakers who were never heard, spelled names.

REGARD_DATA=… python bench/speech.py digits|strings|speaker|names|hour [--seeds 3] [--jobs 2] [--only NAME …] [-o F]

digits    fsdd, the official test set (recordings 0 to 4 of each speaker and digit): labels by `regard new sounds`,
          transcripts by `regard new speech`. 3 minutes of training each.
strings   strings of 3 to 7 recordings of fsdd by one speaker, joined with pauses of 0.05 to 0.3 s; four speakers are
          for training, two for the test.
speaker   fsdd, all recordings of one speaker as the test set, five speakers for training: each speaker once.
names     AN4: 948 utterances for training, of which those of every tenth speaker choose the checkpoint; 130 for the
          test. ctc reads them 100 times, las 60 times. Then the same models with an n-gram language model of the
          training transcripts, whose weight, and the reward of a token, are chosen on the validation utterances.
hour      one recording of an hour by the built-in synthesiser, transcribed by the model of `regard demo speech`: word
          error rate, when each word is found, and memory beside that for two minutes.
A test set is read once a run. Intervals are of a bootstrap over test recordings and seeds. Training resumes and answers
are kept: the same command goes on. --jobs trains that many models side by side, one thread each: half the computing.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import tarfile
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import count, product
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from pictures import REGARD, compare
from pretraining import keep_answers, shown, workers

import regard
from regard.data.recordings import wav_of
from regard.data.world.speech import utterances
from regard.predict.decoding import Decoding
from regard.score.bootstrap import resample
from regard.score.error_rates import CER, CLOSE, WER, align
from regard.score.metrics import ACCURACY
from regard.score.recognition import transcript_scores

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
TEST_SPEAKERS = ("theo", "yweweler")  # of strings
OFFICIAL = range(5)  # the numbers of the recordings in the official test set
STRINGS = {"train": 4000, "valid": 300, "test": 500}
PAUSE = (0.05, 0.3)  # seconds
SYNTHESISED = 8000  # samples per second of the built-in synthesiser
WEIGHTS, REWARDS = (0.2, 0.4, 0.7, 1.0), (0.0, 0.5, 1.0)  # of the language model, and of a token

Table = Iterable[tuple[str, str]]


def data() -> Path:
    return Path(os.environ["REGARD_DATA"])


def unpacked(archive: str, folder: Path) -> Path:
    if not folder.exists():
        folder.mkdir(parents=True)
        with tarfile.open(data() / archive) as tar:
            tar.extractall(folder, filter="data")
    return folder


def write_table(path: Path, rows: Table) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(("file", "text"))
        writer.writerows(rows)
    return path


def digits(folder: Path) -> list[tuple[Path, str, str, int]]:
    """Every recording of fsdd: its file, digit, speaker and number."""
    files = sorted(unpacked("fsdd/recordings.tar.gz", folder / "fsdd").rglob("*.wav"))
    parts = [(file, *file.stem.split("_")) for file in files]
    return [(file, DIGITS[int(digit)], speaker, int(number)) for file, digit, speaker, number in parts]


def of_digits(given: argparse.Namespace) -> None:
    folder = given.out.resolve() / "digits"
    every = digits(given.out)
    tables = {
        name: write_table(
            folder / f"{name}.tsv", ((str(file), word) for file, word, _, number in every if keep(number))
        )
        for name, keep in {
            "train": lambda number: number not in OFFICIAL and number % 10,
            "valid": lambda number: number not in OFFICIAL and number % 10 == 0,
            "test": lambda number: number in OFFICIAL,
        }.items()
    }
    both = (str(tables["train"]), "--valid", str(tables["valid"]))
    budget = ("train.minutes=3", "train.epochs=0", "train.patience=0")
    compare(given, {"birnn, labels": ("sounds", *both, "--model", "birnn", *budget)}, tables["test"], ACCURACY)
    compare(given, {"ctc, transcripts": ("speech", *both, "--model", "ctc", *budget)}, tables["test"], WER)


def of_strings(given: argparse.Namespace) -> None:
    folder = given.out.resolve() / "strings"
    every = digits(given.out)
    tables = {split: folder / f"{split}.tsv" for split in STRINGS}
    if not tables["test"].exists():
        folder.mkdir(parents=True, exist_ok=True)
        for place, (split, count) in enumerate(STRINGS.items()):
            random = np.random.default_rng(place)
            speakers = [name for name in SPEAKERS if (name in TEST_SPEAKERS) == (split == "test")]
            part = {name: [each for each in every if each[2] == name and fits(each[3], split)] for name in speakers}
            rows = [
                joined(folder, f"{split}{number}", part[random.choice(speakers)], random) for number in range(count)
            ]
            write_table(tables[split], rows)
    both, budget = (str(tables["train"]), "--valid", str(tables["valid"])), ("train.minutes=5", "train.epochs=0")
    rows = {model: ("speech", *both, "--model", model, *budget) for model in ("ctc", "las")}
    compare(given, rows, tables["test"], WER)


def fits(number: int, split: str) -> bool:
    """Validation strings are of other recordings than training ones."""
    return split == "test" or (number % 10 == 0) == (split == "valid")


def joined(folder: Path, name: str, part: Sequence[Any], random: Any) -> tuple[str, str]:
    """Write a string of digits by one speaker."""
    chosen = [part[place] for place in random.integers(len(part), size=random.integers(3, 8))]
    pieces = []
    for file, *_ in chosen:
        samples, rate = soundfile.read(file, dtype="float32")
        pieces += [samples, np.zeros(int(rate * random.uniform(*PAUSE)), np.float32)]
    place = folder / f"{name}.wav"
    place.write_bytes(wav_of(np.concatenate(pieces), rate))
    return str(place), " ".join(word for _, word, *_ in chosen)


def of_speakers(given: argparse.Namespace) -> None:
    every = digits(given.out)
    for who in SPEAKERS:
        folder = given.out.resolve() / "speaker" / who
        tables = {
            name: write_table(folder / f"{name}.tsv", ((str(file), word) for file, word, *rest in every if keep(*rest)))
            for name, keep in {
                "train": lambda speaker, number, who=who: speaker != who and number % 10,
                "valid": lambda speaker, number, who=who: speaker != who and number % 10 == 0,
                "test": lambda speaker, number, who=who: speaker == who,
            }.items()
        }
        both, budget = (str(tables["train"]), "--valid", str(tables["valid"])), ("train.minutes=1", "train.epochs=0")
        compare(given, {f"birnn, {who}": ("sounds", *both, "--model", "birnn", *budget)}, tables["test"], ACCURACY)


# --- AN4 ---


def names_tables(given: argparse.Namespace) -> dict[str, Path]:
    folder = given.out.resolve() / "names"
    tables = {name: folder / f"{name}.tsv" for name in ("train", "valid", "test")}
    if not tables["test"].exists():
        rows = {}
        for split in ("train", "test"):
            place = unpacked(f"an4/{split}.tar.gz", given.out / "an4" / split).resolve()
            with (place / f"{split}.tsv").open() as file:
                rows[split] = [
                    (str(place / each["file"]), each["text"]) for each in csv.DictReader(file, delimiter="\t")
                ]
        speakers = sorted({speaker_of(file) for file, _ in rows["train"]})
        chosen = {*speakers[::10]}
        write_table(tables["train"], (row for row in rows["train"] if speaker_of(row[0]) not in chosen))
        write_table(tables["valid"], (row for row in rows["train"] if speaker_of(row[0]) in chosen))
        write_table(tables["test"], rows["test"])
        with tables["train"].open() as file:
            texts = [each["text"] for each in csv.DictReader(file, delimiter="\t")]
        (folder / "train.txt").write_text("".join(text + "\n" for text in texts))
    return tables


def speaker_of(file: str) -> str:
    return Path(file).stem.split("-")[1]


def language_model(folder: Path) -> Path:
    """An n-gram model of the training transcripts, of the tokens that the models write."""
    place, recipe = folder / "lm-characters", folder / "lm-characters.toml"
    if not (place / "model.safetensors").exists():
        text = str(folder / "train.txt")
        new = ["new", "language", text, "--tokens", "characters", "--model", "ngram", "-o", str(recipe)]
        subprocess.run([*REGARD, *new], check=True, stdout=subprocess.DEVNULL)
        settings = ["model.order=7", "tokens.at_least=1", "-o", str(place)]
        subprocess.run([*REGARD, "train", str(recipe), *settings], check=True, stdout=subprocess.DEVNULL)
    return place


def with_language_model(folder: Path, place: Path, tables: Mapping[str, Path]) -> dict[str, Any]:
    """What a run answers beside a language model; its weight is chosen on validation utterances."""
    kept = place.with_suffix(".lm.json")
    if not kept.exists():
        run = regard.load(place, lm=language_model(folder))
        valid = list(run.examples(tables["valid"]))
        recordings, texts = zip(*valid, strict=True)

        def errors(how: Decoding) -> float:
            return WER.of([answer.text for answer in run.predict(recordings, how)], texts)

        ways = [
            Decoding(beam=8, lm_weight=weight, length_reward=reward) for weight, reward in product(WEIGHTS, REWARDS)
        ]
        best = min(ways, key=errors)
        keep_answers(run, run.examples(tables["test"]), kept, best)
        found = json.loads(kept.read_text()) | {"lm_weight": best.lm_weight, "length_reward": best.length_reward}
        kept.write_text(json.dumps(found) + "\n")
    answered: dict[str, Any] = json.loads(kept.read_text())
    return answered


def of_names(given: argparse.Namespace) -> None:
    folder, tables = given.out / "names", names_tables(given)
    both = (str(tables["train"]), "--valid", str(tables["valid"]), "--tokens", "characters")
    kinds: dict[str, tuple[str, ...]] = {
        "ctc": ("train.epochs=100",),
        "las": ("train.epochs=60",),
        "las, attention alone": ("train.epochs=60", "model.ctc=0"),
    }
    rows = {
        name: ("speech", *both, "--model", name.partition(",")[0], "train.patience=0", *settings)
        for name, settings in kinds.items()
    }
    compare(given, rows, tables["test"], WER)
    for name in rows:
        if given.only and name not in given.only:
            continue
        places = [folder / f"{name.replace(', ', '-')}-{seed}" for seed in range(1, given.seeds + 1)]
        language_model(folder)  # before several workers ask for it
        with workers(given.jobs) as pool:
            waits = [pool.submit(with_language_model, folder, place, tables) for place in places]
            every = [wait.result() for wait in waits]
        alone = [json.loads(place.with_suffix(".json").read_text()) for place in places]
        for title, several in (("", alone), (" with the language model", every)):
            for metric in (WER, CER):
                found = {"": [metric.statistics(run["answers"], run["gold"]) for run in several]}
                print(f"{name + title:45} {metric.name} {shown(resample(found, metric)[''])}")
        weights = ", ".join(f"{run['lm_weight']} and {run['length_reward']}" for run in every)
        print(f"  weights and rewards: {weights}")
        print("\n".join(transcript_scores(every[0]["gold"], every[0]["answers"]).lines))


# --- an hour ---


def said_in(seconds: float, place: Path) -> list[tuple[str, float, float]]:
    """Write utterances one after another, with silences between them, and return each word with its start and end."""
    random, words, time = np.random.default_rng(1), [], 0.0
    with soundfile.SoundFile(place, "w", SYNTHESISED, 1) as file:
        for each in utterances("test"):
            if time >= seconds:
                return words
            silence = np.zeros(int(SYNTHESISED * random.uniform(0.5, 1.5)), np.float32)
            for samples in (each.samples(SYNTHESISED), silence):
                file.write(samples)
            words += [
                (word, time + start, time + end) for word, (start, end) in zip(each.words, each.spans, strict=True)
            ]
            time += (round(each.seconds * SYNTHESISED) + len(silence)) / SYNTHESISED
    raise AssertionError("utterances have no end")


def transcribed(run: Path, file: Path) -> tuple[dict[str, Any], float, float]:
    """Transcribe in a process of its own: the answer, seconds, and peak memory in MB."""
    began = time.perf_counter()
    with subprocess.Popen([*REGARD, "predict", str(run), str(file), "--json"], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        answer = json.loads(child.stdout.read())
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    return answer, time.perf_counter() - began, used.ru_maxrss / 1024


def of_hour(given: argparse.Namespace) -> None:
    folder = given.out / "hour"
    folder.mkdir(parents=True, exist_ok=True)
    run = folder / "run"
    if not (run / "model.safetensors").exists():
        recipe = Path(regard.__file__).parent / "recipes" / "demo-speech.toml"
        subprocess.run([*REGARD, "train", str(recipe), "-o", str(run)], check=True, stdout=subprocess.DEVNULL)
    for minutes in (2, 60):
        words = said_in(60 * minutes, folder / f"{minutes}.flac")
        answer, seconds, peak = transcribed(run, folder / f"{minutes}.flac")
        found = [timed["word"] for timed in answer["times"]]
        known, close = recognised([word for word, *_ in words], found), 0
        for gold, at in known:
            _, start, end = words[gold]
            middle = (answer["times"][at]["start"] + answer["times"][at]["end"]) / 2
            close += start - CLOSE <= middle <= end + CLOSE
        wer = WER.of([answer["text"]], [" ".join(word for word, *_ in words)])
        share = 100 * close / len(known)
        print(
            f"{minutes:3} minutes, {len(words):,} words: WER {wer:.2f} %, of those found {share:.1f} % "
            f"within {1000 * CLOSE:.0f} ms; {seconds:.1f} s, peak memory {peak:.0f} MB",
            flush=True,
        )


def recognised(words: Sequence[str], found: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of places of words that were recognised, in both lists."""
    said, heard, pairs = count(), count(), []
    for one, other in align(words, found):
        places = next(said) if one else 0, next(heard) if other else 0
        if one == other:
            pairs.append(places)
    return pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = {"digits": of_digits, "strings": of_strings, "speaker": of_speakers, "names": of_names, "hour": of_hour}
    parser.add_argument("what", choices=kinds)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="models that are trained side by side, one thread each")
    parser.add_argument("--only", nargs="+", default=[], help="rows of the table")
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/speech"))
    given = parser.parse_args()
    kinds[given.what](given)


if __name__ == "__main__":
    main()
