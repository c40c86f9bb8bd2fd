"""Which tensors the checkpoint of an architecture has: the names and shapes of Transformers.

A family is a function that adds a layer's tensors to a plan, and a row in FAMILIES.
"""

import dataclasses
import math

# Wide enough apart that roundings seldom change the choice of experts, which no tolerance covers.
ROUTER_GAIN = 2.0


@dataclasses.dataclass(frozen=True)
class Tensor:
    """Random numbers of a uniform distribution around `centre`."""

    name: str
    shape: tuple
    centre: float
    half_width: float


class Plan:
    """The tensors of a model, in file order.

    Gains are such that activations stay of order one, attention is peaked enough for a wrong
    position or mask to show, and logits differ by several units.
    """

    def __init__(self, config):
        self.config = config
        self.tensors = []
        self.hidden = config["hidden_size"]
        self.num_heads = config["num_attention_heads"]
        self.num_kv_heads = config.get("num_key_value_heads") or self.num_heads
        self.head_dim = config.get("head_dim") or self.hidden // self.num_heads
        # The norms of Gemma and of Qwen's hybrids are stored minus one.
        is_minus_one = config["architectures"][0].startswith(("Gemma", "Qwen3Next", "Qwen3_5"))
        self.norm_centre = 0.0 if is_minus_one else 1.0

    def add(self, name, shape, centre, half_width):
        self.tensors.append(Tensor(name, tuple(shape), centre, half_width))

    def norm(self, name, size=None):
        self.add(f"{name}.weight", (size or self.hidden,), self.norm_centre, 0.3)

    def linear(self, name, rows, columns, gain=1.0, bias=False):
        # The standard deviation of a uniform distribution is its half width / sqrt(3).
        self.add(f"{name}.weight", (rows, columns), 0.0, gain * math.sqrt(3.0 / columns))
        if bias:
            self.add(f"{name}.bias", (rows,), 0.0, 0.5)

    def attention(self, prefix, qkv_bias=False, output_bias=False, qk_norm=None, fused=False,
                  output_gate=False):
        """qk_norm: None, "head" or "projection"."""
        q_size, kv_size = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        if fused:
            self.linear(prefix + "qkv_proj", q_size + 2 * kv_size, self.hidden, 1.5, qkv_bias)
        else:
            self.linear(prefix + "q_proj", (1 + output_gate) * q_size, self.hidden, 1.5, qkv_bias)
            self.linear(prefix + "k_proj", kv_size, self.hidden, 1.5, qkv_bias)
            self.linear(prefix + "v_proj", kv_size, self.hidden, 1.0, qkv_bias)
        if qk_norm:
            self.norm(prefix + "q_norm", q_size if qk_norm == "projection" else self.head_dim)
            self.norm(prefix + "k_norm", kv_size if qk_norm == "projection" else self.head_dim)
        self.linear(prefix + "o_proj", self.hidden, q_size, 1.0, output_bias)

    def gated_ffn(self, prefix, bias=False, fused=False, size=None):
        size = size or self.config["intermediate_size"]
        if fused:
            self.linear(prefix + "gate_up_proj", 2 * size, self.hidden, 1.0, bias)
        else:
            self.linear(prefix + "gate_proj", size, self.hidden, 1.0, bias)
            self.linear(prefix + "up_proj", size, self.hidden, 1.0, bias)
        self.linear(prefix + "down_proj", self.hidden, size, 1.0, bias)


    def experts(self, prefix, count, size, names=("gate_proj", "up_proj", "down_proj")):
        gate, up, down = names
        for expert in range(count):
            self.linear(f"{prefix}{expert}.{gate}", size, self.hidden)
            self.linear(f"{prefix}{expert}.{up}", size, self.hidden)
            self.linear(f"{prefix}{expert}.{down}", self.hidden, size)


