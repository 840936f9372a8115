#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# train.sh [arguments of the example]: sets the machine up, builds the GPT example and trains it on real text.
# Further arguments go to the program as they are: scripts/train.sh --help lists them.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$root/scripts/setup.sh"
build=$root/build/release
mkdir -p "$build"
cmake -S "$root" --preset release >"$build/configure.log" 2>&1 ||
  { cat "$build/configure.log" >&2; echo "train: configuring failed" >&2; exit 1; }
cmake --build "$build" -j "$(nproc)" --target gpt
exec "$build/bin/gpt" "$@"
