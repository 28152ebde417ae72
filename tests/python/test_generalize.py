"""qkv.generalize: static exports at two sizes become one file, which gives eager's values at sizes that no export saw.

A case is a module, a function from sizes to inputs, and sizes: the first two are exported, all are checked,
through the written file in qkv and in PyTorch.
"""
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from tolerance import tolerance  # noqa: E402

TOLERANCE = tolerance("TORCH")["f32"]

CASES = {}


@pytest.fixture(autouse=True)
def no_fast_path():
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(True)


def case(sizes):
    def add(f):
        CASES[f.__name__] = (f, sizes)
        return f
    return add


def export(module, args, path):
    with torch.no_grad():
        torch.export.save(torch.export.export(module, args), path)
    return str(path)


def made(build, sizes, tmp_path, files=2):
    """The exports, and (arguments, eager results) of every size."""
    torch.manual_seed(0)
    make = build()
    paths, expected = [], []
    for i, size in enumerate(sizes):
        torch.manual_seed(i + 1)
        module, args = make(*size)
        with torch.no_grad():
            out = module(*args)
        expected.append((args, [t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]))
        if i < files:
            paths.append(export(module, args, tmp_path / f"{i}.pt2"))
    return paths, expected


def close(got, want):
    got, want = np.asarray(got, np.float64), want.numpy().astype(np.float64)
    assert got.shape == want.shape
    finite = np.isfinite(want)
    assert (np.isfinite(got) == finite).all()
    if finite.any():
        assert np.abs(got[finite] - want[finite]).max() <= TOLERANCE * max(np.abs(want[finite]).max(), 1e-30)


def agree(path, expected, in_torch=True):
    model = qkv.Model(path)
    scalars = [s["name"] for s in model.describe()["scalar_inputs"]]
    program = torch.export.load(path).module() if in_torch else None
    for args, want in expected:
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        feeds = dict(zip(model.inputs, tensors)) | {n: np.asarray(a) for n, a in zip(scalars,
            [a for a in args if not isinstance(a, torch.Tensor)])}
        for got, w in zip(model.run(feeds).values(), want, strict=True):
            close(got, w)
        if program:
            for got, w in zip(torch.utils._pytree.tree_leaves(program(*args)), want):
                close(got.detach().numpy(), w)


def fixed(module, inputs):
    """A build function whose module is the same at every size."""
    def build():
        m = module().eval()
        return lambda *size: (m, inputs(*size))
    return build


sequence = lambda b, s: (torch.randn(b, s, 32),)
image = lambda b, h, w: (torch.randn(b, 3, h, w),)
BATCH_LENGTH = [(2, 7), (3, 12), (1, 4), (5, 25)]
IMAGES = [(2, 42, 70), (3, 56, 98), (1, 28, 42), (4, 84, 30)]


# ---------------------------------------------------------------- sequences


def encoder():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 48, batch_first=True), 2, enable_nested_tensor=False)


class KeyMask(nn.Module):
    def __init__(self, need_weights, **options):
        super().__init__()
        self.mha, self.need = nn.MultiheadAttention(32, 4, batch_first=True, **options), need_weights

    def forward(self, q, k, mask):
        return self.mha(q, k, k, key_padding_mask=mask, need_weights=self.need)


def with_mask(b, n, m):
    mask = torch.zeros(b, m, dtype=torch.bool)
    mask[0, -1] = True
    return torch.randn(b, n, 32), torch.randn(b, m, 32), mask


class HeadMask(nn.Module):
    def __init__(self):
        super().__init__()
        self.mha = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x, mask):
        return self.mha(x, x, x, attn_mask=mask, need_weights=False)[0]


QUERIES_KEYS = [(2, 5, 9), (3, 8, 13), (1, 2, 3), (4, 20, 7)]
CASES |= {
    "encoder": (fixed(encoder, sequence), BATCH_LENGTH),
    "encoder, both sizes doubled": (fixed(encoder, sequence), [(2, 8), (4, 16), (1, 4), (5, 17)]),
    "encoder, one export of batch 1": (fixed(encoder, sequence), [(1, 8), (3, 13), (2, 4), (5, 17)]),
    "key mask": (fixed(lambda: KeyMask(False), with_mask), QUERIES_KEYS),
    "key mask, weights": (fixed(lambda: KeyMask(True), with_mask), QUERIES_KEYS),
    "key mask, bias and zero attention": (fixed(lambda: KeyMask(True, add_bias_kv=True, add_zero_attn=True),
                                                with_mask), QUERIES_KEYS),
    "mask of every head": (fixed(HeadMask, lambda b, s: (torch.randn(b, s, 32), torch.randn(4 * b, s, s))),
                           [(2, 5), (3, 8), (1, 2), (4, 20)]),
}


