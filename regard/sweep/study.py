"""The trials of a search and who proposes the next one: Optuna, with a journal file or a database as its storage.

The journal is JSON, a line per change, and the database has tables of numbers and text: neither holds pickles. Only
storages in Redis would, so they are not offered. Nothing else in this package knows Optuna.
"""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from regard.data.files import reason
from regard.interface import UserError
from regard.score.metrics import Better
from regard.sweep.space import Choices, Params, Range, Setting, Space, Value

try:
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.storages import BaseStorage, JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import FrozenTrial, TrialState
except ModuleNotFoundError as missing:
    what = f"A search over settings needs the package {missing.name}, which is not installed"
    raise UserError(f'{what}: install it with pip install "regard[sweep]".') from None

State = Literal["running", "finished", "failed"]
STATES: dict[TrialState, State] = {TrialState.COMPLETE: "finished", TrialState.FAIL: "failed"}
SAMPLES = 20  # attempts to propose settings that no trial has
WHY = "why"  # the attribute of a failed trial that says why

optuna.logging.disable_default_handler()


@dataclass(frozen=True)
class Trial:
    number: int
    params: Params
    state: State = "running"
    value: float | None = None  # the best validation
    why: str = ""  # it failed

    @property
    def name(self) -> str:
        return f"{self.number:03}"


class Study:
    """The trials in the storage. Only the process that has the lock of the search's folder calls this."""

    def __init__(self, journal: Path, url: str, *, name: str, better: Better) -> None:
        self.journal = None if url else journal
        with self._reported():
            self.storage: BaseStorage = RDBStorage(url) if url else JournalStorage(JournalFileBackend(str(journal)))
            self.study = optuna.create_study(
                storage=self.storage,
                study_name=name,
                direction="maximize" if better == "higher" else "minimize",
                load_if_exists=True,
            )

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Turn whatever is wrong with a storage into one sentence."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                if self.journal:
                    tidy(self.journal)
                yield
        except UserError:
            raise
        except Exception as problem:
            what = f"The journal {self.journal}" if self.journal else "The database of --storage"
            raise UserError(
                f"{what} cannot be used ({type(problem).__name__}: {reason(problem)}): restore it, or start a new "
                "search in another folder."
            ) from None

    def trials(self) -> list[Trial]:
        with self._reported():
            return [_read(each) for each in self.study.get_trials(deepcopy=False)]

    def add(self, space: Space, *, seed: int) -> Trial:
        """Add a trial, in one record, with settings that no other trial has."""
        with self._reported():
            trials = self.study.get_trials(deepcopy=False)
            params = self._new(space, [dict(each.params) for each in trials], seed=seed)
            distributions = {setting.key: _distribution(setting) for setting in space.settings}
            new = optuna.trial.create_trial(state=TrialState.RUNNING, params=dict(params), distributions=distributions)
            self.study.add_trial(new)
            return Trial(len(trials), params)

    def finish(self, trial: Trial, value: float) -> None:
        with self._reported():
            self.study.tell(trial.number, value)

    def fail(self, trial: Trial, why: str) -> None:
        with self._reported():
            study_id = self.storage.get_study_id_from_name(self.study.study_name)
            identity = self.storage.get_trial_id_from_study_id_trial_number(study_id, trial.number)
            self.storage.set_trial_user_attr(identity, WHY, why)
            self.study.tell(trial.number, state=TrialState.FAIL)

    def _new(self, space: Space, known: list[dict[str, Value]], *, seed: int) -> Params:
        """Propose settings, which depend on the seed, the number of the trial and the results so far, and so are the
        same in a search that was interrupted."""
        for attempt in range(SAMPLES):
            params = {each.key: self._proposed(each, f"{seed}/{len(known)}/{attempt}") for each in space.settings}
            if params not in known:
                return params
        if space.size() == float("inf"):
            return params
        left = [each for each in space.every() if each not in known]
        return random.Random(f"{seed}/{len(known)}").choice(left)

    def _proposed(self, setting: Setting, seed: str) -> Value:
        """Sample one setting: at random in the first ten trials, then by a tree-structured Parzen estimator (TPE)."""
        number = random.Random(f"{seed}/{setting.key}").getrandbits(32)
        sampler = optuna.samplers.TPESampler(seed=number, constant_liar=True)
        trial = optuna.trial.create_trial(state=TrialState.RUNNING)
        value: Value = sampler.sample_independent(self.study, trial, setting.key, _distribution(setting))
        if isinstance(setting, Range) and not setting.whole:
            return setting.rounded(float(value))
        return value


def _distribution(setting: Setting) -> BaseDistribution:
    if isinstance(setting, Choices):
        return CategoricalDistribution(setting.values)
    if setting.whole:
        return IntDistribution(int(setting.low), int(setting.high))
    return FloatDistribution(setting.low, setting.high, log=setting.log)


def _read(trial: FrozenTrial) -> Trial:
    params: Mapping[str, Value] = trial.params
    why = str(trial.user_attrs.get(WHY, ""))
    state = STATES.get(trial.state, "running")
    return Trial(trial.number, params, state, trial.value if state == "finished" else None, why)


def tidy(journal: Path) -> None:
    """Remove what a writer that was killed left: the journal's own lock, for which others would wait, and half a line,
    to which the next one would be appended. Whoever calls this has the lock of the folder, so nobody else writes."""
    journal.with_name(f"{journal.name}.lock").unlink(missing_ok=True)
    with suppress(FileNotFoundError), journal.open("r+b") as file:
        size = at = file.seek(0, os.SEEK_END)
        while at and os.pread(file.fileno(), 1, at - 1) != b"\n":
            at -= 1
        if at < size:
            file.truncate(at)
