"""The tiny models of the tests, one per family at least, and what is made of them."""

from dense_models import DENSE_MODELS
from mixture_models import MIXTURE_MODELS

MODELS = DENSE_MODELS | MIXTURE_MODELS

SHARDS = {"tiny-llama-linear": 2}

# gpt-oss as it is released: experts in MXFP4 (see mxfp4.py), the rest in bf16.
MXFP4_NAME = "tiny-gpt-oss-mxfp4"
MXFP4_CONFIG = {
    **MODELS["tiny-gpt-oss"],
    "intermediate_size": 160,
    "swiglu_limit": 7.0,
    "vocab_size": 263,
}

# These are written as GGUF as well, and must compute the same.
GGUF = [
    "tiny-mistral", "tiny-llama-linear", "tiny-qwen2", "tiny-qwen3", "tiny-gemma", "tiny-gemma2",
    "tiny-gemma3", "tiny-phi3", "tiny-phi3-long", "tiny-glm4", "tiny-olmo2", "tiny-mixtral",
    "tiny-qwen2-moe", "tiny-qwen3-moe", "tiny-deepseek-v2-greedy", "tiny-deepseek-v3",
    "tiny-glm4-moe",
]
# And these the way that older converters left kv_b_proj, in one piece.
UNSPLIT_GGUF = ["tiny-deepseek-v3"]

# The same with the layer that guesses a token further.
NEXT_TOKEN_MODELS = {
    f"{name}-nextn": {**MODELS[name], "num_nextn_predict_layers": 1}
    for name in ("tiny-deepseek-v3", "tiny-glm4-moe")
}
