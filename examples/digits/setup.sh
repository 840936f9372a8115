#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# setup.sh: brings scikit-learn's handwritten digits (1797 images of 8 x 8, from its wheel on PyPI, licence
# BSD-3-Clause) to data/digits/digits.csv. Does nothing when the file is there.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
file=$root/data/digits/digits.csv
package=scikit-learn
sum=6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8

[ $# = 0 ] || { sed -n '3,4s/^# //p' "$0"; exit 2; }
fail() { echo "digits: $*" >&2; exit 1; }
whole() {
  [ -f "$1" ] && [ "$(sha256sum <"$1")" = "$sum  -" ]
}

if whole "$file"; then
  echo "digits: the images are in $file"
  exit 0
fi
python3 -m pip --version >/dev/null 2>&1 ||
  fail "python3 has no pip (Debian's package python3-pip; scripts/setup.sh)"
mkdir -p "$(dirname "$file")"
work=$(mktemp -d "$root/data/digits.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
  -d "$work" "$package" ||
  fail "pip cannot download $package; is there a network?"
python3 - "$work" <<'END'
import glob, gzip, os, sys, zipfile
folder = sys.argv[1]
(wheel,) = glob.glob(os.path.join(folder, "*.whl"))
with zipfile.ZipFile(wheel) as z, open(os.path.join(folder, "digits.csv"), "wb") as out:
    out.write(gzip.decompress(z.read("sklearn/datasets/data/digits.csv.gz")))
END
whole "$work/digits.csv" || fail "$package holds other images than expected; nothing was changed"
mv "$work/digits.csv" "$file"
echo "digits: put the images into $file"
