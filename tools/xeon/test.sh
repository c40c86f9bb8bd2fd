#!/usr/bin/env bash
# Runs the kernel tests on emulated Xeons, so that AVX-512 and AMX are tested on any machine.
# usage: tools/xeon/test.sh quick|full KERNELS_TEST
#
# Every processor must choose the kernels that are listed for it here, and each runs what it is the
# first to have: a kernel that passes on one processor computes the same on the next. `quick` leaves
# out the large shapes; `full` runs every kernel that a processor chooses or could choose.
set -euo pipefail
readonly mode=${1:?quick or full} binary=$(realpath "${2:?the kernel test program}")
readonly xeon_run=$(dirname "$(realpath "$0")")/xeon-run
work=$(mktemp -d)
readonly work
trap 'rm -rf "$work"' EXIT

readonly amx='bf16=amx_bf16_bf16 int8=amx_int8 fp8=amx_fp8_bf16 group=amx_{}_q8 prefill.group=amx_{}_bf16 vector=avx512'
readonly vnni='bf16=avx512_bf16_f32 int8=avx512_int8 fp8=avx512_fp8_f32 group=avx512_{}_q8 vector=avx512'
readonly avx512='bf16=avx512_bf16_f32 int8=avx2_int8 fp8=avx512_fp8_f32 group=avx2_{}_q8 vector=avx512'
readonly avx2='bf16=avx2_bf16_f32 int8=avx2_int8 fp8=avx2_fp8_f32 group=avx2_{}_q8 vector=avx2'

# Large shapes; attention and routing against their slow references (quick compares them with the
# scalar kernels).
readonly large='*DeepAndWide*:*RowsDoNotDepend*:*DeepInt8*:*SplitsALong*:*HowTheWorkWasCut*'
readonly slow="$large:*AttentionTest.MatchesReference*:*LargeScores*:*ChoosesAndWeighs*"
# Products of experts by the kernels of every level that the processor has.
readonly experts='ExpertProducts.*:Routing*'
# Formats that share their code with one that quick runs, leaving one of each kind.
readonly twins='*_q4_1_*:*_q8_1_*:*_q8_k_*:*_fp4_q8:*_fp4_bf16:*_q8_k16_bf16:*Tails/amx_q4_0_bf16:*Tails/amx_q4_z_bf16:*Tails/amx_fp4_16_bf16'

# One line a run: processor, options of xeon-run, expected kernels, filter.
cases() {
  if [ "$mode" = quick ]; then
    cat <<END
sapphire_rapids||$amx|Table/*/amx_*-$slow:$twins
sapphire_rapids||$amx|ExpectedCpuTest.*:GemmThreads.*:$experts:Table/*.*_avx512-$slow
ice_lake||$vnni|ExpectedCpuTest.*:GemmThreads.*:Table/*/avx512_*8-$slow:$twins
skylake_x||$avx512|ExpectedCpuTest.*:Table/*/avx512_*_f32:Table/*/embedding_avx512:Table/*.AgreesWithScalar*/*_avx512-$slow:*Attention*
haswell||$avx2|ExpectedCpuTest.*:Table/*.AgreesWithScalar*/*_avx2-*Attention*
granite_rapids||$amx|ExpectedCpuTest.*:GemmThreads.*
sapphire_rapids|--deny-amx|$vnni|ExpectedCpuTest.*:GemmThreads.*
END
  else
    cat <<END
sapphire_rapids||$amx|ExpectedCpuTest.*:GemmThreads.*:$experts
sapphire_rapids||$amx|Table/*/amx_q*
sapphire_rapids||$amx|Table/*/amx_*-*/amx_q*
sapphire_rapids||$amx|Table/*/avx512_*
sapphire_rapids||$amx|Table/*.*_avx512-*Attention*
sapphire_rapids||$amx|Table/*AttentionTest.*_avx512
granite_rapids||$amx|ExpectedCpuTest.*:GemmThreads.*:$experts:Table/*/amx_*-$large
ice_lake||$vnni|ExpectedCpuTest.*:GemmThreads.*:$experts:Table/*/avx512_*:Table/*.*_avx512-$slow
skylake_x||$avx512|ExpectedCpuTest.*:GemmThreads.*:$experts:Table/*/avx512_*:Table/*.*_avx512-$slow
haswell||$avx2|ExpectedCpuTest.*:GemmThreads.*:$experts:Table/*/avx2_*:Table/*.*_avx2-$slow
sapphire_rapids|--deny-amx|$vnni|ExpectedCpuTest.*:GemmThreads.*:Table/*/avx512_*-$large
END
  fi
}

# One case; prints its last lines only, and all of it if it failed.
run_case() {
  local number=$1 cpu options expected filter
  IFS='|' read -r cpu options expected filter <<<"$2"
  local log=$work/$number.log status=0 seconds=$SECONDS
  # shellcheck disable=SC2086 # options are words
  "$xeon_run" --cpu "$cpu" $options --timeout 3600 \
    --env TILEWRIGHT_EXPECT_KERNELS="$expected" "$binary" --gtest_filter="$filter" \
    >"$log" 2>&1 || status=$?
  local passed
  passed=$(sed -nE 's/^\[  PASSED  \] ([0-9]+) tests?\.$/\1/p' "$log")
  if [ "$status" != 0 ] || [ -z "$passed" ] || [ "$passed" = 0 ]; then
    cat "$log"
    echo "FAILED on $cpu $options: $filter (exit status $status)"
    return 1
  fi
  echo "$cpu${options:+ $options}: ${filter%%-*}: $passed tests passed in $((SECONDS - seconds)) s"
}

[ "$mode" = quick ] || [ "$mode" = full ] || {
  echo "tools/xeon/test.sh: '$mode' is neither quick nor full" >&2
  exit 2
}
"$xeon_run" --setup
failed=0 running=0 number=0
while read -r line; do
  number=$((number + 1))
  run_case "$number" "$line" &
  running=$((running + 1))
  if [ "$running" -ge "$(nproc)" ]; then
    wait -n || failed=$((failed + 1))
    running=$((running - 1))
  fi
done < <(cases)
while [ "$running" -gt 0 ]; do
  wait -n || failed=$((failed + 1))
  running=$((running - 1))
done
[ "$failed" = 0 ] || {
  echo "$failed of $number runs failed"
  exit 1
}
