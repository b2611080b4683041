"""Hugging Face folders: models of every family agree with `transformers` to the last digits, in and out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import Call

import regard
from regard.data.corruption import MASK
from regard.exchange.hugging_face import export_folder, import_folder
from regard.interface import EOS, Batch, Padded, UserError
from regard.run import Run

transformers = pytest.importorskip("transformers")
pytest.importorskip("sentencepiece")
from folders import FAMILIES  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

TEXTS = ["the film was good", "dogs", "a bad house and the watcher was watching"]
ENCODER = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 36}
ENCODER |= {"max_position_embeddings": 44, "num_labels": 5}
WIDER = {"hidden_size": 40, "num_hidden_layers": 2, "num_attention_heads": 5, "intermediate_size": 56}
WIDER |= {"max_position_embeddings": 60, "num_labels": 3}
SIDES = {f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in
         {"layers": 2, "attention_heads": 3, "ffn_dim": 36}.items()}  # fmt: skip
SEQ2SEQ = {"d_model": 24, "max_position_embeddings": 44, **SIDES}
GPT2 = {"n_embd": 24, "n_layer": 3, "n_head": 4, "n_positions": 44}
T5 = {"d_model": 24, "d_kv": 7, "d_ff": 36, "num_layers": 2, "num_heads": 3}
SMALL = {"dim": 24, "n_layers": 3, "n_heads": 4, "hidden_dim": 36, "max_position_embeddings": 44, "num_labels": 5}

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {  # tokenizer, architecture, sizes
    "bert": ("bert", "BertForMaskedLM", ENCODER),
    "bert wider": ("bert-cased", "BertForMaskedLM", WIDER | {"hidden_act": "relu"}),
    "bert body": ("bert", "BertModel", ENCODER),
    "bert pre-training": ("bert", "BertForPreTraining", ENCODER),
    "bert labels": ("bert", "BertForSequenceClassification", ENCODER),
    "distilbert": ("distilbert", "DistilBertForMaskedLM", SMALL),
    "distilbert labels": ("distilbert", "DistilBertForSequenceClassification", SMALL),
    "roberta": ("roberta", "RobertaForMaskedLM", ENCODER | {"type_vocab_size": 1, "layer_norm_eps": 1e-5}),
    "roberta labels": ("roberta", "RobertaForSequenceClassification", WIDER),
    "albert": ("albert", "AlbertForMaskedLM", ENCODER | {"embedding_size": 8}),
    "albert labels": ("albert", "AlbertForSequenceClassification", WIDER | {"embedding_size": 16}),
    "electra generator": ("electra", "ElectraForMaskedLM", ENCODER | {"embedding_size": 8}),
    "electra discriminator": ("electra", "ElectraForPreTraining", ENCODER | {"embedding_size": 24}),
    "electra labels": ("electra", "ElectraForSequenceClassification", ENCODER | {"embedding_size": 8}),
    "gpt2": ("gpt2", "GPT2LMHeadModel", GPT2),
    "gpt2 untied": ("gpt2", "GPT2LMHeadModel", GPT2 | {"tie_word_embeddings": False, "n_inner": 20}),
    "t5": ("t5", "T5ForConditionalGeneration", T5),
    "t5 gated": ("t5", "T5ForConditionalGeneration", T5 | {"feed_forward_proj": "gated-gelu"}),
    "bart": ("bart", "BartForConditionalGeneration", SEQ2SEQ),
    "bart scaled": ("bart", "BartForConditionalGeneration", SEQ2SEQ | {"scale_embedding": True, "d_model": 36}),
    "marian": ("marian", "MarianMTModel", SEQ2SEQ | {"scale_embedding": True, "activation_function": "swish"}),
}
MASKED = [
    name for name, (_, architecture, _) in CASES.items() if architecture.endswith(("ForMaskedLM", "BertForPreTraining"))
]
LABELS = [name for name in CASES if name.endswith("labels")]
WRITERS = ["t5", "t5 gated", "bart", "bart scaled", "marian"]
ENCODERS = [name for name in CASES if CASES[name][2].get("hidden_size") or CASES[name][2] is SMALL]


class Both:
    """A folder, the model that `transformers` has for it, and the run that was imported from it."""

    def __init__(self, name: str, folder: Path) -> None:
        kind, architecture, sizes = CASES[name]
        self.name, self.folder, self.path = name, folder / "theirs", folder / "run"
        FAMILIES[kind](self.folder)
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder)
        written = json.loads((self.folder / "config.json").read_text())
        ids = {
            "vocab_size": len(self.tokenizer),
            **{key: value for key, value in written.items() if key != "model_type"},
        }
        for key in ("pad", "bos", "eos"):
            found = getattr(self.tokenizer, f"{key}_token_id")
            ids[f"{key}_token_id"] = found
        if kind.startswith("marian"):
            ids["vocab_size"] = ids["decoder_vocab_size"] = written["vocab_size"]
        known = transformers.AutoConfig.for_model(written["model_type"])
        config = type(known)(**(ids | sizes))
        torch.manual_seed(7)
        self.model = getattr(transformers, architecture)(config).eval()
        with torch.no_grad():
            for path, tensor in (*self.model.named_parameters(), *self.model.named_buffers()):
                if tensor.is_floating_point() and not (kind.startswith("marian") and "embed_positions" in path):
                    tensor.normal_(std=0.3)
        self.model.save_pretrained(self.folder)
        import_folder(self.folder, self.path)
        self.run: Run = regard.load(self.path)

    def encoded(self, texts: list[str] = TEXTS, **how: Any) -> Any:
        return self.tokenizer(texts, return_tensors="pt", padding=True, **how)


@pytest.fixture(scope="module", params=CASES)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    return Both(request.param, tmp_path_factory.mktemp("folder"))


def only(both: Both, names: list[str]) -> None:
    if both.name not in names:
        pytest.skip("another kind of model")


def near(found: Any, wanted: Any, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(torch.as_tensor(found).float(), torch.as_tensor(wanted).float(), rtol=0, atol=tolerance)


def source(both: Both) -> Batch:
    return both.run.batch(source=TEXTS)


@torch.no_grad()
def test_hidden_states_of_encoders_agree_where_there_is_no_padding(both: Both) -> None:
    only(both, [*ENCODERS, *WRITERS])
    read = both.encoded()
    theirs = both.model.get_encoder()(**read) if both.name in WRITERS else both.model.base_model(**read)
    ours = both.run.model.encode(source(both))
    assert ours.mask.sum(1).tolist() == read["attention_mask"].sum(1).tolist()
    for row, length in enumerate(ours.mask.sum(1).tolist()):
        near(ours.values[row, :length], theirs.last_hidden_state[row, :length])


@torch.no_grad()
def test_the_second_text_of_a_pair_has_the_other_segment_vector(both: Both) -> None:
    only(both, ["bert body", "albert", "electra discriminator"])
    seconds = ["dogs", "the house was bad", "a film"]
    read = both.encoded(TEXTS, text_pair=seconds, return_token_type_ids=True)
    assert set(read["token_type_ids"].flatten().tolist()) == {0, 1}
    parts = [both.run.tokenizer().encode_all(texts) for texts in (TEXTS, seconds)]
    rows = [torch.tensor([*first, EOS, *second, EOS]) for first, second in zip(*parts, strict=True)]
    ours = both.run.model.encode(Batch(Padded.of_ids(torch.nn.utils.rnn.pad_sequence(rows, batch_first=True))))
    theirs = both.model.base_model(**read).last_hidden_state
    assert ours.mask.sum(1).tolist() == read["attention_mask"].sum(1).tolist()
    near(ours.values[ours.mask], theirs[read["attention_mask"].bool()])


@torch.no_grad()
def test_a_masked_model_predicts_the_same(both: Both) -> None:
    only(both, MASKED)
    shown = both.run.batch(source=TEXTS).source
    assert shown is not None
    hidden = torch.zeros_like(shown.mask)
    hidden[:, 0] = True
    batch = Batch(Padded(shown.values.masked_fill(hidden, MASK), shown.mask), Padded(shown.values, hidden))
    read = both.encoded()
    read["input_ids"][:, 1] = both.tokenizer.mask_token_id
    labels = torch.where(read["input_ids"] == both.tokenizer.mask_token_id, both.encoded()["input_ids"], -100)
    found = both.model(**read) if "pre-training" in both.name else both.model(**read, labels=labels)
    logits = found.prediction_logits if "pre-training" in both.name else found.logits
    tokenizer: Any = both.run.tokenizer()
    predicted = torch.tensor(tokenizer.predicted)
    near(both.run.model.fill(batch)[:, predicted], logits[:, 1][:, torch.tensor(tokenizer.theirs)[predicted]])
    if "pre-training" not in both.name:
        loss = both.run.model.loss(batch)
        near(loss.nll / loss.tokens, found.loss, 1e-5)


@torch.no_grad()
def test_a_discriminator_finds_the_same_words(both: Both) -> None:
    only(both, ["electra discriminator"])
    batch = source(both)
    theirs, mask = both.model(**both.encoded()).logits[:, 1:], batch.source.mask  # type: ignore[union-attr]
    ours = both.run.model.head.logits(both.run.model.states(batch))
    near(ours[:, : theirs.shape[1]][mask[:, : theirs.shape[1]]], theirs[mask[:, : theirs.shape[1]]])


@torch.no_grad()
def test_a_classifier_gives_the_same_probabilities(both: Both) -> None:
    only(both, LABELS)
    theirs = both.model(**both.encoded()).logits.softmax(-1)
    ours = [list((each.probabilities or {}).values()) for each in both.run.predict(TEXTS)]
    near(ours, theirs, 1e-5)


@torch.no_grad()
def test_a_language_model_gives_texts_the_same_probability_and_continues_them_alike(both: Both) -> None:
    only(both, ["gpt2", "gpt2 untied"])
    for text in TEXTS:
        ids = torch.tensor(
            [[both.tokenizer.bos_token_id, *both.tokenizer(text)["input_ids"], both.tokenizer.eos_token_id]]
        )
        near(both.run.log_prob(text) / (ids.shape[1] - 1), -both.model(ids, labels=ids).loss, 1e-5)
        given = ids[:, :-1]
        written = both.model.generate(given, max_new_tokens=12, do_sample=False, pad_token_id=0)[0, 1:]
        ours = both.run.predict([text], max_length=12, sample=False)[0].text
        assert ours == both.tokenizer.decode(written, skip_special_tokens=True, clean_up_tokenization_spaces=False)


@torch.no_grad()
def test_an_encoder_decoder_gives_pairs_the_same_probability_and_writes_alike(both: Both) -> None:
    only(both, WRITERS)
    tokenizer: Any = both.run.tokenizer("target")
    for text, answer in zip(TEXTS, reversed(TEXTS), strict=True):
        read = both.tokenizer(text, return_tensors="pt")
        labels = both.tokenizer(text_target=answer, return_tensors="pt")["input_ids"]
        if both.name.startswith("bart"):
            labels[:, 0] = -100  # <s> is given, not predicted
            shifted = torch.cat([torch.tensor([[2, 0]]), labels[:, 1:-1]], 1)
            found = both.model(**read, decoder_input_ids=shifted, labels=labels)
        else:
            found = both.model(**read, labels=labels)
        count = int((labels != -100).sum())
        near(both.run.log_prob((text, answer)) / count, -found.loss, 1e-5)
        forced = {"forced_bos_token_id": 0} if both.name.startswith("bart") else {}
        how = {"max_new_tokens": 9, "do_sample": False, "num_beams": 1, "forced_eos_token_id": None} | forced
        never = transformers.LogitsProcessorList([Never(both.tokenizer.pad_token_id, len(forced))])
        written = both.model.generate(**read, **how, logits_processor=never)[0, 1 + len(forced) :]
        theirs = [tokenizer.ours[int(token)] for token in written if token != both.tokenizer.eos_token_id]
        ours = both.run.predict([text], beam=1, max_length=9 - len(forced))[0]
        assert list(ours.tokens) == tokenizer.surface(theirs)


class Never(transformers.LogitsProcessor):
    """Padding, and the beginning again, are never written, as in `regard`."""

    def __init__(self, padding: int, begins: int) -> None:
        self.padding, self.begins = padding, begins

    def __call__(self, ids: Any, scores: Any) -> Any:
        scores[:, self.padding] = -torch.inf
        if self.begins and ids.shape[1] > 1:
            scores[:, 0] = -torch.inf
        return scores


@torch.no_grad()
def test_out_and_in_again_is_the_identity_and_transformers_reads_it(both: Both, tmp_path: Path) -> None:
    export_folder(both.path, tmp_path / "out")
    again = type(both.model).from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    read = (
        tokenizer(TEXTS, return_tensors="pt", padding=True)
        if "gpt2" not in both.name
        else tokenizer(TEXTS[:1], return_tensors="pt")
    )
    before = both.encoded() if "gpt2" not in both.name else both.tokenizer(TEXTS[:1], return_tensors="pt")
    assert read["input_ids"].tolist() == before["input_ids"].tolist()
    if both.name in WRITERS:
        before["decoder_input_ids"] = before["input_ids"][:, :3]
    one, two = (model(**before) for model in (both.model, again))
    key = next(key for key in ("logits", "prediction_logits", "last_hidden_state") if key in one)
    real = (
        before["attention_mask"].bool() if key != "logits" or one[key].dim() == 3 and both.name not in WRITERS else ...
    )
    near(two[key][real], one[key][real], 1e-5)
    import_folder(tmp_path / "out", tmp_path / "run")
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (both.path / "model.safetensors").read_bytes()


def test_vectors_are_the_mean_of_the_last_states(both: Both, call: Call) -> None:
    only(both, ["bert body"])
    read = both.encoded()
    with torch.no_grad():
        states = both.model(**read).last_hidden_state
    mask = read["attention_mask"][..., None]
    wanted = (states * mask).sum(1) / mask.sum(1)
    near(both.run.embed(TEXTS), wanted, 1e-5)
    done = call("predict", both.path, TEXTS[1], "--vectors")
    assert done.code == 0
    near([float(number) for number in done.out.split()], wanted[1], 1e-4)
    done = call("predict", both.path, "the [MASK] was good")
    assert done.code == 1 and "--vectors" in done.err


def test_an_imported_model_can_be_used_as_any_other(both: Both, call: Call, tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("\n".join(TEXTS) + "\n")
    if both.name in WRITERS:
        assert both.run.look(TEXTS[0], TEXTS[1]).weights.sum() > 0
        assert len(both.run.task.look_closely(both.run, TEXTS[0], TEXTS[1]).views) == 6
    else:
        done = call("look", both.path, TEXTS[0], "--html", tmp_path / "look.html", "--threads", 1)
        assert done.code == 0, done.err
    assert call("runs", tmp_path).code in (0, 1)
    if both.name in MASKED or "gpt2" in both.name:
        assert "perplexity" in call("score", both.path, tmp_path / "texts").out
    if both.name in MASKED:
        assert "[MASK]" not in call("predict", both.path, "the [MASK] was good").out


def test_a_picture_model_agrees(tmp_path: Path) -> None:
    sizes = ENCODER | {"image_size": 12, "patch_size": 4, "num_channels": 3}
    config = transformers.ViTConfig(**sizes)
    torch.manual_seed(7)
    model = transformers.ViTForImageClassification(config).eval()
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.normal_(std=0.3)
    model.save_pretrained(tmp_path / "theirs")
    transformers.ViTImageProcessor(size={"height": 12, "width": 12}).save_pretrained(tmp_path / "theirs")
    import_folder(tmp_path / "theirs", tmp_path / "run")
    pictures = np.random.default_rng(1).integers(0, 256, (3, 12, 12, 3), np.uint8)
    with torch.no_grad():
        pixels = torch.from_numpy(pictures).permute(0, 3, 1, 2) / 255
        theirs = model((pixels - 0.5) / 0.5).logits.softmax(-1)
    run = regard.load(tmp_path / "run")
    near([list((each.probabilities or {}).values()) for each in run.predict(list(pictures))], theirs, 1e-5)
    export_folder(tmp_path / "run", tmp_path / "out")
    again = transformers.ViTForImageClassification.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        near(again((pixels - 0.5) / 0.5).logits.softmax(-1), theirs, 1e-5)
    import_folder(tmp_path / "out", tmp_path / "run2")
    assert (tmp_path / "run2" / "model.safetensors").read_bytes() == (
        tmp_path / "run" / "model.safetensors"
    ).read_bytes()


@torch.no_grad()
def test_pairs_padded_on_both_sides_agree(both: Both) -> None:
    only(both, WRITERS)
    answers = list(reversed(TEXTS))
    batch = both.run.batch(source=TEXTS, target=answers)
    assert batch.target is not None
    tokenizer: Any = both.run.tokenizer("target")
    rows, predicted = torch.tensor(tokenizer.theirs), torch.tensor(tokenizer.predicted)
    given = rows[batch.target.before().values].clamp(min=0)
    given[:, 0] = both.model.config.decoder_start_token_id
    if both.name.startswith("bart"):  # <s> comes after the start
        given = torch.cat([given[:, :1], torch.zeros_like(given[:, :1]), given[:, 1:]], 1)
    found = both.model(**both.encoded(), decoder_input_ids=given).logits[:, -(batch.target.values.shape[1] - 1) :]
    real = batch.target.after().mask
    near(both.run.model.logits(batch)[real][:, predicted], found[real][:, rows[predicted]])


@torch.no_grad()
def test_padding_before_a_text_changes_nothing(both: Both) -> None:
    """`transformers` may pad at the left; the positions then begin after the padding."""
    only(both, ["bert", "gpt2", "t5"])
    right = {"bert": both.encoded, "t5": both.encoded}.get(both.name)
    ids = [both.tokenizer(text)["input_ids"] for text in TEXTS]
    if right is None:
        ids = [[both.tokenizer.bos_token_id, *each] for each in ids]
    longest = max(map(len, ids))
    padding = both.tokenizer.pad_token_id or 0
    left = torch.tensor([[padding] * (longest - len(each)) + each for each in ids])
    mask = torch.tensor([[0] * (longest - len(each)) + [1] * len(each) for each in ids])
    places = {} if both.name == "t5" else {"position_ids": (mask.cumsum(1) - 1).clamp(min=0)}
    body = both.model.get_encoder() if both.name == "t5" else both.model.base_model
    states = body(input_ids=left, attention_mask=mask, **places).last_hidden_state
    batch = both.run.batch(target=TEXTS) if both.name == "gpt2" else source(both)
    ours = both.run.model.encode(batch)
    for row, each in enumerate(ids):
        near(ours.values[row, : len(each)], states[row, longest - len(each) :])


def test_a_masked_model_without_a_mask_token_is_refused(tmp_path: Path) -> None:
    FAMILIES["bert"](tmp_path)
    words = (tmp_path / "vocab.txt").read_text()
    (tmp_path / "vocab.txt").write_text(words.replace("[MASK]", "mask-gone"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"mask_token": None}))
    config = transformers.BertConfig(vocab_size=len(words.splitlines()), **ENCODER)
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="its tokenizer has no mask token"):
        import_folder(tmp_path, tmp_path / "run")