def llama(plan, layer):
    bias = plan.config.get("attention_bias", False)
    plan.norm(layer + "input_layernorm")
    plan.attention(layer + "self_attn.", bias, bias)
    plan.norm(layer + "post_attention_layernorm")
    plan.gated_ffn(layer + "mlp.", plan.config.get("mlp_bias", False))


def qwen2(plan, layer):
    plan.norm(layer + "input_layernorm")
    plan.attention(layer + "self_attn.", qkv_bias=True)
    plan.norm(layer + "post_attention_layernorm")
    plan.gated_ffn(layer + "mlp.")


def qwen3(plan, layer):
    bias = plan.config.get("attention_bias", False)
    plan.norm(layer + "input_layernorm")
    plan.attention(layer + "self_attn.", bias, bias, qk_norm="head")
    plan.norm(layer + "post_attention_layernorm")
    plan.gated_ffn(layer + "mlp.")


def mixtral(plan, layer):
    config = plan.config
    plan.norm(layer + "input_layernorm")
    plan.attention(layer + "self_attn.")
    plan.norm(layer + "post_attention_layernorm")
    moe = layer + "block_sparse_moe."
    plan.linear(moe + "gate", config["num_local_experts"], plan.hidden, ROUTER_GAIN)
    plan.experts(moe + "experts.", config["num_local_experts"], config["intermediate_size"],
                 ("w1", "w3", "w2"))


def is_sparse(config, layer):
    index = int(layer.split(".")[-2])
    return (index not in (config.get("mlp_only_layers") or [])
            and (index + 1) % config.get("decoder_sparse_step", 1) == 0)


def qwen_experts(plan, layer):
    config = plan.config
    plan.linear(layer + "mlp.gate", config["num_experts"], plan.hidden, ROUTER_GAIN)
    plan.experts(layer + "mlp.experts.", config["num_experts"], config["moe_intermediate_size"])


def qwen2_moe(plan, layer):
    if not is_sparse(plan.config, layer):
        return qwen2(plan, layer)
    plan.norm(layer + "input_layernorm")
    plan.attention(layer + "self_attn.", qkv_bias=True)
    plan.norm(layer + "post_attention_layernorm")
    qwen_experts(plan, layer)
    qwen_shared_expert(plan, layer)


def qwen3_moe(plan, layer):
    if not is_sparse(plan.config, layer):
        return qwen3(plan, layer)
    plan.norm(layer + "input_layernorm")
    plan.attention(layer + "self_attn.", qk_norm="head")
    plan.norm(layer + "post_attention_layernorm")
    qwen_experts(plan, layer)


def gated_delta(plan, prefix, grouped):
    """A linear attention layer of Qwen3-Next (grouped) or Qwen 3.5."""
    config = plan.config
    heads, keys = config["linear_num_value_heads"], config["linear_num_key_heads"]
    key_size = keys * config["linear_key_head_dim"]
    value_size = heads * config["linear_value_head_dim"]
    if grouped:
        plan.linear(prefix + "in_proj_qkvz", 2 * key_size + 2 * value_size, plan.hidden, 1.2)
        plan.linear(prefix + "in_proj_ba", 2 * heads, plan.hidden)
    else:
        plan.linear(prefix + "in_proj_qkv", 2 * key_size + value_size, plan.hidden, 1.2)
        plan.linear(prefix + "in_proj_z", value_size, plan.hidden, 1.2)
        plan.linear(prefix + "in_proj_b", heads, plan.hidden)
        plan.linear(prefix + "in_proj_a", heads, plan.hidden)
    plan.add(prefix + "conv1d.weight", (2 * key_size + value_size, 1, config["linear_conv_kernel_dim"]), 0.2, 0.6)
    # Decays between fast and slow, so that both old and new tokens show.
    plan.add(prefix + "A_log", (heads,), -1.5, 2.0)
    plan.add(prefix + "dt_bias", (heads,), -0.5, 1.0)
    plan.add(prefix + "norm.weight", (config["linear_value_head_dim"],), 1.0, 0.3)
    plan.linear(prefix + "out_proj", plan.hidden, value_size)


