"""The registry of attention spellings, and what their makers share.

    S("scale_div", lambda q, k, v: soft(q @ k.mT / 2.5) @ v)
    S("mask_add", lambda q, k, v, mask: soft(q @ k.mT / 2.5 + mask) @ v, mask=add("bhnm"))
    trap("axis_1", lambda q, k, v: (q @ k.mT).softmax(1) @ v)

Arguments are inputs, described by one letter a dimension: b, n, m (batch, queries, keys) are symbolic and bound again
for each variant; h heads, g key/value heads (r = h/g), d head size, e value size, c = h*d, f = g*d, and digits for
themselves. `self` as a first argument is the module: `parts` puts submodules, parameters and buffers there. A class
in place of a function is an nn.Module of its own.

kind   legit  an attention: `count` of them must be fused, none left
       trap   looks like one: whatever happens, the values stay
       other  not attention at all: none may be fused
dead   a function of the inputs giving the fully masked rows of output_0 (broadcastable):
       only the other rows must agree, unless the rewriter is told --exact-masked-rows
"""
import inspect
import math
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "models"))
from zoo import strengthen, written  # noqa: E402

FIXED = dict(h=4, g=2, r=2, d=8, e=6, c=32, f=16)
SIZES = [dict(b=3, n=5, m=7), dict(b=2, n=9, m=13), dict(b=5, n=11, m=3)]
ONES = dict(b=1, n=1, m=2)      # kept where the export itself accepts it
WIDE = [dict(b=3, n=5, m=7), dict(b=2, n=9, m=13), dict(b=5, n=6, m=11)]    # never fewer keys than queries
C = 8 ** -0.5
INF = float("inf")
MIN = torch.finfo(torch.float32).min
ENTRIES = {}
GROUP = [""]


class Entry:
    def __init__(self, name, f, inputs, kind="legit", count=1, dead=None, decompose=False, dtype=torch.float32,
                 sizes=None, parts=None, tol=None, grad=False,
                 dynamic="bnm", auto=False, ranges=None, strict=False, note=""):
        self.name, self.f, self.inputs, self.kind, self.count, self.dead, self.decompose, self.dtype = (name, f,
            inputs, kind, count, dead, decompose, dtype)
        self.ranges = ranges or {}      # of a letter: the smallest and largest size, where not 1 and 63
        self.sizes, self.parts, self.tol, self.grad, self.dynamic, self.strict, self.note, self.group = (sizes,
            parts or {}, tol, grad, dynamic, strict, note, GROUP[0])
        self.auto = auto                # Dim.AUTO: a symbol for each axis, until tracing finds that two are one
        self.written = written()

    def names(self):
        f = self.f.forward if inspect.isclass(self.f) else self.f
        return [n for n, p in inspect.signature(f).parameters.items() if n != "self" and p.default is p.empty]

    def module(self):
        torch.manual_seed(0)
        if inspect.isclass(self.f):
            m = strengthen(self.f())
        else:
            scope = dict(f=self.f)
            args = ", ".join(self.names())
            own = "self, " if next(iter(inspect.signature(self.f).parameters)) == "self" else ""
            exec(f"def forward(self, {args}):\n    return f({own}{args})\n", scope)
            m = type("Spelling", (nn.Module,), dict(forward=scope["forward"]))()
            for name, make in self.parts.items():
                part = make()
                if isinstance(part, nn.Module):
                    strengthen(part)
                if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                    m.register_buffer(name, part)
                else:
                    setattr(m, name, part)
        return m.eval() if self.dtype == torch.float32 else m.eval().to(self.dtype)

    def input(self, name):
        return self.inputs.get(name) or DEFAULT[name]

    def make(self, sizes, seed):
        out = {}
        for i, name in enumerate(self.names()):
            x = self.input(name).make(sizes, 100 * seed + i)
            out[name] = x.to(self.dtype) if x.dtype == torch.float32 else x
        return out

    def dims(self):
        """dynamic_shapes of torch.export: a letter is one Dim wherever it stands."""
        called, least = dict(b="batch", n="queries", m="keys"), lambda l: self.ranges.get(l, (1, 63))
        dims = {l: Dim.AUTO if self.auto else Dim(called[l], min=least(l)[0], max=least(l)[1]) for l in self.dynamic}
        return {name: {i: dims[l] for i, l in enumerate(self.input(name).letters) if l in dims}
                for name in self.names()}


class In:
    """One input: its letters, and how numbers are drawn for a shape."""
    def __init__(self, letters, draw):
        self.letters, self.draw = letters, draw

    def make(self, sizes, seed):
        shape = [int(l) if l.isdigit() else sizes.get(l) or FIXED[l] for l in self.letters]
        return self.draw(torch.Generator().manual_seed(seed), shape)


def add(letters, std=1.5):
    """An additive float mask (or any float tensor) of that spread."""
    return In(letters, lambda g, s: torch.randn(s, generator=g) * std)


def keep(letters, p=0.6):
    """A bool mask, true = attend; every row attends somewhere."""
    def draw(g, s):
        m = torch.rand(s, generator=g) < p
        return m.scatter(-1, torch.randint(0, s[-1], s[:-1] + [1], generator=g), True)
    return In(letters, draw)


def drop(letters, p=0.4):
    """A bool mask, true = masked out; every row attends somewhere."""
    inner = keep(letters, 1 - p)
    return In(letters, lambda g, s: ~inner.draw(g, s))


def dead_keep(letters):
    """A bool mask, true = attend, whose every third row (by the last but one dimension) attends nowhere."""
    inner = keep(letters)
    def draw(g, s):
        m = inner.draw(g, s)
        m[..., 1::3, :] = False
        return m
    return In(letters, draw)


def integer(letters, hi, lo=0):
    return In(letters, lambda g, s: torch.randint(lo, hi, s, generator=g))


def padding(dtype=torch.bool, left=False):
    """(b, m) key padding: 1 = keep; row i loses some of its keys, at the end (or at the start)."""
    def draw(g, s):
        lengths = torch.randint(1, s[1] + 1, (s[0], 1), generator=g)
        m = torch.arange(s[1])[None] < lengths
        return (m.flip(-1) if left else m).to(dtype)
    return In("bm", draw)


DEFAULT = dict(q=add("bhnd", 1.2), k=add("bhmd", 1.2), v=add("bhme", 1.0), x=add("bnc", 1.0), y=add("bmc", 1.0),
               mask=add("b1nm"), keep=keep("b1nm"), drop=drop("b1nm"),
               pad=padding())


def S(name, f, kind="legit", **options):
    assert name not in ENTRIES, name
    known = inspect.signature(Entry).parameters
    ENTRIES[name] = Entry(name, f, {k: v for k, v in options.items() if k not in known}, kind,
                          **{k: v for k, v in options.items() if k in known})


def trap(name, f, **options):
    S("trap_" + name, f, kind="trap", **options)


def other(name, f, **options):
    S("other_" + name, f, kind="other", **options)


def group(name):
    GROUP[0] = name


def soft(s):
    return torch.softmax(s, -1)


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
