"""What compressed-tensors makes of a matrix in each format, for tests/weights/quantize_test.cc.

Scales are its choice (from the largest weight), those of channels and INT4 groups rounded to bf16
as checkpoints hold them; the quants are its rounding. Needs: pip install compressed-tensors
"""
import pathlib

import torch
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from safetensors.torch import save_file

ROWS, COLUMNS = 8, 96
FORMATS = {
    "w8a8_int8": dict(num_bits=8, type="int", strategy="channel"),
    "fp8": dict(num_bits=8, type="float", strategy="channel"),
    "int4": dict(num_bits=4, type="int", strategy="group", group_size=32),
    "mxfp4": dict(num_bits=4, type="float", strategy="group", group_size=32,
                  scale_dtype=torch.uint8, zp_dtype=torch.uint8),
    "nvfp4": dict(num_bits=4, type="float", strategy="tensor_group", group_size=16,
                  scale_dtype=torch.float8_e4m3fn, zp_dtype=torch.float8_e4m3fn),
}


def fake_quantized(weight, name):
    args = QuantizationArgs(symmetric=True, dynamic=False, **FORMATS[name])
    groups = weight.unflatten(1, (-1, args.group_size)) if args.group_size else weight
    global_scale = generate_gparam(weight.min(), weight.max()) if name == "nvfp4" else None
    keep = args.group_size is None
    scale, zero_point = calculate_qparams(groups.amin(-1, keepdim=keep),
                                          groups.amax(-1, keepdim=keep), args, global_scale)
    if args.scale_dtype is None:
        scale = scale.to(torch.bfloat16)
    scale = scale.float()
    quants = quantize(weight, scale, zero_point.float(), args, global_scale=global_scale)
    return dequantize(quants, scale, args=args, global_scale=global_scale)


def main():
    torch.manual_seed(7)
    weight = torch.randn(ROWS, COLUMNS) * torch.logspace(-3, 1, ROWS)[:, None]
    weight[:, 5] *= 6  # an outlier in each row
    weight = weight.to(torch.bfloat16).float()
    tensors = {"weight": weight}
    for name in FORMATS:
        tensors[name] = fake_quantized(weight, name).contiguous()
        error = ((tensors[name] - weight).norm() / weight.norm()).item()
        print(f"{name}: relative error {error:.4f}")
    path = pathlib.Path(__file__).resolve().parents[2] / "tests/weights/golden/quantize.safetensors"
    save_file(tensors, path)


if __name__ == "__main__":
    main()
