#!/usr/bin/env python3
"""Measures what each weight format and the fp8 KV cache cost, and writes the table of docs/quality.md.

    tools/quality/quality_table.py build/release/apps/tilewright            prints the table
    tools/quality/quality_table.py build/release/apps/tilewright --write    and puts it into the page

The model is converted to bf16, which is the reference. Each format is made from it: by `tilewright
quantize`, or as a GGUF file by the gguf package. Predictions of a text are compared, token by token,
in windows that are independent of each other. Needs numpy and gguf (tools/requirements.txt).
"""

import argparse
import dataclasses
import datetime
import json
import pathlib
import platform
import re
import subprocess
import tempfile

import gguf
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"
TEXT = pathlib.Path("/usr/share/common-licenses/GPL-3")
PAGE = ROOT / "docs/quality.md"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"

GOAL = 0.01  # nats, for what is marked below


@dataclasses.dataclass
class Row:
    name: str
    has_goal: bool = False
    quantization: str = ""  # of tilewright quantize
    gguf_type: str = ""     # of a GGUF file
    cache: str = "auto"


ROWS = [
    Row("bf16"),
    Row("INT8 (w8a8_int8)", True, quantization="w8a8_int8"),
    Row("FP8 (fp8)", True, quantization="fp8"),
    Row("INT4, groups of 32 (int4)", quantization="int4"),
    Row("MXFP4 (mxfp4)", quantization="mxfp4"),
    Row("NVFP4 (nvfp4)", quantization="nvfp4"),
    Row("GGUF Q8_0", gguf_type="Q8_0"),
    Row("GGUF Q5_1", gguf_type="Q5_1"),
    Row("GGUF Q5_0", gguf_type="Q5_0"),
    Row("GGUF Q4_1", gguf_type="Q4_1"),
    Row("GGUF Q4_0", gguf_type="Q4_0"),
    Row("GGUF MXFP4", gguf_type="MXFP4"),
    Row("bf16 with an fp8 KV cache", True, cache="fp8_e4m3"),
]


def write_gguf(source, weights, kind, path):
    """The source file with its linear layers, taken from the bf16 folder, in another type."""
    reader = gguf.GGUFReader(source)
    fields = {key: field.contents() for key, field in reader.fields.items()}
    heads = {"attn_q": fields["llama.attention.head_count"],
             "attn_k": fields["llama.attention.head_count_kv"]}
    writer = gguf.GGUFWriter(path, fields["general.architecture"])
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        if field.types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_array(key, field.contents())
        else:
            writer.add_key_value(key, field.contents(), field.types[0])
    for tensor in reader.tensors:
        values = weights[gguf_source_name(tensor.name)]
        part = tensor.name.split(".")[-2]
        if part in heads:  # neighbouring pairs rotate, not halves
            pairs = values.reshape(heads[part], 2, -1, values.shape[1])
            values = pairs.swapaxes(1, 2).reshape(values.shape)
        target = gguf.GGMLQuantizationType.F32
        if values.ndim == 2:
            is_linear = tensor.name.startswith("blk.")
            target = gguf.GGMLQuantizationType[kind if is_linear else "BF16"]
        writer.add_tensor(tensor.name, gguf.quants.quantize(np.ascontiguousarray(values), target),
                          raw_dtype=target)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def gguf_source_name(name):
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if layer:
        return f"model.layers.{layer[1]}.{NAMES[layer[2]]}.weight"
    return {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
            "output.weight": "lm_head.weight"}[name]


def read_bf16(path):
    """name -> float32 array, of a safetensors file of bf16 alone."""
    data = np.memmap(path, np.uint8, "r")
    size = int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8:8 + size].tobytes())
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        bits = np.frombuffer(data[begin:end].tobytes(), np.uint16).astype(np.uint32)
        tensors[name] = (bits << np.uint32(16)).view(np.float32).reshape(entry["shape"])
    return tensors


def run(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True,
                          text=True).stdout


def measure(options, work):
    run(options.binary, "convert", options.model, work / "bf16")
    weights = read_bf16(work / "bf16/model.safetensors")
    for row in options.rows:
        path = work / "model"
        if row.quantization:
            run(options.binary, "quantize", "--model-path", work / "bf16", "--quantization",
                row.quantization, "--output", path, "--force")
        elif row.gguf_type:
            path = work / "model.gguf"
            write_gguf(options.model, weights, row.gguf_type, path)
        else:
            path = work / "bf16"
        yield row, json.loads(run(
            options.binary, "evaluate", "--model-path", path, "--reference", work / "bf16", "--text",
            options.text, "--window", options.window, "--max-tokens", options.tokens,
            "--kv-cache-dtype", row.cache, "--json"))


def table_of(results):
    lines = ["| format | perplexity | mean KL divergence, nats | same best token | goal |",
             "|---|---|---|---|---|"]
    for row, result in results:
        kl = result["mean_kl_divergence"]
        goal = ""
        if row.has_goal:
            goal = f"below {GOAL}: {'met' if kl < GOAL else 'MISSED'}"
        lines.append(f"| {row.name} | {result['perplexity']:.3f} | {kl:.4f} | "
                     f"{100 * result['top1_agreement']:.1f}% | {goal} |")
    return "\n".join(lines) + "\n"


def processor():
    names = re.findall(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return f"{names[0] if names else platform.machine()}, {len(names)} CPUs"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path, help="the tilewright command")
    parser.add_argument("--model", type=pathlib.Path, default=MODEL, help="GGUF file of a Llama model")
    parser.add_argument("--text", type=pathlib.Path, default=TEXT)
    parser.add_argument("--tokens", type=int, default=6144, help="of the text")
    parser.add_argument("--window", type=int, default=2048, help="tokens predicted from each other")
    parser.add_argument("--only", help="regular expression of the formats' names")
    parser.add_argument("--write", action="store_true", help=f"replace the table of {PAGE.name}")
    options = parser.parse_args()
    options.rows = [row for row in ROWS if not options.only or re.search(options.only, row.name)]
    if not options.rows:
        parser.error(f"--only {options.only}: no format of that name")
    results = []
    with tempfile.TemporaryDirectory(prefix="tw_quality_") as folder:
        for row, result in measure(options, pathlib.Path(folder)):
            results.append((row, result))
            print(table_of(results[-1:]).splitlines()[-1], flush=True)
    tokens = results[0][1]["tokens"]
    measured = (
        f"{options.model.name}, {options.text}: {tokens} predictions in windows of {options.window}\n"
        f"tokens, on {processor()} ({datetime.date.today()}).\n\n{table_of(results)}")
    if options.write:
        head, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(head + BEGIN + measured + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
