"""Bodies under heads: what a pre-trained model reads for another task, with the names and numbers it had before."""

from __future__ import annotations

import dataclasses
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from made import labelled, pairs, tagged, text
from torch import Tensor

from regard.data.corruption import with_hidden
from regard.data.tensors import read_tensors
from regard.interface import BOS, EOS, PAD, Batch, Ids, Label, Padded, Shapes, TagIds, UserError
from regard.layers.encoders import swapped
from regard.models import MODELS
from regard.recipe import parse_recipe
from regard.tasks.registry import TASKS
from regard.train.session import Session
from regard.train.tuning import adapted
from regard.train.weights import weights

VOCAB, NAMES = 13, 5
LABEL = Shapes(Ids(VOCAB), Label(NAMES))
STACK: dict[str, Any] = {"dim": 12, "heads": 3, "feed_forward": 17, "layers": 2, "dropout": 0.0}
FIRST, SECOND = [4, 5, 6, EOS], [7, 8, EOS]


def build(name: str, shapes: Shapes, **settings: Any) -> Any:
    torch.manual_seed(1)
    model = MODELS[name].build(MODELS[name].config(**settings), shapes).double().eval()
    with torch.no_grad():
        for tensor in weights(model).values():
            tensor.add_(0.1 * torch.rand_like(tensor))
    return model


def gpt(shapes: Shapes = LABEL, **settings: Any) -> Any:
    return build("gpt", shapes, **STACK, context=19, **settings)


def same_body(headed: Any, writes: Any) -> None:
    """Give a language model the weights of a headed one: those of its encoder, and of its `words` if there are."""
    own = weights(headed)
    with torch.no_grad():
        for name, tensor in weights(writes).items():
            theirs = f"encoder.{name}", name.replace("head.", "words.")
            tensor.copy_(next((own[each] for each in theirs if each in own), tensor))


# --- gpt ---


@torch.no_grad()
def test_the_state_of_the_last_real_token_speaks_whatever_the_padding() -> None:
    model = gpt()
    rows = [FIRST, SECOND]
    found = model.classify(labelled(rows, [0, 1]))
    for row, ids in enumerate(rows):
        wide = labelled([[*ids, PAD, PAD, PAD]], [0])
        assert wide.source is not None
        states = model.encoder(wide.source).states[0]
        said = model.head.linear(states[len(ids)]).log_softmax(-1)  # <bos> is at 0, the last <eos> at len(ids)
        torch.testing.assert_close(found[row], said)
        torch.testing.assert_close(model.classify(wide)[0], said)


@torch.no_grad()
def test_a_label_may_read_the_mean_of_all_states() -> None:
    model = gpt(pool="mean")
    found = model.classify(labelled([FIRST, [*SECOND, PAD, PAD]], [0, 1]))
    for row, ids in enumerate([FIRST, SECOND]):
        states = model.encoded(labelled([ids], [0])).states[0]  # <bos> among them
        torch.testing.assert_close(found[row], model.head.linear(states.mean(0)).log_softmax(-1))


def test_both_orders_are_added_in_the_last_state_alone() -> None:
    with pytest.raises(ValueError, match='set pool = "end"'):
        gpt(pool="mean", both_orders=True)


@torch.no_grad()
def test_a_tag_depends_on_what_was_read_before_and_not_on_what_follows() -> None:
    model = gpt(Shapes(Ids(VOCAB), TagIds(NAMES)))

    def scores(ids: list[int]) -> Tensor:
        found: Tensor = model.head.emissions(model.encoded(tagged([ids], torch.zeros(1, len(ids), dtype=torch.long))))
        return found[0]

    before, after = scores([4, 5, 6, EOS]), scores([4, 9, 6, EOS])
    assert torch.equal(before[0], after[0])
    assert all(not torch.equal(before[place], after[place]) for place in (1, 2))


@torch.no_grad()
@pytest.mark.parametrize("tie", [True, False])
def test_the_auxiliary_loss_is_that_of_the_language_model_with_the_same_weights(tie: bool) -> None:
    model = gpt(auxiliary=0.5, tie=tie)
    writes = gpt(Shapes(None, Ids(VOCAB)), tie=tie)
    same_body(model, writes)
    loss = model.loss(labelled([FIRST, SECOND], [0, 1]))
    read = writes.loss(text([[BOS, *FIRST], [BOS, *SECOND]]))
    assert read.tokens == len(FIRST) + len(SECOND)
    # the task's loss is a sum over two texts: 2 · (mean of the task + λ · mean of the language model)
    torch.testing.assert_close(loss.objective, loss.nll + 0.5 * 2 * read.nll / read.tokens)


