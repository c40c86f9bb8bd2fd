"""Writes safetensors files with numpy alone."""

import json
import math

import numpy as np

TYPES = {
    "float32": "F32",
    "float16": "F16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "BF16",
}


def write_header(file, entries, metadata):
    """entries: name -> (type, shape, bytes), in file order."""
    header = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for name, (dtype, shape, size) in entries.items():
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)


def write_safetensors(path, tensors, metadata=None):
    """Arrays of TYPES (uint16 is taken as the bits of bf16), or pairs of a type's name and bytes."""
    typed = {n: t if isinstance(t, tuple) else (TYPES[t.dtype.name], t) for n, t in tensors.items()}
    with open(path, "wb") as file:
        write_header(file, {n: (t, a.shape, a.nbytes) for n, (t, a) in typed.items()}, metadata)
        for _, array in typed.values():
            file.write(np.ascontiguousarray(array).tobytes())


def write_model_weights(folder, tensors, blocks, num_shards):
    """Tensors (see tensor_plans.py) in bf16, in num_shards files of about as many tensors each.
    blocks(tensor) yields a tensor's elements, so that no more than a block is in memory."""
    if num_shards == 1:
        write_shard(folder / "model.safetensors", tensors, blocks)
        return
    weight_map = {}
    for shard in range(num_shards):
        name = f"model-{shard + 1:05d}-of-{num_shards:05d}.safetensors"
        part = tensors[len(tensors) * shard // num_shards : len(tensors) * (shard + 1) // num_shards]
        write_shard(folder / name, part, blocks)
        weight_map |= {tensor.name: name for tensor in part}
    total = sum(2 * math.prod(tensor.shape) for tensor in tensors)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    write_json(folder / "model.safetensors.index.json", index)


def write_shard(path, tensors, blocks):
    with open(path, "wb") as file:
        entries = {t.name: ("BF16", t.shape, 2 * math.prod(t.shape)) for t in tensors}
        write_header(file, entries, {"format": "pt"})
        for tensor in tensors:
            for block in blocks(tensor):
                file.write(block.tobytes())


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
