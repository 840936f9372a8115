# SPDX-License-Identifier: Apache-2.0
"""A header includes, itself or by what it includes of ours, the standard header of each std:: name it uses.

That it includes what it uses of ours is compiled (tests/headers.cmake), with the standard headers given.
"""
import re

import source

DIRS = ("ir", "codegen", "runtime", "autotune", "frontend")
# Standard header -> what it is included for.
NAMES = {
    "algorithm": "max min find",
    "any": "any any_cast",
    "array": "array",
    "atomic": "atomic memory_order_relaxed memory_order_acquire",
    "bit": "bit_cast",
    "charconv": "from_chars to_chars",
    "chrono": "chrono",
    "cmath": "sqrt lgamma",
    "concepts": "integral same_as",
    "condition_variable": "condition_variable",
    "cstddef": "byte",
    "cstring": "strerror",
    "deque": "deque",
    "exception": "exception exception_ptr",
    "functional": "function less",
    "initializer_list": "initializer_list",
    "iterator": "default_sentinel_t",
    "limits": "numeric_limits",
    "map": "map multimap",
    "memory": "shared_ptr unique_ptr weak_ptr enable_shared_from_this make_shared make_unique",
    "mutex": "mutex lock_guard unique_lock",
    "new": "bad_alloc",
    "optional": "optional nullopt",
    "ostream": "ostream basic_ostream",
    "set": "set",
    "source_location": "source_location",
    "span": "span",
    "stdexcept": "runtime_error",
    "string": "string to_string",
    "string_view": "string_view",
    "system_error": "errc",
    "thread": "thread this_thread",
    "tuple": "tuple tie apply",
    "type_traits": "is_same_v is_integral_v is_void_v is_invocable_v is_copy_constructible_v is_arithmetic_v "
                   "decay_t conditional_t remove_reference_t remove_cv_t type_identity_t invoke_result_t "
                   "is_lvalue_reference_v is_base_of_v is_union_v is_signed_v is_floating_point_v is_enum_v "
                   "is_empty_v is_const_v is_array_v is_aggregate_v",
    "unordered_map": "unordered_map",
    "utility": "exchange move forward pair get swap as_const declval index_sequence make_index_sequence",
    "variant": "variant visit get_if",
    "vector": "vector",
}
# What the standard says that a header includes or declares, too, of what is asked for above.
ALSO = {
    "array": "initializer_list utility", "chrono": "limits", "deque": "initializer_list",
    "functional": "utility", "iosfwd": "ostream", "map": "initializer_list utility", "memory": "utility",
    "mutex": "utility", "optional": "utility", "set": "initializer_list utility", "span": "array utility",
    "string": "initializer_list string_view utility", "string_view": "utility", "tuple": "utility",
    "unordered_map": "initializer_list utility", "variant": "utility", "vector": "initializer_list utility",
    "charconv": "system_error", "stdexcept": "exception string", "condition_variable": "mutex",
    "fmt/format.h": "string string_view", "concepts": "type_traits", "exception": "utility",
    "thread": "utility", "atomic": "utility", "any": "utility",
}
HEADER_OF = {name: header for header, names in NAMES.items() for name in names.split()}


def reached(path, texts, seen):
    """Standard headers that `path` includes, itself or through others of `texts`."""
    if path in seen or path not in texts:
        return set()
    seen.add(path)
    found = set()
    for quote, name in source.INCLUDE.findall(texts[path]):
        found |= {name, *ALSO.get(name, "").split()} if quote == "<" else reached(name, texts, seen)
    return found


def check(root):
    texts = {p: source.read(root, p) for p in source.files(root, DIRS, (".h",))}
    faults = []
    for path, text in texts.items():
        if re.search(r"/(prelude|clang|rpc)/", path):
            continue
        has = reached(path, texts, set())
        code = source.strip_directives(source.strip(text))
        for name in sorted(set(re.findall(r"\bstd::(\w+)", code))):
            header = HEADER_OF.get(name)
            if not header:
                faults.append(f"{path}: std::{name} is in no line of NAMES in tests/lint/includes.py")
            elif header not in has:
                faults.append(f"{path}: std::{name} needs #include <{header}>")
    return faults


if __name__ == "__main__":
    source.main(check)
