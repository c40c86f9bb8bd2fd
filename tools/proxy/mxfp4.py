"""Experts in MXFP4, as gpt-oss has them: random weights, and the two layouts they are stored in.

A weight is a float of 4 bits (e2m1) times a power of two that 32 neighbours along the inputs share.
"""

import math

import numpy as np

import quantized_layouts as layouts
from random_weights import fnv1a, splitmix64

GROUP = 32
RMS_OF_CODES = math.sqrt(np.square(layouts.E2M1).mean())


class Mxfp4:
    """codes [..., N, K] of 0 to 15, exponents [..., N, K / 32] with a bias of 127."""

    def __init__(self, codes, exponents):
        self.codes, self.exponents = codes, exponents

    def __getitem__(self, index):
        return Mxfp4(self.codes[index], self.exponents[index])

    @staticmethod
    def random(name, shape):
        """Of the size that the inputs of a linear layer ask for."""
        groups = (*shape[:-1], shape[-1] // GROUP)
        count = math.prod(shape)
        draws = splitmix64(fnv1a(name), count + math.prod(groups)) >> np.uint64(33)
        middle = round(-math.log2(RMS_OF_CODES * math.sqrt(shape[-1])))
        exponents = 126 + middle + (draws[count:] % np.uint64(3)).astype(np.int64)
        codes = (draws[:count] % np.uint64(16)).astype(np.uint8)
        return Mxfp4(codes.reshape(shape), exponents.astype(np.uint8).reshape(groups))

    def hugging_face(self):
        """-> blocks [..., N, K / 32, 16], the even k in the low nibble, and scales."""
        grouped = self.codes.reshape(*self.exponents.shape, GROUP)
        return {"blocks": layouts.pack_bytes(grouped), "scales": self.exponents}

    def gguf(self):
        """-> blocks of a scale and 16 bytes, the first half of the group in the low nibbles."""
        grouped = self.codes.reshape(*self.exponents.shape, GROUP)
        nibbles = grouped[..., : GROUP // 2] | grouped[..., GROUP // 2 :] << 4
        return np.concatenate([self.exponents[..., None], nibbles], axis=-1)
