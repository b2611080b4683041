"""Which weight of ours is which of Hugging Face's, and which setting which: one Family for each of their model types.

A family lists pairs of names and a Form, which turns their tensor into ours and back. Weights with a row per token are
in the order of our ids inside a run, whose first four are <pad>, <bos>, <eos> and <unk>; `Vocabulary` says which of
their rows each is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.config import choose
from regard.interface import EOS, UserError

BART_OFFSET = 2
SILENT = -1e4  # the bias of a token that is never predicted: its probability is exactly 0
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "relu": "relu"}
ACTIVATIONS |= {"gelu_python": "gelu", "swish": "silu", "silu": "silu", "tanh": "tanh"}
LABELS, DISCRIMINATOR = "ForSequenceClassification", "ElectraForPreTraining"  # their architectures
Config = Mapping[str, Any]  # their config.json


class Vocabulary(NamedTuple):
    """For each id of ours, their row (−1: none), and whether it may be predicted: one of ours for each of theirs."""

    rows: Sequence[int]
    predicted: Sequence[bool]


class Form(NamedTuple):
    """How a tensor of theirs becomes ours, and ours theirs, given the vocabulary where there is one."""

    inward: Callable[[Tensor, Vocabulary | None], Tensor]
    outward: Callable[[Tensor, Vocabulary | None], Tensor]


def _rows_in(theirs: Tensor, vocabulary: Vocabulary | None, scale: float = 1.0) -> Tensor:
    """Rows of tokens in our order; a token that they do not have is 0."""
    assert vocabulary is not None
    rows = torch.tensor(vocabulary.rows)
    ours = theirs[rows.clamp(min=0)]
    ours[rows < 0] = 0
    return ours.mul_(scale) if scale != 1 else ours


def _rows_out(ours: Tensor, vocabulary: Vocabulary | None, scale: float = 1.0) -> Tensor:
    assert vocabulary is not None
    predicted = torch.tensor(vocabulary.predicted)
    places = torch.full((max(vocabulary.rows) + 1,), -1)
    places[torch.tensor(vocabulary.rows)[predicted]] = torch.arange(len(predicted))[predicted]
    theirs = ours[places.clamp(min=0)]
    theirs[places < 0] = 0
    return theirs.div_(scale) if scale != 1 else theirs


def _bias_in(theirs: Tensor, vocabulary: Vocabulary | None) -> Tensor:
    assert vocabulary is not None
    return _rows_in(theirs.reshape(-1), vocabulary).masked_fill(~torch.tensor(vocabulary.predicted), SILENT)


def _no_bias(theirs: Tensor, vocabulary: Vocabulary | None) -> Tensor:
    """They have no bias: ours is 0 for each token that they have."""
    return _bias_in(theirs.new_zeros(len(theirs), dtype=torch.float32), vocabulary)


def _cut(theirs: Tensor, _: Vocabulary | None, *, first: int) -> Tensor:
    return theirs[first:]


def _extended(ours: Tensor, _: Vocabulary | None, *, first: int) -> Tensor:
    return torch.cat([ours.new_zeros(first, ours.shape[1]), ours])


SAME = Form(lambda theirs, _: theirs, lambda ours, _: ours)
TURNED = Form(lambda theirs, _: theirs.t(), lambda ours, _: ours.t())  # their Conv1D is (input, output)
ROWS = Form(_rows_in, _rows_out)
BIAS = Form(_bias_in, _rows_out)
BIAS_ROW = Form(_bias_in, lambda ours, vocabulary: _rows_out(ours, vocabulary)[None])  # (1, vocab)
NO_BIAS = Form(_no_bias, lambda ours, _: ours)  # they have none; ours says only which tokens exist


def after(first: int) -> Form:
    """Positions, of which they do not use the first few."""
    return Form(partial(_cut, first=first), partial(_extended, first=first))


def scaled_rows(scale: float) -> Form:
    return Form(partial(_rows_in, scale=scale), partial(_rows_out, scale=scale))


def third(place: int, turned: bool) -> Form:
    """One of query, key and value, which they keep side by side; the way out joins all three."""

    def inward(theirs: Tensor, _: Vocabulary | None) -> Tensor:
        part = theirs.chunk(3, -1)[place]
        return part.t() if turned else part

    return Form(inward, lambda ours, _: ours.t() if turned else ours)


def patches(channels: int, side: int) -> Form:
    """A convolution over patches; ours is linear, over the pixels of a patch row by row with their channels."""

    def inward(theirs: Tensor, _: Vocabulary | None) -> Tensor:
        return theirs.permute(0, 2, 3, 1).flatten(1)

    def outward(ours: Tensor, _: Vocabulary | None) -> Tensor:
        return ours.view(-1, side, side, channels).permute(0, 3, 1, 2)

    return Form(inward, outward)


class Pair(NamedTuple):
    theirs: str
    form: Form = SAME


Names = dict[str, Pair]  # our name -> theirs


def both(modules: Mapping[str, str], ours: str = "", theirs: str = "", *, bias: bool = True) -> Names:
    """The weight and the bias of each pair of modules."""
    kinds = ("weight", "bias") if bias else ("weight",)
    return {f"{ours}{a}.{kind}": Pair(f"{theirs}{b}.{kind}") for a, b in modules.items() for kind in kinds}


def layers(count: int, ours: str, theirs: str, modules: Mapping[str, str], *, bias: bool = True) -> Names:
    names: Names = {}
    for layer in range(count):
        names |= both(modules, f"{ours}.{layer}.", f"{theirs}.{layer}.", bias=bias)
    return names


SELF, CROSS, WIDEN, NARROW = "self_attention", "cross_attention", "feed_forward.widen", "feed_forward.narrow"


def attention(ours: str, theirs: str, names: Sequence[str]) -> dict[str, str]:
    return {f"{ours}.{a}": f"{theirs}{b}" for a, b in zip(("query", "key", "value", "out"), names, strict=True)}


@dataclass(frozen=True)
class Family:
    """One of their model types."""

    model: str  # the name of our model
    settings: Mapping[str, str]  # our setting -> the key of their config
    names: Callable[[Config, str], Names]  # their config and architecture -> every weight
    heads: Mapping[str, str]  # what comes after the body: the end of their architecture's name -> our task
    also: Callable[[Config], dict[str, Any]]  # settings that are more than a key
    back: Callable[[Any, Config], dict[str, Any]]  # the keys of their config for our settings, beside special tokens
    fixed: Mapping[str, Any] = field(default_factory=dict)  # keys of their config that only have this value here
    needs: Mapping[str, Any] = field(default_factory=dict)  # our settings that must have these values on the way out
    preset: str = ""  # what to train with, so that it can be exported
    prefix: str = ""  # of the body's names, which some files leave out
    reads: str = ""  # what the tokenizer puts around a text
    leads: int | None = None  # what a decoder reads first, if it is not <bos>
    pooler: str = ""  # activation of its classifiers' layer above <cls>


# --- encoders: bert and its relatives ----------------------------------------------------------------------------

BLOCK = {
    **{f"{SELF}.{name}": f"attention.self.{name}" for name in ("query", "key", "value")},
    f"{SELF}.out": "attention.output.dense",
    "self_residual.norm": "attention.output.LayerNorm",
    WIDEN: "intermediate.dense",
    NARROW: "output.dense",
    "feed_residual.norm": "output.LayerNorm",
}
DISTILLED = {
    **attention(SELF, "attention.", ("q_lin", "k_lin", "v_lin", "out_lin")),
    "self_residual.norm": "sa_layer_norm",
    WIDEN: "ffn.lin1",
    NARROW: "ffn.lin2",
    "feed_residual.norm": "output_layer_norm",
}
GROUPED = {
    **attention(SELF, "attention.", ("query", "key", "value", "dense")),
    "self_residual.norm": "attention.LayerNorm",
    WIDEN: "ffn",
    NARROW: "ffn_output",
    "feed_residual.norm": "full_layer_layer_norm",
}
ENCODER = {
    "dim": "hidden_size",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "layers": "num_hidden_layers",
    "epsilon": "layer_norm_eps",
    "dropout": "hidden_dropout_prob",
}
READ = "encoder.embed."
EMBEDDED, SEGMENTS = f"{READ}embed.weight", f"{READ}segments"


def reads(body: str, positions: Form = SAME, *, segments: bool = True) -> Names:
    """The embeddings below the encoder."""
    names = {
        EMBEDDED: Pair(f"{body}embeddings.word_embeddings.weight", ROWS),
        f"{READ}positions.table.weight": Pair(f"{body}embeddings.position_embeddings.weight", positions),
        **both({f"{READ}norm": f"{body}embeddings.LayerNorm"}),
    }
    if segments:
        names[SEGMENTS] = Pair(f"{body}embeddings.token_type_embeddings.weight")
    return names


def words_head(linear: str, norm: str, bias: str) -> Names:
    return both({"head.linear": linear, "head.norm": norm}) | {"head.softmax.bias": Pair(bias, BIAS)}


def bert(config: Config, architecture: str) -> Names:
    names = reads("bert.", segments=config.get("type_vocab_size", 2) > 0)
    names |= layers(config["num_hidden_layers"], "encoder.stack.blocks", "bert.encoder.layer", BLOCK)
    if architecture.endswith(LABELS):
        return names | both({"head.pool.linear": "bert.pooler.dense", "head.linear": "classifier"})
    head = "cls.predictions."
    return names | words_head(f"{head}transform.dense", f"{head}transform.LayerNorm", f"{head}bias")


def offset(config: Config) -> int:
    """RoBERTa's positions begin after the id of its padding."""
    return int(config.get("pad_token_id", 1)) + 1


