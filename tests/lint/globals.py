# SPDX-License-Identifier: Apache-2.0
"""No mutable state at namespace scope, in static members or function statics; ALLOWED has the exceptions."""
import re

import source

# File -> why it may hold process-wide or thread-wide state. An entry whose file holds none is a fault.
ALLOWED = {
    "codegen/clang/jit.cpp": "LLVM's and lld's own state is process-wide, and so is its lock",
    "examples/gpt/stop.cpp": "what a signal handler can reach",
    "ir/base/options.cpp": "the option table's overrides",
    "ir/base/dump.cpp": "the folder that cannot be written, which is said once",
    "ir/host_memory.cpp": "the free blocks that host tensors share",
    "ir/interpret.cpp": "the functions that the runtime installs",
    "frontend/cursor.cpp": "numbers calls",
    "frontend/eager.cpp": "numbers tape entries",
    "frontend/nn/module.cpp": "numbers hooks",
    "frontend/state.cpp": "the thread's State and the process's Generator",
    "frontend/tensor.cpp": "numbers tensors",
    "runtime/cuda/sim_block.cpp": "the launch that a simulated kernel's calls are for",
    "runtime/cuda/sim_state.cpp": "the simulated CUDA machine, and what is current on a thread",
    "runtime/cuda/cublaslt.cpp": "the table that takes the library's place in tests",
    "runtime/machine.cpp": "limits of the machine, measured once a process",
    "runtime/rpc/library.cpp": "what is open when the process exits",
    "runtime/thread_pool.cpp": "the process's workers, made anew in a forked child",
}
CONSTANT = re.compile(r"\b(constexpr|consteval)\b")
NOT_A_VARIABLE = re.compile(
    r"^(using|typedef|friend|static_assert|template|namespace|extern\s+template)\b")

FORWARD = re.compile(r"^(enum\s+)?(enum|class|struct|union)\s+[\w:]+(\s*:[^=]*)?$")


def is_constant(text):
    """True for `const T x`, `T* const x`, `constexpr T x`; false for `const T* x`, which can be reseated."""
    if CONSTANT.search(text):
        return True
    pointer = text.rfind("*")
    return re.search(r"\bconst\b", text[pointer + 1:] if pointer >= 0 else text) is not None


def declared(text):
    """The declarator part: before the initialiser."""
    return re.split(r"=(?!=)|\{\}", source.without_angles(text), maxsplit=1)[0].strip()


def is_variable(scope, text):
    if text.startswith("class{}"):  # after a class body: "struct {...} x;"
        return scope == "namespace" and text.removeprefix("class{}").strip() != ""
    if NOT_A_VARIABLE.match(text) or FORWARD.match(text):
        return False
    name = declared(text)
    if "(" in name or re.search(r"\boperator\b", name):  # a function; variables are initialised by = or {}
        return False
    if scope == "class":
        return re.search(r"\b(static|thread_local)\b", name) is not None
    return len(name.split()) >= 2


def local_statics(body):
    for match in re.finditer(r"(?<![\w.])(?:static|thread_local)\b(?!_)[^;({=]*", body):
        text = " ".join(match.group(0).split())
        if not is_constant(source.without_angles(text)):
            yield match.start(), text


def mutable_state(scan):
    """(line, text) of each mutable variable with static or thread storage."""
    found = []
    for scope, text, offset in scan.declarations:
        if is_variable(scope, text) and not is_constant(declared(text)):
            found.append((scan.line(offset), text))
    for _, _, end, body in scan.functions:
        for offset, text in local_statics(body):
            found.append((scan.line(end - len(body) + 1 + offset), text))
    return found


def check(root):
    faults, with_state = [], set()
    present = source.files(root, source.SOURCE_DIRS, (".h", ".cpp"))
    for path in present:
        if "/prelude/" in path:
            continue
        for line, text in mutable_state(source.Scan(source.read(root, path))):
            with_state.add(path)
            if path not in ALLOWED:
                faults.append(f"{path}:{line}: mutable state: {text[:70]}")
    for path in ALLOWED:
        if path in present and path not in with_state:
            faults.append(f"{path}: holds no mutable state; drop it from ALLOWED in globals.py")
    return faults


if __name__ == "__main__":
    source.main(check)
