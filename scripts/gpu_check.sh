#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpu_check.sh [FOLDER [ARGUMENTS]]: on a machine with a GPU, CUDA 13's NVRTC and PyTorch, runs the CUDA
# tests and trains the workloads against PyTorch, in under 6 minutes and without a network. FOLDER is what
# scripts/gpu_bundle.sh made (build/gpu-bundle by default); benchmarks/gpu_check.py --help has the ARGUMENTS.
# Prints a table; the numbers are in gpu_check.json of --out.
set -euo pipefail
case ${1:-} in
  -h|--help) sed -n '3,7s/^# //p' "$0"; exit 0 ;;
esac
cd "$(dirname "$0")/.."
bundle=${1:-build/gpu-bundle}
[ -f "$bundle/gpu_check.py" ] ||
  { echo "gpu_check: no bundle in $bundle; make one: scripts/gpu_bundle.sh" >&2; exit 2; }
shift || true
exec python3 -B "$bundle/gpu_check.py" "$@"
