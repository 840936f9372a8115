# SPDX-License-Identifier: Apache-2.0
"""Only ir/base/options.cpp reads the environment; everything else asks the option table."""
import re

import source

HOME = "ir/base/options.cpp"
PATTERN = re.compile(r"\b(secure_getenv|getenv|environ|setenv|putenv|unsetenv)\b")


def check(root):
    faults = []
    for path in source.files(root, source.SOURCE_DIRS, (".h", ".cpp")):
        if path == HOME:
            continue
        for number, line in enumerate(source.strip(source.read(root, path)).splitlines(), 1):
            match = PATTERN.search(line)
            if match:
                faults.append(f"{path}:{number}: {match.group(0)} outside {HOME}")
    return faults


if __name__ == "__main__":
    source.main(check)
