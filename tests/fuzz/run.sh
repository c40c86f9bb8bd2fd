#!/usr/bin/env bash
# Builds the fuzz targets and runs each for a while from its seed corpus.
# usage: tests/fuzz/run.sh [SECONDS_PER_TARGET]
set -euo pipefail
cd "$(dirname "$0")/../.."
readonly seconds=${1:-10}
targets="gguf safetensors model_config"

# The server's request parsers need a clang with coroutines; the oldest distributions lack it.
compiler=clang
for newer in clang-19 clang-18 clang-17 clang-16; do
  if command -v "$newer" >/dev/null && [ "$compiler" = clang ]; then compiler=$newer; fi
done
suffix=${compiler#clang}
if [ "$("$compiler" -dumpversion | cut -d. -f1)" -ge 16 ]; then targets+=" http_request"; fi

cmake --preset fuzz -DCMAKE_C_COMPILER="$compiler" -DCMAKE_CXX_COMPILER="clang++$suffix" >/dev/null
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
