# SPDX-License-Identifier: Apache-2.0
"""Limits of size: files 600 lines, headers 300, functions 60, lines 110 columns."""
import source

FILE_LINES, HEADER_LINES, FUNCTION_LINES, COLUMNS = 600, 300, 60, 110
DIRS = source.SOURCE_DIRS + ("tests", "scripts", "cmake")


def check(root):
    faults = []
    for path in source.files(root, DIRS, (".h", ".cpp", ".py", ".sh", ".cmake", "CMakeLists.txt")):
        text = source.read(root, path)
        lines = text.splitlines()
        limit = HEADER_LINES if path.endswith(".h") else FILE_LINES
        if len(lines) > limit:
            faults.append(f"{path}: {len(lines)} lines; limit {limit}")
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS:
                faults.append(f"{path}:{number}: {len(line)} columns; limit {COLUMNS}")
        if path.endswith((".h", ".cpp")):
            scan = source.Scan(text)
            for head, first, last, _ in scan.functions:
                length = scan.line(last) - scan.line(first) + 1
                if length > FUNCTION_LINES:
                    name = " ".join(source.without_parens(head).replace("@", "()").split())
                    faults.append(f"{path}:{scan.line(first)}: {length} lines in {name[-60:]}; "
                                  f"limit {FUNCTION_LINES}")
    return faults


if __name__ == "__main__":
    source.main(check)
