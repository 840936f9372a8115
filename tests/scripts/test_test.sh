#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs scripts/test.sh with a made-up cmake and ctest, and checks its last line, exit status and filters.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/scripts"
cp "$root/scripts/test.sh" "$work/scripts/"
export FAKE=$work
printf '#!/bin/bash\necho "$*" >>"$FAKE/cmake_log"\n' >"$work/bin/cmake"
printf '#!/bin/bash\necho "$*" >"$FAKE/ctest_log"\ncat "$FAKE/report"\nexit $(cat "$FAKE/rc")\n' \
  >"$work/bin/ctest"
chmod +x "$work/bin"/*
failures=0

# check NAME WANTED_STATUS WANTED_LAST_LINE [arguments of test.sh]
check() {
  local output status last
  output=$(PATH=$work/bin:$PATH "$work/scripts/test.sh" --no-setup "${@:4}" 2>&1); status=$?
  last=$(echo "$output" | tail -1)
  if [ "$status" != "$2" ] || [ "$last" != "$3" ]; then
    echo "FAIL $1"; echo "  got:      $status, $last"; echo "  expected: $2, $3"; failures=$((failures + 1))
  fi
}
logged() { # FILE TEXT
  grep -q -- "$2" "$work/$1" && return
  echo "FAIL: $1 lacks $2: $(cat "$work/$1")"; failures=$((failures + 1))
}

cat >"$work/report" <<'REPORT'
1/3 Test #1: a.b_test ...............   Passed    0.10 sec
3/3 Test #12: c ..............................***Skipped   0.01 sec
2/3 Test  #2: lint Passed ...........   Passed   12.10 sec
100% tests passed, 0 tests failed out of 3
REPORT
echo 0 >"$work/rc"
check "skip" 0 "2 passed, 0 failed, 1 skipped"
logged ctest_log "-LE slow|nightly"
logged cmake_log "--target all"
check "asan" 0 "2 passed, 0 failed, 1 skipped" --preset asan -R 'ir\.'
logged ctest_log "-L unit -LE slow|nightly -R ir"
logged cmake_log "--target kiln_unit_tests"

cat >"$work/report" <<'REPORT'
1/4 Test #1: a.b_test ...............   Passed    0.10 sec
2/4 Test #2: b ......................***Failed    0.10 sec
3/4 Test #3: c ......................***Timeout   0.10 sec
4/4 Test #4: d ......................***Not Run   0.00 sec
25% tests passed, 3 tests failed out of 4
REPORT
echo 8 >"$work/rc"
check "failures" 1 "1 passed, 3 failed"
echo "No tests were found!!!" >"$work/report"
check "none" 1 "0 passed, 0 failed"
check "flag" 2 "test: unknown argument '--frob' (--help lists the arguments)" --frob
check "preset" 2 "test: unknown preset 'fast' (--help lists the arguments)" --preset fast

# Whatever a build folder was configured with before, its preset builds the tests.
for preset in release debug asan tsan; do
  settings=$(python3 - "$root/CMakePresets.json" "$preset" <<'PYTHON'
import json, sys
presets = {p["name"]: p for p in json.load(open(sys.argv[1]))["configurePresets"]}
found, name = {}, sys.argv[2]
while name:
    found = {**presets[name].get("cacheVariables", {}), **found}
    name = presets[name].get("inherits")
print(found.get("KILN_TESTS"))
PYTHON
  )
  [ "$settings" = ON ] && continue
  echo "FAIL: preset $preset has KILN_TESTS $settings"; failures=$((failures + 1))
done

[ $failures = 0 ] && echo "test_test: all checks passed"
exit $((failures > 0))
