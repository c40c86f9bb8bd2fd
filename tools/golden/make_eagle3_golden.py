#!/usr/bin/env python3
"""Writes tests/models/golden/eagle3-tiny-llama3.safetensors: a random EAGLE-3 head for the test model
tiny-llama3, and what tools/eagle/eagle3_head.py computes with it in fp32.

    pip install torch transformers safetensors     # made with transformers 5.24, torch 2.15
    python tools/proxy/make_proxy.py --tests --out .cache/test-models
    python tools/golden/make_eagle3_golden.py

    token_ids  I32 [T]
    logits     F32 [T, draft vocabulary]
    states     F32 [T, hidden]  what stands in for the state of the token
    head.*     the head's tensors, as in a checkpoint
    config     U8 its config.json
"""

import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools/eagle"))
from eagle3_head import (Eagle3Head, captured_states, head_config, head_tensors,  # noqa: E402
                         shifted)

MODEL = "tiny-llama3"
LENGTH = 48


def main():
    torch.set_grad_enabled(False)
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        ROOT / ".cache/test-models" / MODEL, dtype=torch.float32).eval()
    config = head_config(model, draft_vocab_size=100, layers=[0, 1], num_attention_heads=2,
                         num_key_value_heads=1, head_dim=32, intermediate_size=64)
    head = Eagle3Head(config)
    for name, value in head.named_parameters():
        if value.dim() == 2:  # a deviation of the outputs like that of the inputs
            value.normal_(0, value.shape[1] ** -0.5)
        else:
            value.uniform_(0.5, 1.5)
        value.copy_(value.bfloat16().float())
    tokens = torch.randint(config["vocab_size"], (1, LENGTH))
    states = model(tokens, output_hidden_states=True).hidden_states
    logits, hidden = head(model.model.embed_tokens(tokens),
                          shifted(head.fc(captured_states(states, config))))
    token_ids = torch.randperm(config["vocab_size"])[:100].sort().values
    tensors = {f"head.{name}": value for name, value in head_tensors(head, token_ids).items()}
    text = json.dumps(config).encode()
    save_file({"token_ids": tokens[0].int(), "logits": logits[0].contiguous(),
               "states": hidden[0].contiguous(),
               "config": torch.tensor(list(text), dtype=torch.uint8), **tensors},
              ROOT / f"tests/models/golden/eagle3-{MODEL}.safetensors")
    print(f"logits of deviation {logits.std():.2f}, states of {hidden.std():.2f}")


if __name__ == "__main__":
    main()
