# SPDX-License-Identifier: Apache-2.0
import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F
import numpy as np
import common as C


def lin(p, w, b=None):
    W = p[w]
    m = nn.Linear(W.shape[0], W.shape[1], bias=b is not None)
    with torch.no_grad():
        m.weight.copy_(torch.from_numpy(np.ascontiguousarray(W.T)))
        if b:
            m.bias.copy_(torch.from_numpy(p[b]))
    return m


def ln(p, g, b, eps=1e-5):
    m = nn.LayerNorm(p[g].shape[0], eps=eps)
    with torch.no_grad():
        m.weight.copy_(torch.from_numpy(p[g]))
        m.bias.copy_(torch.from_numpy(p[b]))
    return m


def emb(p, w):
    return nn.Embedding.from_pretrained(torch.from_numpy(p[w].copy()), freeze=False)


class MLP(nn.Module):
    def __init__(s, p):
        super().__init__()
        s.l = nn.ModuleList([lin(p, f"w{i}", f"b{i}") for i in range(3)])

    def forward(s, x, y):
        x = F.gelu(s.l[0](x))
        x = F.gelu(s.l[1](x))
        return F.cross_entropy(s.l[2](x), y)


class GBlock(nn.Module):
    def __init__(s, p, k, H):
        super().__init__()
        s.H = H
        s.ln1 = ln(p, k + "ln1.g", k + "ln1.b")
        s.ln2 = ln(p, k + "ln2.g", k + "ln2.b")
        for q in ("qkv", "proj", "fc", "fc2"):
            setattr(s, q, lin(p, k + q + ".w", k + q + ".b"))

    def forward(s, x):
        B, T, D = x.shape
        q, k, v = (
            t.view(B, T, s.H, D // s.H).transpose(1, 2) for t in s.qkv(s.ln1(x)).split(D, dim=2)
        )
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, D)
        x = x + s.proj(a)
        return x + s.fc2(F.gelu(s.fc(s.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(s, p):
        super().__init__()
        s.wte = emb(p, "wte")
        s.wpe = emb(p, "wpe")
        layers = sum(k.endswith("ln1.g") for k in p)
        heads = p["wte"].shape[1] // 64
        s.h = nn.ModuleList([GBlock(p, f"h{l}.", heads) for l in range(layers)])
        s.lnf = ln(p, "lnf.g", "lnf.b")
        s.head = lin(p, "head.w")

    def forward(s, x, y):
        h = s.wte(x) + s.wpe(torch.arange(x.shape[1], device=x.device))
        for b in s.h:
            h = b(h)
        lg = s.head(s.lnf(h))
        return F.cross_entropy(lg.view(-1, lg.shape[-1]), y.view(-1))


class BBlock(nn.Module):
    def __init__(s, p, k, H):
        super().__init__()
        s.H = H
        for q in ("q", "k", "v", "o", "fc", "fc2"):
            setattr(s, q, lin(p, k + q + ".w", k + q + ".b"))
        s.ln1 = ln(p, k + "ln1.g", k + "ln1.b", 1e-12)
        s.ln2 = ln(p, k + "ln2.g", k + "ln2.b", 1e-12)

    def forward(s, x):
        B, T, D = x.shape
        f = lambda t: t.view(B, T, s.H, D // s.H).transpose(1, 2)
        a = (
            F.scaled_dot_product_attention(f(s.q(x)), f(s.k(x)), f(s.v(x)))
            .transpose(1, 2)
            .reshape(B, T, D)
        )
        x = s.ln1(x + s.o(a))
        return s.ln2(x + s.fc2(F.gelu(s.fc(x))))


class BERT(nn.Module):
    def __init__(s, p):
        super().__init__()
        s.word = emb(p, "word")
        s.pos = emb(p, "pos")
        s.tt = emb(p, "type")
        s.lne = ln(p, "lne.g", "lne.b", 1e-12)
        s.h = nn.ModuleList([BBlock(p, f"h{l}.", C.BERT["H"]) for l in range(C.BERT["L"])])
        s.cls = lin(p, "cls.w", "cls.b")

    def forward(s, x, t, y):
        h = s.lne(s.word(x) + s.pos(torch.arange(x.shape[1], device=x.device)) + s.tt(t))
        for b in s.h:
            h = b(h)
        return F.cross_entropy(s.cls(h.mean(1)), y)


class Conv(nn.Module):
    def __init__(s, p):
        super().__init__()
        s.c = nn.ModuleList()
        s.bn = nn.ModuleList()
        for i, (a, b, st) in enumerate(C.CONV):
            c = nn.Conv2d(a, b, 3, st, 1, bias=False)
            c.weight.data.copy_(torch.from_numpy(p[f"c{i}.w"]))
            s.c.append(c)
            s.bn.append(nn.BatchNorm2d(b))
        s.fc = lin(p, "fc.w", "fc.b")

    def forward(s, x, y):
        for c, b in zip(s.c, s.bn):
            x = F.relu(b(c(x)))
        return F.cross_entropy(s.fc(x.mean((2, 3))), y)


class PW(nn.Module):
    def __init__(s, p):
        super().__init__()
        for k in ("x", "a", "b", "g", "be"):
            s.register_parameter(k, nn.Parameter(torch.from_numpy(p[k])))

    def forward(s, t):
        h = F.gelu(s.x * s.a + s.b, approximate="tanh") + s.x
        return F.mse_loss(F.softmax(F.layer_norm(h, (h.shape[-1],), s.g, s.be), -1), t)


class DLRM(nn.Module):
    def __init__(s, p, sparse):
        super().__init__()
        s.e = nn.ModuleList(
            [
                nn.EmbeddingBag.from_pretrained(
                    torch.from_numpy(p[f"e{i}"]), freeze=False, mode="sum", sparse=sparse
                )
                for i in range(C.DLRM["tables"])
            ]
        )
        s.l0 = lin(p, "w0", "b0")
        s.l1 = lin(p, "w1", "b1")

    def forward(s, i, y):
        h = torch.cat([e(i[k]) for k, e in enumerate(s.e)], 1)
        return F.binary_cross_entropy_with_logits(s.l1(F.relu(s.l0(h))).squeeze(1), y)


def build(a):
    """-> step(): returns python float loss; extra(): dict"""
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision(a.precision)
    p, x = C.make(a.workload)
    x = {k: torch.from_numpy(v).to(a.device) for k, v in x.items()}
    w = a.workload
    m = {
        "mlp": MLP,
        "tiny-mlp": MLP,
        "gpt-small": GPT,
        "gpt2": GPT,
        "bert-mini": BERT,
        "convnet": Conv,
        "pointwise": PW,
    }.get(w)
    m = m(p) if m else DLRM(p, sparse=(a.dlrm == "sparse"))
    m.to(a.device).train()
    nopt = w == "pointwise"
    comp = a.framework == "torch-compile"
    if nopt:
        opt = None
    elif w == "dlrm":
        opt = torch.optim.SGD(m.parameters(), lr=C.SGD_LR)
    else:
        kw = {"default": {}, "foreach": dict(foreach=True), "fused": dict(fused=True)}[
            a.opt if a.opt in ("foreach", "fused") else "default"
        ]
        lr = torch.tensor(C.LR) if (comp and a.opt == "compiled") else C.LR
        opt = torch.optim.AdamW(
            m.parameters(), lr=lr, betas=(C.B1, C.B2), eps=C.EPS, weight_decay=C.WD, **kw
        )
    fwd, ostep = m, (opt.step if opt else None)
    if comp:
        fwd = torch.compile(m, fullgraph=(a.dlrm != "sparse" or w != "dlrm"), mode=a.mode)
        if opt and a.opt == "compiled":
            ostep = torch.compile(opt.step, mode=a.mode)
    vals = tuple(x.values())

    def autocast():
        if a.autocast == "off":
            return contextlib.nullcontext()
        return torch.autocast(a.device, dtype=torch.bfloat16)

    def step():
        if opt:
            opt.zero_grad(set_to_none=True)
        else:
            for q in m.parameters():
                q.grad = None
        with autocast():
            loss = fwd(*vals)
        loss.backward()
        if ostep:
            ostep()
        return loss.item()

    def extra():
        e = {}
        if a.device == "cuda":
            e["device_peak_mb"] = round(torch.cuda.max_memory_allocated() / 2**20, 1)
            e["device"] = torch.cuda.get_device_name()
        if nopt:
            e["gnorm"] = {
                k: float(getattr(m, k).grad.double().norm()) for k in ("x", "a", "b", "g", "be")
            }
        if comp:
            from torch._dynamo.utils import counters

            e["graph_breaks"] = sum(counters["graph_break"].values())
            e["graph_break_reasons"] = [str(k)[:200] for k in counters["graph_break"]][:3]
            e["unique_graphs"] = counters["stats"].get("unique_graphs")
            e["fxcache"] = {k: v for k, v in counters["inductor"].items() if "cache" in k}
        return e

    return step, extra