def roberta(config: Config, architecture: str) -> Names:
    names = reads("roberta.", after(offset(config)), segments=config.get("type_vocab_size", 2) > 0)
    names |= layers(config["num_hidden_layers"], "encoder.stack.blocks", "roberta.encoder.layer", BLOCK)
    if architecture.endswith(LABELS):
        return names | both({"head.pool.linear": "classifier.dense", "head.linear": "classifier.out_proj"})
    return names | words_head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias")


def electra(config: Config, architecture: str) -> Names:
    names = reads("electra.", segments=config.get("type_vocab_size", 2) > 0)
    if config.get("embedding_size", config["hidden_size"]) != config["hidden_size"]:
        names |= both({f"{READ}enter": "electra.embeddings_project"})
    names |= layers(config["num_hidden_layers"], "encoder.stack.blocks", "electra.encoder.layer", BLOCK)
    if architecture.endswith(LABELS):
        return names | both({"head.pool.linear": "classifier.dense", "head.linear": "classifier.out_proj"})
    head = "discriminator_predictions."
    if architecture == DISCRIMINATOR:
        return names | both({"head.linear": f"{head}dense", "head.out": f"{head}dense_prediction"})
    head = "generator_predictions."
    return names | words_head(f"{head}dense", f"{head}LayerNorm", "generator_lm_head.bias")


