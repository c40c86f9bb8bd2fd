#!/usr/bin/env python3
"""Writes a GGUF of Llama-3.2-1B's shape with random weights, for speed comparisons.

    pip install -r bench/peer/requirements.txt
    python bench/peer/make_random_gguf.py --type Q4_0 --out llama-1b-random.Q4_0.gguf

Speed depends on shapes and types, not on what a model has learned, so nothing needs to be
downloaded. The quantized blocks are drawn directly: symmetric quants and a scale per block,
chosen so that activations stay of order one through all layers. The vocabulary is a valid
byte-level BPE: 256 bytes, then all words of two and three letters (and as many of four as fit),
each with the merge that makes it, so that random output is printable text.
"""

import argparse
import itertools
import math

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, TokenType

SHAPES = {
    "1b": dict(hidden=2048, layers=16, heads=32, kv_heads=8, head_dim=64, ffn=8192, vocab=128256),
    # Small enough for a test of this script and of both programs.
    "tiny": dict(hidden=256, layers=2, heads=8, kv_heads=2, head_dim=32, ffn=512, vocab=2048),
}
NUM_SPECIAL = 256  # control tokens at the end of the vocabulary, as Llama 3 has them
BLOCK = 32


def quantized_blocks(rng, kind, rows, columns, std):
    """Random rows of Q4_0 or Q8_0 blocks whose elements have standard deviation `std`."""
    num_blocks = rows * columns // BLOCK
    quant_bytes = 16 if kind == "Q4_0" else 32
    blocks = np.empty((num_blocks, 2 + quant_bytes), dtype=np.uint8)
    quants = rng.integers(0, 2**64, size=num_blocks * quant_bytes // 8, dtype=np.uint64)
    quants = quants.view(np.uint8).reshape(num_blocks, quant_bytes)
    # The most negative quant has no positive twin; it becomes zero, so that the mean is zero.
    if kind == "Q4_0":
        quants[(quants & 0x0F) == 0] |= 0x08
        quants[(quants & 0xF0) == 0] |= 0x80
        quant_std = math.sqrt(sum(q * q for q in range(-7, 8)) / 16)
    else:
        quants[quants == 0x80] = 0
        quant_std = math.sqrt(sum(q * q for q in range(-127, 128)) / 256)
    scales = rng.uniform(0.8, 1.2, size=num_blocks) * (std / quant_std)
    blocks[:, :2] = scales.astype(np.float16).reshape(-1, 1).view(np.uint8)
    blocks[:, 2:] = quants
    return blocks.reshape(rows, -1)


def byte_level_alphabet():
    """GPT-2's printable stand-ins for the 256 bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = itertools.count(0x100)
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


def vocabulary(size):
    tokens = byte_level_alphabet()
    merges = []
    letters = ["\u0120", *(chr(c) for c in range(ord("a"), ord("z") + 1))]  # U+0120: a space
    words = letters
    while len(tokens) < size - NUM_SPECIAL:
        longer = [(word, letter) for word in words for letter in letters[1:]]
        for word, letter in longer[: size - NUM_SPECIAL - len(tokens)]:
            tokens.append(word + letter)
            merges.append(f"{word} {letter}")
        words = [word + letter for word, letter in longer]
    types = [TokenType.NORMAL] * len(tokens) + [TokenType.CONTROL] * NUM_SPECIAL
    tokens += [f"<|special_{i}|>" for i in range(NUM_SPECIAL)]
    return tokens, types, merges


def write(path, kind, shape, seed):
    rng = np.random.default_rng(seed)
    hidden, layers, ffn, vocab = shape["hidden"], shape["layers"], shape["ffn"], shape["vocab"]
    q_size = shape["heads"] * shape["head_dim"]
    kv_size = shape["kv_heads"] * shape["head_dim"]

    writer = GGUFWriter(path, "llama")
    writer.add_name(f"Random weights of Llama-3.2-1B's shape, {kind}")
    writer.add_file_type({"Q4_0": 2, "Q8_0": 7}[kind])
    writer.add_block_count(layers)
    writer.add_context_length(131072)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(shape["heads"])
    writer.add_head_count_kv(shape["kv_heads"])
    writer.add_key_length(shape["head_dim"])
    writer.add_value_length(shape["head_dim"])
    writer.add_rope_dimension_count(shape["head_dim"])
    writer.add_rope_freq_base(500000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocab)

    tokens, types, merges = vocabulary(vocab)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(vocab - NUM_SPECIAL)
    writer.add_eos_token_id(vocab - NUM_SPECIAL + 1)
    writer.add_add_bos_token(True)
    writer.add_chat_template(
        "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    )

    def add_matrix(name, rows, columns, std):
        writer.add_tensor(
            f"{name}.weight",
            quantized_blocks(rng, kind, rows, columns, std),
            raw_dtype=GGMLQuantizationType[kind],
        )

    def add_norm(name):
        writer.add_tensor(f"{name}.weight", np.ones(hidden, dtype=np.float32))

    residual = 1 / math.sqrt(2 * layers)  # each of the 2 * layers additions adds its share
    add_matrix("token_embd", vocab, hidden, 1.5 / math.sqrt(hidden))
    for layer in range(layers):
        block = f"blk.{layer}"
        add_norm(f"{block}.attn_norm")
        add_matrix(f"{block}.attn_q", q_size, hidden, 1 / math.sqrt(hidden))
        add_matrix(f"{block}.attn_k", kv_size, hidden, 1 / math.sqrt(hidden))
        add_matrix(f"{block}.attn_v", kv_size, hidden, 1 / math.sqrt(hidden))
        add_matrix(f"{block}.attn_output", hidden, q_size, residual / math.sqrt(q_size))
        add_norm(f"{block}.ffn_norm")
        add_matrix(f"{block}.ffn_gate", ffn, hidden, 1 / math.sqrt(hidden))
        add_matrix(f"{block}.ffn_up", ffn, hidden, 1 / math.sqrt(hidden))
        add_matrix(f"{block}.ffn_down", hidden, ffn, residual / math.sqrt(ffn))
    add_norm("output_norm")

    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--type", choices=["Q4_0", "Q8_0"], default="Q4_0")
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    write(arguments.out, arguments.type, SHAPES[arguments.shape], arguments.seed)


if __name__ == "__main__":
    main()
