#!/usr/bin/env python3
"""What rounding costs in SmolLM2 by itself: Transformers in fp32 against Transformers with the same
roundings as the engine's. The bounds of tests/models/smollm2_golden_test.cc come from here.

    python tools/golden/rounding_study.py        # after make_model_golden.py
"""

import pathlib

import numpy as np
import torch

import model_reference as reference
from gguf_reference import load_gguf
from make_model_golden import SMOLLM2, TEXT


def to_bf16(values):
    return values.bfloat16().float()


def to_int8_groups(values, group_size=32):
    """int8 with a scale per group, as the kernels quantize activations."""
    groups = values.reshape(-1, group_size)
    scale = groups.abs().amax(dim=1, keepdim=True).clamp(min=1e-30) / 127
    return (torch.round(groups / scale) * scale).reshape(values.shape)


def round_inputs(model, rounding):
    return [layer.register_forward_pre_hook(lambda _, inputs: (rounding(inputs[0]),))
            for layer in model.modules() if isinstance(layer, torch.nn.Linear)]


def main():
    model, tokenizer = load_gguf(SMOLLM2)
    runner = reference.Reference(model)
    token_ids = tokenizer.encode(TEXT, add_special_tokens=False).ids
    exact, _ = runner.run(token_ids)

    def report(name):
        logits = runner.run_with_rounded_cache(token_ids)
        error = np.abs(logits - exact).max(axis=1) / np.abs(exact).max(axis=1)
        same = (logits.argmax(axis=1) == exact.argmax(axis=1)).sum()
        print(f"{name:48} rms {np.sqrt((error**2).mean()):.2e}  largest {error.max():.2e} at "
              f"position {error.argmax()}  best token the same at {same} of {len(error)}")

    report("bf16 cache")
    for name, rounding in (("int8 activations, bf16 cache", to_int8_groups),
                           ("bf16 activations and cache", to_bf16)):
        hooks = round_inputs(model, rounding)
        report(name)
        for hook in hooks:
            hook.remove()
    for parameter in model.parameters():
        parameter.data = to_bf16(parameter.data)
    round_inputs(model, to_bf16)
    report("bf16 weights, activations and cache")


if __name__ == "__main__":
    main()