def hybrid_layer(plan, layer, grouped):
    plan.norm(layer + "input_layernorm")
    if (int(layer.split(".")[-2]) + 1) % plan.config.get("full_attention_interval", 4):
        gated_delta(plan, layer + "linear_attn.", grouped)
    else:
        plan.attention(layer + "self_attn.", qk_norm="head", output_gate=True)
    plan.norm(layer + "post_attention_layernorm")


def qwen_shared_expert(plan, layer):
    plan.gated_ffn(layer + "mlp.shared_expert.", size=plan.config["shared_expert_intermediate_size"])
    plan.linear(layer + "mlp.shared_expert_gate", 1, plan.hidden)


def qwen3_next(plan, layer):
    hybrid_layer(plan, layer, grouped=True)
    if not is_sparse(plan.config, layer):
        return plan.gated_ffn(layer + "mlp.")
    qwen_experts(plan, layer)
    qwen_shared_expert(plan, layer)


def qwen3_5(plan, layer):
    hybrid_layer(plan, layer, grouped=False)
    plan.gated_ffn(layer + "mlp.")


def qwen3_5_moe(plan, layer):
    hybrid_layer(plan, layer, grouped=False)
    count, size = plan.config["num_experts"], plan.config["moe_intermediate_size"]
    plan.linear(layer + "mlp.gate", count, plan.hidden, ROUTER_GAIN)
    plan.add(layer + "mlp.experts.gate_up_proj", (count, 2 * size, plan.hidden), 0.0, math.sqrt(3 / plan.hidden))
    plan.add(layer + "mlp.experts.down_proj", (count, plan.hidden, size), 0.0, math.sqrt(3 / size))
    qwen_shared_expert(plan, layer)


def deepseek(plan, layer):
    config = plan.config
    heads, latent = plan.num_heads, config["kv_lora_rank"]
    nope, rope, value = (config[f"{name}_head_dim"] for name in ("qk_nope", "qk_rope", "v"))
    bias = config.get("attention_bias", False)
    attention = layer + "self_attn."
    plan.norm(layer + "input_layernorm")
    if config.get("q_lora_rank"):
        plan.linear(attention + "q_a_proj", config["q_lora_rank"], plan.hidden, 1.0, bias)
        plan.norm(attention + "q_a_layernorm", config["q_lora_rank"])
        plan.linear(attention + "q_b_proj", heads * (nope + rope), config["q_lora_rank"], 1.5)
    else:
        plan.linear(attention + "q_proj", heads * (nope + rope), plan.hidden, 1.5)
    plan.linear(attention + "kv_a_proj_with_mqa", latent + rope, plan.hidden, 1.5, bias)
    plan.norm(attention + "kv_a_layernorm", latent)
    plan.linear(attention + "kv_b_proj", heads * (nope + value), latent, 1.2)
    plan.linear(attention + "o_proj", plan.hidden, heads * value, 1.0, bias)
    plan.norm(layer + "post_attention_layernorm")
    if int(layer.split(".")[-2]) < config["first_k_dense_replace"]:
        return plan.gated_ffn(layer + "mlp.")
    experts, size = config["n_routed_experts"], config["moe_intermediate_size"]
    plan.linear(layer + "mlp.gate", experts, plan.hidden, ROUTER_GAIN)
    if config["architectures"][0] != "DeepseekV2ForCausalLM":
        plan.add(layer + "mlp.gate.e_score_correction_bias", (experts,), 0.0, 0.2)
    plan.experts(layer + "mlp.experts.", experts, size)
    plan.gated_ffn(layer + "mlp.shared_experts.", size=size * config["n_shared_experts"])


