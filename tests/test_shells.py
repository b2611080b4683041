"""The shells hold parts of anybody's: what a user's own part gets for free, and what several models are as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from made import labelled, pairs, tagged, text
from torch import Tensor, nn

from regard.interface import EOS, Batch, Carries, Ids, Label, Padded, Shapes, TagIds, Tree, UserError, Windowed
from regard.layers.attention import Attention, Scaled
from regard.layers.cells import GRUAfter
from regard.layers.encoders import Embedding, Encoded, RecurrentEncoder
from regard.layers.pooling import Attentive, Mean
from regard.layers.recurrent import Recurrent
from regard.models import MODELS, abilities
from regard.models.encoder_head import headed
from regard.models.language_model import LanguageModel
from regard.models.mixture import Mixture

VOCAB, NAMES, DIM = 11, 5, 7
SMALL: dict[str, dict[str, Any]] = {
    "gpt": {"dim": 8, "heads": 2, "feed_forward": 16, "layers": 1, "context": 19},
    "elmo": {"embedding": 5, "hidden": 7, "context": 17},
    "rnn_lm": {"embedding": 5, "hidden": 5},
    "neural_lm": {"embedding": 5, "hidden": 5},
    "ngram": {"order": 2},
}


class Bag(nn.Module):
    """A user's encoder that reads the source and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCAB, DIM)
        self.attention = Attention(score=Scaled())

    def forward(self, source: Padded) -> Encoded:
        words = self.table(source.values)  # (batch, source, dim)
        mixed = self.attention(words, self.attention.memory(words, words, source.mask))
        return Encoded(mixed, source.mask, (), mixed)


def small(name: str) -> Any:
    design = MODELS[name]
    return design.build(design.config(**SMALL[name]), Shapes(None, Ids(VOCAB)))


@pytest.mark.parametrize("target", [Label(NAMES), TagIds(NAMES)])
def test_an_encoder_that_takes_only_the_source_trains_and_classifies(target: Label | TagIds) -> None:
    model = headed(Bag(), Shapes(Ids(VOCAB), target), dim=DIM, pool=lambda dim: Mean(), chain=True)
    source, letters = [[4, 5, EOS], [6, EOS]], torch.ones(2, 3, 8, dtype=torch.long)
    if isinstance(target, Label):
        batch = labelled(source, [0, NAMES - 1], spelling=letters)
    else:
        batch = tagged(source, torch.tensor([[0, NAMES - 1, 0], [1, 0, 0]]), spelling=letters)
    model.loss(batch).objective.backward()
    found = model.classify(batch) if isinstance(target, Label) else model.tag(batch)
    assert found.shape == ((2, NAMES) if isinstance(target, Label) else (2, 3))
    inside = model.inspect()
    assert [(each.kind, each.queries, each.keys, each.extra) for each in inside.attentions] == [
        ("self", "source", "source", 0)
    ]
    assert inside.reader is None
    assert inside.vectors is None


def test_what_a_model_reads_beside_the_source_reaches_it_by_name() -> None:
    class Told(Bag):
        def forward(self, source: Padded, *beside: Tensor) -> Encoded:
            assert [each.shape[-1] for each in beside] == [2, 3]
            return super().forward(source)

    model = headed(
        Told(), Shapes(Ids(VOCAB), Label(NAMES)), dim=DIM, pool=lambda dim: Attentive(dim=dim), beside=("two", "three")
    )
    kinds = {"one": torch.ones(1, 2, 1), "three": torch.ones(1, 2, 3), "two": torch.ones(1, 2, 2)}
    model.loss(labelled([[4, EOS]], [0], **kinds))
    assert [each.kind for each in model.inspect().attentions] == ["self", "pooling"]


def test_a_reversed_encoder_of_both_directions_turns_both() -> None:
    recurrent = Recurrent(cell=GRUAfter, input_dim=DIM, hidden=3, layers=2, bidirectional=True)
    encoder = RecurrentEncoder(embed=Embedding(vocab=VOCAB, dim=DIM), recurrent=recurrent, reverse=True)
    inside = headed(encoder, Shapes(Ids(VOCAB), Label(NAMES)), dim=6, pool=lambda dim: Mean()).inspect()
    assert [(each.part, each.layer, each.backwards, each.two_ways) for each in inside.recurrences] == [
        (recurrent.forwards[0], 1, True, True),
        (recurrent.forwards[1], 2, True, True),
        (recurrent.backwards[0], 1, False, True),
        (recurrent.backwards[1], 2, False, True),
    ]


