# SPDX-License-Identifier: Apache-2.0
"""Who may include whom, read from the #include lines. No cycles between headers, no list of exceptions."""
import re

import source

# folder -> what its files may include, as path prefixes; the longest matching folder decides.
LOWER = ("ir/", "codegen/", "runtime/", "autotune/", "frontend/")
ALLOWED = {
    "ir/base": ("ir/base/",),
    "ir": ("ir/",),
    "codegen": ("ir/", "codegen/"),
    "runtime": ("ir/base/", "ir/plan.h", "ir/kernel_image.h", "ir/sim_abi.h", "runtime/"),
    "autotune": ("ir/", "codegen/", "runtime/", "autotune/"),
    "frontend": LOWER,
    "cli": LOWER + ("cli/",),
    "examples": ("frontend/", "examples/"),
    "benchmarks": LOWER + ("benchmarks/",),
}
# Foreign header -> (folders whose .cpp files may include it, folders whose headers may).
FOREIGN = [
    (r"(llvm|clang|lld)(-c)?/", ("codegen/clang",), ()),
    (r"nlohmann/json_fwd\.hpp", ("cli", "benchmarks"), ("cli", "benchmarks")),
    (r"nlohmann/", ("ir", "codegen", "runtime", "autotune", "frontend", "cli", "examples", "benchmarks"), ()),
    (r"CLI/", ("cli", "examples", "benchmarks"), ()),
    (r"benchmark/", ("benchmarks",), ()),
    (r"spdlog/", ("ir/base",), ()),
    (r"xxhash\.h", ("ir/base",), ()),
    (r"(blis|cblas)\.h", ("runtime", "benchmarks"), ()),
    (r"(cuda|cuda_runtime|nvrtc|cublasLt|nccl)\.h", ("runtime", "codegen"), ()),
    (r"gloo/", ("runtime",), ()),
    (r"grpc(pp)?/", ("runtime/rpc",), ("runtime/rpc",)),
    (r"(arpa|net|netinet)/", ("runtime",), ()),
    (r"utf8proc\.h", ("examples",), ()),
    (r"zlib\.h", ("frontend",), ()),
    (r"zstd\.h", ("ir/base", "runtime", "codegen", "frontend"), ()),
    (r"fmt/", LOWER + ("cli", "examples", "benchmarks"), LOWER + ("cli", "examples", "benchmarks")),
]


def inside(path, folders):
    return any(path.startswith(f.rstrip("/") + "/") for f in folders)


def layer_of(path):
    return max((f for f in ALLOWED if path.startswith(f + "/")), key=len)


def check_foreign(path, line, name):
    for pattern, in_cpp, in_header in FOREIGN:
        if re.match(pattern, name):
            if not inside(path, in_header if path.endswith(".h") else in_cpp):
                return [f"{path}:{line}: <{name}> may not be included here"]
            return []
    if "/" in name and not name.startswith("sys/"):
        return [f"{path}:{line}: <{name}> is in no row of FOREIGN in layers.py"]
    return []


def find_cycle(graph):
    """The first cycle of the include graph as a list of paths, or None."""
    done, trail = set(), []

    def visit(node):
        if node in trail:
            return trail[trail.index(node):] + [node]
        if node in done:
            return None
        trail.append(node)
        for follower in graph.get(node, ()):
            cycle = visit(follower)
            if cycle:
                return cycle
        trail.pop()
        done.add(node)
        return None

    for start in sorted(graph):
        cycle = visit(start)
        if cycle:
            return cycle
    return None


def check(root):
    faults, graph = [], {}
    for path in source.files(root, source.SOURCE_DIRS, (".h", ".cpp")):
        if "/prelude/" in path:  # text of generated kernels, not part of the library
            continue
        text, layer = source.read(root, path), layer_of(path)
        for match in source.INCLUDE.finditer(text):
            quote, name = match.groups()
            line = text.count("\n", 0, match.start()) + 1
            if quote == "<":
                faults += check_foreign(path, line, name)
                continue
            graph.setdefault(path, []).append(name)
            if "/" not in name:
                faults.append(f'{path}:{line}: "{name}" is not relative to the root')
            elif not name.startswith(ALLOWED[layer]):
                faults.append(f'{path}:{line}: {layer} may not include "{name}"')
    cycle = find_cycle(graph)
    if cycle:
        faults.append("include cycle: " + " -> ".join(cycle))
    return faults


if __name__ == "__main__":
    source.main(check)