def albert(config: Config, architecture: str) -> Names:
    group = "albert.encoder.albert_layer_groups.0.albert_layers"
    names = reads("albert.", segments=config.get("type_vocab_size", 2) > 0)
    names |= both({f"{READ}enter": "albert.encoder.embedding_hidden_mapping_in"})
    names |= layers(1, "encoder.stack.blocks", group, GROUPED)
    if architecture.endswith(LABELS):
        return names | both({"head.pool.linear": "albert.pooler", "head.linear": "classifier"})
    return names | words_head("predictions.dense", "predictions.LayerNorm", "predictions.bias")


def distilbert(config: Config, architecture: str) -> Names:
    names = reads("distilbert.", segments=False)
    names |= layers(config["n_layers"], "encoder.stack.blocks", "distilbert.transformer.layer", DISTILLED)
    if architecture.endswith(LABELS):
        return names | both({"head.pool.linear": "pre_classifier", "head.linear": "classifier"})
    return names | words_head("vocab_transform", "vocab_layer_norm", "vocab_projector.bias")


VIT_BLOCK = {
    **{f"{SELF}.{name}": f"attention.attention.{name}" for name in ("query", "key", "value")},
    f"{SELF}.out": "attention.output.dense",
    "self_residual.norm": "layernorm_before",
    WIDEN: "intermediate.dense",
    NARROW: "output.dense",
    "feed_residual.norm": "layernorm_after",
}