def test_without_an_auxiliary_loss_nothing_predicts_words() -> None:
    model = gpt(auxiliary=0.0)
    assert not any(name.startswith("words") for name in model.state_dict())
    assert model.loss(labelled([FIRST], [0])).objective == model.loss(labelled([FIRST], [0])).nll


def test_the_texts_of_a_pair_change_places_and_a_single_text_stays() -> None:
    ids = torch.tensor([[*FIRST, *SECOND, PAD], [*FIRST, PAD, PAD, PAD, PAD]])
    turned, pairs = swapped(Padded.of_ids(ids))
    assert turned.values.tolist() == [[*SECOND, *FIRST, PAD], ids[1].tolist()]
    assert pairs.tolist() == [True, False]


@torch.no_grad()
def test_in_both_orders_the_order_of_a_pair_has_no_effect_and_a_single_text_is_read_once() -> None:
    model, once = gpt(both_orders=True), gpt()
    one, other = labelled([[*FIRST, *SECOND]], [0]), labelled([[*SECOND, *FIRST]], [0])
    torch.testing.assert_close(model.classify(one), model.classify(other))
    assert not torch.allclose(once.classify(one), once.classify(other))

    def pooled(batch: Batch) -> Tensor:
        vector: Tensor = once.head.pool(once.encoded(batch))
        return vector

    torch.testing.assert_close(model.head.pool(model.encoded(one)), pooled(one) + pooled(other))
    single = labelled([FIRST], [0])
    torch.testing.assert_close(model.classify(single), once.classify(single))


@torch.no_grad()
def test_a_prompt_stays_before_the_texts_in_both_orders() -> None:
    model = adapted(gpt(both_orders=True), "prompt", LABEL, rank=0, prompt=3).double()
    one, other = labelled([[*FIRST, *SECOND], FIRST], [0, 0]), labelled([[*SECOND, *FIRST], FIRST], [0, 0])
    torch.testing.assert_close(model.classify(one), model.classify(other))  # type: ignore[operator]


@pytest.mark.parametrize("target", [TagIds(NAMES), Ids(VOCAB)])
@pytest.mark.parametrize("setting", [{"both_orders": True}, {"auxiliary": 0.5}])
def test_what_serves_whole_texts_is_refused_for_each_token(setting: dict[str, Any], target: Any) -> None:
    with pytest.raises(UserError, match="set model.both_orders to false and model.auxiliary to 0"):
        gpt(Shapes(Ids(VOCAB), target), **setting)


# --- elmo ---


TEXT = Shapes(None, Ids(VOCAB))
ROW = [BOS, 4, 5, 6, 7, EOS]


def elmo(shapes: Shapes = LABEL, **settings: Any) -> Any:
    return build("elmo", shapes, **{"embedding": 5, "hidden": 7, "layers": 2, "dropout": 0.0} | settings)


@torch.no_grad()
@pytest.mark.parametrize("skip", ["none", "residual", "highway"])
def test_the_forward_half_never_sees_the_future_and_the_backward_half_never_the_past(skip: str) -> None:
    encoder = elmo(skip=skip).encoder

    def halves(place: int) -> tuple[Tensor, Tensor]:
        ids = torch.tensor([[4, 5, 6, 7, 8, EOS]])
        if place >= 0:
            ids[0, place] = 9
        ahead, back = encoder(Padded.of_ids(ids)).states[0].chunk(2, -1)
        return ahead, back

    before = halves(-1)
    for place in range(5):
        ahead, back = ((one != other).any(-1).tolist() for one, other in zip(before, halves(place), strict=True))
        assert ahead == [False] * place + [True] * (6 - place)
        assert back == [True] * (place + 1) + [False] * (5 - place)


@torch.no_grad()
def test_the_objective_is_minus_the_log_probability_of_both_chains() -> None:
    model = elmo(TEXT)
    rows = [ROW, [BOS, 8, EOS]]
    expected = {"forwards": 0.0, "backwards": 0.0}
    for row in rows:
        for half, ids in (("forwards", row), ("backwards", row[::-1])):
            states = [[layer.recurrent.forwards[0].start(1)] for layer in model.get_submodule(f"body.{half}")]
            for token, answer in zip(ids, ids[1:], strict=False):  # cell by cell, token by token
                x = model.embed(torch.tensor([token]))
                for state, layer in zip(states, model.get_submodule(f"body.{half}"), strict=True):
                    cell = layer.recurrent.forwards[0]
                    state[0] = cell.step(cell.inputs(x), state[0])
                    x = layer.narrow(state[0][0]) + (0 if layer.skip is None else x)
                expected[half] -= float(model.head.logits(x).log_softmax(-1)[0, answer])
    loss = model.loss(text(rows))
    assert float(loss.nll) == pytest.approx(expected["forwards"])
    assert float(loss.objective) == pytest.approx(sum(expected.values()))
    assert loss.tokens == 7
    log_probs, _ = model.log_probs(text(rows))
    assert float(log_probs.sum()) == pytest.approx(-expected["forwards"])


