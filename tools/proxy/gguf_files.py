"""Writes models as GGUF files, with the names and metadata that llama.cpp's converters give them.

Matrices are BF16, vectors F32. numpy alone.
"""

import math
import struct

import numpy as np

from tiny_tokenizer import CHAT_TEMPLATE

ALIGNMENT = 32
F32, BF16 = 0, 30
UINT32, FLOAT32, BOOL, STRING, ARRAY, INT32 = 4, 6, 7, 8, 9, 5
BYTE_TOKEN, CONTROL_TOKEN = 1, 3

ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "GemmaForCausalLM": "gemma",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3",
    "Phi3ForCausalLM": "phi3",
    "Glm4ForCausalLM": "glm4",
    "Olmo2ForCausalLM": "olmo2",
    "Olmo3ForCausalLM": "olmo2",
    "SmolLM3ForCausalLM": "smollm3",
}
PERMUTED = ("llama", "smollm3")  # query and key rows of each head are interleaved

NAMES = {
    "embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.qkv_proj": "attn_qkv", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm",
}
SANDWICH_NAMES = {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
NAMES_OF = {
    "gemma2": SANDWICH_NAMES, "gemma3": SANDWICH_NAMES, "olmo2": SANDWICH_NAMES,
    "glm4": {"post_self_attn_layernorm": "post_attention_norm",
             "post_mlp_layernorm": "post_ffw_norm"},
}


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def array(kind, items):
    if kind == STRING:
        body = b"".join(map(string, items))
    else:
        body = np.array(items, {INT32: "<i4", BOOL: "u1"}[kind]).tobytes()
    return struct.pack("<IQ", kind, len(items)) + body


class Metadata:
    def __init__(self):
        self.entries = []

    def add(self, key, kind, value):
        encoded = {
            UINT32: lambda: struct.pack("<I", value),
            FLOAT32: lambda: struct.pack("<f", value),
            BOOL: lambda: struct.pack("<?", value),
            STRING: lambda: string(value),
            ARRAY: lambda: array(*value),
        }[kind]()
        self.entries.append(string(key) + struct.pack("<I", kind) + encoded)

    def add_model(self, arch, config):
        head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        heads = config["num_attention_heads"]
        for key, value in {
            "context_length": config["max_position_embeddings"],
            "embedding_length": config["hidden_size"],
            "block_count": config["num_hidden_layers"],
            "feed_forward_length": config["intermediate_size"],
            "attention.head_count": heads,
            "attention.head_count_kv": config.get("num_key_value_heads") or heads,
            "attention.key_length": head_dim,
            "attention.value_length": head_dim,
        }.items():
            self.add(f"{arch}.{key}", UINT32, value)
        self.add(f"{arch}.attention.layer_norm_rms_epsilon", FLOAT32, config["rms_norm_eps"])
        self.add(f"{arch}.rope.freq_base", FLOAT32, config["rope_theta"])
        partial = config.get("partial_rotary_factor", 0.5 if arch == "glm4" else 1.0)
        self.add(f"{arch}.rope.dimension_count", UINT32, int(head_dim * partial))
        if config.get("sliding_window") and not arch.startswith("qwen"):
            self.add(f"{arch}.attention.sliding_window", UINT32, config["sliding_window"])
        for key in ("attn_logit_softcapping", "final_logit_softcapping"):
            if config.get(key):
                self.add(f"{arch}.{key}", FLOAT32, config[key])
        if "rope_local_base_freq" in config:
            self.add(f"{arch}.rope.freq_base_swa", FLOAT32, config["rope_local_base_freq"])
        self.add_rope_scaling(arch, config)

    def add_rope_scaling(self, arch, config):
        scaling = config.get("rope_scaling") or {}
        kind = scaling.get("rope_type", scaling.get("type"))
        original = scaling.get("original_max_position_embeddings",
                               config.get("original_max_position_embeddings"))
        if original:
            self.add(f"{arch}.rope.scaling.original_context_length", UINT32, original)
        if kind in ("linear", "yarn"):
            self.add(f"{arch}.rope.scaling.type", STRING, kind)
            self.add(f"{arch}.rope.scaling.factor", FLOAT32, scaling["factor"])
        if kind == "longrope":
            growth = config["max_position_embeddings"] / original
            factor = math.sqrt(1 + math.log(growth) / math.log(original)) if growth > 1 else 1.0
            factor = scaling.get("attention_factor", factor)
            self.add(f"{arch}.rope.scaling.attn_factor", FLOAT32, factor)

    def add_tokenizer(self, tokenizer, config):
        vocab = tokenizer["model"]["vocab"]
        special = [token["content"] for token in tokenizer["added_tokens"]]
        types = [BYTE_TOKEN] * len(vocab) + [CONTROL_TOKEN] * len(special)
        self.add("tokenizer.ggml.model", STRING, "gpt2")
        self.add("tokenizer.ggml.pre", STRING, "gpt-2")
        self.add("tokenizer.ggml.tokens", ARRAY, (STRING, [*vocab, *special]))
        self.add("tokenizer.ggml.token_type", ARRAY, (INT32, types))
        self.add("tokenizer.ggml.merges", ARRAY, (STRING, tokenizer["model"]["merges"]))
        self.add("tokenizer.ggml.bos_token_id", UINT32, config["bos_token_id"])
        self.add("tokenizer.ggml.eos_token_id", UINT32, config["eos_token_id"])
        self.add("tokenizer.ggml.add_bos_token", BOOL, False)
        self.add("tokenizer.chat_template", STRING, CHAT_TEMPLATE)


def gguf_name(arch, name):
    stem, kind = name.rsplit(".", 1)
    stem = stem.removeprefix("model.")
    prefix = ""
    if stem.startswith("layers."):
        _, layer, stem = stem.split(".", 2)
        prefix = f"blk.{layer}."
    return f"{prefix}{NAMES_OF.get(arch, {}).get(stem) or NAMES[stem]}.{kind}"


def interleaved(values, heads):
    """Rows of each head: the first of the first half, the first of the second half, ..."""
    pairs = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def stored(arch, config, tensor, bits):
    """What a converter makes of a tensor that was bf16: (type, array)."""
    values = np.concatenate(list(bits)).reshape(tensor.shape)
    if arch in PERMUTED and ".q_proj." in tensor.name:
        values = interleaved(values, config["num_attention_heads"])
    if arch in PERMUTED and ".k_proj." in tensor.name:
        values = interleaved(values, config["num_key_value_heads"])
    if values.ndim > 1:
        return BF16, values
    floats = (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if arch.startswith("gemma") and tensor.name.endswith("norm.weight"):
        floats = floats + np.float32(1)
    return F32, floats


def write_gguf(path, config, tensors, blocks, tokenizer):
    """tensors, blocks: as for write_model_weights. The model is small: it is held in memory."""
    arch = ARCHITECTURES[config["architectures"][0]]
    metadata = Metadata()
    metadata.add("general.architecture", STRING, arch)
    metadata.add("general.alignment", UINT32, ALIGNMENT)
    metadata.add_model(arch, config)
    metadata.add_tokenizer(tokenizer, config)
    entries = [(gguf_name(arch, t.name), *stored(arch, config, t, blocks(t))) for t in tensors]
    scaling = config.get("rope_scaling") or {}
    for name in ("long", "short"):
        if f"{name}_factor" in scaling:
            factors = np.array(scaling[f"{name}_factor"], np.float32)
            entries.append((f"rope_factors_{name}.weight", F32, factors))
    with open(path, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(entries), len(metadata.entries)))
        file.write(b"".join(metadata.entries))
        offset = 0
        for name, kind, values in entries:
            file.write(string(name) + struct.pack("<I", values.ndim))
            file.write(b"".join(struct.pack("<Q", n) for n in reversed(values.shape)))
            file.write(struct.pack("<IQ", kind, offset))
            offset += -(-values.nbytes // ALIGNMENT) * ALIGNMENT
        for _, _, values in entries:
            file.write(bytes(-file.tell() % ALIGNMENT))
            file.write(np.ascontiguousarray(values).tobytes())
        file.write(bytes(-file.tell() % ALIGNMENT))
