#!/usr/bin/env python3
"""Writes tests/models/golden/embeddings.safetensors: final hidden states of tiny models by
Transformers (fp32, eager attention), pooled.

    make_embedding_golden.py [FOLDER]    of the models; .cache/test-models

Of each model: "<model>.token_ids", and of the states after the final norm "<model>.last" and
"<model>.cls" (the last and the first token's) and "<model>.mean". Needs torch and transformers.
"""
import pathlib
import sys

import numpy as np
import torch
from transformers import AutoModel

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/proxy"))
from safetensors_files import write_safetensors  # noqa: E402

MODELS = ("tiny-qwen3", "tiny-gemma2")
LENGTH = 61


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / ".cache/test-models"
    random = np.random.default_rng(3)
    golden = {}
    for name in MODELS:
        model = AutoModel.from_pretrained(folder / name, dtype=torch.float32, attn_implementation="eager")
        token_ids = random.integers(1, model.config.vocab_size, LENGTH).astype(np.int32)
        with torch.no_grad():
            states = model(torch.from_numpy(token_ids).long()[None]).last_hidden_state[0].numpy()
        golden[f"{name}.token_ids"] = token_ids
        golden[f"{name}.last"] = states[-1].copy()
        golden[f"{name}.cls"] = states[0].copy()
        golden[f"{name}.mean"] = states.mean(axis=0, dtype=np.float64).astype(np.float32)
    write_safetensors(ROOT / "tests/models/golden/embeddings.safetensors", golden)


if __name__ == "__main__":
    main()
