# SPDX-License-Identifier: Apache-2.0
"""Makes the files beside it, which numpy wrote (2.4.6)."""
import os

import numpy as np

FOLDER = os.path.dirname(os.path.abspath(__file__))
ARRAYS = {}
for descr in "|b1 |i1 <i2 >i2 <i4 >i4 <i8 >i8 |u1 <u2 >u2 <u4 >u4 <u8 >u8 <f2 >f2 <f4 >f4 <f8 >f8".split():
    dtype = np.dtype(descr)
    values = [0, 1, 2, 3, 5, 100]
    if dtype.kind in "if":
        values[1] = -1
    if dtype.kind == "f":
        values[2] = 0.5
    array = np.array(values).astype(dtype).reshape(2, 3)
    ARRAYS[f"{descr}".replace("|", "").replace("<", "little ").replace(">", "big ")] = array
ARRAYS["fortran"] = np.asfortranarray(np.arange(24, dtype=np.float32).reshape(2, 3, 4))
ARRAYS["empty"] = np.zeros((0, 3), np.float32)
ARRAYS["scalar"] = np.array(7.5)
ARRAYS["vector"] = np.arange(5)
ARRAYS["ends"] = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max])
ARRAYS["special"] = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)

np.savez(os.path.join(FOLDER, "stored.npz"), **ARRAYS)
np.savez_compressed(os.path.join(FOLDER, "deflated.npz"), long=np.arange(30000) // 7, **ARRAYS)
for version in 1, 2, 3:
    with open(os.path.join(FOLDER, f"version{version}.npy"), "wb") as f:
        np.lib.format.write_array(f, np.arange(6, dtype=np.int32).reshape(2, 3), version=(version, 0))
np.save(os.path.join(FOLDER, "complex.npy"), np.zeros(2, np.complex64))
np.save(os.path.join(FOLDER, "record.npy"), np.zeros(2, [("a", "<f4"), ("b", "<i8")]))
np.save(os.path.join(FOLDER, "object.npy"), np.array([None, "x"], object), allow_pickle=True)
np.save(os.path.join(FOLDER, "beyond.npy"), np.array([1, 2**63], np.uint64))
