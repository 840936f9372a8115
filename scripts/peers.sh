#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the Python environment that benchmarks/compare.py measures Kiln against: PyTorch, JAX and
# MLX for the CPU. Safe to run again: it installs only what is missing.
#   scripts/peers.sh [FOLDER]      default: .venv-peers beside this repository's README
set -euo pipefail
case ${1:-} in
  -h|--help) sed -n '3,5s/^# //p' "$0"; exit 0 ;;
  -*) echo "peers: unknown argument '$1' (--help lists the arguments)" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/.."
venv=${1:-.venv-peers}
packages=(torch "jax[cpu]" "mlx[cpu]" numpy setuptools)

if [ ! -x "$venv/bin/python" ]; then
  echo "peers: making $venv"
  if ! python3 -m venv "$venv"; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
      echo "peers: installing python3-venv"
      apt-get install -y -q python3-venv
      python3 -m venv --clear "$venv"
    else
      echo "peers: python3 -m venv failed; install the package python3-venv, then run this again" >&2
      exit 1
    fi
  fi
fi

# MLX's wheel brings a reference BLAS; the comparison runs it on OpenBLAS, which is much faster.
blas=$(ls /usr/lib/*/openblas-pthread/libblas.so.3 2>/dev/null | head -1 || true)
if [ -z "$blas" ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "peers: installing libopenblas0-pthread (for MLX)"
    apt-get install -y -q libopenblas0-pthread >/dev/null ||
      echo "peers: not installed; MLX runs on its own BLAS"
  else
    echo "peers: libopenblas0-pthread is missing; MLX runs on its own, slow BLAS"
  fi
fi

check='import torch, jax, mlx.core, numpy'
if "$venv/bin/python" -c "$check" 2>/dev/null; then
  echo "peers: all packages are there"
else
  echo "peers: installing ${packages[*]} (some GB; this takes minutes)"
  nice -n 10 "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "${packages[@]}"
  "$venv/bin/python" -c "$check"
fi

"$venv/bin/python" - "$venv/versions.json" <<'PY'
import importlib.metadata as meta, json, platform, sys
versions = {"python": platform.python_version()}
versions |= {name: meta.version(name) for name in ("torch", "jax", "mlx", "numpy")}
json.dump(versions, open(sys.argv[1], "w"), indent=1)
print("peers:", " ".join(f"{k} {v}" for k, v in versions.items()))
PY
