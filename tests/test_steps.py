"""Laws of steps: what is shown is what was decoded, what is forced is written, and the tree holds all that was kept."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import Call
from made import text_fields

import regard
from regard.data.fields import Fields, TextField
from regard.data.pictures import PictureField
from regard.data.tokens import TextTokens
from regard.interface import BOS, EOS, PAD, Batch, UserError, picked
from regard.look.attention import self_attention
from regard.look.steps import EXPLAINED, MOST, SHOWN, WIDEST, Node, Steps, likeliest, replay, steps, tokens_of
from regard.look.weights import forced_weights
from regard.models.ngram import NGram
from regard.predict.decoding import Decoding
from regard.recipe import parse_recipe
from regard.run import Run, build_model, mixture
from regard.show.outline import outline
from regard.tasks.registry import TASKS

RUNS = Path(__file__).parent / "runs"
PAIRS = [("the cat sees a dog .", "le chat voit un chien ."), ("a cat sleeps , too", "un chat dort aussi")]
STACK: dict[str, Any] = {"dim": 12, "heads": 2, "feed_forward": 7, "layers": 2}
RECURRENT: dict[str, Any] = {"embedding": 7, "hidden": 7, "dropout": 0.0}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {  # task, model and settings
    "rnnsearch": ("translation", "rnnsearch", RECURRENT),
    "transformer": ("translation", "transformer", STACK),
    "convs2s": ("translation", "convs2s", {"embedding": 6, "hidden": 6, "layers": 2}),
    "seq2seq": ("translation", "seq2seq", RECURRENT),
    "gpt": ("language", "gpt", {**STACK, "context": 64}),
    "gpt, short context": ("language", "gpt", {**STACK, "context": 6}),
    "rnn_lm": ("language", "rnn_lm", RECURRENT),
    "neural_lm": ("language", "neural_lm", RECURRENT),
    "ngram": ("language", "ngram", {"order": 2}),
    "captioner": ("captioning", "captioner", {**STACK, "patch": 4}),
    "show_attend_tell": ("captioning", "show_attend_tell", {"width": 4, "stages": 2, "embedding": 6, "hidden": 7}),
    "captions without attention": (
        "captioning",
        "show_attend_tell",
        {"width": 4, "stages": 2, "embedding": 6, "hidden": 7, "attention": "none"},
    ),
    "t5": ("denoising", "t5", STACK),
    "bart": ("denoising", "bart", STACK),
}
ATTENDING = ["rnnsearch", "transformer", "convs2s", "gpt", "gpt, short context"]
ATTENDING += ["captioner", "show_attend_tell", "t5", "bart"]
RAWS: dict[str, Any] = {
    "translation": "a cat sees the dog .",  # an odd number of tokens with <eos>: it is padded
    "language": "the cat",
    "captioning": np.random.default_rng(1).integers(0, 256, (8, 16, 3), np.uint8),
    "denoising": "the [MASK] sees a dog .",
}
WAYS = {
    "greedy": Decoding(max_length=9),
    "beam": Decoding(beam=3, n_best=3, max_length=9, length_penalty=0.6),
    "sampling": Decoding(sample=True, temperature=0.7, top_k=9, max_length=9, seed=3),
}
each = pytest.mark.parametrize("name", MODELS)
ways = pytest.mark.parametrize("way", WAYS)


def fields_of(task: str) -> Fields:
    if task == "translation":
        return text_fields(lambda: PAIRS, "source", "target", kind="words", size=0, joint=False)
    texts = [pair[:1] for pair in PAIRS]
    if task == "language":
        return text_fields(lambda: texts, "target", kind="words", size=0)
    tokens = TextTokens(kind="words", size=0)
    learnt = Fields.learn({"target": TextField}, lambda: texts, tokens, TASKS[task].specials)
    if task == "captioning":
        return Fields({"source": PictureField(8, 16, 3, 127, 64), "target": learnt["target"]})
    tokenizer = learnt.tokenizer("target")
    return Fields({side: TextField(tokenizer, begins=side == "target") for side in ("source", "target")})


@cache
def built(name: str) -> Run:
    """A model of this kind whose weights are random, and larger than at first: its distributions are not flat."""
    task, model, sizes = MODELS[name]
    data = {"name": "scenes" if task == "captioning" else "world"}
    recipe = parse_recipe(
        {"task": task, "data": data, "model": {"name": model, **sizes}, "train": {"steps": 1}}, tasks=TASKS
    )
    fields = fields_of(task)
    made = build_model(recipe, fields)
    if isinstance(made, NGram):
        texts = fields.encode({"target": [pair[0] for pair in PAIRS]})["target"]
        made.fit(Joined(np.concatenate(texts), np.cumsum([0, *map(len, texts)])))
    random = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=random))
    return Run(recipe, fields, made.eval(), torch.device("cpu"))


@dataclasses.dataclass
class Joined:
    tokens: Any
    offsets: Any


def raw_of(name: str) -> Any:
    return RAWS[MODELS[name][0]]


@cache
def decoded(name: str, way: str) -> Steps:
    """The steps of an output about which there are several laws."""
    return steps(built(name), raw_of(name), WAYS[way])


def ids_of(found: Steps) -> list[int]:
    return [step.chosen.id for step in found.steps]


def read_with(run: Run, raw: Any, ids: Sequence[int]) -> Batch:
    """What the model reads, with these tokens as its target (teacher forcing)."""
    if "source" not in run.fields:
        return Batch.of_text(torch.tensor([[*run.opening, *run.tokenizer("target").encode(raw), *ids]]))
    if run.task.fills:  # the blank has an id of its own
        spans = run.model_title.startswith("t5")
        (before, after) = (run.tokenizer("source").encode(part) for part in raw.split("[MASK]"))
        hole = run.tokenizer("source").specials.index("<extra_0>" if spans else "<mask>")
        batch = run.fields.batch({"source": [[*before, hole, *after]]}, multiple=1)
    else:
        batch = run.batch(source=[raw], multiple=1)
    target = run.fields["target"].pad([ids[:-1]], multiple=1)
    target.values[0, -1] = ids[-1]
    return dataclasses.replace(batch, target=target)


def teacher_forced(run: Run, raw: Any, ids: Sequence[int]) -> list[float]:
    """ln p of each of these tokens, read in one pass."""
    with torch.no_grad():
        found = run.model.log_probs(read_with(run, raw, ids))[0][0]  # type: ignore[operator]
    return [float(value) for value in found[-len(ids) :]]


def of_every_token(run: Run, raw: Any, ids: Sequence[int]) -> dict[int, float]:
    """The probability of each token after these ones, read in one pass; <pad>, which is not scored, has the rest."""
    size = run.tokenizer("target").size
    batch = picked(read_with(run, raw, [*ids, EOS]), torch.zeros(size - 1, dtype=torch.long))
    batch.target.values[:, -1] = torch.arange(1, size)
    with torch.no_grad():
        found = run.model.log_probs(batch)[0][:, -1].exp()  # type: ignore[operator]
    return {PAD: 1 - float(found.sum()), **dict(enumerate(found.tolist(), start=1))}


# --- the steps are those of predict --------------------------------------------------------------------------------


@ways
@each
def test_steps_are_what_predict_decodes(name: str, way: str) -> None:
    run, raw, how = built(name), raw_of(name), WAYS[way]
    found, answer = decoded(name, way), run.predict([raw], how)[0]
    assert (found.text, found.score) == (answer.text, pytest.approx(answer.score, abs=1e-5))
    written = [step.chosen.token for step in found.steps][: -1 if found.finished else None]
    assert tuple(written) == answer.tokens
    assert found.finished == (found.steps[-1].chosen.id == EOS)
    assert [step.previous for step in found.steps[1:]] == [step.chosen.token for step in found.steps[:-1]]
    assert not any(step.forced for step in found.steps)


@ways
@each
def test_the_probabilities_of_the_choices_multiply_to_that_of_the_output(name: str, way: str) -> None:
    found = decoded(name, way)
    assert math.prod(step.chosen.probability for step in found.steps) == pytest.approx(math.exp(found.score), rel=1e-4)


@ways
@each
def test_what_is_likely_is_sorted_and_begins_with_the_most_probable(name: str, way: str) -> None:
    run, raw = built(name), raw_of(name)
    found = decoded(name, way)
    ids = ids_of(found)
    for number, step in enumerate(found.steps):
        assert [each.probability for each in step.likely] == sorted((e.probability for e in step.likely), reverse=True)
        assert len({each.id for each in step.likely}) == SHOWN
        assert sum(each.probability for each in step.likely) <= 1 + 1e-5
        if name == "gpt, short context" and number > 3:  # it reads a part of the text again
            continue
        every = of_every_token(run, raw, ids[:number])
        assert step.likely[0].probability == pytest.approx(max(every.values()), abs=1e-5)
        for one in (*step.likely, step.chosen):
            assert one.probability == pytest.approx(every[one.id], abs=1e-5)


def test_of_equally_likely_tokens_the_first_come_first() -> None:
    values = torch.tensor([0.0, 2.0, 1.0, 2.0, 1.0, 1.0, 3.0])
    assert likeliest(values, 5).tolist() == [6, 1, 3, 2, 4]
    assert likeliest(values[:3], 5).tolist() == [1, 2, 0]


@each
def test_probabilities_are_the_models_own_whatever_the_filters(name: str) -> None:
    run, raw = built(name), raw_of(name)
    plain = decoded(name, "greedy")
    ids = ids_of(plain)
    for how in (
        Decoding(sample=True, temperature=0.1, top_k=2, top_p=0.5, max_length=9),
        Decoding(max_length=9, min_length=8, no_repeat=1),
    ):
        other = steps(run, raw, how, ids)
        assert ids_of(other) == ids
        for before, after in zip(plain.steps, other.steps, strict=True):
            assert after == dataclasses.replace(before, forced=True)
        assert other.score == pytest.approx(plain.score, abs=1e-6)


# --- forcing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["greedy", "sampling"])
@each
def test_forcing_what_was_chosen_changes_nothing(name: str, way: str) -> None:
    run, raw, how = built(name), raw_of(name), WAYS[way]
    free = decoded(name, way)
    for count in range(len(free.steps) + 1):
        forced = steps(run, raw, how, ids_of(free)[:count])
        assert [step.forced for step in forced.steps] == [number < count for number in range(len(free.steps))]
        again = dataclasses.replace(forced, steps=tuple(dataclasses.replace(s, forced=False) for s in forced.steps))
        assert again == free


@ways
@each
def test_an_alternative_is_written_and_has_the_probability_of_teacher_forcing(name: str, way: str) -> None:
    run, raw, how = built(name), raw_of(name), WAYS[way]
    free = decoded(name, way)
    for place, step in list(enumerate(free.steps))[:4]:
        other = next(one.id for one in step.likely if one.id not in (PAD, BOS, step.chosen.id))
        forced = [*ids_of(free)[:place], other]
        found = steps(run, raw, how, forced)
        ids = ids_of(found)
        assert ids[: place + 1] == forced
        assert [step.forced for step in found.steps] == [number <= place for number in range(len(ids))]
        if name != "gpt, short context":  # which reads windows
            assert found.score == pytest.approx(sum(teacher_forced(run, raw, ids)), abs=1e-4)
        if other == EOS:
            assert found.finished and len(ids) == place + 1


def test_a_forced_text_begins_the_translation() -> None:
    run = built("rnnsearch")
    found = steps(run, "a cat", Decoding(beam=2), tokens_of(run, "le chien"))
    assert found.text.startswith("le chien")
    assert [step.chosen.token for step in found.steps[:2]] == ["le", "chien"]


# --- the tree ------------------------------------------------------------------------------------------------------


def leaves_of(found: Steps) -> dict[tuple[str, ...], Node]:
    """The nodes without children, by the tokens on their paths."""
    assert found.tree is not None
    nodes = found.tree.nodes
    parents = {node.parent for node in nodes}

    def path(node: Node) -> tuple[str, ...]:
        return (*(() if node.parent is None else path(nodes[node.parent])), node.token)

    return {path(node): node for node in nodes if node.id not in parents}


@pytest.mark.parametrize("beam", [2, 3, 5])
@each
def test_the_kept_leaves_of_the_tree_are_the_n_best_list(name: str, beam: int) -> None:
    run, raw = built(name), raw_of(name)
    how = Decoding(beam=beam, n_best=beam, max_length=7, length_penalty=0.7)
    found, best = steps(run, raw, how), run.predict([raw], how)[0]
    assert found.tree is not None and found.tree.width == beam
    leaves = leaves_of(found)
    kept = {path: leaf for path, leaf in leaves.items() if leaf.kept}
    listed = {answer.tokens: answer for answer in (best, *best.alternatives)}
    assert {path[: -1 if leaf.finished else None] for path, leaf in kept.items()} == listed.keys()
    for path, leaf in kept.items():
        answer = listed[path[: -1 if leaf.finished else None]]
        assert leaf.log_prob == pytest.approx(answer.score, abs=1e-5)
        assert leaf.score == pytest.approx(answer.score / len(path) ** 0.7, abs=1e-5)
    assert {leaf.score is None for leaf in leaves.values() if not leaf.kept} <= {True}
    (winner,) = (path for path, leaf in kept.items() if leaf.best)
    assert winner == tuple(step.chosen.token for step in found.steps)


@pytest.mark.parametrize("beam", [1, 4])
@each
def test_a_node_adds_a_log_probability_to_its_parent(name: str, beam: int) -> None:
    found = steps(built(name), raw_of(name), Decoding(beam=beam, max_length=7))
    assert found.tree is not None
    nodes, counts = found.tree.nodes, dict[int, int]()
    for number, node in enumerate(nodes):
        assert node.id == number
        parent = None if node.parent is None else nodes[node.parent]
        before, step = (0.0, 0) if parent is None else (parent.log_prob, parent.step)
        assert node.log_prob <= before and node.step == step + 1
        assert parent is None or (parent.kept >= node.kept and parent.best >= node.best and not parent.finished)
        counts[node.step] = counts.get(node.step, 0) + 1
        if number:
            assert node.step >= nodes[number - 1].step
    assert max(counts.values()) <= beam and sum(node.best for node in nodes) == len(found.steps)


@each
def test_the_tree_of_a_beam_of_1_is_a_path(name: str) -> None:
    found = decoded(name, "greedy")
    assert found.tree is not None
    assert [node.parent for node in found.tree.nodes] == [None, *range(len(found.steps) - 1)]
    assert all(node.kept and node.best for node in found.tree.nodes)
    assert [node.token_id for node in found.tree.nodes] == ids_of(found)
    assert found.tree.nodes[-1].log_prob == pytest.approx(found.score)


def test_a_sample_has_no_tree_and_is_the_best_of_several() -> None:
    run, how = built("rnnsearch"), dataclasses.replace(WAYS["sampling"], n_best=4)
    found, answer = steps(run, "a cat", how), run.predict("a cat", how)
    assert found.tree is None and len(answer.alternatives) == 3
    assert (found.text, found.score) == (answer.text, pytest.approx(answer.score, abs=1e-5))


def test_a_forced_beginning_of_a_beam_is_a_path_that_branches_after_it() -> None:
    run, forced = built("transformer"), [9, 8, 7]
    found = steps(run, "a cat", Decoding(beam=3, max_length=6), forced)
    assert found.tree is not None
    assert [node.token_id for node in found.tree.nodes if node.step <= 3] == forced
    assert [sum(node.step == step for node in found.tree.nodes) for step in (1, 2, 3, 4)] == [1, 1, 1, 3]


# --- attention -----------------------------------------------------------------------------------------------------


@ways
@each
def test_weights_are_shares_of_the_source(name: str, way: str) -> None:
    found = decoded(name, way)
    kinds = {"seq2seq": "saliency (gradient), not attention", **dict.fromkeys(ATTENDING, "attention")}
    assert found.kind == kinds.get(name)
    task = MODELS[name][0]
    assert (found.source is not None) == (task in ("translation", "denoising") or name.startswith("gpt"))
    assert found.grid == ((2, 4) if name in ("captioner", "show_attend_tell") else None)
    for step in found.steps:
        assert (step.attention is not None) == (found.kind is not None)
        if step.attention is not None:
            assert len(step.attention) == (len(found.source) if found.source else math.prod(found.grid or ()))
            assert min(step.attention) >= 0
            if name in ("captioner", "bart"):  # a class token, or <bos>, stands before the source and has the rest
                assert 0.1 < sum(step.attention) < 1
            else:
                assert sum(step.attention) == pytest.approx(1, abs=1e-4)


@ways
@pytest.mark.parametrize("name", [name for name in MODELS if MODELS[name][0] != "language"])
def test_the_weights_of_a_step_are_those_of_teacher_forcing(name: str, way: str) -> None:
    run, raw = built(name), raw_of(name)
    found = decoded(name, way)
    if found.kind is None:
        return
    expected = forced_weights(run.model, read_with(run, raw, ids_of(found)))[0].detach().numpy()
    assert np.allclose([step.attention for step in found.steps], expected, atol=1e-4)


@ways
def test_a_language_model_attends_to_the_text_so_far(way: str) -> None:
    run = built("gpt")
    found = steps(run, "the cat", WAYS[way])
    names, known, weights = self_attention(run, found.text)
    expected = torch.stack([each.mean(0) for each in weights]).mean(0).numpy()
    assert found.source is not None and found.source == names[: len(found.source)]
    assert found.source[:3] == ("<bos>", "the", "cat")
    rows = np.array([step.attention for step in found.steps])
    assert np.allclose(rows, expected[2 : 2 + len(rows), : rows.shape[1]], atol=1e-5)
    assert all((row[3 + number :] == 0).all() and (row[: 3 + number] > 0).all() for number, row in enumerate(rows))


def test_beyond_its_context_a_language_model_attends_to_what_it_reads_again() -> None:
    found = steps(built("gpt, short context"), "the cat", Decoding(max_length=9, min_length=8))
    rows = np.array([step.attention for step in found.steps])
    assert rows.shape == (9, 11)
    reach = [int((row > 0).sum()) for row in rows]
    assert reach == [3, 4, 5, 6, 3, 4, 5, 6, 3]
    for number, (row, count) in enumerate(zip(rows, reach, strict=True)):
        assert (row[3 + number - count : 3 + number] > 0).all()


def test_saliency_is_computed_for_outputs_that_are_not_long() -> None:
    for longest, kind in ((EXPLAINED, "saliency (gradient), not attention"), (EXPLAINED + 1, None)):
        found = steps(built("seq2seq"), "a cat", Decoding(min_length=longest, max_length=longest))
        assert len(found.steps) == longest and found.kind == kind
        assert all((step.attention is None) == (kind is None) for step in found.steps)


# --- units of work -------------------------------------------------------------------------------------------------


@each
def test_several_decodes_advance_in_turn_as_if_alone(name: str) -> None:
    run, raw = built(name), raw_of(name)
    under_way, found = {way: replay(run, raw, how) for way, how in WAYS.items()}, {}
    while under_way:
        for way, one in list(under_way.items()):
            try:
                assert 0 < next(one) <= 9
            except StopIteration as end:
                found[way] = end.value
                del under_way[way]
            assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    assert found == {way: decoded(name, way) for way in WAYS}


def test_an_answer_comes_after_one_unit_of_work_for_each_token_and_each_gradient() -> None:
    for name, each in (("transformer", 1), ("seq2seq", 2)):
        found = steps(built(name), "a cat", WAYS["greedy"])
        assert len(list(replay(built(name), "a cat", WAYS["greedy"]))) == each * len(found.steps)


# --- kept runs, mixtures, JSON -------------------------------------------------------------------------------------


@pytest.mark.parametrize("task, raw", [("translation", "The old man is not good ."), ("language", "The man")])
def test_a_trained_run_by_default_decodes_as_predict_does(task: str, raw: str) -> None:
    run = regard.load(RUNS / task)
    how = None if task == "translation" else Decoding(sample=True, max_length=30)
    found, answer = steps(run, raw, how), run.predict(raw, how)
    assert (found.text, found.score) == (answer.text, pytest.approx(answer.score, abs=1e-5))
    assert (found.tree is None) == (task == "language") and found.kind == "attention"


def test_an_ensemble_has_steps_and_no_attention() -> None:
    run = built("rnnsearch")
    both = mixture([run, dataclasses.replace(built("transformer"), recipe=run.recipe, fields=run.fields)])
    found = steps(both, "a cat", WAYS["greedy"])
    assert found.kind is None and found.source == ("a", "cat", "<eos>")
    assert found.score == pytest.approx(sum(teacher_forced(both, "a cat", ids_of(found))), abs=1e-4)


@ways
@each
def test_facts_are_json_and_all_of_it(name: str, way: str) -> None:
    found = decoded(name, way)
    facts = json.loads(json.dumps(found.facts(), allow_nan=False))
    assert list(facts) == ["source", "kind", "grid", "text", "score", "finished", "steps", "tree"]
    assert list(facts["steps"][0]) == ["previous", "chosen", "likely", "attention", "forced"]
    assert facts["steps"][0]["chosen"] == dataclasses.asdict(found.steps[0].chosen)
    if found.tree is not None:
        names = ["id", "parent", "step", "token", "token_id", "log_prob", "score", "kept", "finished", "best"]
        assert [list(node) for node in facts["tree"]["nodes"]] == [names] * len(found.tree.nodes)
    if found.kind is not None:
        assert np.allclose([s["attention"] for s in facts["steps"]], [s.attention for s in found.steps], atol=1e-6)


# --- what is refused -----------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "an id beyond the vocabulary": (lambda: steps(built("rnnsearch"), "a cat", None, [10**6]), "1000000 is not the id"),
    "an id below 0": (lambda: steps(built("rnnsearch"), "a cat", None, [-1]), "-1 is not the id"),
    "padding": (lambda: steps(built("rnnsearch"), "a cat", None, [PAD]), "choose one from 2 to"),
    "a beginning": (lambda: steps(built("rnnsearch"), "a cat", None, [BOS]), "1 is not the id"),
    "what comes after the end": (lambda: steps(built("rnnsearch"), "a cat", None, [EOS, 5]), "no token after it"),
    "an empty text": (lambda: steps(built("rnnsearch"), " "), "is empty: give one"),
    "a long text": (lambda: steps(built("rnnsearch"), "cat " * 1001), "at most 1000 tokens are read"),
    "more steps than are shown": (
        lambda: steps(built("rnnsearch"), "a cat", Decoding(max_length=MOST + 1)),
        "at most 200 tokens",
    ),
    "more forced tokens than are written": (
        lambda: steps(built("rnnsearch"), "a cat", Decoding(max_length=3), [5] * 4),
        "4 tokens are forced, and this output has at most 3: force fewer",
    ),
    "a wide beam": (lambda: steps(built("rnnsearch"), "a cat", Decoding(beam=WIDEST + 1)), "choose at most 50"),
    "many samples": (lambda: steps(built("gpt"), "a", Decoding(sample=True, n_best=51)), "choose at most 50"),
    "a shortlist": (lambda: steps(built("rnnsearch"), "a cat", Decoding(shortlist=9)), "shortlist"),
    "a model that gives labels": (
        lambda: steps(regard.load(RUNS / "classification"), "fine ."),
        "does not generate text",
    ),
    "an unknown word": (lambda: tokens_of(built("rnnsearch"), "le zzyx"), "'zzyx' is not in the vocabulary"),
    "no words": (lambda: tokens_of(built("rnnsearch"), ""), "begin with is empty"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_shown_is_refused_in_one_sentence(what: str) -> None:
    call, expected = REFUSED[what]
    with pytest.raises(UserError, match=expected) as refused:
        call()
    assert "\n" not in str(refused.value) and str(refused.value).endswith(".")


def test_a_token_of_probability_0_cannot_be_forced() -> None:
    run = built("ngram")
    closed = parse_recipe(
        {
            "task": "language",
            "data": {"name": "world"},
            "model": {"name": "ngram", "order": 2, "open": False},
            "train": {"steps": 1},
        },
        tasks=TASKS,
    )
    model: Any = build_model(closed, run.fields)
    texts = run.fields.encode({"target": [pair[0] for pair in PAIRS]})["target"]
    model.fit(Joined(np.concatenate(texts), np.cumsum([0, *map(len, texts)])))
    with pytest.raises(UserError, match="Token 3 is forced where the model gives it probability 0: force another one"):
        steps(dataclasses.replace(run, recipe=closed, model=model), "the", WAYS["beam"], [5, 3])


@pytest.mark.parametrize("name, raw", [("rnn_lm", "the"), ("bart", "the [MASK] sees " * 50)])
def test_an_output_without_end_is_cut_after_200_steps(name: str, raw: str) -> None:
    found = steps(built(name), raw, Decoding(min_length=10**6))
    assert len(found.steps) == MOST and not found.finished


# --- the command ---------------------------------------------------------------------------------------------------

TRANSLATOR, SENTENCE = RUNS / "translation", "The old man is not good ."


def test_the_command_prints_every_step_and_the_tree(call: Call) -> None:
    told, found = (
        call("look", TRANSLATOR, SENTENCE, "--steps", "--beam", 3),
        steps(regard.load(TRANSLATOR), SENTENCE, Decoding(beam=3)),
    )
    assert told.code == 0 and "\x1b" not in told.out and f"→ {found.text}\n" in told.out
    head, *rows = told.out.partition("\n\nThe 3 hypotheses")[0].splitlines()
    assert head.split() == ["step", "previous", "chosen", "likeliest"]
    firsts = [row.split() for row in rows if row[0] != " "]
    for number, (row, step) in enumerate(zip(firsts, found.steps, strict=True), start=1):
        assert row[:3] == [str(number), step.previous, step.chosen.token]
        assert float(row[3]) == pytest.approx(step.chosen.probability, rel=0.01)
    assert found.tree is not None
    tree = told.out.partition("log-probabilities\n")[2].partition("\n\n")[0].splitlines()
    leaves = leaves_of(found)
    assert sum("pruned" in line for line in tree) == sum(not leaf.kept for leaf in leaves.values()) > 0
    assert sum("score" in line for line in tree) == sum(leaf.kept for leaf in leaves.values()) == 3
    (best,) = (line for line in tree if "best" in line)
    assert f"score −{abs(max(leaf.score for leaf in leaves.values() if leaf.score is not None)):.2f}" in best


def test_the_command_prints_facts_and_forces_a_beginning(call: Call) -> None:
    run = regard.load(TRANSLATOR)
    facts = json.loads(call("look", TRANSLATOR, SENTENCE, "--steps", "--force", "Les homme", "--beam", 1, "--json").out)
    expected = steps(run, SENTENCE, Decoding(), tokens_of(run, "Les homme")).facts()
    assert facts == json.loads(json.dumps(expected))
    assert facts["text"].startswith("Les homme") and [each["forced"] for each in facts["steps"]][:3] == [1, 1, 0]
    told = call("look", TRANSLATOR, SENTENCE, "--steps", "--force", "Les homme")
    assert told.out.count("(forced)") == 2
    sampled = call("look", RUNS / "language", "The man", "--steps")
    assert sampled.code == 0 and "hypotheses" not in sampled.out and "→ The man" in sampled.out


def test_the_first_line_of_a_file_is_decoded(call: Call, tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text(f"{SENTENCE}\nThe cat .\n")
    told = call("look", TRANSLATOR, tmp_path / "some.txt", "--steps", "--json")
    assert json.loads(told.out)["source"][:3] == ["The", "old", "man"]
    assert told.err == f"{tmp_path / 'some.txt'} is a file: this is the first of its 2 lines.\n"


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ([TRANSLATOR, "--steps"], "There is no sentence"),
        ([TRANSLATOR, SENTENCE, "--beam", 2], "--beam: it belongs to --steps"),
        ([TRANSLATOR, SENTENCE, "--force", "Le"], "--force: it belongs to --steps"),
        ([TRANSLATOR, SENTENCE, "--steps", "--html", "x.html"], "--steps does not take --html"),
        ([TRANSLATOR, SENTENCE, "--steps", "--gates"], "--steps and --gates exclude each other"),
        ([TRANSLATOR, SENTENCE, "--steps", "--beam", 0], "--beam 0 must be at least 1"),
        ([TRANSLATOR, SENTENCE, "--steps", "--beam", 51], "choose at most 50"),
        ([TRANSLATOR, SENTENCE, "--steps", "--force", "zzyx"], "'zzyx' is not in the vocabulary"),
        ([TRANSLATOR, "", "--steps"], "The text to decode is empty"),
        ([RUNS / "classification", SENTENCE, "--steps", "--beam", 2], "does not generate text"),
    ],
)
def test_the_command_refuses_in_one_sentence(call: Call, arguments: list[object], expected: str) -> None:
    told = call("look", *arguments)
    assert told.code in (1, 2) and expected in told.err and told.err.count("\n") == 1 and not told.out


def test_an_outline_has_a_line_for_each_stretch_and_indents_branches() -> None:
    ends = dict(enumerate("abcdefg"))
    lines = outline([None, 0, 1, 1, 2, None, 3], ["r", "s", "t", "u", "v", "w", "x"], ends)
    assert list(lines) == ["r s   b", "  t v   e", "  u x   g", "w   f"]
