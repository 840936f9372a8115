#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the polynomials of codegen/prelude/cpu_math_*.h, each with its error before and after rounding.

Needs mpmath. Method: weighted least squares on Chebyshev nodes; Lawson's iteration (C. Lawson, 1961)
reweights the nodes by their error, which tends to the minimax polynomial. Coefficients are rounded to the
target precision from the lowest power up, the others fitted again each time.
Usage: fit_prelude.py [NAME ...]
"""
import sys

import mpmath as m
from mpmath import mpf

m.mp.dps = 70
F32, F64 = 24, 53


def rounded(x, bits):
    if x == 0:
        return x
    mantissa, exponent = m.frexp(x)
    return m.ldexp(m.nint(m.ldexp(mantissa, bits)), exponent - bits)


def least_squares(xs, values, weights, powers):
    n = len(powers)
    a, b = m.matrix(n, n), m.matrix(n, 1)
    for x, value, weight in zip(xs, values, weights):
        terms = [x**p for p in powers]
        for j in range(n):
            b[j] += weight * terms[j] * value
            for k in range(n):
                a[j, k] += weight * terms[j] * terms[k]
    return list(m.lu_solve(a, b))


def lawson(xs, values, weights, powers, rounds):
    share, best = [mpf(1)] * len(xs), None
    for _ in range(rounds):
        c = least_squares(xs, values, [s * w * w for s, w in zip(share, weights)], powers)
        errors = [abs(sum(ci * x**p for ci, p in zip(c, powers)) - v) * w
                  for x, v, w in zip(xs, values, weights)]
        if best is None or max(errors) < best[1]:
            best = c, max(errors)
        share = [s * (e / max(errors)) + mpf(10)**-12 for s, e in zip(share, errors)]
        share = [s * len(share) / sum(share) for s in share]
    return best


def fit(f, weight, terms, low, high, bits, count):
    """Coefficients of x^0 .. x^(terms-1); the largest |polynomial - f| * weight before and after rounding."""
    middle, half = (high + low) / 2, (high - low) / 2
    xs = [middle - half * m.cos(m.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    values, weights = [f(x) for x in xs], [weight(x) for x in xs]
    done, first = [], None
    while len(done) < terms:
        left = [v - sum(c * x**p for p, c in enumerate(done)) for x, v in zip(xs, values)]
        c, worst = lawson(xs, left, weights, range(len(done), terms), 3 if done else 6)
        first = first or worst
        done.append(rounded(c[0], bits))
    grid = [low + (high - low) * (i + mpf("0.37")) / 500 for i in range(500)]
    return done, first, max(abs(sum(c * x**p for p, c in enumerate(done)) - f(x)) * weight(x) for x in grid)


# f of z = x^2: the tail of an odd function after its first term, relative to the whole.
def odd_tail(f):
    root = m.sqrt
    return (lambda z: (f(root(z)) / root(z) - 1) / z), (lambda z: z * root(z) / f(root(z)))


LN2_HALF = m.log(2) / 2
WIDE, NARROW = LN2_HALF * mpf("1.005"), LN2_HALF * mpf("1.001")  # f32, f64: the reduction may pass the half
LOW, HIGH = m.sqrt(mpf(1) / 2) - 1, m.sqrt(mpf(2)) - 1  # of f in log(1 + f)
QUARTER = (m.pi / 4 * mpf("1.001"))**2
TINY = mpf(10)**-6


def exp_q(r):
    return (m.expm1(r) - r) / r**2


def log_q(base):
    c = 1 / m.log(mpf(base))
    return (lambda f: (m.log1p(f) - f) * c / f**2), (lambda f: f * f / (m.log1p(f) * c))


def erfc_p(v):
    x = 2 / v - 2
    return m.log(m.erfc(x)) + x * x - m.log(v)


SIN, TAN, ASIN, ATAN = (odd_tail(f) for f in (m.sin, m.tan, m.asin, m.atan))
COS = (lambda z: (m.cos(m.sqrt(z)) - 1 + z / 2) / z**2), (lambda z: z * z / m.cos(m.sqrt(z)))
EXP2 = (lambda r: (mpf(2)**r - 1) / r), (lambda r: r * mpf(2)**-r)
ERF = (lambda z: m.erf(m.sqrt(z)) / m.sqrt(z) - 1), (lambda z: m.sqrt(z) / m.erf(m.sqrt(z)))
LOG_ERFC = (lambda t: m.log(m.erfc(t))), (lambda t: m.erfc(t) / m.erf(t))

# name: (function, weight), terms, from, to, bits
TABLES = {
    "exp_f32": ((exp_q, lambda r: r * r * m.exp(-r)), 5, -WIDE, WIDE, F32),
    "expm1_f32": ((exp_q, lambda r: r * r / m.expm1(r)), 6, -WIDE, WIDE, F32),
    "exp2_f32": (EXP2, 7, mpf("-0.5005"), mpf("0.5005"), F32),
    "log1p_tail_f32": ((lambda f: (m.log1p(f) - f + f * f / 2) / f**3, lambda f: f**3 / m.log1p(f)),
                       9, LOW, HIGH, F32),
    "log2_f32": (log_q(2), 10, LOW, HIGH, F32),
    "log10_f32": (log_q(10), 10, LOW, HIGH, F32),
    "erf_near_f32": (ERF, 7, mpf(10)**-8, mpf(1), F32),
    "erf_far_f32": (LOG_ERFC, 7, mpf("0.999"), mpf(4), F32),
    "sin_f32": (SIN, 4, TINY, QUARTER, F32),
    "cos_f32": (COS, 3, TINY, QUARTER, F32),
    "tan_f32": (TAN, 7, TINY, QUARTER, F32),
    "asin_f32": (ASIN, 8, TINY, mpf("0.25"), F64),
    "atan_f32": (ATAN, 12, TINY, mpf(1), F64),
    "erfc_f32": ((erfc_p, lambda v: mpf(1)), 13, 2 / mpf("12.2"), mpf(1), F64),
    "exp_f64": ((exp_q, lambda r: r * r * m.exp(-r)), 11, -NARROW, NARROW, F64),
    "expm1_f64": ((exp_q, lambda r: r * r / m.expm1(r)), 11, -NARROW, NARROW, F64),
    "exp2_f64": (EXP2, 12, mpf("-0.50001"), mpf("0.50001"), F64),
    "log_f64": ((lambda z: (2 * m.atanh(m.sqrt(z)) / m.sqrt(z) - 2) / z, lambda z: z / 2),
                7, mpf(10)**-12, ((m.sqrt(2) - 1) / (m.sqrt(2) + 1))**2, F64),
    "erf_near_f64": (ERF, 13, mpf(10)**-16, mpf(1), F64),
    "erf_far_f64": (LOG_ERFC, 20, mpf("0.9999"), mpf(6), F64),
    "sin_f64": (SIN, 7, mpf(10)**-10, QUARTER, F64),
    "cos_f64": (COS, 7, mpf(10)**-10, QUARTER, F64),
}
# Where it is not 6 * terms + 10.
NODES = {"erfc_f32": 80, "erf_far_f64": 100} | {
    name: 60 for name in ("exp_f64", "expm1_f64", "exp2_f64", "log_f64", "erf_near_f64", "sin_f64",
                          "cos_f64")}


def main(names):
    for name in names or TABLES:
        (f, weight), terms, low, high, bits = TABLES[name]
        nodes = NODES.get(name, 6 * terms + 10)
        c, fitted, after = fit(f, weight, terms, low, high, bits, nodes)
        print(f"{name} on [{float(low):.6g}, {float(high):.6g}]: fitted 2^{float(m.log(fitted, 2)):.1f}, "
              f"rounded 2^{float(m.log(after, 2)):.1f}")
        print("   " + ", ".join(float(x).hex() for x in c), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
