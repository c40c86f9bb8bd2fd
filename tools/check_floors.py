#!/usr/bin/env python3
"""Checks the direction of includes: a floor includes only floors below it, or itself.

The floors are the folders of src/ in the order of the data path (docs/ARCHITECTURE.md). Also
checks that code for one instruction set stays in files named after it.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLOORS = {"core": 1, "http": 2, "hub": 2, "text": 2, "kernels": 3, "weights": 4, "parallel": 4, "nn": 5, "models": 6,
          "engine": 7, "server": 8, "router": 8, "apps": 9, "python": 10}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
INTRINSICS = re.compile(r"#\s*include\s+<(immintrin|x86intrin|avx\w*)\.h>")
ISA_FILE = re.compile(r"(avx2|avx512|amx|vnni)")


def check_file(path, floor):
    problems = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        where = f"{path.relative_to(ROOT)}:{number}"
        if INTRINSICS.search(line) and not ISA_FILE.search(path.name):
            problems.append(f"{where}: intrinsics outside a file of an instruction set")
        match = INCLUDE.match(line)
        if not match:
            continue
        target = match.group(1).split("/")[0]
        if target not in FLOORS:
            if not (path.parent / match.group(1)).exists() and target != "tw_text.h":
                problems.append(f"{where}: include {match.group(1)} is not relative to src/")
            continue
        if target != floor and FLOORS[target] >= FLOORS[floor]:
            problems.append(f"{where}: {floor} (floor {FLOORS[floor]}) includes {target} "
                            f"(floor {FLOORS[target]})")
    return problems


def main():
    problems = []
    for floor in FLOORS:
        folder = ROOT / floor if floor in ("apps", "python") else ROOT / "src" / floor
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".h", ".cc"):
                problems += check_file(path, floor)
    print("\n".join(problems) if problems else "floors: includes point downwards")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