def vit(config: Config, architecture: str) -> Names:
    below = "vit.embeddings."
    flat = Form(lambda theirs, _: theirs.flatten(0, -2), lambda ours, _: ours[None])
    vector = Form(lambda theirs, _: theirs.flatten(), lambda ours, _: ours[None, None])
    pixels = patches(config.get("num_channels", 3), config["patch_size"])
    return {
        "encoder.first": Pair(f"{below}cls_token", vector),
        "encoder.embed.weight": Pair(f"{below}patch_embeddings.projection.weight", pixels),
        "encoder.embed.bias": Pair(f"{below}patch_embeddings.projection.bias"),
        "encoder.stack.positions.table.weight": Pair(f"{below}position_embeddings", flat),
        **layers(config["num_hidden_layers"], "encoder.stack.blocks", "vit.encoder.layer", VIT_BLOCK),
        **both({"encoder.stack.norm": "vit.layernorm", "head.linear": "classifier"}),
    }


# --- decoders: gpt -----------------------------------------------------------------------------------------------


def gpt2(config: Config, architecture: str) -> Names:
    names = {
        "embed.weight": Pair("transformer.wte.weight", ROWS),
        "body.stack.positions.table.weight": Pair("transformer.wpe.weight"),
        "head.bias": Pair("transformer.wte.weight", NO_BIAS),
        **both({"body.stack.norm": "transformer.ln_f"}),
    }
    if not config.get("tie_word_embeddings", True):
        names["head.weight"] = Pair("lm_head.weight", ROWS)
    for layer in range(config["n_layer"]):
        ours, theirs = f"body.stack.blocks.{layer}.", f"transformer.h.{layer}."
        names |= both({"self_residual.norm": "ln_1", "feed_residual.norm": "ln_2"}, ours, theirs)
        for place, part in enumerate(("query", "key", "value")):
            names[f"{ours}{SELF}.{part}.weight"] = Pair(f"{theirs}attn.c_attn.weight", third(place, True))
            names[f"{ours}{SELF}.{part}.bias"] = Pair(f"{theirs}attn.c_attn.bias", third(place, False))
        for a, b in ((f"{SELF}.out", "attn.c_proj"), (WIDEN, "mlp.c_fc"), (NARROW, "mlp.c_proj")):
            names[f"{ours}{a}.weight"] = Pair(f"{theirs}{b}.weight", TURNED)
            names[f"{ours}{a}.bias"] = Pair(f"{theirs}{b}.bias")
    return names


# --- encoder-decoders --------------------------------------------------------------------------------------------

BART_BLOCK = {
    **attention(SELF, "self_attn.", ("q_proj", "k_proj", "v_proj", "out_proj")),
    "self_residual.norm": "self_attn_layer_norm",
    WIDEN: "fc1",
    NARROW: "fc2",
    "feed_residual.norm": "final_layer_norm",
}
BART_CROSSING = {
    **attention(CROSS, "encoder_attn.", ("q_proj", "k_proj", "v_proj", "out_proj")),
    "cross_residual.norm": "encoder_attn_layer_norm",
}


def marian(config: Config, architecture: str) -> Names:
    return {
        "encoder.embed.weight": Pair("model.shared.weight", ROWS),
        "decoder.head.bias": Pair("final_logits_bias", BIAS_ROW),
        **layers(config["encoder_layers"], "encoder.stack.blocks", "model.encoder.layers", BART_BLOCK),
        **layers(config["decoder_layers"], "decoder.stack.blocks", "model.decoder.layers", BART_BLOCK | BART_CROSSING),
    }