@torch.no_grad()
def test_the_vectors_of_a_text_are_those_of_its_top_layer_under_a_head() -> None:
    model, writes = elmo(), elmo(TEXT)
    same_body(model, writes)
    model.encoder.mix.scores.copy_(torch.tensor([0.0, 0.0, 100.0]))
    model.encoder.mix.scale.fill_(1.0)
    vectors = writes.encode(text([ROW, [BOS, 8, EOS]]))
    read = model.encoder(Padded.of_ids(torch.tensor([ROW[:-1], [BOS, 8, PAD, PAD, PAD]])))
    assert torch.equal(vectors.mask, read.mask)
    torch.testing.assert_close(vectors.values[read.mask], read.states[read.mask])


@torch.no_grad()
def test_a_token_has_the_mixture_of_its_layers() -> None:
    model = elmo()
    encoder, source = model.encoder, Padded.of_ids(torch.tensor([[4, 5, 6, EOS]]))
    assert float(encoder.mix.scores.softmax(0).sum()) == pytest.approx(1)
    encoder.mix.scale.fill_(1.0)
    layers = []
    for layer in range(3):
        encoder.mix.scores.zero_()[layer] = 100.0  # all weight on one layer
        layers.append(encoder(source).states)
    x = encoder.embed(source.values)
    torch.testing.assert_close(layers[0], torch.cat([x, x], -1))
    ahead, _ = encoder.body(x)
    torch.testing.assert_close(layers[2][..., :5], ahead)
    encoder.mix.scores.copy_(torch.tensor([0.5, 0.2, 0.3]).log())
    encoder.mix.scale.fill_(2.0)
    mixed = 2 * (0.5 * layers[0] + 0.2 * layers[1] + 0.3 * layers[2])
    torch.testing.assert_close(encoder(source).states, mixed)


@torch.no_grad()
def test_the_last_states_are_those_after_all_tokens_in_each_direction() -> None:
    model = elmo(pool="last")
    batch = labelled([[4, 5, 6, EOS], [7, EOS]], [0, 1])
    states, last = model.encoded(batch).states, model.head.pool(model.encoded(batch))
    for row, end in enumerate((3, 1)):
        assert torch.equal(last[row], torch.cat([states[row, end, :5], states[row, 0, 5:]]))


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_an_encoder_under_a_head_has_the_weights_and_the_states_of_its_encoder_decoder(name: str) -> None:
    reads, writes = (build(name, shapes, **STACK) for shapes in (LABEL, MASKED))
    own, theirs = (
        {path: each for path, each in weights(model).items() if path.startswith("encoder.")}
        for model in (reads, writes)
    )
    assert own.keys() == theirs.keys()
    with torch.no_grad():
        for path, tensor in own.items():
            tensor.copy_(theirs[path])
        batch = labelled([FIRST, SECOND], [0, 1])
        assert torch.equal(reads.encode(batch).values, writes.encode(batch).values)


@pytest.mark.parametrize("name", ["gpt", "elmo"])
def test_a_body_under_a_head_has_the_weights_of_its_language_model(name: str) -> None:
    made = {"gpt": gpt, "elmo": elmo}[name]
    read, writes = weights(made()), weights(made(TEXT))
    shared = {path: tensor.shape for path, tensor in writes.items() if not path.startswith("head.")}
    assert shared.items() <= {path.removeprefix("encoder."): tensor.shape for path, tensor in read.items()}.items()
    new = {path for path in read if path.removeprefix("encoder.") not in shared}
    assert {path.split(".")[0] for path in new} == ({"head"} if name == "gpt" else {"head", "encoder"})
    assert {path for path in new if not path.startswith("head")} <= {"encoder.mix.scores", "encoder.mix.scale"}


# --- bert: pairs of texts ---


MASKED = Shapes(Ids(VOCAB), Ids(VOCAB), joint=True)


