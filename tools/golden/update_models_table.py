#!/usr/bin/env python3
"""Rewrites the table of docs/models.md from what the golden tests measure on this machine.

    tools/golden/update_models_table.py build/release/tests/models/tw_models_test

Of the instruction sets that the tests run on, the best one's figures are taken; what is quantized at
load is measured for the table alone.
"""

import argparse
import pathlib
import re
import subprocess

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/models.md"
BEGIN, END = "<!-- golden: begin -->\n", "<!-- golden: end -->\n"
FORMATS = {"f32": "fp32", "bf16": "bf16", "w8a8_int8": "INT8", "fp8": "FP8", "int4": "INT4",
           "mxfp4": "MXFP4"}
LINE = re.compile(
    r"^(?:tiny-)(\S+) (\w+) (\w+): largest relative error of the logits (\S+), "
    r"mean KL divergence (\S+), same best token (\d+) of (\d+)$", re.M)


def measure(binary):
    """-> (instruction set, {model: {format: (error, divergence, same, positions)}})"""
    output = subprocess.run(
        [binary, "--gtest_filter=*TinyModel.*Logits*", "--gtest_also_run_disabled_tests"],
        check=True, capture_output=True, text=True).stdout
    rows = LINE.findall(output)
    best = max((isa for _, isa, *_ in rows), key=["scalar", "avx2", "avx512", "amx"].index)
    models = {}
    for model, isa, form, error, divergence, same, count in rows:
        if isa == best:
            models.setdefault(model, {})[form] = (float(error), float(divergence), int(same), int(count))
    return best, models


def cell(figures):
    if figures is None:
        return "-"
    error, divergence, same, count = figures
    return f"{error:.1e} / {divergence:.0e} / {100 * same / count:.0f}%"


def table_of(models):
    lines = ["| model of the tests | " + " | ".join(FORMATS.values()) + " |",
             "|---" * (1 + len(FORMATS)) + "|"]
    for model in sorted(models):
        cells = (cell(models[model].get(form)) for form in FORMATS)
        lines.append(f"| {model} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path, help="tw_models_test")
    isa, models = measure(parser.parse_args().binary.resolve())
    head, rest = PAGE.read_text().split(BEGIN)
    measured = f"Measured with the {isa} kernels:\n\n{table_of(models)}"
    PAGE.write_text(head + BEGIN + measured + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