def bart(config: Config, architecture: str) -> Names:
    names = marian(config, architecture)
    for side in ("encoder", "decoder"):
        table = f"model.{side}.embed_positions.weight"
        names[f"{side}.stack.positions.table.weight"] = Pair(table, after(BART_OFFSET))
        names |= both({f"{side}.stack.entry": f"model.{side}.layernorm_embedding"})
    return names


def t5(config: Config, architecture: str) -> Names:
    names = {
        "encoder.embed.weight": Pair("shared.weight", scaled_rows(config["d_model"] ** -0.5)),
        "decoder.head.bias": Pair("shared.weight", NO_BIAS),
        **both({f"{side}.stack.norm": f"{side}.final_layer_norm" for side in ("encoder", "decoder")}, bias=False),
    }
    if not config.get("tie_word_embeddings", True):
        names["decoder.head.weight"] = Pair("lm_head.weight", ROWS)
    gated = str(config.get("feed_forward_proj", "relu")).startswith("gated")
    widen = {WIDEN: "wi_0", "feed_forward.gate": "wi_1"} if gated else {WIDEN: "wi"}
    qkvo = ("q", "k", "v", "o")
    for side in ("encoder", "decoder"):
        last = 1 + (side == "decoder")
        modules = attention(SELF, "0.SelfAttention.", qkvo) | {"self_residual.norm": "0.layer_norm"}
        if side == "decoder":
            modules |= attention(CROSS, "1.EncDecAttention.", qkvo) | {"cross_residual.norm": "1.layer_norm"}
        modules |= {a: f"{last}.DenseReluDense.{b}" for a, b in (widen | {NARROW: "wo"}).items()}
        modules["feed_residual.norm"] = f"{last}.layer_norm"
        in_layer = {a: f"layer.{b}" for a, b in modules.items()}
        count = config["num_layers"] if side == "encoder" else config.get("num_decoder_layers", config["num_layers"])
        names |= layers(count, f"{side}.stack.blocks", f"{side}.block", in_layer, bias=False)
        table = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        names[f"{side}.stack.positions.table"] = Pair(table)
    return names


# --- settings ----------------------------------------------------------------------------------------------------

THEIR_ACTIVATIONS = {"gelu": "gelu", "gelu-tanh": "gelu_new", "relu": "relu", "silu": "silu", "tanh": "tanh"}


def activation(key: str, config: Config) -> dict[str, Any]:
    return {"activation": choose(ACTIVATIONS, config.get(key, "gelu"), f"{key} =")}


def of_encoder(config: Config, *, embedding: bool = False, always: bool = False, offset: int = 0) -> dict[str, Any]:
    width = config.get("embedding_size", config["hidden_size"]) if embedding else config["hidden_size"]
    return {
        **activation("hidden_act", config),
        "longest": config["max_position_embeddings"] - offset,
        "segments": config.get("type_vocab_size", 2),
        "embedding": width if always or width != config["hidden_size"] else 0,
    }


def to_encoder(model: Any, special: Config, *, embedding: bool = False, offset: int = 0) -> dict[str, Any]:
    return {
        "hidden_act": THEIR_ACTIVATIONS[model.activation],
        "attention_probs_dropout_prob": model.dropout,
        "max_position_embeddings": model.longest + offset,
        "type_vocab_size": max(1, model.segments),
        **({"embedding_size": model.embedding or model.dim} if embedding else {}),
    }


def of_roberta(config: Config) -> dict[str, Any]:
    return of_encoder(config, offset=offset(config))


def to_roberta(model: Any, special: Config) -> dict[str, Any]:
    return to_encoder(model, special, offset=offset(special))


def of_distilbert(config: Config) -> dict[str, Any]:
    longest = config["max_position_embeddings"]
    return {**activation("activation", config), "longest": longest, "segments": 0, "pooler": "relu"}


