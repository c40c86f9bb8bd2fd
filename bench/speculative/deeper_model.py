#!/usr/bin/env python3
"""A model of the same words as another and several times its cost, to measure guessing with.

    deeper_model.py --model FOLDER --layers N --output FOLDER

Copies a Hugging Face folder (one safetensors file in bf16; `tilewright convert` makes one) and adds
layers that add nothing: their output projections are zero. So the original model guesses for the
deeper one about as well as a good draft model does for a large one: always right but for rounding.
"""

import argparse
import json
import pathlib
import shutil
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools" / "proxy"))
from safetensors_files import write_safetensors  # noqa: E402

OUTPUTS = ("self_attn.o_proj.weight", "mlp.down_proj.weight")


def read_tensors(path):
    data = np.memmap(path, dtype=np.uint8, mode="r")
    size = int(data[:8].view(np.uint64)[0])
    header = json.loads(bytes(data[8:8 + size]))
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "BF16":
            sys.exit(f"{path}: {name} is {entry['dtype']}; the folder must be all BF16")
        begin, end = entry["data_offsets"]
        tensors[name] = data[8 + size + begin:8 + size + end].view(np.uint16).reshape(entry["shape"])
    return tensors


def add_layers(tensors, present, wanted):
    for layer in range(present, wanted):
        source = f"model.layers.{layer % present}."
        for name in [name for name in tensors if name.startswith(source)]:
            kind = name[len(source):]
            tensor = tensors[name]
            tensors[f"model.layers.{layer}.{kind}"] = (
                np.zeros_like(tensor) if kind in OUTPUTS else tensor)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--layers", type=int, required=True, help="of the deeper model")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    options = parser.parse_args()
    config = json.loads((options.model / "config.json").read_text())
    present = config["num_hidden_layers"]
    if options.layers <= present:
        parser.error(f"--layers {options.layers}: the model has {present} already")
    tensors = read_tensors(options.model / "model.safetensors")
    add_layers(tensors, present, options.layers)
    options.output.mkdir(parents=True)
    for file in options.model.iterdir():
        if file.suffix in (".json", ".jinja", ".txt") and file.name != "config.json":
            shutil.copy(file, options.output)
    config["num_hidden_layers"] = options.layers
    (options.output / "config.json").write_text(json.dumps(config, indent=2))
    write_safetensors(options.output / "model.safetensors", tensors, {"format": "pt"})


if __name__ == "__main__":
    main()
