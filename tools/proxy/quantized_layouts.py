"""How 4-bit checkpoints lay out a linear layer's weight, from each format's definition, in numpy.

A layer is given as quants [N, K] (0 to 15), zero points [N, groups] (same range, and 16 for GPTQ) and
scales [N, groups]: weight = scale * (quant - zero_point). For the FP4 formats the quants are e2m1
codes. Used to make golden files (tools/golden/) and test models; nothing here is fast.
"""

import numpy as np

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # nibble i of a word holds channel AWQ_ORDER[i] of its eight


def pack_words(nibbles, order=range(8)):
    """[rows, 8 n] values of 0 to 15 -> [rows, n] int32: nibble i holds value order[i] of eight."""
    rows, columns = nibbles.shape
    eights = nibbles.astype(np.uint32).reshape(rows, columns // 8, 8)
    words = np.zeros((rows, columns // 8), np.uint32)
    for i, source in enumerate(order):
        words |= eights[:, :, source] << np.uint32(4 * i)
    return words.view(np.int32)


def pack_bytes(nibbles):
    """[..., 2 n] values -> [..., n] uint8, the first of a pair in the low nibble."""
    return (nibbles[..., 0::2] | nibbles[..., 1::2] << 4).astype(np.uint8)


def awq(quants, zero_points, scales):
    return {
        "qweight": pack_words(quants.T, AWQ_ORDER),  # [K, N / 8]
        "qzeros": pack_words(zero_points.T, AWQ_ORDER),  # [groups, N / 8]
        "scales": scales.T,  # [groups, N]
    }


def gptq(quants, zero_points, scales, g_idx=None, stored_zero_offset=1):
    """`stored_zero_offset`: what version 1 subtracts from zero points, 0 for gptq_v2."""
    k, groups = quants.shape[1], scales.shape[1]
    if g_idx is None:
        g_idx = np.arange(k) // (k // groups)
    return {
        "qweight": np.ascontiguousarray(pack_words(quants).T),  # [K / 8, N]
        "qzeros": pack_words((zero_points.T.astype(np.int32) - stored_zero_offset) & 15),
        "scales": scales.T,
        "g_idx": g_idx.astype(np.int32),
    }


def pack_quantized(quants, zero_points, scales, g_idx=None):
    """compressed-tensors; zero_points None for symmetric weights."""
    tensors = {
        "weight_packed": pack_words(quants),  # [N, K / 8]
        "weight_scale": scales,  # [N, groups]
        "weight_shape": np.array(quants.shape, np.int64),
    }
    if zero_points is not None:
        tensors["weight_zero_point"] = np.ascontiguousarray(pack_words(zero_points.T).T)  # [N / 8, groups]
    if g_idx is not None:
        tensors["weight_g_idx"] = g_idx.astype(np.int32)
    return tensors


def dequantize_int4(quants, zero_points, scales, g_idx=None):
    """Exact in float32: products of at most 11 and 5 significant bits."""
    k, groups = quants.shape[1], scales.shape[1]
    if g_idx is None:
        g_idx = np.arange(k) // (k // groups)
    offsets = quants.astype(np.float32) - zero_points[:, g_idx].astype(np.float32)
    return offsets * scales.astype(np.float32)[:, g_idx]


def e4m3_values():
    """What the 256 bytes of float8_e4m3fn stand for."""
    codes = np.arange(256)
    exponents, mantissas = codes >> 3 & 15, codes & 7
    magnitudes = np.where(
        exponents == 0, mantissas * 2.0**-9, (8 + mantissas) * 2.0 ** (exponents.astype(float) - 10)
    )
    magnitudes[(codes & 127) == 127] = np.nan
    return np.where(codes < 128, magnitudes, -magnitudes).astype(np.float32)


def dequantize_fp4(codes, scales, output_scale=1.0):
    """The value times its group's scale is exact in float32; one rounding for the output scale."""
    group_size = codes.shape[1] // scales.shape[1]
    return E2M1[codes] * np.repeat(scales, group_size, axis=1) * np.float32(output_scale)
