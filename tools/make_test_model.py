#!/usr/bin/env python3
"""Makes the tiny random models that the tests load, as Hugging Face folders.

    python tools/make_test_model.py --out .cache/test-models

Needs numpy alone. The weights are the same bits wherever and whenever this runs: they come from a
counter-based integer generator, and all arithmetic after it is exact or one IEEE operation. So the
golden files under tests/models/golden, made once from these models by Transformers
(tools/golden/make_model_golden.py), stay valid without the weights being committed.

Each model covers what the others leave out; see MODELS.
"""

import argparse
import json
import math
import os
import pathlib
import shutil

import numpy as np

# Sizes are odd on purpose: hidden sizes, vocabularies and feed-forward sizes that are multiples of
# no kernel's tile, query sizes that differ from the hidden size.
MODELS = {
    # Llama 3: grouped queries, its RoPE scaling with borders that lie inside the tested lengths.
    "tiny-llama3": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 144,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "intermediate_size": 208,
        "vocab_size": 517,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
    },
    # Mistral: a window much shorter than the tested lengths, one KV head, a wide head.
    "tiny-mistral": {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "hidden_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "intermediate_size": 176,
        "vocab_size": 389,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "sliding_window": 16,
        "tie_word_embeddings": False,
    },
    # Llama 2's attention (a KV head per head), biases everywhere, tied embeddings, YaRN, and the
    # names that transformers 5 writes for RoPE.
    "tiny-llama2-yarn": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 160,
        "num_hidden_layers": 3,
        "num_attention_heads": 5,
        "num_key_value_heads": 5,
        "intermediate_size": 432,
        "vocab_size": 453,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "rope_theta": 10000.0,
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 64,
        },
        "attention_bias": True,
        "mlp_bias": True,
        "tie_word_embeddings": True,
    },
    # Linear RoPE scaling under its old name, a head_dim that is no multiple of 16, in two shards.
    "tiny-llama-linear": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 80,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 40,
        "intermediate_size": 144,
        "vocab_size": 421,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": {"type": "linear", "factor": 2.5},
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
    },
}
SHARDS = {"tiny-llama-linear": 2}

