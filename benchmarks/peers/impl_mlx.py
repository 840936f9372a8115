# SPDX-License-Identifier: Apache-2.0
import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from functools import partial
import common as C


def gelu_e(x):
    return nn.gelu(x)


def gelu_t(x):
    return 0.5 * x * (1 + mx.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


def ln(x, g, b, eps=1e-5):
    return mx.fast.layer_norm(x, g, b, eps)


def attn(q, k, v, H, causal):
    B, T, D = q.shape
    f = lambda t: t.reshape(B, T, H, D // H).transpose(0, 2, 1, 3)
    o = mx.fast.scaled_dot_product_attention(
        f(q), f(k), f(v), scale=(D // H) ** -0.5, mask="causal" if causal else None
    )
    return o.transpose(0, 2, 1, 3).reshape(B, T, D)


def xent(l, y):
    return nn.losses.cross_entropy(l, y, reduction="mean")


class Net(nn.Module):
    def __init__(s, p, w):
        super().__init__()
        s.p = {k.replace(".", "_"): mx.array(v) for k, v in p.items()}
        s._w = w
        if w == "convnet":
            s.bn = [nn.BatchNorm(b) for _, b, _ in C.CONV]
            [s.p.pop(f"bn{i}_{q}") for i in range(3) for q in "gb"]

    def __call__(s, **x):
        return getattr(s, "f_" + s._w.replace("-", "_"))(s.p, **x)

    def f_mlp(s, p, x, y):
        A = lambda i, h: mx.addmm(p[f"b{i}"], h, p[f"w{i}"])
        return xent(A(2, gelu_e(A(1, gelu_e(A(0, x))))), y)

    f_tiny_mlp = f_mlp

    def f_gpt_small(s, p, x, y):
        h = p["wte"][x] + p["wpe"][: x.shape[1]]
        for l in range(C.GPTS["gpt-small"]["L"]):
            k = f"h{l}_"
            A = lambda n, z: mx.addmm(p[k + n + "_b"], z, p[k + n + "_w"])
            q, kk, v = mx.split(A("qkv", ln(h, p[k + "ln1_g"], p[k + "ln1_b"])), 3, -1)
            h = h + A("proj", attn(q, kk, v, C.GPTS["gpt-small"]["D"] // 64, True))
            h = h + A("fc2", gelu_t(A("fc", ln(h, p[k + "ln2_g"], p[k + "ln2_b"]))))
        lg = ln(h, p["lnf_g"], p["lnf_b"]) @ p["head_w"]
        return xent(lg.reshape(-1, lg.shape[-1]), y.reshape(-1))

    def f_bert_mini(s, p, x, t, y):
        h = ln(p["word"][x] + p["pos"][: x.shape[1]] + p["type"][t], p["lne_g"], p["lne_b"], 1e-12)
        for l in range(C.BERT["L"]):
            k = f"h{l}_"
            A = lambda n, z: mx.addmm(p[k + n + "_b"], z, p[k + n + "_w"])
            h = ln(
                h + A("o", attn(A("q", h), A("k", h), A("v", h), C.BERT["H"], False)),
                p[k + "ln1_g"],
                p[k + "ln1_b"],
                1e-12,
            )
            h = ln(h + A("fc2", gelu_e(A("fc", h))), p[k + "ln2_g"], p[k + "ln2_b"], 1e-12)
        return xent(h.mean(1) @ p["cls_w"] + p["cls_b"], y)

    def f_convnet(s, p, x, y):
        for i, (a, b, st) in enumerate(C.CONV):
            x = nn.relu(s.bn[i](mx.conv2d(x, p[f"c{i}_w"], st, 1)))
        return xent(x.mean((1, 2)) @ p["fc_w"] + p["fc_b"], y)

    def f_pointwise(s, p, t):
        h = gelu_t(p["x"] * p["a"] + p["b"]) + p["x"]
        return mx.mean((mx.softmax(ln(h, p["g"], p["be"]), -1) - t) ** 2)

    def f_dlrm(s, p, i, y):
        h = mx.concatenate([p[f"e{k}"][i[k]].sum(1) for k in range(C.DLRM["tables"])], 1)
        return s.top(p, h, y)

    def top(s, p, h, y):
        z = (nn.relu(h @ p["w0"] + p["b0"]) @ p["w1"] + p["b1"])[:, 0]
        return nn.losses.binary_cross_entropy(z, y, with_logits=True, reduction="mean")


def build(a):
    w = a.workload
    p, x = C.make(w)
    if w == "convnet":
        x["x"] = x["x"].transpose(0, 2, 3, 1).copy()
        for i in range(3):
            p[f"c{i}.w"] = p[f"c{i}.w"].transpose(0, 2, 3, 1).copy()  # OHWI
    x = {k: mx.array(v.astype(np.int32) if v.dtype == np.int64 else v) for k, v in x.items()}
    m = Net(p, w)
    del p
    m.train()
    mx.eval(m.parameters(), x)
    comp = mx.compile if a.mode != "nocompile" else (lambda f, **k: f)
    vg = nn.value_and_grad(m, lambda **x: m(**x))
    if w == "pointwise":
        P = dict(m.p)
        f = comp(mx.value_and_grad(m.f_pointwise))
        out = {}

        def step():
            l, g = f(P, x["t"])
            mx.eval(l, g)
            out["g"] = g
            return l.item()

        return step, lambda: {
            "gnorm": {
                k: float(np.linalg.norm(np.array(v).astype(np.float64)))
                for k, v in out["g"].items()
            }
        }
    if w == "dlrm":
        opt = optim.SGD(learning_rate=C.SGD_LR)
        if a.dlrm != "dense":
            NT = C.DLRM["tables"]

            def ts(x):
                p = m.p
                bags = [p[f"e{k}"][x["i"][k]].sum(1) for k in range(NT)]
                tk = ["w0", "b0", "w1", "b1"]
                l, (gt, gh) = mx.value_and_grad(lambda t, h: m.top(t, h, x["y"]), (0, 1))(
                    {k: p[k] for k in tk}, mx.concatenate(bags, 1)
                )
                for k in tk:
                    p[k] = p[k] - C.SGD_LR * gt[k]
                D = C.DLRM["dim"]
                for k in range(NT):
                    u = mx.broadcast_to(
                        (-C.SGD_LR * gh[:, k * D : (k + 1) * D])[:, None, :],
                        (C.DLRM["B"], C.DLRM["idx"], D),
                    )
                    p[f"e{k}"] = p[f"e{k}"].at[x["i"][k]].add(u)
                return l

            f = comp(ts, inputs=m.state, outputs=m.state)

            def step():
                l = f(x)
                mx.eval(l, m.state)
                return l.item()

            return step, dict
    else:
        opt = optim.AdamW(
            learning_rate=C.LR,
            betas=[C.B1, C.B2],
            eps=C.EPS,
            weight_decay=C.WD,
            bias_correction=True,
        )
    opt.init(m.trainable_parameters())
    state = [m.state, opt.state]
    mx.eval(state)

    def ts(x):
        l, g = vg(**x)
        opt.update(m, g)
        return l

    f = comp(ts, inputs=state, outputs=state)

    def step():
        l = f(x)
        mx.eval(l, state)
        return l.item()

    return step, dict
