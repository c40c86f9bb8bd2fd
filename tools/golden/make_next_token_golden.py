#!/usr/bin/env python3
"""Writes tests/models/golden/next-token-*.safetensors: what the layer that guesses a token further
(DeepSeek-V3's and GLM-4.5's multi-token prediction) computes, of Transformers' own modules, in fp32.

    pip install torch transformers safetensors     # made with transformers 5.24, torch 2.15
    python tools/proxy/make_proxy.py --tests --out .cache/test-models
    python tools/golden/make_next_token_golden.py

Transformers has the layers' modules but not the layer: it is put together here as the technical
report of DeepSeek-V3 says (2024, section 2.2). Row i is of token i and the model's final hidden state,
after the norm, of token i - 1; zeros for i = 0.

    token_ids  I32 [T]
    logits     F32 [T, vocab]
    states     F32 [T, hidden]  after shared_head.norm
"""

import pathlib
import sys

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from transformers.masking_utils import create_causal_mask

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools/proxy"))
import model_reference as reference  # noqa: E402
from random_weights import splitmix64  # noqa: E402
from safetensors_files import write_safetensors  # noqa: E402
from test_models import NEXT_TOKEN_MODELS  # noqa: E402

LENGTH = 32


def load_layer(model, weights, prefix):
    """-> the decoder layer behind the last one."""
    index = model.config.num_hidden_layers
    layer = type(model.model.layers[-1])(model.config, index)
    own = {name[len(prefix):]: tensor.float() for name, tensor in weights.items()
           if name.startswith(prefix)}
    experts = layer.mlp.experts
    if hasattr(experts, "gate_up_proj"):  # stacked in memory, one by one in files
        count = experts.gate_up_proj.shape[0]
        projection = "mlp.experts.{}.{}_proj.weight"
        own["mlp.experts.gate_up_proj"] = torch.stack(
            [torch.cat([own.pop(projection.format(i, kind)) for kind in ("gate", "up")])
             for i in range(count)])
        own["mlp.experts.down_proj"] = torch.stack(
            [own.pop(projection.format(i, "down")) for i in range(count)])
    extra = {name: own.pop(name) for name in
             ("enorm.weight", "hnorm.weight", "eh_proj.weight", "shared_head.norm.weight")}
    layer.load_state_dict(own)
    return layer.float().eval(), extra


def rms_norm(model, weight, x):
    norm = type(model.model.norm)(x.shape[-1], model.config.rms_norm_eps)
    norm.weight.data = weight
    return norm(x)


class WithNextToken(torch.nn.Module):
    """A model and the layer behind its last one: tokens [B, T] -> logits and states."""

    def __init__(self, model, weights):
        super().__init__()
        self.model = model
        prefix = f"model.layers.{model.config.num_hidden_layers}."
        self.layer, self.extra = load_layer(model, weights, prefix)

    def forward(self, tokens, use_cache=False):
        model, extra = self.model, self.extra
        states = model.model(tokens, use_cache=use_cache).last_hidden_state
        previous = torch.cat([torch.zeros_like(states[:, :1]), states[:, :-1]], 1)
        embedded = model.model.embed_tokens(tokens)
        joined = torch.cat([rms_norm(model, extra["enorm.weight"], embedded),
                            rms_norm(model, extra["hnorm.weight"], previous)], -1)
        hidden = joined @ extra["eh_proj.weight"].T
        positions = torch.arange(tokens.shape[1])[None]
        mask = create_causal_mask(config=model.config, inputs_embeds=hidden, attention_mask=None,
                                  past_key_values=None, position_ids=positions)
        output = self.layer(hidden, attention_mask=mask, position_ids=positions,
                            position_embeddings=model.model.rotary_emb(hidden, positions))
        hidden = output[0] if isinstance(output, tuple) else output
        normed = rms_norm(model, extra["shared_head.norm.weight"], hidden)
        return model.lm_head(normed), normed


def clear_tokens(module, vocab_size):
    """Random ones, but for those whose experts a rounding could change."""
    runner = reference.Reference(module)
    tokens = []
    for token in (splitmix64(3000, 64 * LENGTH) % np.uint64(vocab_size)).tolist():
        if len(tokens) < LENGTH and runner.chooses_clearly([*tokens, token]):
            tokens.append(token)
    assert len(tokens) == LENGTH
    return tokens


def main():
    torch.set_grad_enabled(False)
    for name, config in NEXT_TOKEN_MODELS.items():
        folder = ROOT / ".cache/test-models" / name
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager").eval()
        module = WithNextToken(model, load_file(folder / "model.safetensors"))
        tokens = clear_tokens(module, config["vocab_size"])
        logits, states = (output[0].numpy() for output in module(torch.tensor([tokens])))
        write_safetensors(ROOT / f"tests/models/golden/next-token-{name}.safetensors", {
            "token_ids": np.array(tokens, np.int32), "logits": logits, "states": states})
        print(f"{name}: logits of deviation {logits.std():.2f}")


if __name__ == "__main__":
    main()
