"""Low-rank adapters (LoRA, in PEFT's layout) of random weights for the models of the tests."""

import numpy as np

from random_weights import fnv1a, to_bf16_bits, uniform
from safetensors_files import write_json, write_safetensors

ATTENTION = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"]
FFN = ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]

# name -> the model, adapter_config.json, the adapted layers, the type of the numbers
ADAPTERS = {
    "lora-mistral-all": ("tiny-mistral", {"r": 4, "lora_alpha": 8}, ATTENTION + FFN, "bf16"),
    # A rank that is no power of two, in fp32, and one layer with an alpha of its own.
    "lora-mistral-some": (
        "tiny-mistral",
        {"r": 12, "lora_alpha": 6, "use_rslora": True, "alpha_pattern": {"layers.1.mlp.down_proj": 3}},
        ["self_attn.q_proj", "mlp.down_proj"], "f32"),
    # Rows of queries and keys that the engine keeps in another order.
    "lora-glm4": ("tiny-glm4", {"r": 8, "lora_alpha": 16}, ATTENTION + ["mlp.gate_up_proj", "mlp.down_proj"], "bf16"),
}


def layer_sizes(config):
    """-> {layer: (outputs, inputs)}"""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    ffn, head_dim = config["intermediate_size"], config["head_dim"]
    queries, keys = heads * head_dim, config["num_key_value_heads"] * head_dim
    return {
        "self_attn.q_proj": (queries, hidden), "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden), "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (ffn, hidden), "mlp.up_proj": (ffn, hidden), "mlp.down_proj": (hidden, ffn),
        "mlp.gate_up_proj": (2 * ffn, hidden),
    }


def adapter_tensors(name, model_config):
    """Pairs of tensor names and numbers: A keeps the size of what it reads, B A is about as large as
    the layer."""
    _, config, layers, _ = ADAPTERS[name]
    sizes, rank = layer_sizes(model_config), config["r"]
    for index in range(model_config["num_hidden_layers"]):
        for layer in layers:
            outputs, inputs = sizes[layer]
            prefix = f"base_model.model.model.layers.{index}.{layer}"
            for part, shape, half_width in (("A", (rank, inputs), (3 / inputs) ** 0.5), ("B", (outputs, rank), 0.25)):
                key = f"{prefix}.lora_{part}.weight"
                values = uniform(fnv1a(f"{name}/{key}"), shape[0] * shape[1]) * np.float32(half_width)
                yield key, values.reshape(shape)


def write_adapter(folder, name, model_config):
    model, config, layers, kind = ADAPTERS[name]
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "adapter_config.json", {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": model, "bias": "none",
        "target_modules": sorted({layer.split(".")[-1] for layer in layers}), "use_rslora": False,
        "use_dora": False, "fan_in_fan_out": False, "modules_to_save": None, "rank_pattern": {},
        "alpha_pattern": {}, **config})
    tensors = dict(adapter_tensors(name, model_config))
    if kind == "bf16":
        tensors = {key: to_bf16_bits(values) for key, values in tensors.items()}
    write_safetensors(folder / "adapter_model.safetensors", tensors, {"format": "pt"})