class Masked(nn.Module):
    """Attention with a mask that is made in one of several ways; `baked` ones are constants of the export."""

    def __init__(self, how):
        super().__init__()
        self.how, self.qkv = how, nn.Linear(32, 96)
        self.register_buffer("lower", torch.tril(torch.ones(64, 64, dtype=torch.bool)))
        self.made = {}

    def bake(self, s):
        i = torch.arange(s)
        distance = i[None] - i[:, None]
        self.made[s] = {
            "baked additive": lambda: nn.Transformer.generate_square_subsequent_mask(s),
            "baked bool": lambda: distance > 0,
            "baked window": lambda: torch.where(distance.abs() <= 2, 0.0, -1e9),
            "baked positions": lambda: i / 8,
            "baked alibi": lambda: distance * torch.tensor([0.5, 0.25, 0.125, 0.0625])[:, None, None],
            "baked halves": lambda: (i >= s - 3).float(),
        }.get(self.how, lambda: None)()
        return self

    def forward(self, x):
        b, s, e = x.shape
        q, k, v = (t.view(b, s, 4, 8).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        a = q @ k.transpose(-1, -2) / math.sqrt(8)
        baked, i = self.made.get(s), torch.arange(s)
        if self.how == "tril":
            a = a.masked_fill(~torch.tril(torch.ones(s, s, dtype=torch.bool)), -math.inf)
        if self.how == "triu of full":
            a = a + torch.triu(torch.full((s, s), -math.inf), diagonal=1)
        if self.how == "slice of a buffer":
            a = a.masked_fill(~self.lower[:s, :s], -math.inf)
        if self.how == "window of aranges":
            a = a.masked_fill((i[None] - i[:, None]).abs() > 2, -1e9)
        if self.how == "scaled by the length":
            a = a / math.sqrt(s)
        if self.how == "baked bool":
            a = a.masked_fill(baked, -math.inf)
        elif baked is not None:
            a = a + baked
        return (a.softmax(-1) @ v).transpose(1, 2).reshape(b, s, e)


def masked(how):
    def build():
        m = Masked(how).eval()
        return lambda b, s: (m.bake(s), sequence(b, s))
    return build


for how in ("tril", "triu of full", "slice of a buffer", "window of aranges", "scaled by the length",
            "baked additive", "baked bool", "baked window",
            "baked positions", "baked alibi", "baked halves"):
    CASES[f"mask: {how}"] = (masked(how), BATCH_LENGTH)


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.position, self.encoder, self.head = nn.Embedding(50, 32), nn.Embedding(64,
            32), encoder(), nn.Linear(32, 50)

    def forward(self, ids):
        x = self.token(ids) + self.position(torch.arange(ids.shape[1]))
        return self.head(self.encoder(x, mask=nn.Transformer.generate_square_subsequent_mask(ids.shape[1]),
                                      is_causal=True))[:, -1]


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.t = nn.Transformer(32, 4, 2, 2, 48, batch_first=True)

    def forward(self, src, tgt):
        return self.t(src, tgt, tgt_mask=nn.Transformer.generate_square_subsequent_mask(tgt.shape[1]),
                      tgt_is_causal=True)


class Chunked(nn.Module):
    """Attention within chunks of 4: pads to a multiple and masks what was added."""

    def __init__(self):
        super().__init__()
        self.q = nn.Linear(16, 16)

    def forward(self, x):
        b, s, c = x.shape
        pad = -s % 4
        n = (s + pad) // 4
        y = self.q(F.pad(x, (0, 0, 0, pad))).view(b, n, 4, c)
        a = torch.einsum("bnic,bnjc->bnij", y, y).masked_fill(~(torch.arange(n * 4) < s).view(1, n, 1, 4), -1e9)
        return torch.einsum("bnij,bnjc->bnic", a.softmax(-1), y).reshape(b, n * 4, c)[:, :s]


class RelativeShift(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Parameter(torch.randn(127, 16))

    def forward(self, x):
        b, s, _ = x.shape
        r = x @ self.e[64 - s:63 + s].T
        r = F.pad(r, (1, 0)).view(b, 2 * s, s)[:, 1:].reshape(b, s, 2 * s - 1)[:, :, :s]
        return (x @ x.transpose(1, 2) + r).softmax(-1) @ x


class Middle(nn.Module):
    """A window of a long table around its middle, as conformers have it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.randn(1, 999, 16))

    def forward(self, x):
        b, s, _ = x.shape
        e = self.table[:, 500 - s:499 + s]
        r = F.pad(x @ e.transpose(1, 2), (1, 0)).view(b, 2 * s, s)[:, 1:].reshape(b, s, 2 * s - 1)[:, :, :s]
        return r.softmax(-1) @ x


class Pairs(nn.Module):
    """Distances from every pair of positions to every position, as Funnel pools:
    2*ceil(s/2) - 1 comes from no size that is there."""

    def forward(self, x):
        s = x.shape[1]
        p = -(-s // 2)
        at = torch.arange(2 * p - 1, -s - 1, -1)
        return F.avg_pool1d(x.transpose(1, 2), 2, 2, ceil_mode=True), torch.sin(at / 8)


class Waves(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.layer = nn.Conv1d(1, 8, 10, 5), nn.Conv1d(8, 8, 3, 2), nn.TransformerEncoderLayer(8, 2,
            16, batch_first=True)

    def forward(self, x):
        return self.layer(self.b(F.gelu(self.a(x[:, None]))).transpose(1, 2))


class Alone(nn.Module):
    def forward(self, x):
        s = x.shape[0]
        return (x @ x.T + torch.arange(1 - s, s)[s - 1:] / 8).softmax(-1) @ x, torch.arange(4 * s - 1)


class Numbers(nn.Module):
    def forward(self, x, h: int, w: int):
        return x.transpose(1, 2).reshape(x.shape[0], 8, h, w).mean(3)


small = lambda b, s: (torch.randn(b, s, 16),)
CASES |= {
    "language model": (fixed(Language, lambda b, s: (torch.randint(0, 50, (b, s)),)), BATCH_LENGTH),
    "nn.Transformer": (fixed(Both, lambda b, s, t: (torch.randn(b, s, 32), torch.randn(b, t, 32))),
                       [(2, 7, 5), (3, 12, 8), (1, 4, 9), (5, 25, 2)]),
    "chunks": (fixed(Chunked, small), [(2, 9), (3, 18), (1, 4), (5, 27)]),
    "relative shift": (fixed(RelativeShift, small), [(2, 9), (3, 16), (1, 4), (5, 27)]),
    "middle of a table": (fixed(Middle, small), [(2, 9), (3, 16), (1, 4), (5, 27)]),
    "pairs": (fixed(Pairs, small), [(2, 7), (3, 12), (1, 4), (5, 25)]),
    "pairs, both sizes doubled": (fixed(Pairs, small), [(2, 8), (4, 16), (3, 6), (5, 18)]),
    "no batch": (fixed(Alone, lambda s: (torch.randn(s, 16),)), [(7,), (12,), (4,), (25,)]),
    "waves": (fixed(Waves, lambda b, s: (torch.randn(b, s),)), [(2, 200), (3, 333), (1, 120), (5, 401)]),
    "numbers as inputs": (fixed(Numbers, lambda b, h, w: (torch.randn(b, h * w, 8), h, w)),
                          [(2, 3, 5), (3, 4, 7), (1, 2, 3), (4, 6, 5)]),
}

# ---------------------------------------------------------------- images


class Vit(nn.Module):
    def __init__(self, patch=14, how="conv"):
        super().__init__()
        self.how, self.p, self.patch = how, patch, nn.Conv2d(3, 32, patch, patch)
        self.position, self.cls = nn.Parameter(torch.randn(1, 16, 32)), nn.Parameter(torch.randn(1, 1, 32))
        self.layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True)

    def forward(self, x):
        b, _, height, width = x.shape
        h, w = height // self.p, width // self.p
        if self.how == "reshape":
            y = x.reshape(b, 3, h, self.p, w, self.p).permute(0, 2, 4, 1, 3, 5).reshape(b, h * w, -1)[..., :32]
        else:
            y = self.patch(x).flatten(2).transpose(1, 2)
        grid = self.position.reshape(1, 4, 4, 32).permute(0, 3, 1, 2)
        if self.how == "scale":
            grid = F.interpolate(grid, scale_factor=((h + 0.1) / 4, (w + 0.1) / 4), mode="bicubic")
        else:
            grid = F.interpolate(grid, size=(h, w), mode="bicubic", align_corners=False)
        y = self.layer(torch.cat([self.cls.expand(b, -1, -1), y + grid.flatten(2).transpose(1, 2)], 1))
        return y[:, 0], y[:, 1:].transpose(1, 2).reshape(b, 32, h, w)


CASES |= {
    "vit": (fixed(Vit, image), IMAGES),
    "vit, square": (fixed(Vit, image), [(2, 42, 42), (3, 70, 70), (1, 28, 28), (4, 84, 84)]),
    "vit, height and width change places": (fixed(Vit, image), [(2, 42, 70), (3, 70, 42), (1, 28, 56), (4, 84, 42)]),
    "vit, grid as high as the batch is large": (fixed(Vit, image),
                                                [(2, 28, 56), (3, 42, 70), (1, 28, 42), (4, 84, 30)]),
    "vit, patches by reshape": (fixed(lambda: Vit(4, "reshape"), image),
                                [(2, 12, 20), (3, 16, 28), (1, 8, 12), (4, 24, 16)]),
    "vit, positions by scale": (fixed(lambda: Vit(14, "scale"), image),
                                [(2, 42, 70), (3, 56, 98), (1, 28, 42), (4, 84, 28)]),
}


class Windows(nn.Module):
    """Shifted windows of 4: padded, rolled, masked. The mask is written in place, or baked as a constant."""

    def __init__(self, baked):
        super().__init__()
        self.baked, self.qkv, self.patch, self.masks = baked, nn.Linear(16, 48), nn.Conv2d(3, 16, 2, 2), {}

    def mask(self, h, w):
        m, count = torch.zeros(1, h, w, 1), 0
        for rows in (slice(0, -4), slice(-4, -2), slice(-2, None)):
            for columns in (slice(0, -4), slice(-4, -2), slice(-2, None)):
                m[:, rows, columns] = count
                count += 1
        m = self.partition(m).squeeze(-1)
        d = m[:, None] - m[:, :, None]
        return d.masked_fill(d != 0, -100.0)

    def partition(self, x):
        b, h, w, c = x.shape
        return x.view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)

    def forward(self, x):
        x = self.patch(x).permute(0, 2, 3, 1)
        b, h, w, c = x.shape
        y = F.pad(x, (0, 0, 0, (4 - w % 4) % 4, 0, (4 - h % 4) % 4))
        hp, wp = y.shape[1:3]
        y = self.partition(torch.roll(y, (-2, -2), (1, 2)))
        q, k, v = self.qkv(y).view(y.shape[0], -1, 3, 2, 8).permute(2, 0, 3, 1, 4)
        mask = self.masks[hp, wp] if self.baked else self.mask(hp, wp)
        a = q @ k.transpose(-1, -2)
        a = (a.view(-1, mask.shape[0], 2, 16, 16) + mask[None, :, None]).view(-1, 2, 16, 16)
        y = (a.softmax(-1) @ v).transpose(1, 2).reshape(-1, 4, 4, c)
        y = y.view(b, hp // 4, wp // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, hp, wp, c)
        return x + torch.roll(y, (2, 2), (1, 2))[:, :h, :w]


def windows(baked):
    def build():
        m = Windows(baked).eval()

        def make(b, h, w):
            key = -(-(h // 2) // 4) * 4, -(-(w // 2) // 4) * 4
            m.masks[key] = m.mask(*key)
            return m, image(b, h, w)
        return make
    return build


class RelativeIndex(nn.Module):
    """The index into a table of relative positions, and sizes, as constants of the export."""

    def __init__(self):
        super().__init__()
        self.patch, self.table, self.qkv, self.index = nn.Conv2d(3, 16, 4, 4), nn.Parameter(torch.randn(961,
            2)), nn.Linear(16, 48), {}

    def bake(self, h, w):
        c = torch.stack(torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")).flatten(1)
        r = c[:, :, None] - c[:, None]
        self.index[h, w] = (r[0] + h - 1) * (2 * w - 1) + r[1] + w - 1

    def forward(self, x):
        f = self.patch(x)
        b, c, h, w = f.shape
        y = f.flatten(2).transpose(1, 2)
        q, k, v = self.qkv(y).view(b, h * w, 3, 2, 8).permute(2, 0, 3, 1, 4)
        a = q @ k.transpose(-1, -2) + self.table[self.index[h, w].view(-1)].view(h * w, h * w, 2).permute(2, 0, 1)
        return (a.softmax(-1) @ v).transpose(1, 2).reshape(b, h * w, c), torch.tensor([h, w, h * w])


def relative_index():
    m = RelativeIndex().eval()

    def make(b, h, w):
        m.bake(h // 4, w // 4)
        return m, image(b, h, w)
    return make


class Pyramid(nn.Module):
    def __init__(self, pool):
        super().__init__()
        self.pool, self.a, self.b, self.lateral = pool, nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 16, 3, 2,
            1), nn.Conv2d(8, 16, 1)

    def forward(self, x):
        a = F.relu(self.a(x))
        up = F.interpolate(F.max_pool2d(self.b(a), 3, 2, 1), size=a.shape[-2:], mode="nearest") + self.lateral(a)
        if self.pool == "window":
            return F.avg_pool2d(up, up.shape[2:]).view(x.shape[0], -1), up
        return up.flatten(2).sum(2) / (up.shape[2] * up.shape[3]), up


class SamePadding(nn.Module):
    def __init__(self, depth=1):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(3, 3, 3, 2) for _ in range(depth))

    def forward(self, x):
        for c in self.convs:
            h, w = (max((math.ceil(n / 2) - 1) * 2 + 3 - n, 0) for n in x.shape[-2:])
            x = c(F.pad(x, [w // 2, w - w // 2, h // 2, h - h // 2]))
        return x


class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.u = nn.Conv2d(3, 8, 3, 1, 1), nn.Conv2d(8, 8, 3, 1, 1), nn.ConvTranspose2d(8, 8, 2, 2)

    def forward(self, x):
        a = self.a(x)
        b = self.u(self.b(F.max_pool2d(a, 2)))
        return torch.cat([a, F.pad(b, [0, a.shape[-1] - b.shape[-1], 0, a.shape[-2] - b.shape[-2]])], 1)


class Points(nn.Module):
    """Reference points in the middle of every cell, as deformable attention has them."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 4, 4, 4)

    def forward(self, x):
        f = self.patch(x)
        h, w = f.shape[-2:]
        y, x = torch.meshgrid(torch.linspace(0.5, h - 0.5, h), torch.linspace(0.5, w - 0.5, w), indexing="ij")
        return f.flatten(2).transpose(1, 2), torch.stack((x.reshape(-1) / w, y.reshape(-1) / h), -1)


class Unfolded(nn.Module):
    """Resized to whole patches of 2, attention among equal places of all patches, resized back, as MobileViT does."""

    def __init__(self):
        super().__init__()
        self.stem, self.layer = nn.Conv2d(3, 8, 4, 4), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x):
        y = self.stem(x)
        b, c, h, w = y.shape
        n, m = -(-h // 2), -(-w // 2)
        y = F.interpolate(y, size=(2 * n, 2 * m), mode="bilinear", align_corners=False)
        y = y.reshape(b * c * n, 2, m, 2).transpose(1, 2).reshape(b, c, n * m, 4).transpose(1, 3).reshape(b * 4,
            n * m, c)
        y = self.layer(y).view(b, 4, n * m, c).transpose(1, 3).reshape(b * c * n, m, 2, 2).transpose(1, 2).reshape(b,
            c, 2 * n, 2 * m)
        return F.interpolate(y, size=(h, w), mode="bilinear", align_corners=False)


class Folded(nn.Module):
    """Windows that are taken apart and put together again, the rest at the end being left out."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, 4)

    def forward(self, x):
        y = self.stem(x)
        columns = F.unfold(y, 2, stride=2)
        return F.fold(columns * columns.softmax(-1), y.shape[-2:], 2, stride=2)


ODD = [(2, 21, 30), (3, 34, 47), (1, 16, 17), (4, 33, 65)]
CASES |= {
    "windows, mask in place": (windows(False), [(2, 22, 26), (3, 30, 44), (1, 18, 40), (4, 34, 20)]),
    "windows, mask baked": (windows(True), [(2, 22, 26), (3, 30, 44), (1, 18, 40), (4, 34, 20)]),
    "points of a grid": (fixed(Points, image), [(2, 12, 20), (3, 16, 28), (1, 8, 12), (4, 24, 16)]),
    "points of a grid as high as the batch is large": (fixed(Points, image),
                                                       [(3, 12, 20), (4, 16, 28), (1, 8, 12), (4, 24, 16)]),
    "patches unfolded": (fixed(Unfolded, image), [(2, 8, 12), (3, 12, 20), (1, 16, 24), (4, 28, 12)]),
    "windows folded": (fixed(Folded, image), [(2, 8, 12), (3, 12, 20), (1, 16, 24), (4, 28, 12)]),
    "relative index": (relative_index, [(2, 12, 20), (3, 16, 28), (1, 8, 12), (4, 24, 16)]),
    "pyramid, pool over all": (fixed(lambda: Pyramid("window"), image), ODD),
    "pyramid, decomposed mean": (fixed(lambda: Pyramid("sum"), image), ODD),
    "same padding, twice": (fixed(lambda: SamePadding(2), image),
                            [(2, 64, 97), (3, 93, 160), (1, 64, 64), (4, 127, 95)]),
    "same padding": (fixed(SamePadding, image), ODD),
    "u-net": (fixed(Up, image), ODD),
}


@pytest.mark.turns
@pytest.mark.parametrize("name", CASES)
def test_equals_eager_at_other_sizes(name, tmp_path):
    build, sizes = CASES[name]
    paths, expected = made(build, sizes, tmp_path)
    found = qkv.generalize(*paths, path=tmp_path / "dyn.pt2")
    assert not found.unsolved and all(c["agrees"] for c in found.checks) and len(found.checks) == 3
    agree(tmp_path / "dyn.pt2", expected)


# ---------------------------------------------------------------- transformers


class Wrap(nn.Module):
    def __init__(self, model, call):
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *args):
        return self.call(self.model, *args)


def tokens(b, s):
    mask = torch.ones(b, s, dtype=torch.long)
    mask[0, -1] = 0
    return torch.randint(0, 60, (b, s)), mask


TEXT = dict(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
            max_position_embeddings=64)
PICTURE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=32,
               patch_size=8)
SWIN = dict(embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, image_size=64, patch_size=2)
VIT_SIZES = [(2, 48, 64), (3, 64, 80), (1, 24, 40), (4, 72, 48)]
SWIN_SIZES = [(2, 44, 52), (3, 60, 70), (1, 34, 80), (4, 72, 38)]
read = lambda m, i, a: m(input_ids=i, attention_mask=a).last_hidden_state
look = lambda m, x: m(x, interpolate_pos_encoding=True).last_hidden_state
TRANSFORMERS = {
    "Bert": ("sdpa", TEXT, tokens, read, BATCH_LENGTH),
    "Bert, eager": ("eager", TEXT, tokens, read, BATCH_LENGTH),
    "Llama": ("sdpa", TEXT | {"num_key_value_heads": 2}, tokens,
              lambda m, i, a: m(input_ids=i, attention_mask=a, use_cache=False).last_hidden_state, BATCH_LENGTH),
    "T5": ("eager", dict(vocab_size=60, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4),
           lambda b, s, t: (tokens(b, s)[0], tokens(b, t)[0]),
           lambda m, i, d: m(input_ids=i, decoder_input_ids=d, use_cache=False).last_hidden_state,
           [(2, 7, 5), (3, 12, 8), (1, 4, 9), (5, 25, 3)]),
    "DebertaV2": ("eager", TEXT | dict(relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8,
                                       max_relative_positions=16, share_att_key=True),
                  tokens, read, BATCH_LENGTH),
    "MobileViT": ("eager", dict(image_size=64, hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 8, 16, 16, 16, 32],
                                num_attention_heads=2), image,
                  lambda m, x: m(x).last_hidden_state, [(2, 64, 96), (3, 96, 160), (1, 64, 64), (4, 128, 96)]),
    "ViT": ("sdpa", PICTURE, image, look, VIT_SIZES),
    "ViT, eager": ("eager", PICTURE, image, look, VIT_SIZES),
    "Dinov2": ("sdpa", PICTURE, image, lambda m, x: m(x).last_hidden_state, VIT_SIZES),
    "DINOv3ViT": ("sdpa", PICTURE, image, lambda m, x: m(x).last_hidden_state, VIT_SIZES),
    "Beit": ("sdpa", PICTURE | {"use_relative_position_bias": True}, image, look, VIT_SIZES),
    "Swin": ("sdpa", SWIN, image, lambda m, x: m(x).last_hidden_state, SWIN_SIZES),
    "Swinv2": ("eager", SWIN, image, lambda m, x: m(x).last_hidden_state, SWIN_SIZES),
}


@pytest.mark.turns
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers(name, tmp_path):
    transformers = pytest.importorskip("transformers")
    attention, options, inputs, call, sizes = TRANSFORMERS[name]

    def build():
        kind = name.split(",")[0]
        config = getattr(transformers, kind + "Config")(**options)
        config._attn_implementation = attention
        model = getattr(transformers, kind + "Model")(config).eval()
        for p in model.parameters():  # the default weights make attention uniform
            if p.dim() > 1:
                nn.init.normal_(p, std=0.2)
        m = Wrap(model, call).eval()
        return lambda *size: (m, inputs(*size))

    paths, expected = made(build, sizes, tmp_path)
    found = qkv.generalize(*paths, path=tmp_path / "dyn.pt2")
    assert not found.unsolved
    agree(tmp_path / "dyn.pt2", expected)


# ---------------------------------------------------------------- what is said


def pair(module, inputs, sizes, tmp_path):
    return made(fixed(module, inputs), sizes, tmp_path, len(sizes))


def test_sizes_are_named_tied_and_told_apart(tmp_path):
    paths, _ = pair(lambda: KeyMask(False), with_mask, [(2, 9, 9), (3, 13, 13)], tmp_path)
    found = qkv.generalize(*paths)
    assert [(s["axes"], s["values"], s["tied"]) for s in found.sizes] == [("q.0, k.0, mask.0", [2, 3], True),
                                                                          ("q.1, k.1, mask.1", [9, 13], True)]
    apart = qkv.generalize(*paths, apart=True, dims={"batch": ["q.0", "k.0", "mask.0"], "keys": "k.1"})
    assert {s["axes"]: s["expr"] for s in apart.sizes} == {"q.0, k.0, mask.0": "batch", "k.1": "keys", "q.1": "q_1",
                                                           "mask.1": "keys"}
    q, k, m = with_mask(4, 6, 10)
    assert apart.model.run([q, k, m])["output_0"].shape == (4, 6, 32)
    for wrong, text in ((dict(dims={"batch": ["q.7"]}), "'q.7' is not an axis"),
                        (dict(dims={"x": ["q.0", "q.1"]}), "their sizes differ"),
                        (dict(dims={"c": ["q.2"]}), "is 32 in every file"),
                        (dict(dynamic=["q.2"]), "add a file in which it differs")):
        with pytest.raises(qkv.Error, match=text) as e:
            qkv.generalize(*paths, **wrong)
        assert e.value.code == 2


def test_multiples_and_ranges(tmp_path):
    paths, _ = pair(lambda: Vit(4, "reshape"), image, [(2, 12, 20), (3, 16, 28)], tmp_path)
    found = qkv.generalize(*paths, dims={"height": ["x.2"]}, path=tmp_path / "dyn.pt2")
    assert {s["axes"]: s["expr"] for s in found.sizes} == {"x.0": "x_0", "x.2": "4*_height", "x.3": "4*_x_3"}
    with pytest.raises(qkv.Error, match="axis 2 is 14, expected a multiple of 4"):
        qkv.Model(tmp_path / "dyn.pt2").run([torch.randn(1, 3, 14, 16)])
    paths, _ = pair(lambda: Masked("slice of a buffer"), sequence, [(2, 7), (3, 12)], tmp_path)
    found = qkv.generalize(*paths)
    with pytest.raises(qkv.Error, match="axis 1 is 65, allowed is x_1 from 1 to 64"):
        found.model.run([torch.randn(1, 65, 32)])


def test_a_third_file_settles_what_two_leave_open(tmp_path):
    """A pad of 2 at both lengths: always 2, or what is missing to a multiple of 4?"""
    class Tail(nn.Module):
        def forward(self, x):
            p = F.pad(x, (0, -x.shape[1] % 4))
            return p * (torch.arange(p.shape[1]) < x.shape[1])

    paths, expected = pair(Tail, lambda b, n: (torch.randn(b, n),), [(2, 6), (3, 10), (4, 7)], tmp_path)
    two = qkv.generalize(*paths[:2])
    assert two.ambiguous and any("x_1" in n["also"] for n in two.ambiguous)
    with pytest.raises(qkv.Error, match="checked against .*2.pt2: shapes differ") as e:
        qkv.generalize(*paths[:2], check=paths[2:])
    assert e.value.code == 1 and e.value.report.checks[2]["agrees"] is False
    three = qkv.generalize(*paths, path=tmp_path / "dyn.pt2")
    args = torch.randn(2, 17)
    agree(tmp_path / "dyn.pt2", expected + [((args,), [Tail()(args)])])
    assert three.model.run([args])["output_0"].shape == (2, 20)


class Layer(nn.Module):
    def __init__(self, seed=0, depth=1):
        super().__init__()
        torch.manual_seed(seed)
        self.l, self.depth = nn.Linear(8, 8), depth

    def forward(self, x):
        for _ in range(self.depth):
            x = self.l(x).relu()
        return x


class Learned(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.p = nn.Parameter(torch.randn(n, 8))

    def forward(self, x):
        return x + self.p


class Loop(nn.Module):
    def forward(self, x):
        y = x[:, 0]
        for i in range(1, x.shape[1]):
            y = y * 0.5 + x[:, i]
        return y


class Branch(nn.Module):
    def forward(self, x):
        return x.sin() if x.shape[1] > 6 else x.cos()


@pytest.mark.parametrize("a, b, says, first", [
    (Layer(0), Layer(1), "the files hold different weights", "'l.weight'"),
    (Layer(0), Layer(0, depth=2), "structure differs", "a Python loop or branch"),
    (Learned(5), Learned(9), "learned values cannot be computed from sizes", "'p'"),
    (Loop(), Loop(), "structure differs", "the number of nodes depends on the size"),
    (Branch(), Branch(), "structure differs", "a Python branch on a size went two ways"),
], ids=["weights", "depth", "learned positions", "loop", "branch"])
def test_refusals_say_why(a, b, says, first, tmp_path):
    paths = [export(m.eval(), (torch.randn(n, s, 8),), tmp_path / f"{n}.pt2") for m, n, s in ((a, 2, 5), (b, 3, 9))]
    with pytest.raises(qkv.Error) as e:
        qkv.generalize(*paths, path=tmp_path / "dyn.pt2")
    text = str(e.value) + str(e.value.report.notes) + str(e.value.report.unsolved)
    assert e.value.code == 1 and says in text and first in text
    assert not (tmp_path / "dyn.pt2").exists()


def test_constants_without_a_pattern_are_listed_by_node(tmp_path):
    made_once = {5: torch.randn(5), 9: torch.randn(9)}

    class Baked(nn.Module):
        def forward(self, x):
            return x * made_once[x.shape[1]] + (137 if x.shape[1] == 5 else 911)

    paths = [export(Baked().eval(), (torch.randn(n, s),), tmp_path / f"{n}.pt2") for n, s in ((2, 5), (3, 9))]
    with pytest.raises(qkv.Error) as e:
        qkv.generalize(*paths)
    unsolved = {u["op"]: u for u in e.value.report.unsolved}
    assert unsolved["aten.mul.Tensor"]["values"] == ["f32[5]",
                                                     "f32[9]"] and "no pattern" in unsolved["aten.mul.Tensor"]["why"]
    assert unsolved["aten.add.Tensor"]["values"] == ["137", "911"]


def test_files_that_are_dynamic_or_alike(tmp_path):
    dynamic = tmp_path / "dynamic.pt2"
    torch.export.save(torch.export.export(Layer().eval(), (torch.randn(2, 8),),
                                          dynamic_shapes=({0: torch.export.Dim("b")},)), dynamic)
    alike = export(Layer().eval(), (torch.randn(2, 8),), tmp_path / "alike.pt2")
    for files, text in (((alike, dynamic), "variable already"), ((alike, alike), "nothing to generalize"),
                        ((alike,), "expected 2 to 8")):
        with pytest.raises(qkv.Error, match=text) as e:
            qkv.generalize(*files)
        assert e.value.code == 2


def test_inputs_that_a_call_changes(tmp_path):
    class M(nn.Module):
        def forward(self, x):
            x.add_(1)
            return x.reshape(-1).cos()
    files = [export(M(), (torch.randn(n, 4),), tmp_path / f"{n}.pt2") for n in (3, 5)]
    out = str(tmp_path / "all.pt2")
    qkv.generalize(*files, path=out)
    x = torch.zeros(7, 4)
    y = torch.export.load(out).module()(x)
    assert (x == 1).all() and torch.equal(y, torch.ones(28).cos())
