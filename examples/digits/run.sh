#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [arguments of the example]: sets the machine up, fetches scikit-learn's handwritten digits, builds
# the example and trains a small convolutional net on them.
# Further arguments go to the program as they are: examples/digits/run.sh --help lists them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

scripts/setup.sh
examples/digits/setup.sh
build=build/release
mkdir -p "$build"
cmake --preset release >"$build/configure.log" 2>&1 ||
  { cat "$build/configure.log" >&2; echo "digits: configuring failed" >&2; exit 1; }
cmake --build "$build" -j "$(nproc)" --target digits
exec "$build/bin/digits" "$@"
