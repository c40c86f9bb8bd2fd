"""Makes a model's configuration small, and keeps what is odd about it."""

import math

VOCAB_SIZE = 397
CONTEXT = 512
WINDOW = 16
HEAD_DIM_DIVISOR = 4
MAX_KV_HEADS = 2
MAX_GROUP = 8
MAX_EXPERTS = 16
MIN_LAYERS = 4

# Sizes that shrink like head_dim, like the hidden size, and like nothing else.
HEAD_SIZES = ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "index_head_dim",
              "linear_key_head_dim", "linear_value_head_dim")
HIDDEN_SIZES = ("moe_intermediate_size", "shared_expert_intermediate_size", "kv_lora_rank",
                "q_lora_rank", "intermediate_size_mlp")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


def rounded(value, multiple):
    return max(multiple, round(value / multiple) * multiple)


def shrink(config, num_layers=None, full_size=False):
    """-> a new configuration, complete for tensor_plans and the tokenizer."""
    config = {**config, "torch_dtype": "bfloat16"}
    for field in ("quantization_config", "vision_config", "audio_config"):
        config.pop(field, None)
    text = dict(config["text_config"]) if "text_config" in config else config
    text.setdefault("tie_word_embeddings", config.get("tie_word_embeddings", False))
    shrink_layers(text, num_layers)
    if not full_size:
        old_head_dim = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
        shrink_widths(text, old_head_dim)
        shrink_experts(text)
        shrink_positions(text, old_head_dim)
        text["vocab_size"] = min(text["vocab_size"], VOCAB_SIZE)
    set_tokens(text, text["vocab_size"])
    if text is not config:
        config["text_config"] = text
        set_tokens(config, text["vocab_size"])
    return config


def shrink_layers(text, num_layers):
    """Enough layers to show each kind of them."""
    old = text["num_hidden_layers"]
    if num_layers is None:
        types = text.get("layer_types") or [None]
        all_kinds = next(n for n in range(1, len(types) + 1) if set(types[:n]) == set(types))
        period = max(text.get("sliding_window_pattern") or 1, text.get("no_rope_layer_interval") or 1,
                     text.get("full_attention_interval") or 1)
        num_layers = min(old, max(MIN_LAYERS, all_kinds, period))
    text["num_hidden_layers"] = num_layers
    for field in ("layer_types", "no_rope_layers", "mlp_layer_types", "mlp_only_layers"):
        if text.get(field):
            text[field] = text[field][:num_layers]
    if text.get("max_window_layers"):
        text["max_window_layers"] = round(text["max_window_layers"] / old * num_layers)
    if text.get("first_k_dense_replace"):
        text["first_k_dense_replace"] = min(text["first_k_dense_replace"], num_layers // 2)


def shrink_widths(text, old_head_dim):
    heads = text["num_attention_heads"]
    kv_heads = text.get("num_key_value_heads") or heads
    group = min(heads // kv_heads, MAX_GROUP)
    new_kv_heads = min(kv_heads, MAX_KV_HEADS if group > 1 else 2 * MAX_KV_HEADS + kv_heads % 2)
    new_heads = new_kv_heads * group
    new_head_dim = rounded(old_head_dim / HEAD_DIM_DIVISOR, 8)
    old_hidden = text["hidden_size"]
    # Without a head_dim the heads divide the hidden size.
    ratio = old_hidden / (heads * old_head_dim) if text.get("head_dim") else 1
    text["hidden_size"] = rounded(ratio * new_heads * new_head_dim, 8)
    shrunk = text["hidden_size"] / old_hidden
    text["intermediate_size"] = rounded(text["intermediate_size"] * shrunk, 16)
    text["num_attention_heads"] = new_heads
    text["num_key_value_heads"] = new_kv_heads
    if text.get("head_dim"):
        text["head_dim"] = new_head_dim
    for field in HEAD_SIZES:
        if text.get(field):
            text[field] = rounded(text[field] / HEAD_DIM_DIVISOR, 8)
    for field in HIDDEN_SIZES:
        if text.get(field):
            text[field] = rounded(text[field] * shrunk, 16)
    if text.get("query_pre_attn_scalar"):
        text["query_pre_attn_scalar"] = round(
            text["query_pre_attn_scalar"] * new_head_dim / old_head_dim)
    if text.get("hidden_size_per_layer_input"):
        text["hidden_size_per_layer_input"] = rounded(text["hidden_size_per_layer_input"] * shrunk, 8)


def shrink_experts(text):
    for field in EXPERTS:
        if not text.get(field):
            continue
        top_k = next((f for f in ("num_experts_per_tok", "moe_topk", "experts_per_token") if text.get(f)), None)
        text[field] = min(text[field], MAX_EXPERTS)
        if top_k:
            text[top_k] = min(text[top_k], max(1, text[field] // 2))
        if text.get("n_group"):
            text["n_group"] = math.gcd(text["n_group"], text[field] // 2)
            text["topk_group"] = min(text.get("topk_group") or 1, text["n_group"])


def shrink_positions(text, old_head_dim):
    old_context = text["max_position_embeddings"]
    text["max_position_embeddings"] = min(old_context, CONTEXT)
    if text.get("sliding_window"):
        text["sliding_window"] = min(text["sliding_window"], WINDOW)
    shrunk = text["max_position_embeddings"] / old_context
    head_dim = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
    places = [text]
    for field in ("rope_scaling", "rope_parameters"):
        if not text.get(field):
            continue
        text[field] = dict(text[field])
        nested = {k: dict(v) for k, v in text[field].items() if isinstance(v, dict)}
        text[field] |= nested
        places += [text[field], *nested.values()]
    for place in places:
        if place.get("original_max_position_embeddings"):
            place["original_max_position_embeddings"] = max(
                16, round(place["original_max_position_embeddings"] * shrunk))
        for field in ("short_factor", "long_factor"):
            if place.get(field):
                place[field] = resampled(place[field], round(len(place[field]) * head_dim / old_head_dim))


def resampled(values, count):
    return [values[i * len(values) // count] for i in range(count)]


def set_tokens(config, vocab_size):
    """The special tokens of tiny_tokenizer are the last five."""
    config["bos_token_id"], config["eos_token_id"] = vocab_size - 5, vocab_size - 4
    config["pad_token_id"] = vocab_size - 4
