"""Bodies under heads: what a pre-trained model reads for another task, with the names and numbers it had before."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from made import labelled, tagged, text
from torch import Tensor

from regard.interface import BOS, EOS, PAD, Batch, Ids, Label, Padded, Shapes, TagIds, UserError
from regard.layers.encoders import swapped
from regard.models import MODELS
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


def same_body(headed: Any, writes: Any, head: str = "") -> None:
    """Give a language model the weights of a headed one: those of its encoder, and of its `words` if there are."""
    own = weights(headed)
    with torch.no_grad():
        for name, tensor in weights(writes).items():
            tensor.copy_(own[f"encoder.{name}"] if f"encoder.{name}" in own else own[name.replace("head", head, 1)])


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
    same_body(model, writes, "words")
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


def test_both_orders_of_a_task_for_each_token_are_refused() -> None:
    with pytest.raises(UserError, match="set model.both_orders to false"):
        gpt(Shapes(Ids(VOCAB), TagIds(NAMES)), both_orders=True)
