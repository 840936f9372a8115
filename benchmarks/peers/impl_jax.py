# SPDX-License-Identifier: Apache-2.0
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
import common as C

# Variant: 2-D matmuls for the linears, explicit (B*H,T,d) batched matmuls for attention.
FLAT = False


def xent(lg, y):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(lg, -1), y[:, None], 1))


def lnorm(x, g, b, eps=1e-5):
    mu = x.mean(-1, keepdims=True)
    v = ((x - mu) ** 2).mean(-1, keepdims=True)
    return (x - mu) * lax.rsqrt(v + eps) * g + b


def mm(x, w):
    return (x.reshape(-1, x.shape[-1]) @ w).reshape(x.shape[:-1] + (w.shape[1],)) if FLAT else x @ w


def attn(q, k, v, H, causal):
    B, T, D = q.shape
    if FLAT:
        f = lambda t: t.reshape(B, T, H, D // H).transpose(0, 2, 1, 3).reshape(B * H, T, D // H)
        s = jnp.matmul(f(q), f(k).transpose(0, 2, 1)) * (D // H) ** -0.5
        if causal:
            s = jnp.where(jnp.tril(jnp.ones((T, T), bool)), s, -jnp.inf)
        return (
            jnp.matmul(jax.nn.softmax(s, -1), f(v))
            .reshape(B, H, T, D // H)
            .transpose(0, 2, 1, 3)
            .reshape(B, T, D)
        )
    f = lambda t: t.reshape(B, T, H, D // H)
    s = jnp.einsum("bthd,bshd->bhts", f(q), f(k)) * (D // H) ** -0.5
    if causal:
        s = jnp.where(jnp.tril(jnp.ones((T, T), bool)), s, -jnp.inf)
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(s, -1), f(v)).reshape(B, T, D)


def gelu_t(x):
    return jax.nn.gelu(x, approximate=True)


def gelu_e(x):
    return jax.nn.gelu(x, approximate=False)


def mlp(p, x):
    h = gelu_e(x["x"] @ p["w0"] + p["b0"])
    h = gelu_e(h @ p["w1"] + p["b1"])
    return xent(h @ p["w2"] + p["b2"], x["y"])


def gpt(p, x):
    h = p["wte"][x["x"]] + p["wpe"][: x["x"].shape[1]]
    for l in range(C.GPTS["gpt-small"]["L"]):
        k = f"h{l}."
        q, kk, v = jnp.split(
            mm(lnorm(h, p[k + "ln1.g"], p[k + "ln1.b"]), p[k + "qkv.w"]) + p[k + "qkv.b"], 3, -1
        )
        h = h + mm(attn(q, kk, v, C.GPTS["gpt-small"]["D"] // 64, True), p[k + "proj.w"]) + p[k + "proj.b"]
        h = (
            h
            + mm(
                gelu_t(mm(lnorm(h, p[k + "ln2.g"], p[k + "ln2.b"]), p[k + "fc.w"]) + p[k + "fc.b"]),
                p[k + "fc2.w"],
            )
            + p[k + "fc2.b"]
        )
    lg = lnorm(h, p["lnf.g"], p["lnf.b"]) @ p["head.w"]
    return xent(lg.reshape(-1, lg.shape[-1]), x["y"].reshape(-1))


def bert(p, x):
    h = lnorm(
        p["word"][x["x"]] + p["pos"][: x["x"].shape[1]] + p["type"][x["t"]],
        p["lne.g"],
        p["lne.b"],
        1e-12,
    )
    for l in range(C.BERT["L"]):
        k = f"h{l}."
        L = lambda n, z: mm(z, p[k + n + ".w"]) + p[k + n + ".b"]
        h = lnorm(
            h + L("o", attn(L("q", h), L("k", h), L("v", h), C.BERT["H"], False)),
            p[k + "ln1.g"],
            p[k + "ln1.b"],
            1e-12,
        )
        h = lnorm(h + L("fc2", gelu_e(L("fc", h))), p[k + "ln2.g"], p[k + "ln2.b"], 1e-12)
    return xent(h.mean(1) @ p["cls.w"] + p["cls.b"], x["y"])


def conv(p, x, bn):  # NHWC / HWIO
    h = x["x"]
    nb = {}
    for i, (a, b, s) in enumerate(C.CONV):
        h = lax.conv_general_dilated(
            h, p[f"c{i}.w"], (s, s), ((1, 1), (1, 1)), dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        mu = h.mean((0, 1, 2))
        var = ((h - mu) ** 2).mean((0, 1, 2))
        n = h.size // b
        nb[f"m{i}"] = 0.9 * bn[f"m{i}"] + 0.1 * mu
        nb[f"v{i}"] = 0.9 * bn[f"v{i}"] + 0.1 * var * (n / (n - 1))
        h = jax.nn.relu((h - mu) * lax.rsqrt(var + 1e-5) * p[f"bn{i}.g"] + p[f"bn{i}.b"])
    return xent(h.mean((1, 2)) @ p["fc.w"] + p["fc.b"], x["y"]), nb


def pw(p, x):
    h = gelu_t(p["x"] * p["a"] + p["b"]) + p["x"]
    return jnp.mean((jax.nn.softmax(lnorm(h, p["g"], p["be"]), -1) - x["t"]) ** 2)


def bce(z, y):
    return jnp.mean(jnp.maximum(z, 0) - z * y + jnp.log1p(jnp.exp(-jnp.abs(z))))


def dtop(p, bags, y):
    h = jnp.concatenate(bags, 1)
    return bce((jax.nn.relu(h @ p["w0"] + p["b0"]) @ p["w1"] + p["b1"])[:, 0], y)


def adamw(p, g, m, v, t):
    t = t + 1
    tf = t.astype(jnp.float32)
    c1 = 1 - C.B1**tf
    c2 = 1 - C.B2**tf
    m = jax.tree.map(lambda m, g: C.B1 * m + (1 - C.B1) * g, m, g)
    v = jax.tree.map(lambda v, g: C.B2 * v + (1 - C.B2) * g * g, v, g)
    p = jax.tree.map(
        lambda p, m, v: p * (1 - C.LR * C.WD) - C.LR * (m / c1) / (jnp.sqrt(v / c2) + C.EPS),
        p,
        m,
        v,
    )
    return p, m, v, t


def build(a):
    global FLAT
    FLAT = a.flat
    w = a.workload
    p, x = C.make(w)
    if w == "convnet":
        x["x"] = x["x"].transpose(0, 2, 3, 1).copy()
        for i in range(3):
            p[f"c{i}.w"] = p[f"c{i}.w"].transpose(2, 3, 1, 0).copy()
    x = {k: (v.astype(np.int32) if v.dtype == np.int64 else v) for k, v in x.items()}
    p = jax.tree.map(jnp.array, p)
    x = jax.tree.map(jnp.array, x)
    if w == "pointwise":
        f = jax.jit(jax.value_and_grad(pw))
        out = {}

        def step():
            l, g = f(p, x)
            jax.block_until_ready(g)
            out["g"] = g
            return float(l)

        return step, lambda: {
            "gnorm": {
                k: float(np.linalg.norm(np.asarray(v, np.float64))) for k, v in out["g"].items()
            }
        }
    if w == "dlrm":
        NT = C.DLRM["tables"]
        if a.dlrm == "dense":

            def ts(p, x):
                fl = lambda p: dtop(p, [p[f"e{k}"][x["i"][k]].sum(1) for k in range(NT)], x["y"])
                l, g = jax.value_and_grad(fl)(p)
                return l, jax.tree.map(lambda p, g: p - C.SGD_LR * g, p, g)

        else:  # row-wise by hand: differentiate the bag sums, scatter-add into the tables

            def ts(p, x):
                bags = [p[f"e{k}"][x["i"][k]].sum(1) for k in range(NT)]
                top = {k: v for k, v in p.items() if k[0] != "e"}
                l, (gt, gb) = jax.value_and_grad(lambda t, b: dtop(t, b, x["y"]), (0, 1))(top, bags)
                q = jax.tree.map(lambda p, g: p - C.SGD_LR * g, top, gt)
                for k in range(NT):
                    q[f"e{k}"] = (
                        p[f"e{k}"]
                        .at[x["i"][k]]
                        .add(
                            jnp.broadcast_to(
                                -C.SGD_LR * gb[k][:, None, :],
                                (C.DLRM["B"], C.DLRM["idx"], C.DLRM["dim"]),
                            )
                        )
                    )
                return l, q

        f = jax.jit(ts, donate_argnums=(0,))
        st = {"p": p}
        del p

        def step():
            l, st["p"] = f(st["p"], x)
            jax.block_until_ready(st["p"])
            return float(l)

        return step, dict
    m = jax.tree.map(jnp.zeros_like, p)
    v = jax.tree.map(jnp.zeros_like, p)
    bn = {}
    if w == "convnet":
        bn = {f"m{i}": jnp.zeros(b) for i, (_, b, _) in enumerate(C.CONV)} | {
            f"v{i}": jnp.ones(b) for i, (_, b, _) in enumerate(C.CONV)
        }
        lf = conv
    else:
        base = {"mlp": mlp, "tiny-mlp": mlp, "gpt-small": gpt, "bert-mini": bert}[w]
        lf = lambda p, x, bn: (base(p, x), bn)

    def ts(st, x):
        p, m, v, t, bn = st
        (l, bn), g = jax.value_and_grad(lf, has_aux=True)(p, x, bn)
        return l, adamw(p, g, m, v, t) + (bn,)

    f = jax.jit(ts, donate_argnums=(0,))
    st = [(p, m, v, jnp.zeros((), jnp.int32), bn)]

    def step():
        l, st[0] = f(st[0], x)
        jax.block_until_ready(st[0])
        return float(l)

    return step, dict
