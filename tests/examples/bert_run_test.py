# SPDX-License-Identifier: Apache-2.0
"""Runs the BERT example on the real weights and fortunes: it must beat the comparison clearly.
Argument: the program. Skips (77) where examples/bert/setup.sh has not brought the weights."""

import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main():
    if not os.path.isdir(os.path.join(ROOT, "data", "minilm")):
        print("skipped: no data/minilm (examples/bert/setup.sh brings it)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        figures = os.path.join(folder, "figures.json")
        subprocess.run([os.path.abspath(sys.argv[1]), "--json", figures], cwd=ROOT, check=True,
                       env=dict(os.environ, KILN_CACHE_DIR=os.path.join(folder, "cache")))
        with open(figures) as f:
            got = json.load(f)
    print(got)
    assert got["losses"] == sorted(got["losses"], reverse=True), "the loss does not fall"
    assert got["bag_of_words"] > 0.45, "the comparison is worse than it should be"
    assert got["accuracies"][-1] > got["bag_of_words"] + 0.15, "no better than words alone"
    return 0


if __name__ == "__main__":
    sys.exit(main())
