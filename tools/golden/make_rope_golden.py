#!/usr/bin/env python3
"""Writes tests/kernels/golden/rope.json: rotary frequencies and angles as Hugging Face computes them.

Needs torch and transformers (the values are from transformers 5.24):
    python tools/golden/make_rope_golden.py
"""

import json
import pathlib

import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

# Names are those of RopeParameters (src/kernels/rope/rope_table.h), values what config.json holds.
CASES = [
    {"rope_type": "default", "rope_theta": 10000.0, "head_dim": 64, "max_position_embeddings": 2048},
    {"rope_type": "default", "rope_theta": 100000.0, "head_dim": 64, "max_position_embeddings": 8192},
    {"rope_type": "default", "rope_theta": 500000.0, "head_dim": 80, "max_position_embeddings": 8192},
    {"rope_type": "linear", "rope_theta": 10000.0, "head_dim": 128, "max_position_embeddings": 4096,
     "factor": 4.0},
    {"rope_type": "linear", "rope_theta": 10000.0, "head_dim": 80, "max_position_embeddings": 4096,
     "factor": 2.5, "partial_rotary_factor": 0.4},
    {"rope_type": "dynamic", "rope_theta": 10000.0, "head_dim": 64, "max_position_embeddings": 2048,
     "factor": 2.0},
    {"rope_type": "dynamic", "rope_theta": 10000.0, "head_dim": 64, "max_position_embeddings": 2048,
     "factor": 4.0, "sequence_length": 8192},
    {"rope_type": "llama3", "rope_theta": 500000.0, "head_dim": 64, "max_position_embeddings": 131072,
     "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 8192},
    {"rope_type": "llama3", "rope_theta": 500000.0, "head_dim": 128,
     "max_position_embeddings": 131072, "factor": 8.0, "low_freq_factor": 1.0,
     "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
    {"rope_type": "yarn", "rope_theta": 1000000.0, "head_dim": 128, "max_position_embeddings": 131072,
     "factor": 4.0, "original_max_position_embeddings": 32768},
    {"rope_type": "yarn", "rope_theta": 10000.0, "head_dim": 64, "max_position_embeddings": 163840,
     "factor": 40.0, "original_max_position_embeddings": 4096, "beta_fast": 32.0, "beta_slow": 1.0,
     "mscale": 0.707, "mscale_all_dim": 1.0},
    {"rope_type": "yarn", "rope_theta": 150000.0, "head_dim": 64, "max_position_embeddings": 131072,
     "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False},
    {"rope_type": "yarn", "rope_theta": 10000.0, "head_dim": 64, "max_position_embeddings": 8192,
     "factor": 2.0, "original_max_position_embeddings": 4096, "attention_factor": 1.25},
    # LongRoPE within its original length and beyond it.
    *({"rope_type": "longrope", "rope_theta": 10000.0, "head_dim": 16,
       "max_position_embeddings": 131072, "factor": 32.0, "partial_rotary_factor": 0.75,
       "original_max_position_embeddings": 4096, "sequence_length": length,
       "short_factor": [1.0, 1.05, 1.1, 1.3, 1.8, 2.25],
       "long_factor": [1.0, 1.4, 4.5, 8.0, 18.0, 40.0]} for length in (4096, 8192)),
]
# Keys that LlamaConfig takes beside rope_parameters, or not at all.
NOT_IN_CONFIG = ("head_dim", "max_position_embeddings", "sequence_length")


def numbers(tensor):
    # Nine digits tell every fp32 value from its neighbours.
    return [float(f"{x:.9g}") for x in tensor.flatten().tolist()]


def golden(case):
    config = LlamaConfig(
        head_dim=case["head_dim"],
        num_attention_heads=4,
        hidden_size=4 * case["head_dim"],
        max_position_embeddings=case["max_position_embeddings"],
        rope_parameters={k: v for k, v in case.items() if k not in NOT_IN_CONFIG},
    )
    if case["rope_type"] == "default":
        frequencies, scaling = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    else:
        frequencies, scaling = ROPE_INIT_FUNCTIONS[case["rope_type"]](
            config, seq_len=case.get("sequence_length"))
    positions = [1, 255, case["max_position_embeddings"] - 1]
    angles = torch.tensor(positions)[:, None].float() * frequencies
    return {
        **case,
        "inverse_frequencies": numbers(frequencies),
        "attention_scaling": scaling,
        "positions": positions,
        "cos": numbers(angles.cos() * scaling),
        "sin": numbers(angles.sin() * scaling),
    }


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    path = root / "tests" / "kernels" / "golden" / "rope.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(golden(case)) for case in CASES)
    path.write_text(f"[\n{lines}\n]\n")
    print(f"{path}: {len(CASES)} cases")


if __name__ == "__main__":
    main()
