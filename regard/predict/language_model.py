"""A language model beside a model of recordings: its run, and which of its tokens is which."""

from __future__ import annotations

from dataclasses import replace

from regard.interface import BOS, EOS, SPECIALS, UNK, Generates, UserError
from regard.models.fusion import LanguageModel
from regard.run import Run


def with_language_model(run: Run, lm: Run) -> Run:
    """Return the run with a language model beside it, which its transcripts are then decoded with."""
    if not run.task.lm:
        raise UserError(
            f"A language model stands beside a model of recordings, and {run.model_title} is for "
            f"{run.task.name}: leave it out."
        )
    language_model(run, lm)
    return replace(run, lm=lm)


def language_model(run: Run, lm: Run) -> LanguageModel:
    """Return the model of `lm` with the tokens of `run`, or refuse it with the reason."""
    if "source" in lm.fields or not isinstance(lm.model, Generates):
        raise UserError(f"{lm.name} is for {lm.task.name}: a language model is needed beside {run.model_title}.")
    ours, theirs = run.tokenizer("target"), lm.tokenizer("target")
    if ours.same_ids(theirs):
        ids = list(range(ours.size))
    else:
        if ours.kind != theirs.kind or ours.kind == "bpe":
            cut = f"{run.name} writes {ours.kind} and {lm.name} reads {theirs.kind}"
            cut = f"{run.name} and {lm.name} have different BPE merges" if ours.kind == theirs.kind else cut
            raise UserError(f"{cut}: train the language model with the same tokens (tokens.kind = {ours.kind!r}).")
        place = {token: number for number, token in enumerate(theirs.vocabulary, start=theirs.offset)}
        lacking = [token for token in ours.vocabulary if token not in place]
        if lacking:
            few = ", ".join(map(repr, lacking[:5])) + (" …" if lacking[5:] else "")
            raise UserError(
                f"{lm.name} does not know {few}, which {run.name} writes: train it on text that has every token."
            )
        extra = [UNK] * (ours.offset - len(SPECIALS))
        ids = [*range(len(SPECIALS)), *extra, *(place[token] for token in ours.vocabulary)]
    ids[BOS] = lm.opening[-1]
    ids[EOS] = lm.opening[-1] if lm.whole_file else EOS  # in one long text a line end
    return LanguageModel(lm.model, ids=ids, opening=lm.opening).to(lm.device)
