#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test.sh [--preset release|debug|asan|tsan] [-R REGEX] [--all] [--no-setup]
# Sets the machine up, builds and tests: all but the labels slow and nightly (--all: those too, with the
# packages that they need), and under asan and tsan only the label unit.
# The last line is "N passed, N failed[, N skipped]"; the exit status is 0 only if nothing failed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

preset=release regex= all=0 setup=1
usage() { echo "test: $* (--help lists the arguments)" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    --preset) [ $# -ge 2 ] || usage "--preset needs a name"; preset=$2; shift 2 ;;
    -R) [ $# -ge 2 ] || usage "-R needs a regex"; regex=$2; shift 2 ;;
    --all) all=1; shift ;;
    --no-setup) setup=0; shift ;;
    -h|--help) sed -n '3,6s/^# //p' "$0"; exit 0 ;;
    *) usage "unknown argument '$1'" ;;
  esac
done
case $preset in
  release|debug) targets=(all); filter=(-LE 'slow|nightly') ;;
  asan|tsan) targets=(kiln_unit_tests); filter=(-L unit -LE 'slow|nightly') ;;
  *) usage "unknown preset '$preset'" ;;
esac
[ $all = 0 ] || filter=()
[ -z "$regex" ] || filter+=(-R "$regex")

more=()
[ $all = 0 ] || more=(--nightly)
[ $setup = 0 ] || "$root/scripts/setup.sh" "${more[@]}"
build=$root/build/$preset
mkdir -p "$build"
cmake -S "$root" --preset "$preset" >"$build/configure.log" 2>&1 ||
  { cat "$build/configure.log" >&2; echo "test: configuring failed" >&2; exit 1; }
cmake --build "$build" -j "$(nproc)" --target "${targets[@]}" -- -k 0  # all errors at once

status=0
ctest --test-dir "$build" --output-on-failure --no-tests=error -j "$(($(nproc) + 1))" "${filter[@]}" 2>&1 |
  tee "$build/test.log" || status=$?

# ctest counts skips as passed and missing programs apart, so count its lines and charge the rest to failures.
count() { grep -cE "^ *[0-9]+/[0-9]+ +Test +#[0-9]+: .*$1" "$build/test.log" || true; }
total=$(sed -nE 's/.* tests failed out of ([0-9]+).*/\1/p' "$build/test.log" | tail -1)
passed=$(count '\.* +Passed +[0-9.]+ sec')
skipped=$(count '\*\*\*Skipped')
failed=$((${total:-0} - passed - skipped))
[ "$skipped" = 0 ] && skips= || skips=", $skipped skipped"
echo "$passed passed, $failed failed$skips"
[ "$status" = 0 ] && [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
