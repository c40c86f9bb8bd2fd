#!/usr/bin/env python3
"""Writes tests/models/golden/lora.safetensors: logits of tiny models with adapters merged into their
weights (W + scale * B A in fp32), by Transformers (fp32, eager attention).

    make_lora_golden.py [FOLDER]    of models and adapters; .cache/test-models

Of each adapter of tools/proxy/test_adapters.py: "<adapter>.token_ids" and "<adapter>.logits" of the
last tokens, with keys and values rounded to bf16 as the engine's cache holds them. Needs torch and
transformers.
"""
import pathlib
import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM

import model_reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/proxy"))
from random_weights import to_bf16_bits  # noqa: E402
from safetensors_files import write_safetensors  # noqa: E402
from test_adapters import ADAPTERS, adapter_tensors  # noqa: E402
from test_models import MODELS  # noqa: E402

LENGTH, NUM_LOGITS = 40, 12


def stored(values, kind):
    """The numbers that the adapter's file holds."""
    if kind == "f32":
        return values
    return (to_bf16_bits(values).astype(np.uint32) << 16).view(np.float32)


def merge(model, name):
    model_name, config, _, kind = ADAPTERS[name]
    tensors = {key: torch.from_numpy(stored(values, kind))
               for key, values in adapter_tensors(name, MODELS[model_name])}
    for key, a in tensors.items():
        if ".lora_A." not in key:
            continue
        layer = key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        alphas = [value for end, value in config.get("alpha_pattern", {}).items() if layer.endswith("." + end)]
        rank = a.shape[0]
        scale = (alphas or [config["lora_alpha"]])[0] / (rank**0.5 if config.get("use_rslora") else rank)
        model.get_submodule(layer).weight.data += scale * tensors[key.replace("lora_A", "lora_B")] @ a


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / ".cache/test-models"
    random = np.random.default_rng(11)
    golden = {}
    for name, (model_name, *_) in ADAPTERS.items():
        model = AutoModelForCausalLM.from_pretrained(
            folder / model_name, dtype=torch.float32, attn_implementation="eager")
        merge(model, name)
        token_ids = random.integers(1, model.config.vocab_size, LENGTH).astype(np.int32)
        logits = model_reference.Reference(model).run_with_rounded_cache(token_ids.tolist())
        golden[f"{name}.token_ids"] = token_ids
        golden[f"{name}.logits"] = logits[-NUM_LOGITS:].copy()
    write_safetensors(ROOT / "tests/models/golden/lora.safetensors", golden)


if __name__ == "__main__":
    main()
