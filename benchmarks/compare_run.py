# SPDX-License-Identifier: Apache-2.0
"""Starts the processes of compare.py: one measurement of one system, and the machine's limits."""

import glob
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field

ALL = ("tiny-mlp", "mlp", "gpt-small", "bert-mini", "convnet", "pointwise", "dlrm")
ADAMW = tuple(w for w in ALL if w not in ("pointwise", "dlrm"))
TIME_LIMIT_S = 900


@dataclass(frozen=True)
class System:
    args: tuple  # of benchmarks/peers/run.py; empty for Kiln
    cold: bool = True  # it compiles, so that a first start differs from later ones
    workloads: tuple = field(default=ALL)


SYSTEMS = {
    "kiln": System(()),
    "torch-eager": System(("--framework", "torch-eager"), cold=False),
    "torch-fused": System(("--framework", "torch-eager", "--opt", "fused"), False, ADAMW),
    "torch-compile": System(("--framework", "torch-compile")),
    "torch-compile-fused": System(
        ("--framework", "torch-compile", "--opt", "fused"), workloads=ADAMW
    ),
    "jax": System(("--framework", "jax")),
    "jax-flat": System(("--framework", "jax", "--flat"), workloads=("gpt-small",)),
    "mlx": System(("--framework", "mlx")),
    "torch-sparse": System(
        ("--framework", "torch-eager", "--dlrm", "sparse"), cold=False, workloads=("dlrm",)
    ),
    "jax-sparse": System(("--framework", "jax", "--dlrm", "sparse"), workloads=("dlrm",)),
}


class Host:
    """This machine: its peers' environment, its caches, its limits."""

    def __init__(self, a):
        self.a = a
        self.here = os.path.dirname(os.path.abspath(__file__))
        self.python = os.path.join(a.venv, "bin", "python")
        if any(s != "kiln" for s in a.systems) and not os.path.exists(self.python):
            raise SystemExit(f"{self.python} is missing; run scripts/peers.sh, or --systems kiln")
        if "kiln" in a.systems and not os.path.exists(a.kiln):
            raise SystemExit(f"{a.kiln} is missing; build it, or name --systems without kiln")
        self.cpu = self._cpu()
        self._versions = {}

    @staticmethod
    def _cpu():
        with open("/proc/cpuinfo") as f:
            names = [line.split(":")[1].strip() for line in f if line.startswith("model name")]
        return f"{names[0] if names else 'unknown CPU'} x{os.cpu_count()}"

    def version(self, system):
        """What a row's rounds belong to: another one makes them stale."""
        if system not in self._versions:
            if system == "kiln":
                with open(self.a.kiln, "rb") as f:
                    self._versions[system] = hashlib.sha256(f.read()).hexdigest()[:16]
            else:
                with open(os.path.join(self.a.venv, "versions.json")) as f:
                    key = SYSTEMS[system].args[1].split("-")[0]
                    self._versions[system] = f"{key} {json.load(f)[key]}"
        return self._versions[system]

    def limits(self):
        """Measured FMA peak and copy bandwidth with this many threads."""
        os.makedirs(self.a.cache, exist_ok=True)
        found = {}
        for name, key in (("fma_peak", "gflops"), ("copy_peak", "gbs")):
            source = os.path.join(self.here, "peers", name + ".c")
            program = os.path.join(self.a.cache, name)
            subprocess.run(["cc", "-O2", "-pthread", source, "-o", program], check=True)
            out = subprocess.run([program, str(self.a.threads)], check=True, capture_output=True)
            found[key] = json.loads(out.stdout)[key]
        return found

    def _command(self, system, workload, cache):
        a, env = self.a, dict(os.environ)
        common = ["--workload", workload, "--threads", str(a.threads), "--secs", str(a.secs)]
        if system == "kiln":
            env["KILN_CACHE_DIR"] = cache
            command = [a.kiln, *common, "--mode", "compiled", "--json"]
            if a.threads == 1:
                command = ["taskset", "-c", str(max(os.sched_getaffinity(0))), *command]
            return command, env
        script = os.path.join(self.here, "peers", "run.py")
        command = [self.python, script, *SYSTEMS[system].args, *common, "--cache", cache]
        if system == "mlx":
            for library in glob.glob("/usr/lib/*/openblas-pthread/libblas.so.3"):
                env["LD_PRELOAD"] = library
            env["OPENBLAS_NUM_THREADS"] = str(a.threads)
            for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
                env.pop(name, None)
        return command, env

    def _run(self, system, workload, cache):
        command, env = self._command(system, workload, os.path.abspath(cache))
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIME_LIMIT_S
        )
        lines = [x for x in done.stdout.decode(errors="replace").splitlines() if x.startswith("{")]
        if done.returncode != 0 or not lines:
            tail = done.stderr.decode(errors="replace")[-2000:]
            raise SystemExit(f"{' '.join(command)}: failed with {done.returncode}\n{tail}")
        return json.loads(lines[-1])

    def measure(self, system, workload, cold):
        """One process. The warm cache is filled by a run of its own, once."""
        if cold:
            fresh = tempfile.mkdtemp(prefix="kiln-cold-")
            try:
                return self._run(system, workload, fresh)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
        version = self.version(system).replace(" ", "-")
        cache = os.path.join(self.a.cache, f"{system}-{version}-{workload}-{self.a.threads}")
        if not os.path.isdir(cache):
            os.makedirs(cache + ".new", exist_ok=True)
            os.rename(cache + ".new", cache)
            self._run(system, workload, cache)
        return self._run(system, workload, cache)
