#!/usr/bin/env python3
"""Writes tests/models/golden: what PyTorch and Transformers compute for the models of the tests.

    pip install torch transformers gguf safetensors     # made with transformers 5.24, torch 2.15
    python tools/proxy/make_proxy.py --tests --out .cache/test-models
    python tools/golden/make_model_golden.py [tiny] [tiny-NAME ...] [smollm2] [perplexity]

All in fp32 with eager attention. Tiny models: the weights of tools/proxy/make_proxy.py, in bf16 (one
with experts in MXFP4, dequantized). The real
model: SmolLM2-135M-Instruct with its GGUF's weights dequantized (see gguf_reference.py).

Files, in safetensors (a name ending in .N is of the N-th sequence):

  tiny-*.safetensors
    token_ids.N  I32 [T]           none whose experts a rounding to bf16 could change
    positions.N  I32 [P]           the positions that the next are given for
    logits.N     F32 [P, vocab]
    cache_logits.N  F32 [P, vocab] the same with keys and values rounded to bf16, as the engine's
                                   cache holds them: what its fp32 path must equal closely
    hidden.N     F32 [layers + 1, Q, hidden]  of the LAST Q of those positions: the embeddings, then
                                   the residual stream behind each layer, before the final norm
    greedy.N     I32 [G]           greedy continuation of all T tokens
    margin.N     F32 [G]           best minus second best logit at each of its steps; 0 where a
                                   rounding could change the experts

  smollm2_135m.safetensors
    token_ids    I32 [T]
    top_ids      I32 [T, 16]       best first
    top_logits   F32 [T, 16]
    logsumexp    F32 [T]           over the whole vocabulary
    max_abs      F32 [T]           largest magnitude of a logit
    columns      I32 [C]           a fixed random part of the vocabulary
    column_logits  F32 [T, C]
    cache_logits  F32 [T, C]       those columns with keys and values rounded to bf16
    hidden_layers, hidden_positions  I32; hidden  F32 [layers, positions, hidden], as above
    prompt.N, greedy.N, margin.N   as above

  smollm2_135m.json: the exact model file, prompts as text, perplexity and its protocol.
"""

import json
import pathlib
import sys

import numpy as np
import torch
import transformers

import model_reference as reference
from gguf_reference import load_gguf

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools/proxy"))
from random_weights import splitmix64  # noqa: E402
from safetensors_files import write_json, write_safetensors  # noqa: E402
from test_models import MODELS, MXFP4_NAME  # noqa: E402

GOLDEN = ROOT / "tests/models/golden"
TINY_MODELS = ROOT / ".cache/test-models"
SMOLLM2 = ROOT / ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"

TEXT = (
    "The mill stood where the river bends, and its wheel had turned since 1847. Every morning the "
    "miller opened the sluice, listened to the stones, and wrote three numbers into a book: how "
    "high the water was, how many sacks he ground, and what each of them cost."
)
PROMPTS = [
    "The capital of France is",
    "<|im_start|>user\nList three primary colors.<|im_end|>\n<|im_start|>assistant\n",
    "def fibonacci(n):\n",
]
GREEDY_TOKENS = 48
NUM_COLUMNS = 256
HIDDEN_LAYERS = [0, 1, 8, 15, 29, 30]
HIDDEN_POSITIONS = [0, 17, 45]

PERPLEXITY_FILE = "/usr/share/common-licenses/GPL-3"
PERPLEXITY_TOKENS = 2048
PERPLEXITY_CONTEXT = 1024


def tiny_sequences(runner, vocab_size):
    """Two sequences: one within a page or two of the cache, one over several. Random tokens but those
    whose experts a rounding could change."""
    for index, length in enumerate((23, 100)):
        tokens = []
        for token in (splitmix64(1000 + index, 64 * length) % np.uint64(vocab_size)).tolist():
            if len(tokens) < length and runner.chooses_clearly([*tokens, token]):
                tokens.append(token)
        assert len(tokens) == length
        yield tokens


def greedy(runner, tokens, count):
    """Where a rounding could change a token's experts, it does not lead the next one."""
    continuation, margins = runner.greedy(tokens, count)
    for i in range(count):
        if not runner.chooses_clearly([*tokens, *continuation[:i].tolist()]):
            margins[i] = 0
    return continuation, margins


