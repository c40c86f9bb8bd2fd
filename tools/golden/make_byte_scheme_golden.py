#!/usr/bin/env python3
"""Layers of FP8 and INT8 checkpoints, and the weights that they stand for.

Writes tests/weights/golden/byte_schemes.safetensors: the tensors of some small layers, and of each
"<layer>.expected", float32: value * scale, computed by torch. All bytes of e4m3 occur. Needs numpy
and torch.
"""
import pathlib
import sys

import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/proxy"))
from random_weights import to_bf16_bits  # noqa: E402
from safetensors_files import write_safetensors  # noqa: E402

N, K = 16, 320  # two and a half groups of 128
random = np.random.default_rng(8)


def main():
    layers = {}

    def add(name, scale_name, is_float, scales, stored_scales, block=None):
        """scales: [rows, columns], each for a block of weights, or for N / rows x K / columns."""
        weight = random.integers(0, 256, (N, K), dtype=np.uint8)
        rows, columns = block or (N // scales.shape[0], K // scales.shape[1])
        dtype = torch.float8_e4m3fn if is_float else torch.int8
        values = torch.from_numpy(weight).view(dtype).float()
        spread = np.repeat(np.repeat(scales, rows, axis=0), columns, axis=1)[:N, :K]
        layers[f"{name}.weight"] = ("F8_E4M3" if is_float else "I8", weight)
        layers[f"{name}.{scale_name}"] = stored_scales
        layers[f"{name}.expected"] = (values * torch.from_numpy(np.ascontiguousarray(spread))).numpy()

    def draw(*shape):
        return random.uniform(1e-4, 1e-2, shape).astype(np.float32)

    scales = draw(2, 3)
    add("fp8_block", "weight_scale_inv", True, scales, scales, (8, 128))
    scales = draw(N, 1)
    add("fp8_channel", "weight_scale", True, scales, scales)
    scales = draw(1, 1)
    add("fp8_tensor", "weight_scale", True, scales, np.array(scales[0, 0]))
    bits = to_bf16_bits(draw(N, 1))
    scales = (bits.astype(np.uint32) << 16).view(np.float32)
    add("int8_channel", "weight_scale", False, scales, bits)
    scales = draw(1, 1)
    add("int8_tensor", "weight_scale", False, scales, scales[0])
    write_safetensors(ROOT / "tests/weights/golden/byte_schemes.safetensors", layers)


if __name__ == "__main__":
    main()
