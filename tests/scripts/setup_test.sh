#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs scripts/setup.sh against a made-up dpkg, apt, id and sudo, and checks what it asks of them.
# The fakes keep their state in files: installed, known (to apt), log (every apt-get call), uid, sudo_works.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
export FAKE=$work
failures=0

fake() { printf '#!/bin/bash\n%s\n' "$2" >"$work/bin/$1"; chmod +x "$work/bin/$1"; }
fake dpkg-query 'grep -qx -- "${@: -1}" "$FAKE/installed" && printf installed'
# As long an answer as apt-cache may give: a reader that stops at the candidate breaks its pipe.
fake apt-cache '
grep -qx -- "$2" "$FAKE/known" && echo "  Candidate: 1.0" || echo "  Candidate: (none)"
seq 20000'
fake id 'cat "$FAKE/uid"'
fake sudo '[ -e "$FAKE/sudo_works" ] && { shift; exec "$@"; }; exit 1'
fake apt-get '
echo "$*" >>"$FAKE/log"
case "$*" in
  *update*) [ ! -e "$FAKE/update_adds" ] || cat "$FAKE/update_adds" >>"$FAKE/known" ;;
  *install*)
    [ ! -e "$FAKE/broken" ] || exit 100
    if [ -e "$FAKE/stale" ]; then rm "$FAKE/stale"; exit 100; fi
    for p in "$@"; do case $p in -*|install) ;; *) echo "$p" >>"$FAKE/installed" ;; esac; done ;;
esac'

all=$(sed -n '/^packages=(/,/^)/p' "$root/scripts/setup.sh" | sed '1d;$d' | tr -s ' \n' '\n' | grep .)
reset() {
  rm -f "$work"/{log,stale,broken,sudo_works,update_adds}
  echo 0 >"$work/uid"; echo "$all" >"$work/installed"; echo "$all" >"$work/known"; touch "$work/log"
}
remove() { for p in "${@:2}"; do sed -i "/^$p\$/d" "$work/$1"; done; }
run() { output=$(PATH=$work/bin:$PATH "$root/scripts/setup.sh" "$@" 2>&1); status=$?; }
expect() { # WHAT GOT WANTED
  [ "$2" = "$3" ] && return
  echo "FAIL $1"; echo "  got:      $2"; echo "  expected: $3"; failures=$((failures + 1))
}
contains() { case $output in *"$1"*) ;; *) expect "output" "$output" "...$1..." ;; esac; }

# Nothing missing: apt is not touched.
reset; run
expect "complete: status" "$status" 0
expect "complete: apt calls" "$(cat "$work/log")" ""
expect "complete: output" "$output" "setup: all $(echo "$all" | wc -l) packages are installed"

# Two missing, known to apt: one install without an update; a second run does nothing.
reset; remove installed ccache g++; run
expect "missing: status" "$status" 0
expect "missing: apt calls" "$(cat "$work/log")" "-q install -y --no-install-recommends g++ ccache"
contains "setup: missing: g++ ccache"
run
expect "missing: second run" "$output" "setup: all $(echo "$all" | wc -l) packages are installed"

# Empty package lists: update first.
reset; remove installed llvm-19-dev; remove known llvm-19-dev; echo llvm-19-dev >"$work/update_adds"; run
expect "lists: status" "$status" 0
expect "lists: apt calls" "$(paste -sd';' "$work/log")" \
  "-q update;-q install -y --no-install-recommends llvm-19-dev"

# Unknown even after an update: says which, and what to do.
reset; remove installed llvm-19-dev; remove known llvm-19-dev; run
expect "unknown: status" "$status" 1
expect "unknown: apt calls" "$(cat "$work/log")" "-q update"
contains "apt knows no package: llvm-19-dev."
contains "https://apt.llvm.org"

# A stale list makes the first install fail: update, install again.
reset; remove installed ccache; touch "$work/stale"; run
expect "stale: status" "$status" 0
expect "stale: apt calls" "$(wc -l <"$work/log")" 3

# Not root, no sudo: the one command, status 1, nothing done.
reset; echo 1000 >"$work/uid"; remove installed ccache; run
expect "no root: status" "$status" 1
expect "no root: apt calls" "$(cat "$work/log")" ""
contains "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ccache"

# Not root, sudo without a password.
reset; echo 1000 >"$work/uid"; touch "$work/sudo_works"; remove installed ccache; run
expect "sudo: status" "$status" 0
expect "sudo: apt calls" "$(cat "$work/log")" "-q install -y --no-install-recommends ccache"

# Dry run and bad arguments.
reset; remove installed ccache; run --dry-run
expect "dry: status" "$status" 0
expect "dry: apt calls" "$(cat "$work/log")" ""
contains "setup: apt-get install -y --no-install-recommends ccache"
# What nightly tests need: where it is asked for, and as far as apt has it and root installs it.
reset; echo qemu-user >"$work/update_adds"; run --nightly
expect "nightly: status" "$status" 0
expect "nightly: apt calls" "$(paste -sd';' "$work/log")" \
  "-q update;-q install -y --no-install-recommends qemu-user"
contains "setup: apt has no g++-aarch64-linux-gnu; nightly tests that need it are skipped"
reset; run --nightly
expect "nightly, unknown: status" "$status" 0
expect "nightly, unknown: apt calls" "$(cat "$work/log")" "-q update"
reset; echo qemu-user >>"$work/known"; touch "$work/broken"; run --nightly
expect "nightly, apt fails: status" "$status" 0
contains "setup: apt-get failed: no qemu-user; nightly tests that need it are skipped"
reset; echo 1000 >"$work/uid"; run --nightly
expect "nightly, no root: status" "$status" 0
contains "setup: not root: no qemu-user; nightly tests that need it are skipped"

run --frob
expect "argument: status" "$status" 2
contains "unknown argument '--frob'"

[ $failures = 0 ] && echo "setup_test: all checks passed"
exit $((failures > 0))
