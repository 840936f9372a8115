#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [arguments of the example]: sets the machine up, fetches the weights of all-MiniLM-L6-v2, builds the
# BERT example and fine-tunes it to tell eight files of Debian's fortunes apart.
# Further arguments go to the program as they are: examples/bert/run.sh --help lists them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

scripts/setup.sh
examples/bert/setup.sh
build=build/release
mkdir -p "$build"
cmake --preset release >"$build/configure.log" 2>&1 ||
  { cat "$build/configure.log" >&2; echo "bert: configuring failed" >&2; exit 1; }
cmake --build "$build" -j "$(nproc)" --target bert
exec "$build/bin/bert" "$@"