def hidden_in(rows: list[list[int]], *places: int, **beside: Tensor) -> Batch:
    """These texts, with the tokens at these places hidden."""
    source = pairs(rows).source
    assert source is not None
    hidden = torch.zeros_like(source.mask)
    hidden[:, list(places)] = True
    return dataclasses.replace(with_hidden(source, hidden), beside=beside)


@torch.no_grad()
def test_a_token_after_the_first_eos_has_the_vector_of_the_second_segment() -> None:
    model = build("bert", LABEL, **STACK)
    ids = torch.tensor([[BOS, *FIRST, *SECOND, PAD]])
    read = model.encoder.embed
    vectors = read(ids)
    read.segments[1] += 1.0
    changed = (read(ids) != vectors).any(-1)[0].tolist()
    assert changed[:8] == [False] * 5 + [True] * 3  # <bos> and the first text with its <eos>; the second with its own


@torch.no_grad()
def test_the_loss_of_pairs_is_added_to_that_of_the_hidden_words() -> None:
    model = build("bert", MASKED, **STACK, follows=True)
    rows, labels = [[*FIRST, *SECOND], [*SECOND, *FIRST]], torch.tensor([[1], [0]])
    plain, both = model.loss(hidden_in(rows, 0, 1)), model.loss(hidden_in(rows, 0, 1, follows=labels))
    assert plain.objective == plain.nll == both.nll and plain.tokens == both.tokens == 4
    states = model.encode(hidden_in(rows, 0, 1)).values[:, 0]  # of <cls>
    pooled = torch.tanh(model.follows.pool.linear(states))
    wrong = torch.nn.functional.cross_entropy(model.follows.linear(pooled), labels[:, 0])  # the mean
    torch.testing.assert_close(both.objective / 4, both.nll / 4 + wrong)


def test_the_pooler_of_pairs_is_that_of_a_classifier() -> None:
    pretrained = weights(build("bert", MASKED, **STACK, follows=True))
    reads = weights(build("bert", LABEL, **STACK))
    shared = {name.replace("follows.", "head.") for name in pretrained if name.startswith("follows.pool.")}
    assert shared and shared == {name for name in reads if name.startswith("head.pool.")}
    assert not any(name.startswith("follows") for name in weights(build("bert", MASKED, **STACK)))


@torch.no_grad()
def test_the_pooler_reads_cls_or_the_mean_of_all_states_and_never_the_padding() -> None:
    for pool, one in (("first", lambda states: states[0]), ("mean", lambda states: states.mean(0))):
        model = build("bert", LABEL, **STACK, pool=pool)
        together = model.classify(labelled([FIRST, SECOND], [0, 1]))
        for row, ids in enumerate((FIRST, SECOND)):
            alone = labelled([ids], [0])
            states = model.encode(alone).values[0][: 1 + len(ids)]  # with <cls>
            pooled = torch.tanh(model.head.pool.linear(one(states)))
            torch.testing.assert_close(together[row], model.head.linear(pooled).log_softmax(-1))


# --- electra: a generator and a discriminator ---


def electra(**settings: Any) -> Any:
    return build("electra", MASKED, **STACK, embedding=5, head="replaced", generator=0.5, **settings)


ROWS = [[*FIRST, *SECOND], SECOND]


@torch.no_grad()
def test_the_discriminator_is_asked_whether_each_token_was_replaced() -> None:
    model, batch = electra(), hidden_in(ROWS, 0, 1)
    assert batch.source is not None and batch.target is not None
    words = model.fill(batch).argmax(-1)  # outside training, the most probable
    texts, answers = batch.target.values.clone(), torch.zeros(batch.source.mask.shape, dtype=torch.float64)
    for (row, place), word in zip(batch.target.mask.nonzero().tolist(), words.tolist(), strict=True):
        answers[row, place] = word != texts[row, place]
        texts[row, place] = word
    states = model.encode(dataclasses.replace(batch, source=Padded(texts, batch.source.mask))).values[:, 1:]  # no <cls>
    odds = model.head.out(torch.nn.functional.gelu(model.head.linear(states)))[..., 0].sigmoid()
    each = -(answers * odds.log() + (1 - answers) * (1 - odds).log())
    judged = each[batch.source.mask]
    assert len(judged) == len(ROWS[0]) + len(ROWS[1])  # every token, hidden or not
    loss = model.loss(batch)
    assert loss.tokens == 4 and float(loss.nll) == float(model.generator.loss(batch).nll)
    torch.testing.assert_close(loss.objective / 4, loss.nll / 4 + 50 * judged.mean())


