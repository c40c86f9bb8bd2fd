#!/usr/bin/env python3
"""Layers in the layouts of 4-bit checkpoints, and the weights that they stand for.

Writes tests/weights/golden/{int4,fp4}_schemes.safetensors: the tensors of some small layers, and of
each layer "<layer>.expected", float32. The layouts come from tools/proxy/quantized_layouts.py; those of
compressed-tensors are compared with that library first. Needs numpy, torch and compressed-tensors.
"""
import pathlib
import sys

import numpy as np
import torch
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.compressors.mx_utils import decompress_mx_scale
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/proxy"))
import quantized_layouts as layouts  # noqa: E402
from random_weights import to_bf16_bits  # noqa: E402
from safetensors_files import write_safetensors  # noqa: E402

N, K = 24, 128
random = np.random.default_rng(31)


def int4_layer(group_size, low_zero=0, high_zero=15, scales=None):
    groups = K // group_size
    quants = random.integers(0, 16, (N, K), dtype=np.uint8)
    zero_points = random.integers(low_zero, high_zero + 1, (N, groups), dtype=np.uint8)
    if scales is None:
        scales = random.uniform(0.001, 0.1, (N, groups)).astype(np.float16)
    return quants, zero_points, scales


def to_bf16(values):
    """float32 values that bf16 has, and their bits."""
    bits = to_bf16_bits(np.asarray(values, np.float32))
    return (bits.astype(np.uint32) << 16).view(np.float32), bits


def act_order(group_size):
    return (random.permutation(K) // group_size).astype(np.int32)


def compare_with_compressed_tensors(tensors, quants, zero_points):
    unpacked = unpack_from_int32(torch.tensor(tensors["weight_packed"]), 4, torch.Size(quants.shape))
    assert np.array_equal(unpacked.numpy(), quants.astype(np.int8) - 8)
    if "weight_zero_point" in tensors:
        unpacked = unpack_from_int32(
            torch.tensor(tensors["weight_zero_point"]), 4, torch.Size(zero_points.shape), packed_dim=0
        )
        assert np.array_equal(unpacked.numpy(), zero_points.astype(np.int8) - 8)


def int4_layers():
    layers = {}

    def add(name, tensors, expected):
        layers.update({f"{name}.{key}": value for key, value in tensors.items()})
        layers[f"{name}.expected"] = expected

    for name, group_size in [("awq_32", 32), ("awq_128", 128)]:
        layer = int4_layer(group_size)
        add(name, layouts.awq(*layer), layouts.dequantize_int4(*layer))
    # Version 1 has 1 to 16, gptq_v2 0 to 15.
    layer = int4_layer(64, 1, 16)
    add("gptq_64", layouts.gptq(*layer), layouts.dequantize_int4(*layer))
    layer = int4_layer(128, 8, 8)
    add("gptq_even", layouts.gptq(*layer), layouts.dequantize_int4(*layer))
    layer = int4_layer(32)
    add("gptq_v2", layouts.gptq(*layer, stored_zero_offset=0), layouts.dequantize_int4(*layer))
    layer, g_idx = int4_layer(32, 1, 16), act_order(32)
    add("gptq_act_order", layouts.gptq(*layer, g_idx), layouts.dequantize_int4(*layer, g_idx))

    def add_packed(name, group_size, symmetric, scales, stored_scales, g_idx=None):
        quants, zero_points, _ = int4_layer(group_size)
        if symmetric:
            zero_points[:] = 8
        tensors = layouts.pack_quantized(quants, None if symmetric else zero_points, stored_scales, g_idx)
        compare_with_compressed_tensors(tensors, quants, zero_points)
        add(name, tensors, layouts.dequantize_int4(quants, zero_points, scales, g_idx))

    for name, group_size, symmetric in [("packed_32", 32, True), ("packed_channel", K, False)]:
        scales, bits = to_bf16(random.uniform(0.001, 0.1, (N, K // group_size)))
        add_packed(name, group_size, symmetric, scales, bits)
    half = random.uniform(0.001, 0.1, (N, K // 32)).astype(np.float16)
    add_packed("packed_act_order", 32, False, half, half, act_order(32))
    # Beyond f16's range in both directions, within 2^25 in each row.
    exponents = random.uniform(-100, 100, (N, 1)) + random.uniform(0, 25, (N, K // 64))
    scales, bits = to_bf16(2.0**exponents)
    add_packed("packed_wide", 64, False, scales, bits)
    return layers


def fp4_layers():
    layers = {}
    e4m3 = layouts.e4m3_values()

    def nvfp4():
        codes = random.integers(0, 16, (N, K), dtype=np.uint8)
        return codes, random.integers(1, 127, (N, K // 16), dtype=np.uint8)

    codes, scales = nvfp4()
    global_scale = np.float32(0.0123)
    layers |= {
        "nvfp4.weight": layouts.pack_bytes(codes),
        "nvfp4.weight_scale": ("F8_E4M3", scales),
        "nvfp4.weight_scale_2": np.array(global_scale),
        "nvfp4.input_scale": np.array(np.float32(0.5)),
        "nvfp4.expected": layouts.dequantize_fp4(codes, e4m3[scales], global_scale),
    }
    # compressed-tensors divides by its global scale.
    codes, scales = nvfp4()
    divisor = np.array([2688.0 / 0.37], np.float32)
    layers |= {
        "nvfp4_divided.weight_packed": layouts.pack_bytes(codes),
        "nvfp4_divided.weight_scale": ("F8_E4M3", scales),
        "nvfp4_divided.weight_global_scale": divisor,
        "nvfp4_divided.expected": layouts.dequantize_fp4(
            codes, e4m3[scales], np.float32(1.0 / np.float64(divisor[0]))
        ),
    }
    reference = unpack_fp4_from_uint8(torch.tensor(layers["nvfp4_divided.weight_packed"]), N, K).float()
    assert np.array_equal(reference.numpy(), layouts.E2M1[codes])

    # Exponents near 1, and so far from it that f16 does not hold them.
    for name, low, high in [("mxfp4", 118, 124), ("mxfp4_low", 3, 30), ("mxfp4_high", 215, 250)]:
        codes = random.integers(0, 16, (N, K), dtype=np.uint8)
        exponents = random.integers(low, high + 1, (N, K // 32), dtype=np.uint8)
        scales = np.exp2(exponents.astype(np.float64) - 127).astype(np.float32)
        assert np.array_equal(decompress_mx_scale(torch.tensor(exponents)).float().numpy(), scales)
        layers |= {
            f"{name}.weight_packed": layouts.pack_bytes(codes),
            f"{name}.weight_scale": exponents,
            f"{name}.expected": layouts.dequantize_fp4(codes, scales),
        }

    # gpt-oss: the experts of a layer in one tensor.
    experts = 2
    codes = random.integers(0, 16, (experts, N, K // 32, 32), dtype=np.uint8)
    exponents = random.integers(110, 125, (experts, N, K // 32), dtype=np.uint8)
    scales = np.exp2(exponents.astype(np.float32) - 127)
    layers |= {
        "experts.gate_up_proj_blocks": layouts.pack_bytes(codes),
        "experts.gate_up_proj_scales": exponents,
        "experts.expected": np.stack(
            [layouts.dequantize_fp4(codes[e].reshape(N, K), scales[e]) for e in range(experts)]
        ),
    }
    return layers


def main():
    folder = ROOT / "tests/weights/golden"
    write_safetensors(folder / "int4_schemes.safetensors", int4_layers())
    write_safetensors(folder / "fp4_schemes.safetensors", fp4_layers())


if __name__ == "__main__":
    main()
