"""A GGUF of the Llama family as a Transformers model in fp32, with its tokenizer.

Transformers' own GGUF loader is not used, so that the two sides of a comparison share no reading
code but the `gguf` package's dequantization.
"""

import re

import numpy as np
import torch
from gguf import GGUFReader, quants
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def hugging_face_name(name):
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if layer:
        return f"model.layers.{layer[1]}.{NAMES[layer[2]]}.weight"
    return NAMES[name.removesuffix(".weight")] + ".weight"


def halves_from_pairs(weight, num_heads):
    """GGUF rotates neighbouring rows of a head, Hugging Face its two halves: reorder the rows."""
    rows, columns = weight.shape
    pairs = weight.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def byte_level_bpe(tokens, merges, types):
    """SmolLM2's tokenizer.json: single digits, then GPT-2's byte-level splitting."""
    tokenizer = Tokenizer(models.BPE(
        vocab={token: i for i, token in enumerate(tokens)},
        merges=[tuple(merge.split(" ")) for merge in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    control = [AddedToken(t, special=True, normalized=False)
               for t, kind in zip(tokens, types) if kind == 3]
    tokenizer.add_special_tokens(control)
    return tokenizer


def load_gguf(path):
    reader = GGUFReader(path)
    fields = {key: field.contents() for key, field in reader.fields.items()}
    assert fields["general.architecture"] == "llama"
    assert fields["tokenizer.ggml.pre"] == "smollm", fields["tokenizer.ggml.pre"]
    heads = fields["llama.attention.head_count"]
    kv_heads = fields["llama.attention.head_count_kv"]
    tokens = fields["tokenizer.ggml.tokens"]

    weights = {}
    for tensor in reader.tensors:
        values = quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        values = values.reshape(tensor.shape[::-1])
        if tensor.name.endswith("attn_q.weight"):
            values = halves_from_pairs(values, heads)
        if tensor.name.endswith("attn_k.weight"):
            values = halves_from_pairs(values, kv_heads)
        weights[hugging_face_name(tensor.name)] = torch.from_numpy(values.copy())
    tied = "lm_head.weight" not in weights

    config = LlamaConfig(
        vocab_size=len(tokens),
        hidden_size=fields["llama.embedding_length"],
        intermediate_size=fields["llama.feed_forward_length"],
        num_hidden_layers=fields["llama.block_count"],
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=fields["llama.context_length"],
        rms_norm_eps=fields["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": fields["llama.rope.freq_base"]},
        tie_word_embeddings=tied,
        attn_implementation="eager",
    )
    model = LlamaForCausalLM(config).to(torch.float32)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and set(missing) <= ({"lm_head.weight"} if tied else set()), (
        missing, unexpected)
    model.tie_weights()

    tokenizer = byte_level_bpe(tokens, fields["tokenizer.ggml.merges"],
                               fields["tokenizer.ggml.token_type"])
    return model, tokenizer
