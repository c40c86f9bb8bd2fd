#!/usr/bin/env bash
# Measures the machine's limits, the kernels against them, and a model's prefill and decode.
# usage: bench/run.sh BUILD_DIR MODEL
set -euo pipefail
readonly build=$1 model=$2
"$build/apps/tilewright" bench machine
"$build/apps/tilewright" bench kernels
"$build/bench/tw_bench_attention"
"$build/apps/tilewright" bench latency --model-path "$model" --steps
