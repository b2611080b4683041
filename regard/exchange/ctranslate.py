"""CTranslate2: a Transformer as the folder that ctranslate2.Translator, or Generator for a language model, loads.

The package `ctranslate2` writes the folder itself (config.json, model.bin, vocabularies) from its specification of a
Transformer, which is filled in here. Positions that are added become a table, since theirs have sines and cosines in
another order. The tokens are those of the run, by the same ids; a source ends in <eos>, which our tokenizer.json adds,
and a decoder begins with <bos>. docs/export.md translates a sentence with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard import machine
from regard.config import to_toml, values_of
from regard.data.files import refuse_to_overwrite, whole_folder
from regard.exchange.own_tokenizers import tokens_of, write_sides
from regard.interface import BOS, EOS, SPECIALS, UNK, Generates, UserError
from regard.layers.lora import merged
from regard.layers.positions import FURTHEST
from regard.loading import load
from regard.run import Run

ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh", "silu": "SWISH", "tanh": "Tanh"}
ADDED = ("sinusoidal", "sinusoidal-halves", "learned")  # positions that are added to vectors
KNOWN: dict[str, dict[str, tuple[str, ...]]] = {  # model -> settings of which CTranslate2 has only these
    "transformer": {"normalisation": ("layer",), "positions": (*ADDED, "rotary", "t5")},
    "gpt": {"head": ("softmax",), "positions": (*ADDED, "rotary", "alibi", "t5")},
}
LONGEST = 2048  # positions of a table that has no limit here

Tensors = Mapping[str, Tensor]


def export_spec(run: Path, output: Path | None = None, *, trust_code: bool = False) -> Path:
    """Write a run's model as a CTranslate2 folder with its tokenizers, by default in the folder ct2 of the run. Return
    the folder."""
    folder = output or run / "ct2"
    refuse_to_overwrite(folder)
    machine.require("ctranslate2", "export --to ct2")
    loaded = load(run, trust_code=trust_code)
    refuse_unknown(loaded)
    spec = (translator if "source" in loaded.fields else language_model)(loaded)
    spec.validate()
    spec.optimize()
    with whole_folder(folder) as beside:
        spec.save(str(beside))
        write_sides(loaded, beside)
    return folder


def refuse_unknown(run: Run) -> None:
    """Refuse a run of which CTranslate2 lacks the model or a setting."""
    name, settings = run.recipe.model_name, values_of(run.recipe.model)
    if name not in KNOWN or not isinstance(run.model, Generates):
        wrong = f"{run.name} is a run of {run.model_title} for {run.task.name}, which CTranslate2 does not have"
        raise UserError(f"{wrong}: train a transformer for translation, or a gpt for language, to export it.")
    for key, known in KNOWN[name].items():
        if (value := settings[key]) not in known:
            wrong = f"{run.name} has model.{key} = {to_toml(value)}, which CTranslate2 does not have"
            raise UserError(f"{wrong}: train with model.{key} = {' or '.join(map(to_toml, known))} to export it.")
    if run.recipe.train.tune == "prompt":
        wrong = f"{run.name} has learnt vectors before its input, and CTranslate2 cannot hold them"
        raise UserError(f"{wrong}: train another way.")


def translator(run: Run) -> Any:
    from ctranslate2 import specs

    config, tensors = run.recipe.model, merged(run.model.state_dict())
    shape = shape_of(run)
    encoder = specs.TransformerEncoderSpec(config.layers, config.heads, **shape)
    decoder = specs.TransformerDecoderSpec(config.layers, config.heads, **shape)
    fill_stack(encoder, tensors, "encoder.stack")
    fill_stack(decoder, tensors, "decoder.stack")
    encoder.embeddings[0].weight = tensors["encoder.embed.weight"]
    decoder.embeddings.weight = tensors["decoder.embed.weight"]
    fill(decoder.projection, tensors, "decoder.head")
    if config.positions in ADDED:
        rows = config.longest if config.positions == "learned" else LONGEST
        encoder.position_encodings.encodings = position_table(run, "encoder.stack", rows)
        decoder.position_encodings.encodings = position_table(run, "decoder.stack", rows)
    spec = specs.TransformerSpec(encoder, decoder)
    spec.register_source_vocabulary(tokens_of(run.tokenizer("source")))
    spec.register_target_vocabulary(tokens_of(run.tokenizer("target")))
    spec.config.decoder_start_token = SPECIALS[BOS]
    return configured(spec, config.epsilon)


def language_model(run: Run) -> Any:
    from ctranslate2 import specs

    config, tensors = run.recipe.model, merged(run.model.state_dict())
    decoder = specs.TransformerDecoderSpec(
        config.layers, config.heads, with_encoder_attention=False, alibi=config.positions == "alibi", **shape_of(run)
    )
    fill_stack(decoder, tensors, "body.stack")
    decoder.embeddings.weight = tensors["embed.weight"]
    decoder.scale_embeddings = config.scaled
    fill(decoder.projection, tensors, "head")
    if config.positions in ADDED:
        decoder.position_encodings.encodings = position_table(run, "body.stack", config.context)
    spec = specs.TransformerDecoderModelSpec(decoder)
    spec.register_vocabulary(tokens_of(run.tokenizer("target")))
    return configured(spec, config.epsilon)


def shape_of(run: Run) -> dict[str, Any]:
    """The settings that both sides share."""
    from ctranslate2 import specs

    config = run.recipe.model
    shape = {"pre_norm": config.norm == "pre", "activation": specs.Activation[ACTIVATIONS[config.activation]]}
    if config.positions == "t5":
        shape["relative_attention_bias"] = True
    if config.positions == "rotary":
        shape["rotary_dim"] = config.dim // config.heads
    return shape


def configured(spec: Any, epsilon: float) -> Any:
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = (SPECIALS[i] for i in (BOS, EOS, UNK))
    spec.config.layer_norm_epsilon = epsilon
    return spec


def position_table(run: Run, stack: str, rows: int) -> Tensor:
    """What the stack adds at each place: (rows, dim)."""
    positions = run.model.get_submodule(f"{stack}.positions")
    with torch.no_grad():
        table: Tensor = positions(torch.zeros(1, rows, run.recipe.model.dim), torch.arange(rows))[0]
    return table


def fill_stack(spec: Any, tensors: Tensors, stack: str) -> None:
    if f"{stack}.norm.weight" in tensors:
        fill_norm(spec.layer_norm, tensors, f"{stack}.norm")
    for number, layer in enumerate(spec.layer):
        block = f"{stack}.blocks.{number}"
        own = layer.self_attention
        fill(own.linear[0], tensors, *(f"{block}.self_attention.{part}" for part in ("query", "key", "value")))
        fill(own.linear[1], tensors, f"{block}.self_attention.out")
        fill_norm(own.layer_norm, tensors, f"{block}.self_residual.norm")
        if (buckets := f"{stack}.positions.table") in tensors:  # all layers share them
            own.relative_attention_bias = tensors[buckets]
            own.relative_attention_max_distance = np.int32(FURTHEST)
        if f"{block}.cross_residual.norm.weight" in tensors:
            across = layer.attention
            fill(across.linear[0], tensors, f"{block}.cross_attention.query")
            fill(across.linear[1], tensors, *(f"{block}.cross_attention.{part}" for part in ("key", "value")))
            fill(across.linear[2], tensors, f"{block}.cross_attention.out")
            fill_norm(across.layer_norm, tensors, f"{block}.cross_residual.norm")
        fill(layer.ffn.linear_0, tensors, f"{block}.feed_forward.widen")
        fill(layer.ffn.linear_1, tensors, f"{block}.feed_forward.narrow")
        fill_norm(layer.ffn.layer_norm, tensors, f"{block}.feed_residual.norm")


def fill(spec: Any, tensors: Tensors, *linears: str) -> None:
    """Fill in one linear map; the outputs of several are side by side."""
    spec.weight = torch.cat([tensors[f"{linear}.weight"] for linear in linears])
    if f"{linears[0]}.bias" in tensors:
        spec.bias = torch.cat([tensors[f"{linear}.bias"] for linear in linears])


def fill_norm(spec: Any, tensors: Tensors, norm: str) -> None:
    spec.gamma, spec.beta = tensors[f"{norm}.weight"], tensors[f"{norm}.bias"]
