#!/usr/bin/env python3
"""Random blocks of GGUF's quantized types and what the reference library decodes them to.

Writes tests/weights/golden/quants.bin: per type, its ggml number and block count (uint32), the
blocks, and the decoded float32 values. Needs numpy and gguf (tools/requirements.txt).
"""
import pathlib
import struct

import gguf
import numpy

TYPES = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K",
         "MXFP4"]
NUM_BLOCKS = 12
# Offsets of the f16 scales in a block: random bits there could be NaN.
SCALES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "MXFP4": []}


def main():
    random = numpy.random.default_rng(2024)
    target = pathlib.Path(__file__).resolve().parents[2] / "tests/weights/golden/quants.bin"
    with open(target, "wb") as file:
        for name in TYPES:
            kind = gguf.GGMLQuantizationType[name]
            _, size = gguf.GGML_QUANT_SIZES[kind]
            blocks = random.integers(0, 256, (NUM_BLOCKS, size), dtype=numpy.uint8)
            for offset in SCALES[name]:
                scales = random.uniform(-2, 2, NUM_BLOCKS).astype(numpy.float16)
                blocks[:, offset:offset + 2] = scales.view(numpy.uint8).reshape(NUM_BLOCKS, 2)
            if name == "MXFP4":
                blocks[:, 0] %= 250  # exponents, of which the largest are infinite times 12
                blocks[:3, 0] = [0, 1, 2]  # two of which have less than a normal float
            values = gguf.quants.dequantize(blocks, kind).astype(numpy.float32)
            file.write(struct.pack("<II", int(kind), NUM_BLOCKS))
            file.write(blocks.tobytes())
            file.write(values.tobytes())


if __name__ == "__main__":
    main()
