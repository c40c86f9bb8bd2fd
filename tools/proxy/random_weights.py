"""Random numbers that are the same bits wherever and whenever they are made: a counter-based integer
generator, and after it exact arithmetic or one IEEE operation."""

import math

import numpy as np

BLOCK = 1 << 22  # elements made at a time


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def splitmix64(seed, count, start=0):
    """The generator's outputs start to start + count - 1 (Steele, Lea and Flood, 2014)."""
    with np.errstate(over="ignore"):
        counter = np.arange(start + 1, start + count + 1, dtype=np.uint64)
        x = np.uint64(seed) + counter * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def uniform(seed, count, start=0):
    """Multiples of 2^-23 in [-1, 1) as float32, exactly."""
    integers = (splitmix64(seed, count, start) >> np.uint64(40)).astype(np.int64) - 2**23
    return integers.astype(np.float32) / np.float32(2**23)


def to_bf16_bits(values):
    """Round to nearest even."""
    bits = values.astype(np.float32).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return ((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)).astype(np.uint16)


def blocks_of_bf16(model, tensor):
    """The elements of a tensor (see tensor_plans.py) as arrays of bf16 bits, a block at a time."""
    seed, count = fnv1a(f"{model}/{tensor.name}"), math.prod(tensor.shape)
    for start in range(0, count, BLOCK):
        values = uniform(seed, min(BLOCK, count - start), start)
        yield to_bf16_bits(values * np.float32(tensor.half_width) + np.float32(tensor.centre))