def test_a_target_that_is_not_a_models_own_is_refused() -> None:
    for name, target in (("rnn_lm", Label(NAMES)), ("transformer", TagIds(NAMES)), ("birnn", Ids(VOCAB))):
        with pytest.raises(UserError, match="choose another model or task"):
            MODELS[name].build(MODELS[name].config(), Shapes(Ids(VOCAB), target))


def test_abilities_are_promises() -> None:
    writers, readers = ["train", "generate", "score"], ["classify", "estimate", "tag", "choose", "point"]
    assert {name: abilities(design) for name, design in MODELS.items()} == {
        **dict.fromkeys(("ngram", "neural_lm", "rnn_lm", "seq2seq"), writers),
        "gpt": [*writers, *readers],
        "elmo": [*writers, "attend", *readers],
        **dict.fromkeys(("rnnsearch", "convs2s", "transformer"), [*writers, "attend"]),
        **dict.fromkeys(("show_attend_tell", "captioner"), [*writers, "attend"]),
        **dict.fromkeys(("t5", "bart"), [*writers, "attend", *readers]),
        **dict.fromkeys(("bert", "roberta", "albert", "electra"), ["train", *readers, "fill"]),
        **dict.fromkeys(("birnn", "cnn", "encoder"), ["train", *readers]),
        "attentive_birnn": ["train", "attend", "classify", "estimate", "choose"],
        **dict.fromkeys(("convnet", "vit"), ["train", "classify"]),
        "ctc": ["train", "emit"],
        **dict.fromkeys(("las", "speech_transformer"), ["train", "generate", "emit", "score", "attend"]),
    }


def test_a_word_is_read_as_the_vector_that_was_put_there() -> None:
    embed = Embedding(vocab=VOCAB, dim=DIM)
    before = embed(torch.arange(VOCAB)).detach().clone()
    vector = torch.arange(float(DIM))
    embed.put(4, vector)
    assert embed.dim == DIM
    torch.testing.assert_close(embed(torch.tensor(4)), vector)
    others = [place for place in range(VOCAB) if place != 4]
    assert torch.equal(embed(torch.tensor(others)), before[others])


# language models: carried state, or a window


@pytest.mark.parametrize("name", SMALL)
def test_a_language_model_carries_or_sees_a_window(name: str) -> None:
    model = small(name)
    assert isinstance(model, Windowed) == (name in ("gpt", "elmo"))
    assert isinstance(model, Carries) == (name not in ("gpt", "elmo"))


def test_the_bare_shell_promises_neither() -> None:
    model = small("rnn_lm")
    bare = LanguageModel(embed=model.embed, body=model.body, head=model.head)
    assert not isinstance(bare, Carries | Windowed)


@pytest.mark.parametrize(
    ("names", "context"),
    [(("ngram", "rnn_lm"), None), (("ngram", "gpt"), 19), (("gpt", "elmo"), 17), (("neural_lm", "rnn_lm", "gpt"), 19)],
)
def test_a_mixture_carries_if_all_do_and_sees_a_window_if_one_does(names: tuple[str, ...], context: int | None) -> None:
    mixture = Mixture([small(name) for name in names])
    assert isinstance(mixture, Windowed) == (context is not None)
    assert isinstance(mixture, Carries) == (context is None)
    if isinstance(mixture, Windowed):
        assert mixture.context == context


def test_a_mixture_of_carrying_models_continues_where_it_stopped() -> None:
    mixture = Mixture([small("neural_lm"), small("rnn_lm")]).double().eval()
    tokens = torch.randint(4, VOCAB, (3, 9), generator=torch.Generator().manual_seed(1))
    assert isinstance(mixture, Carries)
    with torch.no_grad():
        whole, _ = mixture.log_probs(text(tokens))
        first, state = mixture.log_probs(text(tokens[:, :5], mixture.begin(3)))
        second, _ = mixture.log_probs(text(tokens[:, 4:], state))
    torch.testing.assert_close(torch.cat([first, second], 1), whole)


def test_a_mixture_hands_on_whatever_else_a_batch_holds() -> None:
    @dataclass(frozen=True)
    class Larger(Batch):
        added: str = ""

    class Reads(nn.Module):
        def log_probs(self, batch: Batch) -> tuple[Tensor, Tree]:
            assert isinstance(batch, Larger)
            heard.append((batch.added, batch.beside.keys(), batch.state))
            return torch.zeros(1, 1), None

    heard: list[Any] = []
    plain = pairs([[4, EOS]], [[1, EOS]], spelling=torch.ones(1))
    batch = Larger(plain.source, plain.target, plain.beside, ("mine", "yours"), added="more")
    Mixture([Reads(), Reads()]).log_probs(batch)
    assert heard == [("more", {"spelling"}, "mine"), ("more", {"spelling"}, "yours")]
