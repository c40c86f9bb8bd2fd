#!/usr/bin/env python3
"""Writes tests/text/golden/: what the reference tokenizers give on a set of texts.

Needs tokenizers, gguf and sentencepiece from PyPI, the tokenizers of tools/fetch_tokenizers.sh and
the small model of tools/setup.sh. The outputs are committed, the tests read only those.

  texts.json        name -> text
  <tokenizer>.json  per text its ids (without special tokens) and, for random ids, their decoding
  smollm2.json      the same for the vocabulary of the small model's GGUF under the rules that
                    HuggingFaceTB/SmolLM2-135M-Instruct has in its tokenizer.json
  sentencepiece.json  a small vocabulary trained here, and what sentencepiece itself gives
"""
import json
import pathlib
import random
import struct
import sys
import tempfile

import gguf
import sentencepiece
import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tokenizer_texts import TEXTS, long_text

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests/text/golden"
CACHE = ROOT / ".cache/tokenizers"
MODEL = ROOT / ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"
NAMES = ["qwen3", "llama3_1", "deepseek_v3", "gptoss", "gemma3"]


def hash_ids(ids):
    """FNV-1a over the ids as little-endian 32-bit numbers."""
    value = 0xCBF29CE484222325
    for byte in struct.pack(f"<{len(ids)}I", *ids):
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def write(name, content):
    """One line per entry of the inner lists and objects, so that differences can be read."""
    lines = []
    for key, value in content.items():
        if isinstance(value, list):
            body = ",\n".join(json.dumps(item, ensure_ascii=False) for item in value)
            text = f"[\n{body}\n]"
        elif isinstance(value, dict):
            body = ",\n".join(f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}"
                              for k, v in value.items())
            text = f"{{\n{body}\n}}"
        else:
            text = json.dumps(value, ensure_ascii=False)
        lines.append(f"{json.dumps(key)}: {text}")
    (GOLDEN / name).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def encodings(tokenizer):
    long_ids = tokenizer.encode(long_text(), add_special_tokens=False).ids
    return {
        "reference": f"tokenizers {tokenizers.__version__}",
        "vocab_size": max(tokenizer.get_vocab(True).values()) + 1,
        "ids": {name: tokenizer.encode(text, add_special_tokens=False).ids
                for name, text in TEXTS.items()},
        "with_special_tokens": {name: tokenizer.encode(TEXTS[name]).ids
                                for name in ("empty", "hello")},
        "long_text": {"count": len(long_ids), "hash": hash_ids(long_ids)},
    }


def decodings(tokenizer, vocab_size, seed):
    rng = random.Random(seed)
    special = [i for i, t in tokenizer.get_added_tokens_decoder().items() if t.special]
    cases = []
    for _ in range(25):
        ids = [rng.randrange(vocab_size) for _ in range(rng.randrange(1, 16))]
        if special and rng.random() < 0.5:
            ids.insert(rng.randrange(len(ids) + 1), rng.choice(special))
        cases.append({"ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=False),
                      "without_special": tokenizer.decode(ids, skip_special_tokens=True)})
    # Characters cut anywhere: the pieces of a text full of them, some missing.
    ids = tokenizer.encode(TEXTS["emoji"] + TEXTS["tibetan"] + TEXTS["astral"],
                           add_special_tokens=False).ids
    for _ in range(10):
        some = [i for i in ids if rng.random() < 0.6]
        cases.append({"ids": some, "text": tokenizer.decode(some, skip_special_tokens=False),
                      "without_special": tokenizer.decode(some, skip_special_tokens=True)})
    return cases


def smollm2():
    fields = gguf.GGUFReader(MODEL).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True),
         pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False)
                                  for t, kind in zip(tokens, types) if kind == 3])
    return tokenizer


def sentencepiece_golden():
    with tempfile.TemporaryDirectory() as folder:
        corpus = pathlib.Path(folder) / "corpus.txt"
        corpus.write_text("\n".join(line for text in TEXTS.values() for line in text.split("\n")
                                    if line.strip()) + "\n")
        sentencepiece.SentencePieceTrainer.train(
            input=str(corpus), model_prefix=f"{folder}/m", model_type="bpe", vocab_size=1200,
            byte_fallback=True, character_coverage=0.98, normalization_rule_name="identity",
            remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True,
            user_defined_symbols=["[TOOL]"], minloglevel=2, num_threads=1,
            hard_vocab_limit=False)
        model = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/m.model")
    count = model.get_piece_size()

    def token_type(i):
        if model.is_unknown(i):
            return 2
        if model.is_control(i):
            return 3
        if model.is_byte(i):
            return 6
        return 4 if model.id_to_piece(i) == "[TOOL]" else 1

    # Special tokens in the text are a matter of the tokenizer around sentencepiece, and a NUL ends
    # its strings.
    names = [n for n in TEXTS if not n.startswith("special_") and n != "controls"]
    return {
        "reference": f"sentencepiece {sentencepiece.__version__}",
        "tokens": [model.id_to_piece(i) for i in range(count)],
        "scores": [model.get_score(i) for i in range(count)],
        "token_types": [token_type(i) for i in range(count)],
        "ids": {name: model.encode(TEXTS[name]) for name in names},
        "decoded": {name: model.decode(model.encode(TEXTS[name])) for name in names},
    }


def main():
    GOLDEN.mkdir(parents=True, exist_ok=True)
    write("texts.json", {"texts": TEXTS})
    for seed, name in enumerate(NAMES):
        tokenizer = Tokenizer.from_file(str(CACHE / name / "tokenizer.json"))
        content = encodings(tokenizer)
        content["decodings"] = decodings(tokenizer, content["vocab_size"], seed)
        write(f"{name}.json", content)
    tokenizer = smollm2()
    content = encodings(tokenizer)
    content["decodings"] = decodings(tokenizer, content["vocab_size"], 99)
    write("smollm2.json", content)
    write("sentencepiece.json", sentencepiece_golden())


if __name__ == "__main__":
    sys.exit(main())
