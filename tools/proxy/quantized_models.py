"""One tiny model in every 4-bit and 8-bit format: the same weights, exactly, in each.

A linear layer's weight is scale * integer, where the integers are those that 4 bits of every format
have (0, 1, 2, 3, 4, 6 and their negatives) and scales are powers of two. Eight bits have room for
the integer and a part of the scale. So all the models must
compute what the plain one does, which is in bf16.
"""

import math

import numpy as np

import quantized_layouts as layouts
import tensor_plans
from random_weights import blocks_of_bf16, fnv1a, splitmix64

NAME = "tiny-llama-4bit"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "intermediate_size": 160,
    "vocab_size": 381,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
}
INTEGERS = np.array([0, 1, 2, 3, 4, 6, -1, -2, -3, -4, -6], np.int64)
GROUP = 32


def compressed(name, num_bits=4, **weights):
    return {
        "quant_method": "compressed-tensors",
        "format": name,
        "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": num_bits, **weights}}},
    }


QUANTIZATION_CONFIGS = {
    "awq": {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": False},
    "gptq-act-order": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True, "sym": False,
                       "checkpoint_format": "gptq_v2"},
    "int4": compressed("pack-quantized", type="int", strategy="group", group_size=GROUP, symmetric=True),
    "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["lm_head"]},
    "nvfp4-divided": compressed("nvfp4-pack-quantized", type="float", strategy="tensor_group", group_size=16),
    "mxfp4": compressed("mxfp4-pack-quantized", type="float", strategy="group", group_size=GROUP),
    "fp8-block": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                  "weight_block_size": [64, 128], "modules_to_not_convert": ["lm_head"]},
    "fp8-channel": compressed("float-quantized", 8, type="float", strategy="channel", symmetric=True),
    "fp8-tensor": compressed("float-quantized", 8, type="float", strategy="tensor", symmetric=True),
    "int8": compressed("int-quantized", 8, type="int", strategy="channel", symmetric=True),
    "w8a8-int8": {"quant_method": "w8a8_int8"},
}


