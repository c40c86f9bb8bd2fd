"""A byte-level BPE tokenizer of any small size, with a chat template."""

SPECIAL_TOKENS = ["<|begin|>", "<|end|>", "<|user|>", "<|assistant|>", "<|stop|>"]
CHAT_TEMPLATE = (
    "{{ '<|begin|>' }}{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|stop|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


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
