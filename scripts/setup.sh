#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# setup.sh [--nightly] [--dry-run]: installs the Debian 12 packages that Kiln is built, tested and tried with.
# With --nightly also those that only nightly tests need, as far as apt has them.
# Asks dpkg first; runs apt only when something is missing. Changes nothing else on the machine.
set -euo pipefail

packages=(
  g++ cmake ninja-build pkg-config ccache python3 python3-pip
  llvm-19-dev libclang-19-dev libclang-cpp19-dev liblld-19-dev zlib1g-dev libzstd-dev
  libblis-openmp-dev libgloo-dev libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler
  nlohmann-json3-dev libcli11-dev libfmt-dev libspdlog-dev libxxhash-dev libutf8proc-dev
  libgtest-dev libgmock-dev libbenchmark-dev openmpi-bin
  fortune-mod fortunes
)
nightly_packages=(g++-aarch64-linux-gnu qemu-user)

say() { echo "setup: $*"; }
fail() { echo "setup: $*" >&2; exit 1; }

dry_run=0 nightly=0
for arg in "$@"; do
  case $arg in
    --dry-run) dry_run=1 ;;
    --nightly) nightly=1 ;;
    -h|--help) sed -n '3,5s/^# //p' "$0"; exit 0 ;;
    *) echo "setup: unknown argument '$arg'; known: --nightly, --dry-run, --help" >&2; exit 2 ;;
  esac
done

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
# A package that apt can install; unknown ones print no candidate, or "(none)". No pipe into grep -q: it stops
# reading at the match, and pipefail then counts apt-cache's broken pipe as "unknown".
known() { [[ $(apt-cache policy "$1" 2>/dev/null) =~ Candidate:\ [^\(] ]]; }
unknown_of() { for p in "$@"; do known "$p" || echo "$p"; done; }

command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
  fail "this is not a Debian system (no dpkg-query or apt-get);" \
    "install by hand what these Debian 12 packages hold: ${packages[*]}"

[ $nightly = 0 ] || packages+=("${nightly_packages[@]}")
# Leaves those of `missing` out that can be done without and that "$1" says no to; there may be nothing left.
leave_out() { # TEST WHY
  local p kept=()
  for p in "${missing[@]}"; do
    if [[ " ${nightly_packages[*]} " == *" $p "* ]] && ! $1 "$p"; then
      say "$2 $p; nightly tests that need it are skipped"
    else
      kept+=("$p")
    fi
  done
  missing=("${kept[@]}")
  [ ${#missing[@]} -gt 0 ] || exit 0
}
leave_out_and() { leave_out false "apt-get failed: no"; "$@"; }

missing=()
for p in "${packages[@]}"; do installed "$p" || missing+=("$p"); done
if [ ${#missing[@]} -eq 0 ]; then
  say "all ${#packages[@]} packages are installed"
  exit 0
fi
say "missing: ${missing[*]}"

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root=(sudo -n)
  else
    leave_out false "not root: no"
    say "not root, and sudo needs a password; run this, then try again:" >&2
    echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
fi
apt() {
  say "apt-get $*"
  [ $dry_run = 1 ] || "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q "$@"
}

updated=0
update() {
  apt update ||
    leave_out_and fail "apt-get update failed; is there a network, and is /etc/apt/sources.list right?"
  updated=1
}

if [ -n "$(unknown_of "${missing[@]}")" ]; then
  update
  leave_out known "apt has no"
  unknown=$(unknown_of "${missing[@]}" | paste -sd' ')
  if [ -n "$unknown" ] && [ $dry_run = 0 ]; then
    fail "apt knows no package: $unknown. Kiln's packages are those of Debian 12 (bookworm), 'main' with" \
      "'bookworm-updates' or 'bookworm-security'. On another release add a repository that has LLVM 19" \
      "(https://apt.llvm.org), or install the same libraries by hand with LLVM under /usr/lib/llvm-19"
  fi
fi
if ! apt install -y --no-install-recommends "${missing[@]}"; then
  # Lists older than the mirror name files that are gone.
  [ $updated = 0 ] || leave_out_and fail "apt-get install failed"
  update
  apt install -y --no-install-recommends "${missing[@]}" || leave_out_and fail "apt-get install failed"
fi
[ $dry_run = 1 ] && { say "dry run: nothing was changed"; exit 0; }

for p in "${missing[@]}"; do installed "$p" || fail "$p is still missing after the installation"; done
say "installed ${#missing[@]} packages"