def glm4_moe(plan, layer):
    config = plan.config
    plan.norm(layer + "input_layernorm")
    plan.attention(layer + "self_attn.", qkv_bias=config.get("attention_bias", False),
                   qk_norm="head" if config.get("use_qk_norm") else None)
    plan.norm(layer + "post_attention_layernorm")
    if int(layer.split(".")[-2]) < config["first_k_dense_replace"]:
        return plan.gated_ffn(layer + "mlp.")
    size = config["moe_intermediate_size"]
    plan.linear(layer + "mlp.gate", config["n_routed_experts"], plan.hidden, ROUTER_GAIN)
    plan.add(layer + "mlp.gate.e_score_correction_bias", (config["n_routed_experts"],), 0.0, 0.3)
    plan.experts(layer + "mlp.experts.", config["n_routed_experts"], size)
    plan.gated_ffn(layer + "mlp.shared_experts.", size=size * config["n_shared_experts"])


def minimax_m2(plan, layer):
    config = plan.config
    plan.norm(layer + "input_layernorm")
    plan.attention(layer + "self_attn.", qk_norm="projection")
    plan.norm(layer + "post_attention_layernorm")
    moe = layer + "block_sparse_moe."
    plan.linear(moe + "gate", config["num_local_experts"], plan.hidden, ROUTER_GAIN)
    plan.add(moe + "e_score_correction_bias", (config["num_local_experts"],), 0.0, 0.3)
    plan.experts(moe + "experts.", config["num_local_experts"], config["intermediate_size"],
                 ("w1", "w3", "w2"))


def gpt_oss(plan, layer):
    config = plan.config
    count, size = config["num_local_experts"], config["intermediate_size"]
    plan.norm(layer + "input_layernorm")
    plan.attention(layer + "self_attn.", qkv_bias=True, output_bias=True)
    plan.add(layer + "self_attn.sinks", (plan.num_heads,), 0.0, 2.0)
    plan.norm(layer + "post_attention_layernorm")
    plan.linear(layer + "mlp.router", count, plan.hidden, ROUTER_GAIN, bias=True)
    experts = layer + "mlp.experts."
    plan.add(experts + "gate_up_proj", (count, plan.hidden, 2 * size), 0.0, math.sqrt(3 / plan.hidden))
    plan.add(experts + "gate_up_proj_bias", (count, 2 * size), 0.0, 0.5)
    plan.add(experts + "down_proj", (count, size, plan.hidden), 0.0, math.sqrt(3 / size))
    plan.add(experts + "down_proj_bias", (count, plan.hidden), 0.0, 0.5)


def llama4(plan, layer):
    config = plan.config
    count, size = config["num_local_experts"], config["intermediate_size"]
    plan.norm(layer + "input_layernorm")
    plan.attention(layer + "self_attn.", config.get("attention_bias", False), config.get("attention_bias", False))
    plan.norm(layer + "post_attention_layernorm")
    ffn = layer + "feed_forward."
    if (int(layer.split(".")[-2]) + 1) % config.get("interleave_moe_layer_step", 1):
        return plan.gated_ffn(ffn, size=config["intermediate_size_mlp"])
    plan.linear(ffn + "router", count, plan.hidden, ROUTER_GAIN)
    plan.add(ffn + "experts.gate_up_proj", (count, plan.hidden, 2 * size), 0.0, math.sqrt(3 / plan.hidden))
    plan.add(ffn + "experts.down_proj", (count, size, plan.hidden), 0.0, math.sqrt(3 / size))
    plan.gated_ffn(ffn + "shared_expert.")


def gemma2(plan, layer, qk_norm=None):
    plan.norm(layer + "input_layernorm")
    plan.attention(layer + "self_attn.", qk_norm=qk_norm)
    plan.norm(layer + "post_attention_layernorm")
    plan.norm(layer + "pre_feedforward_layernorm")
    plan.gated_ffn(layer + "mlp.")
    plan.norm(layer + "post_feedforward_layernorm")


def gemma3(plan, layer):
    gemma2(plan, layer, qk_norm="head")


def phi3(plan, layer):
    plan.norm(layer + "input_layernorm")
    plan.attention(layer + "self_attn.", fused=True)
    plan.norm(layer + "post_attention_layernorm")
    plan.gated_ffn(layer + "mlp.", fused=True)


