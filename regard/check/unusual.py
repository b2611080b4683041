"""Faults that need all of the data: repeated pairs, what train and valid share, what is unusual."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from regard.check.characters import FEWEST, Array, in_other_script, main_script
from regard.check.faults import LEFT_OUT, NOT_SOUND
from regard.check.scan import Scan

ENOUGH = 500  # characters of a side for their frequencies to mean something
APART = 0.05  # nats per character by which the sides of train must differ before valid is called swapped
RATIO = 3  # times off the usual ratio of lengths: suspicious
LONG_ENOUGH = 30  # characters on the longer side, for a ratio to mean something


class Usual(NamedTuple):
    """What the lines of train that pass have in common."""

    source: int  # script, as in `main_script`
    target: int
    ratio: float  # target characters to a source character; nan where there is too little to judge by

    def or_else(self, other: Usual) -> Usual:
        ratio = other.ratio if math.isnan(self.ratio) else self.ratio
        return Usual(self.source or other.source, self.target or other.target, ratio)


def compare(train: Scan, valid: Scan) -> Usual:
    """Mark the lines that differ from the others; return what is usual."""
    mark_repeated(train)
    mark_repeated(valid)
    mark_shared(train, valid)
    # leaving lines out may change what is usual, so this is repeated until no more are left out
    reported = usual = usual_of(train)
    while mark_unusual(train, usual):
        usual = usual_of(train)
        reported = reported.or_else(usual)
    mark_unusual(valid, usual)
    return reported


def mark_repeated(scan: Scan) -> None:
    sound = np.flatnonzero(scan.free_of(NOT_SOUND))
    _, first = np.unique(scan.pairs[sound], return_index=True)
    scan.mark("duplicate", np.delete(sound, first))


def mark_shared(train: Scan, valid: Scan) -> None:
    in_train, in_valid = train.free_of(NOT_SOUND), valid.free_of(NOT_SOUND)
    pair = in_valid & np.isin(valid.pairs, train.pairs[in_train])
    source = in_valid & np.isin(valid.sources, train.sources[in_train])
    valid.mark("leaked", pair)
    valid.mark("leaked source", source & ~pair)
    train.mark("leaked", in_train & np.isin(train.sources, valid.sources[in_valid]))


def usual_of(train: Scan) -> Usual:
    passing = train.free_of(LEFT_OUT["train"])
    source, target = (main_script(train.scripts[passing, side]) for side in range(2))
    ratios = log_ratios(train)[passing & can_judge(train)]
    return Usual(source, target, math.exp(np.median(ratios)) if len(ratios) >= FEWEST else math.nan)


def mark_unusual(scan: Scan, usual: Usual) -> int:
    """Mark lines in another script and odd ratios of lengths; how many of them had passed so far."""
    passed = np.count_nonzero(scan.free_of(LEFT_OUT["train"]))
    sound = scan.free_of(NOT_SOUND)
    odd = np.abs(log_ratios(scan) - math.log(usual.ratio)) > math.log(RATIO)  # nothing is further from nan than that
    scan.mark("ratio", odd & can_judge(scan))
    for side, script in enumerate((usual.source, usual.target)):
        scan.mark("script", sound & in_other_script(scan.scripts[:, side], script), side)
    return int(passed - np.count_nonzero(scan.free_of(LEFT_OUT["train"])))


def swapped(train: Scan, valid: Scan) -> bool:
    """Whether valid has source and target swapped: its characters occur as often as those of train's other side.

    The mean of ln p(character | its side of train) − ln p(character | the other side), summed over both sides, is about
    as much for valid as for train itself, and its negative where the sides are swapped.
    """
    if min(*train.characters, *valid.characters) < ENOUGH:
        return False
    there = train.seen.any(0) | valid.seen.any(0)
    smoothed = train.counts[:, there] + 1
    logs = np.log(smoothed / smoothed.sum(1, keepdims=True))  # (side, character)

    def apart(scan: Scan) -> float:
        shares = scan.counts[:, there] / scan.counts.sum(1, keepdims=True)
        return float((shares * (logs - logs[::-1])).sum())

    return apart(train) > APART and apart(valid) < -apart(train) / 4


def can_judge(scan: Scan) -> Array:
    enough: Array = scan.free_of(NOT_SOUND) & (scan.lengths.max(1) >= LONG_ENOUGH)
    return enough


def log_ratios(scan: Scan) -> Array:
    logs = np.log(np.maximum(scan.lengths, 1))
    ratios: Array = logs[:, 1] - logs[:, 0]
    return ratios
