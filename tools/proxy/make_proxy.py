#!/usr/bin/env python3
"""Makes models of random weights, as Hugging Face folders, from their configuration alone.

    make_proxy.py --tests --out .cache/test-models       the tiny models that the tests load
    make_proxy.py gemma-2-9b --out DIR                   a small model shaped like a real one
    make_proxy.py path/to/config.json --out DIR          the same for any supported config.json
    make_proxy.py qwen3-8b --layers 4 --full-size --out DIR   real sizes, few layers, for timing

Needs numpy alone. The same command gives the same bits everywhere, so golden files made once from
these models by Transformers (tools/golden/make_model_golden.py) stay valid without the weights
being kept. A small model keeps what makes its family odd - ratios of heads, window patterns,
scaling of positions, norms - in few layers of small sizes.
"""

import argparse
import json
import math
import os
import pathlib
import shutil

import numpy as np

import quantized_models
import tensor_plans
import test_adapters
import test_models
from gguf_files import write_gguf
from mxfp4 import Mxfp4
from random_weights import blocks_of_bf16
from safetensors_files import write_json, write_model_weights, write_safetensors
from shrink import set_tokens, shrink
from tiny_tokenizer import CHAT_TEMPLATE, SPECIAL_TOKENS, make_tokenizer

CONFIGS = pathlib.Path(__file__).resolve().parent / "configs"
MAX_SHARD_BYTES = 4 << 30


def write_model(folder, name, config, num_shards=None):
    text_config = config.get("text_config", config)
    tensors = tensor_plans.tensors_of({**text_config, "architectures": config["architectures"]})
    if num_shards is None:
        total = sum(2 * math.prod(tensor.shape) for tensor in tensors)
        num_shards = -(-total // MAX_SHARD_BYTES)
    write_folder(folder, config, lambda draft: write_model_weights(
        draft, tensors, lambda tensor: blocks_of_bf16(name, tensor), num_shards))


def write_folder(folder, config, write_weights):
    """Replaces the folder. It is made beside its place and moved there, so that nobody ever sees half
    a model."""
    draft = folder.parent / f".{folder.name}.{os.getpid()}"
    draft.mkdir(parents=True)
    text_config = config.get("text_config", config)
    tokens = {key: text_config[key] for key in ("bos_token_id", "eos_token_id")}
    write_json(draft / "config.json", config)
    write_json(draft / "generation_config.json", tokens)
    write_json(draft / "tokenizer.json", make_tokenizer(text_config["vocab_size"]))
    write_json(
        draft / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": SPECIAL_TOKENS[0],
            "eos_token": SPECIAL_TOKENS[1],
            "chat_template": CHAT_TEMPLATE,
            "model_max_length": text_config["max_position_embeddings"],
        },
    )
    write_weights(draft)
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
    print(folder)


def write_gguf_model(path, config, weights, **options):
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    write_gguf(draft, config, weights, make_tokenizer(config["vocab_size"]), **options)
    draft.rename(path)
    print(path)


def weights_of(name, config):
    """Pairs of a tensor's name and its bf16 bits."""
    for tensor in tensor_plans.tensors_of(config):
        yield tensor.name, np.concatenate(list(blocks_of_bf16(name, tensor))).reshape(tensor.shape)


def completed(config):
    complete = {**config, "torch_dtype": "bfloat16"}
    if "hidden_activation" not in config:
        complete.setdefault("hidden_act", "silu")
    set_tokens(complete, config["vocab_size"])
    return complete


def make_test_models(out):
    for name, config in (test_models.MODELS | test_models.NEXT_TOKEN_MODELS).items():
        complete = completed(config)
        write_model(out / name, name, complete, test_models.SHARDS.get(name, 1))
        if name in test_models.GGUF:
            write_gguf_model(out / f"{name}.gguf", complete, weights_of(name, complete))
        if name in test_models.UNSPLIT_GGUF:
            write_gguf_model(out / f"{name}+unsplit.gguf", complete, weights_of(name, complete),
                             split_kv_b=False)
    make_mxfp4_model(out)
    make_quantized_models(out)
    for name, (model, *_) in test_adapters.ADAPTERS.items():
        test_adapters.write_adapter(out / name, name, test_models.MODELS[model])


def make_mxfp4_model(out):
    name = test_models.MXFP4_NAME
    config = completed(test_models.MXFP4_CONFIG)
    weights, stored = [], {}
    for key, bits in weights_of(name, config):
        if key.endswith(("experts.gate_up_proj", "experts.down_proj")):
            experts, inputs, outputs = bits.shape
            matrix = Mxfp4.random(f"{name}/{key}", (experts, outputs, inputs))
            weights.append((key, matrix))
            stored |= {f"{key}_{part}": array for part, array in matrix.hugging_face().items()}
        else:
            weights.append((key, bits))
            stored[key] = bits
    config["quantization_config"] = {"quant_method": "mxfp4"}
    write_folder(out / name, config, lambda draft: write_safetensors(
        draft / "model.safetensors", stored, {"format": "pt"}))
    write_gguf_model(out / f"{name}.gguf", config, weights)


def make_quantized_models(out):
    config = {**quantized_models.CONFIG, "torch_dtype": "bfloat16", "hidden_act": "silu"}
    set_tokens(config, config["vocab_size"])
    for kind in [None, *quantized_models.QUANTIZATION_CONFIGS]:
        complete, name = dict(config), quantized_models.NAME
        if kind is not None:
            complete["quantization_config"] = quantized_models.QUANTIZATION_CONFIGS[kind]
            name += f"-{kind}"
        tensors = quantized_models.model_tensors(kind)
        write_folder(out / name, complete, lambda draft: write_safetensors(
            draft / "model.safetensors", tensors, {"format": "pt"}))


def find_config(model):
    """A file, or the name of one in configs/."""
    known = sorted(path.stem for path in CONFIGS.glob("*.json"))
    path = CONFIGS / f"{model}.json" if model in known else pathlib.Path(model)
    if not path.is_file():
        raise SystemExit(f"{model} is no file and none of the built-in models: {', '.join(known)}")
    return json.loads(path.read_text(encoding="utf-8"))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="a config.json, or one of tools/proxy/configs")
    parser.add_argument("--tests", action="store_true", help="make the models of the tests")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--layers", type=int, help="number of layers")
    parser.add_argument("--full-size", action="store_true", help="shrink nothing but the layers")
    options = parser.parse_args()
    if options.tests == (options.model is not None):
        parser.error("give either a model or --tests")
    if options.tests:
        make_test_models(options.out)
        return
    config = shrink(find_config(options.model), options.layers, options.full_size)
    # The name of the architecture, not of the folder, seeds the weights.
    write_model(options.out, config["architectures"][0], config)


if __name__ == "__main__":
    main()