def to_distilbert(model: Any, special: Config) -> dict[str, Any]:
    return {"activation": THEIR_ACTIVATIONS[model.activation], "max_position_embeddings": model.longest}


def of_gpt2(config: Config) -> dict[str, Any]:
    return {
        **activation("activation_function", config),
        "feed_forward": config.get("n_inner") or 4 * config["n_embd"],
        "tie": config.get("tie_word_embeddings", True),
        "scaled": False,
        "head_bias": False,
    }


def to_gpt2(model: Any, special: Config) -> dict[str, Any]:
    return {
        "activation_function": THEIR_ACTIVATIONS[model.activation],
        "n_inner": model.feed_forward,
        "tie_word_embeddings": model.tie,
        "embd_pdrop": model.dropout,
        "attn_pdrop": 0.0,
    }


def of_t5(config: Config) -> dict[str, Any]:
    *gated, name = str(config.get("feed_forward_proj", "relu")).split("-")
    if config.get("num_decoder_layers", config["num_layers"]) != config["num_layers"]:
        raise UserError("its encoder and decoder have different numbers of layers, and here they have one.")
    return {
        "gated": bool(gated),
        "activation": "gelu-tanh" if gated and name == "gelu" else choose(ACTIVATIONS, name, "feed_forward_proj ="),
        "tie": config.get("tie_word_embeddings", True),
    }


def to_t5(model: Any, special: Config) -> dict[str, Any]:
    gates = {"gelu-tanh": "gelu", "gelu": "gelu_python"} if model.gated else {}  # there, gated-gelu is not gelu
    name = (THEIR_ACTIVATIONS | gates)[model.activation]
    return {
        "feed_forward_proj": f"gated-{name}" if model.gated else name,
        "d_kv": model.head_dim or model.dim // model.heads,
        "num_decoder_layers": model.layers,
        "tie_word_embeddings": model.tie,
    }


def of_seq2seq(config: Config) -> dict[str, Any]:
    for key in ("layers", "attention_heads", "ffn_dim"):
        if config[f"encoder_{key}"] != config[f"decoder_{key}"]:
            raise UserError(f"its encoder_{key} and decoder_{key} differ, and here both sides have one size.")
    return activation("activation_function", config)


def of_marian(config: Config) -> dict[str, Any]:
    return {**of_seq2seq(config), "norm": "post", "positions": "sinusoidal-halves", "tie": True}


def to_seq2seq(model: Any, special: Config) -> dict[str, Any]:
    return {
        "activation_function": THEIR_ACTIVATIONS[model.activation],
        "decoder_layers": model.layers,
        "decoder_attention_heads": model.heads,
        "decoder_ffn_dim": model.feed_forward,
        "attention_dropout": 0.0,
        "activation_dropout": model.dropout,
        "max_position_embeddings": model.longest,
    }


def of_vit(config: Config) -> dict[str, Any]:
    return {**activation("hidden_act", config), "pool": "first"}


def to_vit(model: Any, special: Config) -> dict[str, Any]:
    return {"hidden_act": THEIR_ACTIVATIONS[model.activation], "attention_probs_dropout_prob": 0.0}


SEQ2SEQ = {
    "dim": "d_model",
    "heads": "encoder_attention_heads",
    "feed_forward": "encoder_ffn_dim",
    "layers": "encoder_layers",
    "dropout": "dropout",
}
SMALL_ENCODER = {"dim": "dim", "heads": "n_heads", "feed_forward": "hidden_dim", "layers": "n_layers"}
SMALL_ENCODER |= {"dropout": "dropout"}
ABSOLUTE = {"position_embedding_type": "absolute", "is_decoder": False, "tie_word_embeddings": True}
AROUND = "<bos> $A <eos>"
MASKED = {"ForMaskedLM": "masked", LABELS: "classification", "ForPreTraining": "masked", "Model": "masked"}
WRITTEN = {"ForConditionalGeneration": "translation"}
POST = {"norm": "post", "pool": "first"}