def glm(plan, layer):
    plan.norm(layer + "input_layernorm")
    plan.attention(layer + "self_attn.", qkv_bias=plan.config.get("attention_bias", True))
    plan.norm(layer + "post_attention_layernorm")
    plan.gated_ffn(layer + "mlp.", fused=True)


def glm4(plan, layer):
    glm(plan, layer)
    plan.norm(layer + "post_self_attn_layernorm")
    plan.norm(layer + "post_mlp_layernorm")


def olmo2(plan, layer):
    plan.attention(layer + "self_attn.", qk_norm="projection")
    plan.norm(layer + "post_attention_layernorm")
    plan.gated_ffn(layer + "mlp.")
    plan.norm(layer + "post_feedforward_layernorm")


def next_token_layer(plan, family, layer):
    plan.norm(layer + "enorm")
    plan.norm(layer + "hnorm")
    plan.linear(layer + "eh_proj", plan.hidden, 2 * plan.hidden, 1.0)
    family(plan, layer)
    plan.norm(layer + "shared_head.norm")


FAMILIES = {
    "LlamaForCausalLM": llama,
    "MistralForCausalLM": llama,
    "MinistralForCausalLM": llama,
    "Qwen2ForCausalLM": qwen2,
    "Qwen3ForCausalLM": qwen3,
    "MixtralForCausalLM": mixtral,
    "Qwen2MoeForCausalLM": qwen2_moe,
    "Qwen3MoeForCausalLM": qwen3_moe,
    "Qwen3NextForCausalLM": qwen3_next,
    "Qwen3_5ForCausalLM": qwen3_5,
    "Qwen3_5ForConditionalGeneration": qwen3_5,
    "Qwen3_5MoeForCausalLM": qwen3_5_moe,
    "Qwen3_5MoeForConditionalGeneration": qwen3_5_moe,
    "DeepseekV2ForCausalLM": deepseek,
    "DeepseekV3ForCausalLM": deepseek,
    "Glm4MoeForCausalLM": glm4_moe,
    "MiniMaxM2ForCausalLM": minimax_m2,
    "GptOssForCausalLM": gpt_oss,
    "Llama4ForCausalLM": llama4,
    "Llama4ForConditionalGeneration": llama4,
    "GemmaForCausalLM": llama,
    "Gemma2ForCausalLM": gemma2,
    "Gemma3ForCausalLM": gemma3,
    "Gemma3ForConditionalGeneration": gemma3,
    "Phi3ForCausalLM": phi3,
    "GlmForCausalLM": glm,
    "Glm4ForCausalLM": glm4,
    "Olmo2ForCausalLM": olmo2,
    "Olmo3ForCausalLM": olmo2,
    "SmolLM3ForCausalLM": llama,
}


def tensors_of(config, prefix="model."):
    """All tensors of a model. config is complete: what Transformers has as a default is filled in."""
    architecture = config["architectures"][0]
    if architecture not in FAMILIES:
        raise SystemExit(f"no tensors known for {architecture}; known: {', '.join(FAMILIES)}")
    plan = Plan(config)
    tied, vocab = config["tie_word_embeddings"], config["vocab_size"]
    # Gemma scales its embeddings up by sqrt(hidden_size).
    gain = 3.0 / math.sqrt(plan.hidden) if tied else 1.0
    plan.add(prefix + "embed_tokens.weight", (vocab, plan.hidden), 0.0, gain * math.sqrt(3.0))
    for index in range(config["num_hidden_layers"]):
        FAMILIES[architecture](plan, f"{prefix}layers.{index}.")
    if config.get("num_nextn_predict_layers"):
        next_token_layer(plan, FAMILIES[architecture], f"{prefix}layers.{config['num_hidden_layers']}.")
    plan.norm(prefix + "norm")
    if not tied:
        plan.linear("lm_head", vocab, plan.hidden, 3.0)
    return plan.tensors
