#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpu_bundle.sh [FOLDER]: builds what scripts/gpu_check.sh runs, for a machine that has a GPU but neither
# LLVM nor Kiln's packages: programs without the CPU compiler, stripped, with the libraries they need
# beside them. FOLDER is build/gpu-bundle by default, and stays under 50 MiB.
set -euo pipefail
case ${1:-} in
  -h|--help) sed -n '3,6s/^# //p' "$0"; exit 0 ;;
  -*) echo "gpu_bundle: unknown argument '$1' (--help lists the arguments)" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/.."
bundle=${1:-build/gpu-bundle}
limit_mib=50

cmake --preset gpu >/dev/null
mapfile -t tests < <(sed -E '/^(#|$)/d; s/[A-Z_]+=[^ ]* //g; s/ .*//' tests/gpu_tests.txt | sort -u)
cmake --build build/gpu -j "$(nproc)" --target kiln_cli kiln-bench "${tests[@]}"

rm -rf "$bundle"
mkdir -p "$bundle/bin" "$bundle/lib" "$bundle/tests"
for program in kiln kiln-bench "${tests[@]}"; do
  strip -o "$bundle/bin/$program" "build/gpu/bin/$program"
done
# Whatever is not the C library's comes along.
ldd "$bundle"/bin/* | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
  grep -vE '/(libc|libm|libpthread|libdl|librt|ld-linux[^/]*|libgcc_s)\.so' |
  xargs -I{} cp -L {} "$bundle/lib/"
strip --strip-unneeded "$bundle"/lib/*
cp -r tests/goldens "$bundle/tests/"
cp tests/gpu_tests.txt "$bundle/"
cp -r benchmarks/peers "$bundle/peers"
cp benchmarks/gpu_check.py benchmarks/compare_rows.py "$bundle/"

mib=$(du -sm "$bundle" | cut -f1)
[ "$mib" -le $limit_mib ] || { echo "gpu_bundle: $bundle has $mib MiB; limit $limit_mib" >&2; exit 1; }
echo "gpu_bundle: $bundle, $mib MiB; on a machine with a GPU: scripts/gpu_check.sh $bundle"