SPECIAL_TOKENS = ["<|begin|>", "<|end|>", "<|user|>", "<|assistant|>", "<|stop|>"]
CHAT_TEMPLATE = (
    "{{ '<|begin|>' }}{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|stop|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


# Random numbers


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def splitmix64(seed, count):
    """The generator's outputs 0 to count - 1 (Steele, Lea and Flood, 2014)."""
    with np.errstate(over="ignore"):
        x = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def uniform(seed, count):
    """Multiples of 2^-23 in [-1, 1) as float32, exactly."""
    integers = (splitmix64(seed, count) >> np.uint64(40)).astype(np.int64) - 2**23
    return integers.astype(np.float32) / np.float32(2**23)


def to_bf16_bits(values):
    """Round to nearest even."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(
        np.uint16
    )


# Weights


def head_dim(config):
    return config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])


def tensor_plan(config):
    """(name, shape, centre, half width of the uniform distribution), in file order.

    Gains are such that activations stay of order one, attention is peaked enough for a wrong
    position or mask to show, and logits differ by several units.
    """
    hidden, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    q_size = config["num_attention_heads"] * head_dim(config)
    kv_size = config["num_key_value_heads"] * head_dim(config)
    tied = config["tie_word_embeddings"]

    def projection(name, rows, columns, gain, bias):
        # The standard deviation of a uniform distribution is its half width / sqrt(3).
        tensors = [(f"{name}.weight", (rows, columns), 0.0, gain * math.sqrt(3.0 / columns))]
        if bias:
            tensors.append((f"{name}.bias", (rows,), 0.0, 0.5))
        return tensors

    embedding_gain = 3.0 / math.sqrt(hidden) if tied else 1.0
    plan = [("model.embed_tokens.weight", (vocab, hidden), 0.0, embedding_gain * math.sqrt(3.0))]
    attention_bias, mlp_bias = config.get("attention_bias", False), config.get("mlp_bias", False)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        plan.append((prefix + "input_layernorm.weight", (hidden,), 1.0, 0.3))
        plan += projection(prefix + "self_attn.q_proj", q_size, hidden, 1.5, attention_bias)
        plan += projection(prefix + "self_attn.k_proj", kv_size, hidden, 1.5, attention_bias)
        plan += projection(prefix + "self_attn.v_proj", kv_size, hidden, 1.0, attention_bias)
        plan += projection(prefix + "self_attn.o_proj", hidden, q_size, 1.0, attention_bias)
        plan.append((prefix + "post_attention_layernorm.weight", (hidden,), 1.0, 0.3))
        plan += projection(prefix + "mlp.gate_proj", ffn, hidden, 1.0, mlp_bias)
        plan += projection(prefix + "mlp.up_proj", ffn, hidden, 1.0, mlp_bias)
        plan += projection(prefix + "mlp.down_proj", hidden, ffn, 1.0, mlp_bias)
    plan.append(("model.norm.weight", (hidden,), 1.0, 0.3))
    if not tied:
        plan += projection("lm_head", vocab, hidden, 3.0, False)
    return plan


def make_weights(name, config):
    """Name -> uint16 array of bf16 bits."""
    weights = {}
    for tensor, shape, centre, half_width in tensor_plan(config):
        count = math.prod(shape)
        values = uniform(fnv1a(f"{name}/{tensor}"), count) * np.float32(half_width) + np.float32(centre)
        weights[tensor] = to_bf16_bits(values).reshape(shape)
    return weights


# Files

SAFETENSORS_TYPES = {"float32": "F32", "int32": "I32", "uint16": "BF16"}


def write_safetensors(path, tensors, metadata=None):
    """Arrays of float32, int32, or uint16 (taken as the bits of bf16)."""
    header = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for name, array in tensors.items():
        header[name] = {
            "dtype": SAFETENSORS_TYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def write_weights(folder, weights, num_shards):
    if num_shards == 1:
        write_safetensors(folder / "model.safetensors", weights, {"format": "pt"})
        return
    names = list(weights)
    weight_map = {}
    for shard in range(num_shards):
        file = f"model-{shard + 1:05d}-of-{num_shards:05d}.safetensors"
        part = names[len(names) * shard // num_shards : len(names) * (shard + 1) // num_shards]
        write_safetensors(folder / file, {n: weights[n] for n in part}, {"format": "pt"})
        weight_map |= {n: file for n in part}
    index = {
        "metadata": {"total_size": sum(w.nbytes for w in weights.values())},
        "weight_map": weight_map,
    }
    write_json(folder / "model.safetensors.index.json", index)


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def byte_level_alphabet():
    """GPT-2's printable stand-ins for the 256 bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    stand_ins, next_free = [], 0x100
    for byte in range(256):
        if byte in printable:
            stand_ins.append(chr(byte))
        else:
            stand_ins.append(chr(next_free))
            next_free += 1
    return stand_ins


def make_tokenizer(vocab_size):
    """A byte-level BPE of exactly vocab_size tokens, the special ones last."""
    alphabet = byte_level_alphabet()
    letters = "etaoinshrdlucmfwygpbvk"
    merges = [(a, b) for a in ["\u0120", *letters] for b in letters]  # U+0120 stands for a space
    merges = merges[: vocab_size - len(alphabet) - len(SPECIAL_TOKENS)]
    tokens = alphabet + [a + b for a, b in merges]
    special = [
        {
            "id": len(tokens) + i,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for i, content in enumerate(SPECIAL_TOKENS)
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {**byte_level, "use_regex": True},
        "post_processor": None,
        "decoder": {**byte_level, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [f"{a} {b}" for a, b in merges],
        },
    }


def write_model(folder, name):
    folder.mkdir(parents=True)
    vocab_size = MODELS[name]["vocab_size"]
    tokens = {"bos_token_id": vocab_size - 5, "eos_token_id": vocab_size - 4}
    config = {**MODELS[name], **tokens, "hidden_act": "silu", "torch_dtype": "bfloat16"}
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", tokens)
    write_json(folder / "tokenizer.json", make_tokenizer(vocab_size))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": SPECIAL_TOKENS[0],
            "eos_token": SPECIAL_TOKENS[1],
            "chat_template": CHAT_TEMPLATE,
            "model_max_length": config["max_position_embeddings"],
        },
    )
    write_weights(folder, make_weights(name, config), SHARDS.get(name, 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(".cache/test-models"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        # Made beside its place and moved there, so that no test ever sees half a model.
        draft = out / f".{name}.{os.getpid()}"
        write_model(draft, name)
        shutil.rmtree(out / name, ignore_errors=True)
        draft.rename(out / name)
        print(out / name)


if __name__ == "__main__":
    main()
