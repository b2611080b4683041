"""How long `regard import` and `regard export` take over 500 MB of weights, and how much memory.

python bench/import.py [MEGABYTES]

A Hugging Face folder of BERT and one of GPT-2, with random weights and made-up vocabularies; each command is in a
process of its own. Seconds are of the whole process, loading Python and torch included, and of the work alone. Memory
is what the process has at its peak beyond what it has when regard and torch are loaded, as a multiple of the weights'
size: all of it (VmHWM, in which the pages of a mapped file count, though the system may take them back at any time),
and what is the process's own (RssAnon, sampled).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers.pre_tokenizers import ByteLevel

Shapes = dict[str, tuple[int, ...]]
DIM, POSITIONS = 768, 1024
WORDS = {"bert": 30_522, "gpt2": 50_257}
BAR_SECONDS, BAR_MEMORY = 15.0, 1.3
CHILD = """
import re, sys, threading, time
from pathlib import Path
import torch, regard
from regard.exchange.hugging_face import export_folder, import_folder

def memory(what):
    return int(re.search(what + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

def sample():
    while not done.wait(0.002):
        own.append(memory("RssAnon"))

own, done = [memory("RssAnon")], threading.Event()
first, before, began = own[0], memory("VmHWM"), time.perf_counter()
threading.Thread(target=sample, daemon=True).start()
(import_folder if sys.argv[1] == "import" else export_folder)(Path(sys.argv[2]), Path(sys.argv[3]))
seconds = time.perf_counter() - began
done.set()
print(seconds, memory("VmHWM") - before, max(own) - first)
"""


def module(name: str, *shape: int) -> Shapes:
    """A weight, and a bias for its rows; those of GPT-2 are for its columns, which are as many here."""
    return {f"{name}.weight": shape, f"{name}.bias": (shape[-1 if ".c_" in name else 0],)}


def gpt2(layers: int) -> Shapes:
    shapes: Shapes = {"transformer.wte.weight": (WORDS["gpt2"], DIM), "transformer.wpe.weight": (POSITIONS, DIM)}
    for layer in range(layers):
        below = f"transformer.h.{layer}"
        shapes |= module(f"{below}.ln_1", DIM) | module(f"{below}.ln_2", DIM)
        shapes |= module(f"{below}.attn.c_attn", DIM, 3 * DIM) | module(f"{below}.attn.c_proj", DIM, DIM)
        shapes |= module(f"{below}.mlp.c_fc", DIM, 4 * DIM) | module(f"{below}.mlp.c_proj", 4 * DIM, DIM)
    return shapes | module("transformer.ln_f", DIM)


def bert(layers: int) -> Shapes:
    below = "bert.embeddings."
    shapes: Shapes = {f"{below}word_embeddings.weight": (WORDS["bert"], DIM), "cls.predictions.bias": (WORDS["bert"],)}
    shapes |= {f"{below}position_embeddings.weight": (POSITIONS, DIM), f"{below}token_type_embeddings.weight": (2, DIM)}
    shapes |= module(f"{below}LayerNorm", DIM) | module("cls.predictions.transform.LayerNorm", DIM)
    shapes |= module("cls.predictions.transform.dense", DIM, DIM)
    for layer in range(layers):
        each = f"bert.encoder.layer.{layer}."
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            shapes |= module(f"{each}attention.{part}", DIM, DIM)
        shapes |= module(f"{each}attention.output.LayerNorm", DIM) | module(f"{each}output.LayerNorm", DIM)
        shapes |= module(f"{each}intermediate.dense", 4 * DIM, DIM) | module(f"{each}output.dense", DIM, 4 * DIM)
    return shapes


def write_folder(folder: Path, kind: str, megabytes: int) -> int:
    """Write a model of about so many megabytes; return its bytes."""
    folder.mkdir()
    shapes_of = {"bert": bert, "gpt2": gpt2}[kind]

    def size(layers: int) -> int:
        return 4 * sum(torch.Size(shape).numel() for shape in shapes_of(layers).values())

    layers = max(1, round((megabytes * 1e6 - size(0)) / (size(1) - size(0))))
    config = {"model_type": kind, "vocab_size": WORDS[kind]}
    if kind == "bert":
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        words = [*special, *(f"word{number}" for number in range(WORDS[kind] - len(special)))]
        (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
        config |= {"architectures": ["BertForMaskedLM"], "hidden_size": DIM, "num_hidden_layers": layers}
        config |= {"num_attention_heads": 12, "intermediate_size": 4 * DIM, "max_position_embeddings": POSITIONS}
    else:
        words = sorted(ByteLevel.alphabet())
        words += [f"Ġword{number}" for number in range(WORDS[kind] - len(words) - 1)] + ["<|endoftext|>"]
        (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
        (folder / "merges.txt").write_text("#version: 0.2\n")
        config |= {"architectures": ["GPT2LMHeadModel"], "n_embd": DIM, "n_layer": layers, "n_head": 12}
        config |= {"n_positions": POSITIONS, "activation_function": "gelu_new"}
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: torch.randn(shape) for name, shape in shapes_of(layers).items()}, folder / "model.safetensors")
    return size(layers)


def measure(verb: str, source: Path, target: Path, size: int) -> bool:
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", CHILD, verb, source, target], check=True, capture_output=True, text=True
    )
    whole = time.perf_counter() - began
    seconds, peak, own = map(float, done.stdout.split())
    fine = whole < BAR_SECONDS and peak < BAR_MEMORY * size
    print(f"  {verb}: {whole:.1f} s ({seconds:.1f} s without loading); memory {peak / size:.2f} x, ", end="")
    print(f"of which its own {own / size:.2f} x{'' if fine else '   OVER THE BAR'}", flush=True)
    return fine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("megabytes", type=int, nargs="?", default=500, help="of weights in each folder")
    megabytes = parser.parse_args().megabytes
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; bars {BAR_SECONDS:.0f} s and {BAR_MEMORY} x")
    fine = True
    with tempfile.TemporaryDirectory() as name:
        for kind in WORDS:
            place = Path(name) / kind
            place.mkdir()
            size = write_folder(place / "theirs", kind, megabytes)
            print(f"{kind}: {size / 1e6:.0f} MB")
            fine &= measure("import", place / "theirs", place / "run", size)
            fine &= measure("export", place / "run", place / "out", size)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