FAMILIES: dict[str, Family] = {
    "bert": Family(
        "bert",
        ENCODER,
        bert,
        MASKED,
        of_encoder,
        to_encoder,
        ABSOLUTE,
        POST,
        "base",
        prefix="bert.",
        reads=AROUND,
        pooler="tanh",
    ),
    "distilbert": Family(
        "bert",
        SMALL_ENCODER,
        distilbert,
        MASKED,
        of_distilbert,
        to_distilbert,
        {"sinusoidal_pos_embds": False},
        POST | {"segments": 0, "pooler": "relu", "embedding": 0, "epsilon": 1e-12},
        "distilbert",
        prefix="distilbert.",
        reads=AROUND,
    ),
    "roberta": Family(
        "roberta",
        ENCODER,
        roberta,
        MASKED,
        of_roberta,
        to_roberta,
        ABSOLUTE,
        POST,
        prefix="roberta.",
        reads=AROUND,
        pooler="tanh",
    ),
    "electra": Family(
        "electra",
        ENCODER,
        electra,
        MASKED,
        partial(of_encoder, embedding=True),
        partial(to_encoder, embedding=True),
        ABSOLUTE,
        POST,
        prefix="electra.",
        reads=AROUND,
        pooler="gelu",
    ),
    "albert": Family(
        "albert",
        ENCODER,
        albert,
        MASKED,
        partial(of_encoder, embedding=True, always=True),
        partial(to_encoder, embedding=True),
        ABSOLUTE | {"num_hidden_groups": 1, "inner_group_num": 1},
        POST,
        prefix="albert.",
        reads=AROUND,
        pooler="tanh",
    ),
    "vit": Family(
        "vit",
        ENCODER | {"patch": "patch_size"},
        vit,
        {"ForImageClassification": "pictures"},
        of_vit,
        to_vit,
        {"qkv_bias": True},
        {"norm": "pre", "positions": "learned", "pool": "first"},
        prefix="vit.",
    ),
    "gpt2": Family(
        "gpt",
        {
            "dim": "n_embd",
            "heads": "n_head",
            "layers": "n_layer",
            "context": "n_positions",
            "dropout": "resid_pdrop",
            "epsilon": "layer_norm_epsilon",
        },
        gpt2,
        {"LMHeadModel": "language", "Model": "language"},
        of_gpt2,
        to_gpt2,
        {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False},
        {"norm": "pre", "positions": "learned", "head": "softmax", "scaled": False, "head_bias": False},
        "gpt2",
        prefix="transformer.",
        reads="<bos> $A",
    ),
    "t5": Family(
        "t5",
        {
            "dim": "d_model",
            "heads": "num_heads",
            "head_dim": "d_kv",
            "feed_forward": "d_ff",
            "layers": "num_layers",
            "epsilon": "layer_norm_epsilon",
            "dropout": "dropout_rate",
        },
        t5,
        WRITTEN,
        of_t5,
        to_t5,
        {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128},
        {"norm": "pre", "head_bias": False},
        reads="$A <eos>",
    ),
    "bart": Family(
        "bart",
        SEQ2SEQ | {"longest": "max_position_embeddings", "scaled": "scale_embedding"},
        bart,
        WRITTEN,
        of_seq2seq,
        to_seq2seq,
        {"tie_word_embeddings": True},
        {"norm": "post", "positions": "learned", "tie": True},
        reads=AROUND,
        leads=EOS,
    ),
    "marian": Family(
        "transformer",
        SEQ2SEQ,
        marian,
        {"MTModel": "translation"},
        of_marian,
        to_seq2seq,
        {"tie_word_embeddings": True, "scale_embedding": True, "share_encoder_decoder_embeddings": True},
        {"norm": "post", "positions": "sinusoidal-halves", "tie": True, "normalisation": "layer"},
        "marian",
        reads="$A <eos>",
    ),
}
PREFIXES = {"distilbert": "DistilBert", "vit": "ViT", "gpt2": "GPT2"}  # of their architectures, where they are odd
