# SPDX-License-Identifier: Apache-2.0
"""NVRTC compiles every CUDA kernel of the golden suites and of the fuzzer for three architectures.

The programs of the suites are recorded by runs on the CPU: they are those that a GPU is given.
Usage: nvrtc_test.py PROGRAMS each|shared: as of nvrtc_kernels. Kernels that spill registers are listed. With
`shared`, of the longer suites some cases.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

ARCHS = ("sm_80", "sm_90a", "sm_100a")
# `shared`: of models.json those that the simulated GPU runs, too.
SUITES = [[f"golden.{family}_golden_test", *case] for family, *case in (
    ("ops",), ("optim",), ("models", "=mlp"), ("models", "=gpt-tiny"), ("ddp",),
    ("ops_bf16", "matmul"), ("ops_bf16", "softmax"), ("ops_bf16", "norm"),
    ("ops_gradient", "matmul"), ("ops_gradient", "softmax"))]
# `each`: all of them, and what cuts a forward.
ALL_SUITES = [[f"golden.{family}_golden_test"] for family in (
    "ops", "optim", "models", "models_ranks", "ddp", "ops_bf16", "ops_gradient")]
ALL_SUITES.append(["tests.golden.more", "golden/split_golden_test"])


def record(programs, folder, suites):
    """The jobs of the suites, which run at once."""
    runs = []
    for i, (program, *arguments) in enumerate(suites):
        job = folder / f"{i}.job"
        env = dict(os.environ, KILN_RECORD=str(job))
        runs.append((job, subprocess.Popen([programs / program, *arguments], env=env,
                                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)))
    outputs = [process.communicate()[0] for _, process in runs]
    for (_, process), output in zip(runs, outputs):
        if process.returncode != 0 or "KILN_RECORD" in output:
            sys.exit(f"{process.args} failed:\n{output}")
    return [job for job, _ in runs]


def main():
    programs, mode = pathlib.Path(sys.argv[1]), sys.argv[2]
    with tempfile.TemporaryDirectory() as name:
        jobs = record(programs, pathlib.Path(name), ALL_SUITES if mode == "each" else SUITES)
        return subprocess.run([programs / "nvrtc_kernels", mode, ",".join(ARCHS), *jobs],
                              check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
