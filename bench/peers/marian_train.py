"""MarianMT of `transformers` in a bare loop: python marian_train.py FOLDER MODEL ROW, started by bench/train.py.

Both rows see regard's own padded batches; "shipped" has the allocator as it is. The loss is that of its Trainer with
label smoothing (LabelSmoother). It normalises after each part and has no other choice.
"""

from __future__ import annotations

import sys
from pathlib import Path

import common
import turns
from torch import Tensor
from transformers import MarianConfig, MarianMTModel
from transformers.trainer_pt_utils import LabelSmoother


def main(folder: Path, model_name: str, row: str) -> None:
    if row == "like":
        turns.tune_allocator()
    setup = common.read_setup(folder)
    size = setup["models"][model_name]
    each_side = dict(layers=size["layers"], attention_heads=size["heads"], ffn_dim=size["feed_forward"])
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in each_side.items()}
    special = dict(pad_token_id=common.PAD, eos_token_id=common.EOS, decoder_start_token_id=common.BOS)
    whole = dict(vocab_size=setup["vocabulary"], d_model=size["dim"], dropout=size["dropout"], scale_embedding=True)
    feed_forward = dict(activation_function="relu", activation_dropout=size["dropout"])
    settings = MarianConfig(**whole, **sides, **special, **feed_forward, use_cache=False)
    model = MarianMTModel(settings)
    gate = common.Gate(setup["warm_up"])
    gate.facts = common.size_of(model, lookup=None)
    smoothed = LabelSmoother(epsilon=size["label_smoothing"])

    def prepared(source: Tensor, target: Tensor) -> dict[str, Tensor]:
        inputs = dict(input_ids=source, attention_mask=(source != common.PAD).long(), decoder_input_ids=target[:, :-1])
        return {**inputs, "labels": target[:, 1:].masked_fill(target[:, 1:] == common.PAD, -100)}

    def loss_of(batch: dict[str, Tensor]) -> Tensor:
        inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
        loss: Tensor = smoothed(model(**inputs), batch["labels"])
        return loss

    batches = [(prepared(*pair), common.real_tokens(pair[1])) for pair in common.read_batches(folder)]
    common.bare_loop(gate, model, batches, loss_of)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
