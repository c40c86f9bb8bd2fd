"""EAGLE-3's head in plain PyTorch: what src/models/eagle_head.h computes, to train and to compare.

Li et al., "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time
Test" (2025). Names of modules are those of the tensors in checkpoints.
"""

import json

import torch
from torch import nn
from torch.nn import functional


class RmsNorm(nn.Module):
    def __init__(self, size, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon)


def rotate(x, theta):
    """x [B, heads, T, head_dim], of the positions 0 to T - 1; halves are pairs."""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[-2])[:, None] * theta ** (-torch.arange(half) / half)
    cos, sin = angles.cos(), angles.sin()
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, self.head_dim = config["hidden_size"], config["head_dim"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.theta = config["rope_theta"]
        # Its input is the embedding beside the state.
        self.q_proj = nn.Linear(2 * hidden, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(2 * hidden, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(2 * hidden, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, hidden, bias=False)

    def forward(self, x):
        def split(values, heads):
            return values.unflatten(-1, (heads, self.head_dim)).transpose(1, 2)

        q = rotate(split(self.q_proj(x), self.heads), self.theta)
        k = rotate(split(self.k_proj(x), self.kv_heads), self.theta)
        v = split(self.v_proj(x), self.kv_heads)
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(attended.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, intermediate = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = nn.Linear(hidden, intermediate, bias=False)
        self.up_proj = nn.Linear(hidden, intermediate, bias=False)
        self.down_proj = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        size, epsilon = config["hidden_size"], config["rms_norm_eps"]
        self.input_layernorm = RmsNorm(size, epsilon)
        self.hidden_norm = RmsNorm(size, epsilon)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RmsNorm(size, epsilon)
        self.mlp = Mlp(config)

    def forward(self, embedded, state):
        joined = torch.cat([self.input_layernorm(embedded), self.hidden_norm(state)], -1)
        hidden = state + self.self_attn(joined)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Eagle3Head(nn.Module):
    """Row i of all: token i, and the states of token i - 1."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        size, layers = config["hidden_size"], captured_layers(config)
        self.fc = nn.Linear(len(layers) * size, size, bias=False)
        self.midlayer = Layer(config)
        self.norm = RmsNorm(size, config["rms_norm_eps"])
        self.lm_head = nn.Linear(size, config["draft_vocab_size"], bias=False)

    def forward(self, embedded, state):
        """embedded, state [B, T, hidden] -> logits [B, T, draft_vocab_size] of what follows token i,
        and what stands in for the state of token i."""
        hidden = self.midlayer(embedded, state)
        return self.lm_head(self.norm(hidden)), hidden


def captured_layers(config):
    """Whose output the head sees, from 0."""
    return config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]


def captured_states(hidden_states, config):
    """From Transformers' output_hidden_states (the embeddings first, the last one normed) ->
    [B, T, layers * hidden]."""
    return torch.cat([hidden_states[layer + 1] for layer in captured_layers(config)], -1)


def shifted(rows):
    """Row i of the result is row i - 1; zeros come first."""
    return torch.cat([torch.zeros_like(rows[:, :1]), rows[:, :-1]], 1)


def head_config(model, draft_vocab_size, layers, **sizes):
    """config.json of a head for a Transformers model of the Llama family."""
    own = model.config
    config = {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama",
        "hidden_size": own.hidden_size, "intermediate_size": own.intermediate_size,
        "num_hidden_layers": 1, "num_attention_heads": own.num_attention_heads,
        "num_key_value_heads": own.num_key_value_heads,
        "head_dim": own.hidden_size // own.num_attention_heads, "vocab_size": own.vocab_size,
        "draft_vocab_size": draft_vocab_size, "rms_norm_eps": own.rms_norm_eps,
        "rope_theta": 10000.0, "hidden_act": "silu", "attention_bias": False,
        "max_position_embeddings": own.max_position_embeddings, "tie_word_embeddings": False,
        "torch_dtype": "bfloat16", "eagle_config": {"eagle_aux_hidden_state_layer_ids": layers},
    }
    return {**config, **sizes}


def head_tensors(head, token_ids):
    """Those of a checkpoint; token_ids [draft_vocab_size] are the head's vocabulary."""
    tensors = {name: value.detach().bfloat16() for name, value in head.state_dict().items()}
    tensors["d2t"] = token_ids - torch.arange(len(token_ids))
    tensors["t2d"] = torch.zeros(head.config["vocab_size"], dtype=torch.bool)
    tensors["t2d"][token_ids] = True
    return tensors


def write_config(folder, config):
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
