#!/usr/bin/env bash
# Counts the GEMM kernels' instructions on an emulated Xeon and compares them with
# bench/instructions_baseline.txt: fails when one has grown by more than 5%.
# usage: bench/instructions.sh TW_BENCH_INSTRUCTIONS [check|update|print [KERNEL]]
set -euo pipefail
binary=$(realpath "${1:?the program tw_bench_instructions}")
readonly binary mode=${2:-check} kernel=${3:-}
folder=$(dirname "$(realpath "$0")")
readonly folder baseline=$folder/instructions_baseline.txt
emulate() { "$folder/../tools/xeon/xeon-run" --quiet --timeout 3000 "$@"; }
case $mode in
  check) emulate --file "$baseline" "$binary" --baseline "$baseline" ;;
  print) emulate "$binary" --kernel "$kernel" ;;
  update)
    counts=$(emulate "$binary")
    {
      echo "# Instructions of the GEMM kernels (bench/instructions.cc says of what);"
      echo "# written by: bench/instructions.sh tw_bench_instructions update"
      echo "$counts"
    } >"$baseline"
    ;;
  *)
    echo "bench/instructions.sh: '$mode' is none of check, update and print" >&2
    exit 2
    ;;
esac