class Layer:
    """The integers [N, K] and scales [N, K / 32] of a linear layer."""

    def __init__(self, name, shape):
        rows, columns = shape
        groups = columns // GROUP
        draws = splitmix64(fnv1a(f"{NAME}/{name}"), rows * columns + 2 * rows * groups)
        small = (draws >> np.uint64(32)).astype(np.int64)
        self.integers = INTEGERS[small[: rows * columns] % len(INTEGERS)].reshape(shape)
        rest = small[rows * columns :].reshape(2, rows, groups)
        middle = round(math.log2(0.35 / math.sqrt(columns)))
        self.exponents = middle + rest[0] % 3 - 1
        # Columns of two such groups may change places without a change of the weights: act-order.
        self.exponents[:, 2::2] = self.exponents[:, 1::2][:, : self.exponents[:, 2::2].shape[1]]
        self.zero_points = (6 + rest[1] % 4).astype(np.uint8)  # integers are -6 to 6

    def bf16(self):
        values = np.ldexp(self.integers.astype(np.float32), np.repeat(self.exponents, GROUP, axis=1))
        return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)

    def g_idx(self):
        """Groups 1 and 2, 3 and 4 by turns, and group 0 called the last."""
        columns, groups = self.integers.shape[1], self.exponents.shape[1]
        index = np.arange(columns) // GROUP
        for first in range(1, groups - 1, 2):
            index[first * GROUP : (first + 2) * GROUP] = first + np.arange(2 * GROUP) % 2
        return (index - 1) % groups

    def int4(self, zero_points, g_idx=None):
        """Quants, zero points and scales; with g_idx, groups go by the labels of g_idx."""
        scales = np.ldexp(np.float32(1), self.exponents).astype(np.float16)
        if g_idx is None:
            return self.integers + np.repeat(zero_points, GROUP, axis=1), zero_points, scales
        zero_points, scales = np.roll(zero_points, -1, axis=1), np.roll(scales, -1, axis=1)
        return self.integers + zero_points[:, g_idx], zero_points, scales

    def fp4(self):
        codes = np.zeros(self.integers.shape, np.uint8)
        for code in range(16):
            if code != 8:
                codes[self.integers == 2 * layouts.E2M1[code]] = code
        return layouts.pack_bytes(codes)

    def bytes_with_scales(self, rows, columns, is_float):
        """Values of 8 bits and the scales of blocks of rows x columns, powers of two."""
        values = np.ldexp(self.integers.astype(np.float64), np.repeat(self.exponents, GROUP, axis=1))
        n, k = values.shape
        grid = (math.ceil(n / rows), math.ceil(k / columns))
        scales = np.ldexp(1.0, int(self.exponents.min()) - np.indices(grid).sum(axis=0) % 3)
        values /= np.repeat(np.repeat(scales, rows, axis=0), columns, axis=1)[:n, :k]
        scales = scales.astype(np.float32)
        if not is_float:
            return {"weight": ("I8", values.astype(np.int8)), "weight_scale": scales}
        table = layouts.e4m3_values()[:127]
        codes = np.searchsorted(table, np.abs(values)).astype(np.uint8)
        assert np.array_equal(table[codes], np.abs(values))
        codes |= np.signbit(values).astype(np.uint8) << 7
        return {"weight": ("F8_E4M3", codes), "weight_scale": scales}

    def tensors(self, kind):
        n, k = self.integers.shape
        if kind == "fp8-block":
            tensors = self.bytes_with_scales(64, 128, True)
            return {"weight": tensors["weight"], "weight_scale_inv": tensors["weight_scale"]}
        if kind == "fp8-channel":
            return self.bytes_with_scales(1, k, True)
        if kind == "fp8-tensor":
            tensors = self.bytes_with_scales(n, k, True)
            return {"weight": tensors["weight"], "weight_scale": tensors["weight_scale"][0]}
        if kind in ("int8", "w8a8-int8"):
            return self.bytes_with_scales(1, k, False)
        even = np.full(self.zero_points.shape, 8, np.uint8)
        e4m3 = ("F8_E4M3", np.repeat((self.exponents + 1 + 6 + 7) << 3, 2, axis=1).astype(np.uint8))
        if kind == "awq":
            return layouts.awq(*self.int4(self.zero_points))
        if kind == "gptq":
            return layouts.gptq(*self.int4(self.zero_points))
        if kind == "gptq-act-order":
            return layouts.gptq(*self.int4(self.zero_points, self.g_idx()), self.g_idx(), stored_zero_offset=0)
        if kind == "int4":
            quants, _, scales = self.int4(even)
            return layouts.pack_quantized(quants, None, scales)
        if kind == "nvfp4":
            tensor_scale = np.array(np.float32(2.0**-6))
            return {"weight": self.fp4(), "weight_scale": e4m3, "weight_scale_2": tensor_scale,
                    "input_scale": np.array(np.float32(0.5))}
        if kind == "nvfp4-divided":
            divisor = np.array([2.0**6], np.float32)
            return {"weight_packed": self.fp4(), "weight_scale": e4m3, "weight_global_scale": divisor}
        return {"weight_packed": self.fp4(), "weight_scale": (self.exponents + 1 + 127).astype(np.uint8)}


def model_tensors(kind=None):
    """Name -> array; of the plain model without a kind."""
    tensors = {}
    for tensor in tensor_plans.tensors_of(CONFIG):
        if not tensor.name.endswith("_proj.weight"):
            bits = np.concatenate(list(blocks_of_bf16(NAME, tensor)))
            tensors[tensor.name] = bits.reshape(tensor.shape)
            continue
        layer = Layer(tensor.name, tensor.shape)
        if kind is None:
            tensors[tensor.name] = layer.bf16()
            continue
        module = tensor.name.removesuffix("weight")
        tensors |= {module + name: value for name, value in layer.tensors(kind).items()}
    return tensors
