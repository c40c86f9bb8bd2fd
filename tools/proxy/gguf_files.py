"""Writes models as GGUF files, with the names and metadata that llama.cpp's converters give them.

Matrices are BF16 (or MXFP4 where the model has them so), vectors and routers F32. numpy alone.
"""

import math
import re
import struct

import numpy as np

from mxfp4 import Mxfp4
from tiny_tokenizer import CHAT_TEMPLATE

ALIGNMENT = 32
F32, BF16, MXFP4 = 0, 30, 39
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
    "MixtralForCausalLM": "llama",
    "Qwen2MoeForCausalLM": "qwen2moe",
    "Qwen3MoeForCausalLM": "qwen3moe",
    "DeepseekV2ForCausalLM": "deepseek2",
    "DeepseekV3ForCausalLM": "deepseek2",
    "Glm4MoeForCausalLM": "glm4moe",
    "GptOssForCausalLM": "gpt-oss",
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
    "self_attn.sinks": "attn_sinks", "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_b_proj": "attn_kv_b", "self_attn.k_b_proj": "attn_k_b",
    "self_attn.v_b_proj": "attn_v_b", "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "mlp.gate": "ffn_gate_inp", "mlp.router": "ffn_gate_inp",
    "mlp.gate.e_score_correction": "exp_probs_b", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.experts.gate_proj": "ffn_gate_exps", "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
}
SANDWICH_NAMES = {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
NAMES_OF = {
    "gemma2": SANDWICH_NAMES, "gemma3": SANDWICH_NAMES, "olmo2": SANDWICH_NAMES,
    "glm4": {"post_self_attn_layernorm": "post_attention_norm",
             "post_mlp_layernorm": "post_ffw_norm"},
    "glm4moe": {"post_attention_layernorm": "post_attention_norm"},
    "gpt-oss": {"post_attention_layernorm": "post_attention_norm"},
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

    def add_model(self, arch, config, split_kv_b):
        head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        heads = config["num_attention_heads"]
        numbers = {
            "context_length": config["max_position_embeddings"],
            "embedding_length": config["hidden_size"],
            "block_count": config["num_hidden_layers"],
            "feed_forward_length": config["intermediate_size"],
            "attention.head_count": heads,
            "attention.head_count_kv": config.get("num_key_value_heads") or heads,
            "attention.key_length": head_dim,
            "attention.value_length": head_dim,
        }
        if arch == "deepseek2":
            numbers |= latent_attention_numbers(config, split_kv_b)
            head_dim = config["qk_rope_head_dim"]
        for key, value in numbers.items():
            self.add(f"{arch}.{key}", UINT32, value)
        self.add_experts(arch, config)
        self.add(f"{arch}.attention.layer_norm_rms_epsilon", FLOAT32, config["rms_norm_eps"])
        self.add(f"{arch}.rope.freq_base", FLOAT32, config["rope_theta"])
        partial = config.get("partial_rotary_factor", 0.5 if arch.startswith("glm4") else 1.0)
        self.add(f"{arch}.rope.dimension_count", UINT32, int(head_dim * partial))
        if config.get("sliding_window") and not arch.startswith("qwen"):
            self.add(f"{arch}.attention.sliding_window", UINT32, config["sliding_window"])
        for key in ("attn_logit_softcapping", "final_logit_softcapping"):
            if config.get(key):
                self.add(f"{arch}.{key}", FLOAT32, config[key])
        if "rope_local_base_freq" in config:
            self.add(f"{arch}.rope.freq_base_swa", FLOAT32, config["rope_local_base_freq"])
        self.add_rope_scaling(arch, config)

    def add_experts(self, arch, config):
        for key, fields in {
            "expert_count": ("n_routed_experts", "num_local_experts", "num_experts"),
            "expert_used_count": ("num_experts_per_tok",),
            "expert_feed_forward_length": ("moe_intermediate_size",),
            "expert_shared_feed_forward_length": ("shared_expert_intermediate_size",),
            "expert_shared_count": ("n_shared_experts",),
            "expert_group_count": ("n_group",),
            "expert_group_used_count": ("topk_group",),
            "leading_dense_block_count": ("first_k_dense_replace",),
        }.items():
            value = next((config[field] for field in fields if config.get(field)), None)
            if value is not None:
                self.add(f"{arch}.{key}", UINT32, value)
        if arch in ("deepseek2", "glm4moe"):
            has_sigmoid = config["architectures"][0] != "DeepseekV2ForCausalLM"
            self.add(f"{arch}.expert_gating_func", UINT32, 2 if has_sigmoid else 1)
            self.add(f"{arch}.expert_weights_scale", FLOAT32, config["routed_scaling_factor"])
            self.add(f"{arch}.expert_weights_norm", BOOL, config["norm_topk_prob"])
        if arch == "glm4moe":
            # As converters have it, the layers for multi-token prediction count as layers.
            self.add(f"{arch}.nextn_predict_layers", UINT32, 0)

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
        if "mscale_all_dim" in scaling:
            assert scaling["mscale"] == scaling["mscale_all_dim"], "GGUF has one number for both"
            self.add(f"{arch}.rope.scaling.yarn_log_multiplier", FLOAT32,
                     0.1 * scaling["mscale_all_dim"])
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


def latent_attention_numbers(config, split_kv_b):
    """Where kv_b is split, attention is described as it is computed: one head of latents."""
    nope, rope, value = (config[f"{name}_head_dim"] for name in ("qk_nope", "qk_rope", "v"))
    latent = config["kv_lora_rank"]
    numbers = {"attention.kv_lora_rank": latent}
    if config.get("q_lora_rank"):
        numbers["attention.q_lora_rank"] = config["q_lora_rank"]
    if not split_kv_b:
        return numbers | {"attention.key_length": nope + rope, "attention.value_length": value}
    return numbers | {
        "attention.head_count_kv": 1,
        "attention.key_length": latent + rope, "attention.value_length": latent,
        "attention.key_length_mla": nope + rope, "attention.value_length_mla": value,
    }


def gguf_name(arch, name):
    stem, kind = name.rsplit(".", 1)
    stem = stem.removeprefix("model.")
    prefix = ""
    if stem.startswith("layers."):
        _, layer, stem = stem.split(".", 2)
        prefix = f"blk.{layer}."
    stem = stem.replace("block_sparse_moe.", "mlp.")
    shared = re.fullmatch(r"mlp\.shared_experts?\.(gate|up|down)_proj", stem)
    if shared:
        return f"{prefix}ffn_{shared[1]}_shexp.{kind}"
    return f"{prefix}{NAMES_OF.get(arch, {}).get(stem) or NAMES[stem]}.{kind}"


PARTS_OF_MIXTRAL = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}


def stacked_experts(weights):
    """The experts' matrices of a layer become one tensor [experts, rows, columns]; gate and up, where
    they are rows in turns, become two. Names that lack a last part get one."""
    result = {}
    for name, values in weights:
        expert = re.fullmatch(r"(.*\.experts\.)\d+\.(\w+)\.weight", name)
        turns = re.fullmatch(r"(.*\.experts\.)gate_up_proj(_bias)?", name)
        if expert:
            part = PARTS_OF_MIXTRAL.get(expert[2], expert[2])
            result.setdefault(f"{expert[1]}{part}.weight", []).append(values)
        elif turns:
            kind = "bias" if turns[2] else "weight"
            result[f"{turns[1]}gate_proj.{kind}"] = values[:, ::2]
            result[f"{turns[1]}up_proj.{kind}"] = values[:, 1::2]
        else:
            name = re.sub(r"(\.sinks|experts\.down_proj)$", r"\1.weight", name)
            result[re.sub(r"_bias$", ".bias", name)] = values
    return {n: np.stack(v) if isinstance(v, list) else v for n, v in result.items()}


def split_latents(config, weights):
    """kv_b_proj as its two halves per head, that of the keys transposed."""
    result = {}
    for name, values in weights.items():
        if not name.endswith(".kv_b_proj.weight"):
            result[name] = values
            continue
        heads = values.reshape(config["num_attention_heads"], -1, values.shape[1])
        nope = config["qk_nope_head_dim"]
        result[name.replace("kv_b_proj", "k_b_proj")] = heads[:, :nope].swapaxes(1, 2)
        result[name.replace("kv_b_proj", "v_b_proj")] = heads[:, nope:]
    return result


def interleaved(values, heads):
    """Rows of each head: the first of the first half, the first of the second half, ..."""
    pairs = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def stored(arch, config, name, values):
    """What a converter makes of a tensor that was bf16 (or MXFP4): (type, shape, array)."""
    if isinstance(values, Mxfp4):
        return MXFP4, values.codes.shape, values.gguf()
    if arch in PERMUTED and ".q_proj." in name:
        values = interleaved(values, config["num_attention_heads"])
    if arch in PERMUTED and ".k_proj." in name:
        values = interleaved(values, config["num_key_value_heads"])
    if name.endswith("shared_expert_gate.weight"):
        values = values[0]
    is_router = name.endswith(("mlp.gate.weight", "moe.gate.weight", "router.weight"))
    is_bias = name.endswith(".bias")
    if values.ndim > 1 and not is_router and not is_bias:
        return BF16, values.shape, values
    floats = (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if arch.startswith("gemma") and name.endswith("norm.weight"):
        floats = floats + np.float32(1)
    return F32, floats.shape, floats


def write_gguf(path, config, weights, tokenizer, split_kv_b=True):
    """weights: pairs of Hugging Face's name and an array of bf16 bits or an Mxfp4. The model is
    small: it is held in memory."""
    arch = ARCHITECTURES[config["architectures"][0]]
    metadata = Metadata()
    metadata.add("general.architecture", STRING, arch)
    metadata.add("general.alignment", UINT32, ALIGNMENT)
    metadata.add_model(arch, config, split_kv_b)
    metadata.add_tokenizer(tokenizer, config)
    weights = stacked_experts(weights)
    if split_kv_b:
        weights = split_latents(config, weights)
    entries = [(gguf_name(arch, n), *stored(arch, config, n, v)) for n, v in weights.items()]
    scaling = config.get("rope_scaling") or {}
    for name in ("long", "short"):
        if f"{name}_factor" in scaling:
            factors = np.array(scaling[f"{name}_factor"], np.float32)
            entries.append((f"rope_factors_{name}.weight", F32, factors.shape, factors))
    with open(path, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(entries), len(metadata.entries)))
        file.write(b"".join(metadata.entries))
        offset = 0
        for name, kind, shape, values in entries:
            file.write(string(name) + struct.pack("<I", len(shape)))
            file.write(b"".join(struct.pack("<Q", n) for n in reversed(shape)))
            file.write(struct.pack("<IQ", kind, offset))
            offset += -(-values.nbytes // ALIGNMENT) * ALIGNMENT
        for *_, values in entries:
            file.write(bytes(-file.tell() % ALIGNMENT))
            file.write(np.ascontiguousarray(values).tobytes())
        file.write(bytes(-file.tell() % ALIGNMENT))