def write_tiny(name):
    options = {}
    if name == MXFP4_NAME:
        options["quantization_config"] = transformers.Mxfp4Config(dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        TINY_MODELS / name, dtype=torch.float32, attn_implementation="eager", **options)
    runner = reference.Reference(model)
    tensors = {}
    for n, token_ids in enumerate(tiny_sequences(runner, model.config.vocab_size)):
        logits, hidden = runner.run(token_ids)
        # Some of all lengths, and the last four.
        length = len(token_ids)
        every = 4 if length < 32 else 16
        positions = sorted({*range(0, length, every), *range(length - 4, length)})
        tensors[f"token_ids.{n}"] = np.array(token_ids, np.int32)
        tensors[f"positions.{n}"] = np.array(positions, np.int32)
        tensors[f"logits.{n}"] = logits[positions]
        tensors[f"cache_logits.{n}"] = runner.run_with_rounded_cache(token_ids)[positions]
        tensors[f"hidden.{n}"] = hidden[:, positions[-2:]]
        tensors[f"greedy.{n}"], tensors[f"margin.{n}"] = greedy(runner, token_ids, 32)
        print(f"{name}: {length} tokens, {len(positions)} positions, logits of deviation {logits.std():.2f}, "
              f"{(tensors[f'margin.{n}'] > 0).sum()} greedy tokens")
    write_safetensors(GOLDEN / f"{name}.safetensors", tensors)


def write_smollm2(runner, tokenizer):
    token_ids = tokenizer.encode(TEXT, add_special_tokens=False).ids
    logits, hidden = runner.run(token_ids)
    columns = splitmix64(2000, 4 * NUM_COLUMNS) % np.uint64(logits.shape[1])
    columns = np.unique(columns)[:: 4][:NUM_COLUMNS].astype(np.int64)
    top_ids, top_logits = reference.top_logits(logits)
    tensors = {
        "token_ids": np.array(token_ids, np.int32),
        "top_ids": top_ids,
        "top_logits": top_logits,
        "logsumexp": reference.logsumexp(logits),
        "max_abs": np.abs(logits).max(axis=1),
        "columns": columns.astype(np.int32),
        "column_logits": logits[:, columns],
        "cache_logits": runner.run_with_rounded_cache(token_ids)[:, columns],
        "hidden_layers": np.array(HIDDEN_LAYERS, np.int32),
        "hidden_positions": np.array(HIDDEN_POSITIONS, np.int32),
        "hidden": hidden[HIDDEN_LAYERS][:, HIDDEN_POSITIONS],
    }
    print(f"smollm2: {len(token_ids)} tokens, mean NLL {reference.mean_nll(logits, token_ids):.4f}")
    for n, prompt in enumerate(PROMPTS):
        ids = tokenizer.encode(prompt, add_special_tokens=False).ids
        tensors[f"prompt.{n}"] = np.array(ids, np.int32)
        tensors[f"greedy.{n}"], tensors[f"margin.{n}"] = runner.greedy(ids, GREEDY_TOKENS)
        print(repr(prompt), "->", repr(tokenizer.decode(tensors[f"greedy.{n}"].tolist())),
              f"least margin {tensors[f'margin.{n}'].min():.3f}")
    write_safetensors(GOLDEN / "smollm2_135m.safetensors", tensors)


def write_perplexity(runner, tokenizer, gguf_path):
    data = pathlib.Path(PERPLEXITY_FILE).read_bytes()
    ids = tokenizer.encode(data.decode(), add_special_tokens=False).ids[:PERPLEXITY_TOKENS]
    windows = [ids[i:i + PERPLEXITY_CONTEXT] for i in range(0, len(ids), PERPLEXITY_CONTEXT)]
    losses = [reference.mean_nll(runner.run(window)[0], window) for window in windows]
    mean = float(np.mean(losses))
    id_bytes = np.array(ids, "<i4").tobytes()
    golden = {
        "model": gguf_path.name,
        "model_bytes": gguf_path.stat().st_size,
        "text": TEXT,
        "prompts": PROMPTS,
        "perplexity": {
            "protocol": "The first num_tokens token ids of the file's whole text, without special "
                        "tokens, cut into windows of `context` tokens. Each window is run alone "
                        "from position 0. Its loss is the mean over its tokens 1.. of "
                        "logsumexp(logits) - logit of the token. mean_nll is the mean of the "
                        "windows' losses, perplexity its exponential.",
            "file": PERPLEXITY_FILE,
            "file_fnv1a64": f"{reference.fnv1a(data):016x}",
            "num_tokens": len(ids),
            "token_ids_fnv1a64": f"{reference.fnv1a(id_bytes):016x}",  # of little-endian int32
            "context": PERPLEXITY_CONTEXT,
            "window_nll": losses,
            "mean_nll": mean,
            "perplexity": float(np.exp(mean)),
        },
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    print(f"perplexity {np.exp(mean):.4f}, windows {losses}")
    write_json(GOLDEN / "smollm2_135m.json", golden)


def main():
    parts = sys.argv[1:] or ["tiny", "smollm2", "perplexity"]
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name in [*MODELS, MXFP4_NAME]:
        if "tiny" in parts or name in parts:
            write_tiny(name)
    if "smollm2" in parts or "perplexity" in parts:
        model, tokenizer = load_gguf(SMOLLM2)
        runner = reference.Reference(model)
        if "smollm2" in parts:
            write_smollm2(runner, tokenizer)
        if "perplexity" in parts:
            write_perplexity(runner, tokenizer, SMOLLM2)


if __name__ == "__main__":
    main()
