#!/usr/bin/env python3
"""Checks that others read what `tilewright quantize` writes: Transformers loads the folders by way of
compressed-tensors, dequantizes them, and computes nearly what the unquantized model does.

    pip install torch transformers compressed-tensors    # done with 2.15, 5.24 and 0.20
    python tools/proxy/make_proxy.py --tests --out .cache/test-models
    python tools/golden/check_quantized_folders.py build/release/apps/tilewright
"""

import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers

MODEL = pathlib.Path(__file__).resolve().parents[2] / ".cache/test-models/tiny-llama-4bit"
# Of the largest logit. The model's weights are integers times powers of two (see
# tools/proxy/quantized_models.py): formats with e2m1 floats hold them exactly, INT4 nearly all.
BOUNDS = {"mxfp4": 0.0, "nvfp4": 0.0, "int4": 0.02, "w8a8_int8": 0.05, "fp8": 0.2}
TOKENS = torch.tensor([[(i * i * 37 + 11) % 376 for i in range(40)]])


def logits(path, **options):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager", **options).eval()
    return model(TOKENS).logits[0]


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    torch.set_grad_enabled(False)
    reference = logits(MODEL)
    for name, bound in BOUNDS.items():
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([binary, "quantize", "--model-path", MODEL, "--quantization", name,
                            "--output", folder], check=True, capture_output=True)
            dequantized = transformers.CompressedTensorsConfig(run_compressed=False)
            computed = logits(folder, quantization_config=dequantized)
        error = ((computed - reference).abs().max() / reference.abs().max()).item()
        print(f"{name}: relative error of the logits {error:.1e}")
        assert error <= bound, f"{name}: {error} is more than {bound}"


if __name__ == "__main__":
    main()
