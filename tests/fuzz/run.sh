#!/usr/bin/env bash
# Builds the fuzz targets and runs each for a while from its seed corpus.
# usage: tests/fuzz/run.sh [SECONDS_PER_TARGET]
set -euo pipefail
cd "$(dirname "$0")/../.."
readonly seconds=${1:-10}
targets="gguf safetensors safetensors_index model_config http_request"

# The newest clang: before 16 it cannot compile coroutines against libstdc++.
clang=$(find /usr/bin -name 'clang-[1-9][0-9]' | sort -V | tail -1)
clang=${clang:-clang}
cmake --preset fuzz -DCMAKE_C_COMPILER="$clang" -DCMAKE_CXX_COMPILER="${clang/clang/clang++}" >/dev/null
# shellcheck disable=SC2046
cmake --build --preset fuzz -j "$(nproc)" -- $(printf '%s_fuzz ' $targets)
passed=0
for target in $targets; do
  work=build/fuzz/corpus/$target
  mkdir -p "$work"
  log=build/fuzz/$target.log
  if ! build/fuzz/tests/fuzz/"${target}"_fuzz -max_total_time="$seconds" -timeout=10 \
    -rss_limit_mb=2048 -artifact_prefix="build/fuzz/$target-" "$work" \
    "tests/fuzz/corpus/$target" >"$log" 2>&1; then
    tail -40 "$log"
    echo "fuzz $target: failed (build/fuzz/$target-*)"
    exit 1
  fi
  echo "fuzz $target: $(grep -oE 'Done [0-9]+ runs in [0-9]+ second' "$log" | tail -1)"
  passed=$((passed + 1))
done
echo "$passed passed, 0 failed"
