"""What all model makers share: the registry, seeded tensors, masks, stronger weights.

    @model("mha_self")
    def _():
        return seeded(MyModule), [dict(x=R(2, 5, 16)), dict(x=R(3, 9, 16))], dict(x={0: Dim("b"), 1: Dim("s")})

A maker gives the module, the inputs of each variant (the first one is exported with), and the dynamic shapes. Options
of @model: grad (export with gradients on, so that no_grad regions stay), autocast (a dtype: ambient autocast around
export and eager run), decompose (run_decompositions: core ATen), tol (relative to the largest value, instead of the
dtype's own), nd (expect refusal).
"""
import os
import pathlib
import sys
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.filterwarnings("ignore")
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.export import Dim

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from share import written  # noqa: E402

MODELS = {}


class Maker:
    def __init__(self, name, build, grad=False, autocast=None, decompose=False, tol=None, strict=False):
        self.name, self.build, self.grad, self.autocast, self.decompose, self.tol, self.strict = (name, build, grad,
            autocast, decompose, tol, strict)
        self.written = written()


def model(name, **options):
    def add(build):
        assert name not in MODELS, name
        MODELS[name] = Maker(name, build, **options)
        return build
    return add


def gen(seed):
    return torch.Generator().manual_seed(seed)


def R(*shape, seed=0, dt=torch.float32):
    return torch.randn(*shape, generator=gen(seed)).to(dt)


def I(hi, *shape, lo=0, seed=0):
    return torch.randint(lo, hi, shape, generator=gen(seed))


def B(*shape, seed=0, p=0.5):
    return torch.rand(*shape, generator=gen(seed)) < p


def seeded(make, std=None):
    torch.manual_seed(0)
    m = make()
    if std:
        for p in m.parameters():
            nn.init.normal_(p, std=std)
    return m.eval()


def fn(f, *parts, std=None):
    """A module whose forward is f(self, ...), with the given submodules as self.m0, self.m1, ...;
    parts are made seeded."""
    def make():
        class Module(nn.Module):
            forward = f
        m = Module()
        for k, p in enumerate(parts):
            setattr(m, f"m{k}", p())
        return m
    return seeded(make, std)


def batch(mx=8):
    return Dim("batch", min=1, max=mx)


def seq(name="seq", mn=2, mx=64):
    return Dim(name, min=mn, max=mx)


def keep_mask(b, s):
    """1 = keep; row i loses its last i tokens, never the first."""
    m = torch.ones(b, s, dtype=torch.long)
    for i in range(b):
        m[i, max(1, s - i):] = 0
    return m


def strengthen(m):
    """Library initialisation (std 0.02, zero biases) makes attention uniform, so that a wrong mask or scale would not
    show: draws every parameter again such that logits spread over a few units."""
    g = gen(1)
    with torch.no_grad():
        for name, p in m.named_parameters():
            r = torch.randn(p.shape, generator=g)
            low = name.lower()
            if p.dim() >= 2 and p.numel():
                table = any(w in low for w in ("embed", "token", "rel_pos", "relative", "bias_table", "shared", "wte",
                                               "wpe", "query_position")) \
                    and not any(w in low for w in ("proj", "attention.self", "conv"))
                logits = any(w in low for w in ("q_proj", "k_proj", ".query", ".key", "qkv", "c_attn", "in_proj",
                                                ".q.", ".k."))
                p.copy_(r * 0.5 if table else r * ((1.7 if logits else 1.0) * p[0].numel() ** -0.5))
            elif "norm" in low and low.endswith("weight"):
                p.copy_(1 + 0.1 * r)
            elif p.dim() == 1:
                p.add_(0.1 * r)
    return m.eval()
