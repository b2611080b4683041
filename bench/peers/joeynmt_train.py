"""JoeyNMT: python joeynmt_train.py FOLDER MODEL ROW, started by bench/train.py.

shipped   its own command, `joeynmt train config.yaml`, in this process: its data loader, batches, optimiser and
          trainer, not a line changed. A gate stands before each call of the trainer's `_train_step`, so what is timed
          from one gate to the next is all that the trainer does for a batch: fetching, step, clipping, optimiser, log.
like      its model and its loss on regard's padded batches, in a bare loop.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import common
import joeynmt.__main__
import torch
import turns
from joeynmt.batch import Batch
from joeynmt.config import parse_global_args
from joeynmt.model import build_model
from joeynmt.training import TrainManager
from joeynmt.vocabulary import build_vocab
from torch import Tensor

NEVER = 1_000_000  # updates


def config(folder: Path, model_name: str, setup: dict[str, Any]) -> dict[str, Any]:
    """What a person would write into its config.yaml; the rest is as its authors chose."""
    size = setup["models"][model_name]
    if model_name == "transformer":
        layers = dict(type="transformer", num_heads=size["heads"], ff_size=size["feed_forward"], layer_norm="pre")
        hidden, embedding = size["dim"], dict(embedding_dim=size["dim"], scale=True)
    else:  # a bidirectional GRU, Bahdanau's attention, input feeding and a bridge are its defaults
        layers = dict(type="recurrent", rnn_type="gru", hidden_dropout=size["dropout"])
        hidden, embedding = size["hidden"], dict(embedding_dim=size["embedding"])
    layers |= dict(num_layers=size["layers"], hidden_size=hidden, dropout=size["dropout"])
    layers["embeddings"] = dict(**embedding, dropout=size["dropout"])
    side = dict(level="word", voc_file=str(folder / "vocabulary.txt"))
    data = dict(train=str(folder / "train"), dev=str(folder / "dev"), src=dict(lang="en", **side))
    training = dict(optimizer="adamw", adam_betas=[0.9, 0.98], learning_rate=0.0005, clip_grad_norm=1.0)
    training |= dict(scheduling="warmupinversesquareroot", learning_rate_warmup=400, normalization="tokens")
    training |= dict(batch_type="token", batch_size=setup["batch_tokens"], label_smoothing=size["label_smoothing"])
    training |= dict(epochs=NEVER, validation_freq=NEVER, logging_freq=100)
    tied = dict(tied_embeddings=model_name == "transformer", tied_softmax=True)
    return {
        "name": "bench",
        "model_dir": str(folder / f"joeynmt-{model_name}"),
        "use_cuda": False,
        "data": {**data, "trg": dict(lang="de", **side)},
        "training": training,
        "testing": {},
        "model": {**tied, "encoder": layers, "decoder": layers},
    }


def facts(model: torch.nn.Module, model_name: str) -> dict[str, int]:
    return common.size_of(model, lookup=None if model_name == "transformer" else model.src_embed)


def shipped(folder: Path, model_name: str, settings: dict[str, Any], gate: common.Gate) -> None:
    own_step = TrainManager._train_step

    def gated_step(trainer: TrainManager, batch: Batch) -> tuple[float, int]:
        gate.facts = gate.facts or facts(trainer.model, model_name)
        gate.wait()
        result: tuple[float, int] = own_step(trainer, batch)
        gate.done += batch.ntokens
        return result

    TrainManager._train_step = gated_step
    file = folder / f"joeynmt-{model_name}.yaml"
    file.write_text(json.dumps(settings))  # JSON is YAML
    sys.argv = ["joeynmt", "train", str(file), "--skip-test"]
    joeynmt.__main__.main()


def like(folder: Path, model_name: str, settings: dict[str, Any], gate: common.Gate) -> None:
    turns.tune_allocator()
    arguments = parse_global_args(settings)
    source_words, target_words = build_vocab(settings["data"])
    model = build_model(settings["model"], source_words, target_words)
    model.loss_function = (arguments.train.loss, arguments.train.label_smoothing)
    gate.facts = facts(model, model_name)
    theirs = torch.arange(len(target_words))  # our ids -> theirs: only the specials, our first four, differ
    theirs[:4] = torch.tensor([model.pad_index, model.bos_index, model.eos_index, model.unk_index])

    def prepared(source: Tensor, target: Tensor) -> Batch:
        batch = Batch(
            src=theirs[source],
            src_length=(source != common.PAD).sum(1),
            src_prompt_mask=None,
            trg=theirs[target],
            trg_prompt_mask=None,
            indices=torch.arange(len(source)),
            device=arguments.device,
            pad_index=model.pad_index,
            eos_index=model.eos_index,
        )
        batch.sort_by_src_length()  # as its trainer does
        return batch

    def loss_of(batch: Batch) -> Tensor:
        loss, _, _, _ = model(return_type="loss", **vars(batch))
        normalised: Tensor = batch.normalize(loss, normalization="tokens")
        return normalised

    batches = [(prepared(*pair), common.real_tokens(pair[1])) for pair in common.read_batches(folder)]
    common.bare_loop(gate, model, batches, loss_of)


def main(folder: Path, model_name: str, row: str) -> None:
    setup = common.read_setup(folder)
    run = {"shipped": shipped, "like": like}[row]
    run(folder, model_name, config(folder, model_name, setup), common.Gate(setup["warm_up"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