@torch.no_grad()
def test_a_sample_that_is_the_original_word_was_not_replaced() -> None:
    model, batch = electra(), hidden_in(ROWS, 0)
    assert batch.target is not None
    model.generator.head.softmax.bias.zero_()[int(batch.target.values[0, 0])] = 1e4  # it always says the first's word
    model.head.linear.weight.zero_()
    model.head.linear.bias.zero_()
    model.head.out.bias.fill_(-5.0)  # P(replaced) = σ(−5) of every token
    loss = model.loss(batch)
    judged = len(ROWS[0]) + len(ROWS[1])
    wrong = torch.tensor([-5.0] * (judged - 1) + [5.0]).double()  # one of the two hidden words is another one
    torch.testing.assert_close(loss.objective / 2, loss.nll / 2 + 50 * torch.nn.functional.softplus(wrong).mean())


def test_no_gradient_goes_through_the_samples() -> None:
    batch = hidden_in(ROWS, 0, 1)

    def slopes(model: Any, loss: Tensor) -> dict[str, Tensor]:
        loss.backward()
        own = {name: each for name, each in model.named_parameters() if name.startswith("generator.")}
        return {name: each.grad for name, each in own.items() if ".embed.embed" not in name}

    both, alone = electra().train(), electra().train()
    theirs = slopes(both, both.loss(batch).objective)
    expected = slopes(alone, alone.generator.loss(batch).objective)
    assert theirs.keys() == expected.keys() and len(theirs) > 10
    for name, slope in theirs.items():
        torch.testing.assert_close(slope, expected[name])
    assert both.encoder.stack.blocks[0].feed_forward.widen.weight.grad is not None


@torch.no_grad()
def test_samples_differ_in_training_and_repeat_themselves_in_validation() -> None:
    model, batch = electra(), hidden_in(ROWS, 0, 1)
    assert len({float(model.loss(batch).objective) for _ in range(5)}) == 1
    assert len({float(model.train().loss(batch).objective) for _ in range(5)}) > 1
    states = model.generator.states(batch)
    drawn = torch.stack([model.filled(batch, states).values[batch.target.mask][0] for _ in range(3000)])
    shares = torch.bincount(drawn, minlength=VOCAB) / len(drawn)
    torch.testing.assert_close(shares.double(), model.fill(batch)[0].softmax(-1), rtol=0, atol=0.05)


def test_both_players_read_the_same_embeddings() -> None:
    model = electra()
    own, theirs = model.encoder.embed, model.generator.encoder.embed
    assert own.embed.weight is theirs.embed.weight is model.generator.head.softmax.weight
    assert own.positions is theirs.positions and own.segments is theirs.segments and own.norm is theirs.norm
    names = weights(model)
    assert sum(len(tensor) == VOCAB and tensor.dim() == 2 for tensor in names.values()) == 1
    assert {name.split(".")[0] for name in names} == {"encoder", "head", "generator"}
    body = {name for name in weights(build("electra", LABEL, **STACK, embedding=5)) if name.startswith("encoder.")}
    assert body == {name for name in names if name.startswith("encoder.")}
    assert model.generator.encoder.stack.dim == 6 and model.encoder.stack.dim == 12


def test_an_interrupted_pre_training_ends_as_if_it_was_not(tmp_path: Path) -> None:
    lines = [f"the {word} sees a {word[::-1]}" for word in ("cat", "dog", "hen", "cow")]
    (tmp_path / "train.txt").write_text("\n".join(lines))
    recipe = parse_recipe(
        {
            "task": "masked",
            "data": {"name": "text", "train": "train.txt", "valid": "train.txt"},
            "tokens": {"kind": "words", "size": 0},
            "model": {"name": "electra", **STACK, "embedding": 5, "longest": 32, "head": "replaced", "generator": 0.5},
            "train": {"steps": 5, "validate_every": 2, "batch_tokens": 32, "precision": "float32"},
        },
        tasks=TASKS,
        folder=tmp_path,
    )
    list(Session(recipe, tmp_path / "straight").steps())
    started = Session(recipe, tmp_path / "stopped")
    list(islice(started.steps(), 3))
    started.save()
    list(Session(recipe, tmp_path / "stopped").steps())
    for file in ("model.safetensors", "last/state.safetensors"):
        one, other = (read_tensors(tmp_path / run / file)[0] for run in ("straight", "stopped"))
        assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_generator_without_a_discriminator_is_refused() -> None:
    with pytest.raises(ValueError, match='needs head = "replaced"'):
        MODELS["electra"].config(generator=0.25)
