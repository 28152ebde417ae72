"""What exported files may hold besides attention: storage, writes through views, caches, autocast, unbacked sizes,
odd inputs and outputs."""
import dataclasses

from zoo import *


# ------------------------------------------------------------------ weights
@model("storage_zoo")
def _():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(11, 8)
            self.head = nn.Linear(8, 11, bias=False)
            self.head.weight = self.emb.weight                                  # tied
            both = torch.randn(16, 8)
            self.a, self.b = nn.Parameter(both[:8]), nn.Parameter(both[8:])      # halves of one storage
            self.c = nn.Parameter(torch.randn(8, 8).t())                         # transposed strides
            self.register_buffer("steps", torch.randn(9, 8)[::3])                # strided, offset
            self.register_buffer("d64", torch.randn(3, 8, dtype=torch.float64), persistent=False)
            self.register_buffer("h", torch.randn(8).half())
            self.register_buffer("bf", torch.randn(8).bfloat16())
            self.register_buffer("flags", torch.tensor([True, False] * 4))
            self.register_buffer("wide", torch.randn(1, 8).expand(5, 8))
            self.register_buffer("none", torch.empty(0, 8))
            self.register_buffer("one", torch.tensor(2.5))
            self.register_buffer("last", torch.randn(1, 2, 3, 4).to(memory_format=torch.channels_last))
            self.register_buffer("bytes", torch.arange(8, dtype=torch.uint8))
            self.register_buffer("small", torch.arange(-4, 4, dtype=torch.int8))
            self.register_buffer("short", torch.arange(8, dtype=torch.int16))
            self.plain = torch.tensor([1, 2, 3, 4, 5, 6, 7, 8])
        def forward(self, ids):
            x = (self.emb(ids) + self.d64.float().sum(0) + self.h + self.bf + self.flags + self.wide.sum(0) * 0.1
                 + self.none.sum(0) + self.one)
            x = x + self.plain * 0.1 + self.bytes * 0.01 + self.small * 0.1 + self.short * 0.1 + torch.tensor([.1]
                * 8) + self.last.sum() + self.steps.mean(0)
            y = torch.softmax((x @ self.a) @ (x @ self.b).mT / 8, -1) @ (x @ self.c)
            return self.head(x + y), self.last.contiguous() * 2, self.wide + 1
    return seeded(M), [dict(ids=I(11, 1, n)) for n in (4, 9, 2)], dict(ids={1: Dim("n", min=2, max=9)})


@model("no_weights_constant_output")
def _():
    def f(self, x): return x * 2, torch.arange(3), torch.ones(2, 2)
    return fn(f), [dict(x=R(3, 2)), dict(x=R(5, 2))], dict(x={0: seq()})


@model("product_of_two_expanded")
def _():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.w = nn.Parameter(torch.randn(3, 8)), nn.Parameter(torch.randn(8, 5))
        def forward(self, x):
            return torch.bmm(self.a[None].expand(x.shape[0], -1, -1), self.w[None].expand(x.shape[0], -1, -1)) + x
    return seeded(M), [dict(x=R(2, 3, 5)), dict(x=R(4, 3, 5)), dict(x=R(1, 3, 5))], dict(x={0: batch()})


# ------------------------------------------------------------------ grad mode and autocast regions
@model("no_grad_region", grad=True)
def _():
    def f(self, x):
        with torch.no_grad():
            pos = torch.arange(x.shape[1])[None, :, None] * 0.1
            table = torch.cat([pos.sin(), pos.cos()], -1)
        return self.m0(torch.cat([x, table.expand(x.shape[0], -1, -1)], -1))
    return fn(f, lambda: nn.Linear(6, 5)), [dict(x=R(2, 5, 4)), dict(x=R(3, 8, 4))], dict(x={0: batch(), 1: seq()})


@model("autocast_region_off", grad=True)
def _():
    def f(self, x):
        with torch.autocast("cpu", enabled=False):
            return F.scaled_dot_product_attention(*(self.m0(x).unflatten(-1, (2, 12)).transpose(1, 2).float().chunk(3,
                -1)), is_causal=True).transpose(1, 2).flatten(2)
    return fn(f, lambda: nn.Linear(8, 24)), [dict(x=R(2, 5, 8)), dict(x=R(3, 8, 8))], dict(x={0: batch(), 1: seq()})


def _half_region(self, x):
    y = self.m0(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = self.m1(y)
        b = torch.softmax(a @ a.mT, -1) @ y
        c = F.layer_norm(b, (8,)) + y
    return c.float(), a


model("autocast_region_bf16", grad=True, tol=2e-2)(
    lambda: (fn(_half_region, lambda: nn.Linear(8, 8), lambda: nn.Linear(8, 8)),
             [dict(x=R(2, 5, 8)), dict(x=R(3, 8, 8))], dict(x={0: batch(), 1: seq()})))
model("autocast_region_bf16_nograd", tol=2e-2)(
    lambda: (fn(_half_region, lambda: nn.Linear(8, 8), lambda: nn.Linear(8, 8)),
             [dict(x=R(2, 5, 8)), dict(x=R(3, 8, 8))], dict(x={0: batch(), 1: seq()})))

model("autocast_region_bf16_of_f16", grad=True, tol=2e-2)(  # casts the other half type, too
    lambda: (fn(_half_region, lambda: nn.Linear(8, 8), lambda: nn.Linear(8, 8)).half(),
             [dict(x=R(2, 5, 8, dt=torch.float16)), dict(x=R(3, 8, 8, dt=torch.float16))],
             dict(x={0: batch(), 1: seq()})))


@model("autocast_ambient_bf16", autocast=torch.bfloat16, tol=2e-2)
def _():
    def f(self, x):
        h = F.gelu(self.m0(x))
        q, k, v = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in self.m1(h).chunk(3, -1))
        return self.m2(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
                       + x).float().log_softmax(-1), F.conv1d(x.mT, self.m2.weight[:, :, None])
    return fn(f, lambda: nn.Linear(8, 8), lambda: nn.Linear(8, 24), lambda: nn.Linear(8, 8)), [dict(x=R(2, 5, 8)),
        dict(x=R(3, 8, 8))], dict(x={0: batch(), 1: seq()})


# ------------------------------------------------------------------ whole models in other dtypes
def _tower(dt):
    m = lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 8)).to(dt)
    def f(self, x): return self.m0(x) + x, (x * 2).sum(-1), x.softmax(-1), x.to(torch.float32).mean()
    return fn(f, m), [dict(x=R(2, 5, 8, dt=dt)), dict(x=R(3, 8, 8, dt=dt))], dict(x={0: batch(), 1: seq()})


for _name, _dt in (("f64", torch.float64), ("f16", torch.float16), ("bf16", torch.bfloat16)):
    model("tower_" + _name)(lambda dt=_dt: _tower(dt))


@model("integers")
def _():
    def f(self, a, b):
        q = torch.div(a, b, rounding_mode="floor")
        return q, a % b, a // b, torch.fmod(a, b), a / b, (a > b) & (a != 2), a.cumsum(0), torch.bincount(b,
            minlength=9)[:9], a.max(), a.argmin(-1), a ** 2, a.float().mean(), ~a, a << 1
    mk = lambda n: dict(a=I(50, n, lo=-50), b=I(9, n, lo=1))
    n = seq()
    return fn(f), [mk(6), mk(11)], dict(a={0: n}, b={0: n})


@model("booleans")
def _():
    def f(self, m, x):
        return m & (x > 0), m | ~m, m.any(1), m.all(0), m.sum(), m.float() @ x.mT.float(), torch.where(m, x,
            -1), m.long().cumsum(1), m.logical_xor(x < 1)
    mk = lambda n: dict(m=B(n, 4), x=R(n, 4))
    n = seq()
    return fn(f), [mk(6), mk(3)], dict(m={0: n}, x={0: n})


# ------------------------------------------------------------------ writes through views
def writes(name, f, shape=(3, 4, 5), second=(5, 4, 5)):
    model("write_" + name)(lambda: (fn(f), [dict(x=R(*shape)), dict(x=R(*second))],
                                    dict(x={0: Dim("n", min=3, max=9)})))


def _f(self, x):
    y = x.clone()
    y[:, 0].copy_(y[:, 1] * 2)
    y.select(2, 1).add_(1)
    return y, y.sum(1)
writes("select_copy_add", _f)
def _f(self, x):
    y = x * 1
    y[1:, :2] = 7.0
    y[..., ::2].mul_(3)
    y[:2].fill_(0.5)
    return y
writes("slice_fill_mul", _f)
def _f(self, x):
    y = x + 0
    z = y.transpose(0, 1)
    z[1].mul_(2)
    v = z.permute(2, 1, 0)
    v[0, :, 1] += 10
    return y, z.contiguous(), v.sum((0, 2))
writes("transpose", _f)
def _f(self, x):
    y = x.clone()
    f = y.view(y.shape[0], -1)
    f[:, 3:6].sub_(1)
    y[0].zero_()
    return f.clone(), y
writes("view_zero", _f)
def _f(self, x):
    y = x.clone()
    y[torch.tensor([0, 2])] = 1.0
    y[:, torch.tensor([1, 3])] += 5
    y.index_put_((torch.tensor([1]),), torch.tensor(9.0))
    y[y > 1.5] = -1.0
    return y
writes("index_put", _f)
def _f(self, x):
    y = x.clone()
    m = y[:, :, 0] > 0
    y[:, 1].masked_fill_(m[:, 1:2], 4.0)
    y.clamp_(-1, 4)
    y.unsqueeze(0).squeeze(0).relu_()
    y.flatten(1).neg_()
    return y, m
writes("masked_fill_clamp", _f)
def _f(self, x):
    y = x.clone()
    a, b = y.chunk(2, 1)
    a.add_(b)
    p, q, r, s, t = y.unbind(2)
    q.copy_(p * 2)
    y.narrow(1, 1, 2).exp_()
    return a, b, y, t
writes("chunk_unbind", _f)
def _f(self, x):
    y = torch.zeros(x.shape[0], 6, 5)
    y[:, 1:5] = x
    y[:, -1].copy_(x.mean(1))
    d = torch.zeros(4, 4)
    d.diagonal().fill_(2.0)
    return y, d, x
writes("into_zeros_diagonal", _f)
def _f(self, x):
    x[:, 0] = 0
    x.mul_(2)
    return x + 1
writes("input", _f)
def _f(self, x):
    y = (x * 9).round()
    y.floor_divide_(x[:, :, :1].round().abs() + 2)
    y[:, 1] //= 3
    return y
writes("floor_divide", _f)
def _f(self, x):
    a = x.expand(2, -1, -1, -1).clone()
    a[0].copy_(x.flip(0))
    b = a[1]
    b.scatter_(1, torch.zeros(b.shape[0], 1, 5, dtype=torch.long), 3.0)
    c = b.detach()
    c.sigmoid_()
    return a, b, a.sum()
writes("expand_scatter", _f)


# ------------------------------------------------------------------ buffers that a run changes
@model("kv_cache_slice")
def _():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("k", torch.randn(1, 2, 8, 4))
            self.register_buffer("v", torch.randn(1, 2, 8, 4))
            self.register_buffer("calls", torch.zeros((), dtype=torch.long))
            self.qkv = nn.Linear(8, 24)
        def forward(self, x, pos):
            q, k, v = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
            self.k.index_copy_(2, pos, k)
            self.v[:, :, pos] = v
            self.calls += 1
            mask = torch.arange(8)[None] <= pos[:, None]
            return F.scaled_dot_product_attention(q, self.k, self.v, attn_mask=mask).transpose(1,
                2).flatten(2), self.calls + 0
    mk = lambda p, n: dict(x=R(1, n, 8, seed=p), pos=torch.arange(p, p + n))
    n = Dim("n", min=2, max=8)
    return seeded(M), [mk(0, 3), mk(2, 2), mk(3, 5)], dict(x={1: n}, pos={0: n})


@model("buffer_running_mean")
def _():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.ones(4))
        def forward(self, x):
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            return (x - self.mean) * 2
    return seeded(M), [dict(x=R(3, 4)), dict(x=R(6, 4))], dict(x={0: seq()})


# ------------------------------------------------------------------ sizes
@model("unbacked_item")
def _():
    def f(self, x, grid):
        h, w = grid.tolist()
        torch._check(h >= 2), torch._check(w >= 2), torch._check(h * w == x.shape[1])
        i = torch.arange(h * w)
        bias = ((i[:, None] // w) - (i[None] // w)).abs() * -0.5 + (i[:, None] % w == i[None] % w)
        return torch.softmax(x @ x.mT + bias, -1) @ x, torch.zeros(h, w) + h
    mk = lambda b, h, w: dict(x=R(b, h * w, 4), grid=torch.tensor([h, w]))
    return fn(f), [mk(2, 3, 4), mk(3, 2, 5)], dict(x={0: batch(), 1: seq(mn=4)}, grid=None)


@model("unbacked_nonzero")
def _():
    def f(self, x, m):
        i = m.nonzero()
        return x[i[:, 0]] * 2, i + 1, i.shape[0] * torch.ones(2), i.sum(0)
    mk = lambda n, p: dict(x=R(n, 3), m=B(n, p=p))
    n = seq()
    return fn(f), [mk(7, .5), mk(9, .8), mk(4, 0.0)], dict(x={0: n}, m={0: n})


@model("unbacked_masked_select")
def _():
    def f(self, x): return torch.masked_select(x, x > 0).sum(), x[x > 0.5].exp().mean() + 0, x[x.sum(1) > 0] @ x.mT
    return fn(f), [dict(x=R(5, 4)), dict(x=R(8, 4, seed=3))], dict(x={0: seq()})


@model("unbacked_slice")
def _():
    def f(self, x, n):
        k = n.item()
        torch._check(k >= 1), torch._check(k <= x.shape[0])
        return x[:k].sum(0), torch.arange(k) * 2
    return fn(f), [dict(x=R(6, 4), n=torch.tensor(3)), dict(x=R(9, 4), n=torch.tensor(9)),
                   dict(x=R(6, 4), n=torch.tensor(1))], dict(x={0: seq()}, n=None)


def _patches(p):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.mha = nn.Conv2d(1, 8, p, p), nn.MultiheadAttention(8, 2, batch_first=True)
            self.pos = nn.Parameter(torch.randn(1, 8, 4, 4))
        def forward(self, image):
            y = self.conv(image)
            b, c, h, w = y.shape
            y = y + F.interpolate(self.pos, (h, w), mode="bicubic", align_corners=False)
            t = y.flatten(2).transpose(1, 2)
            i = torch.arange(h * w)
            t = t + self.mha(t, t, t, attn_mask=((i[:, None] // w) - (i[None] // w)).abs() > 1, need_weights=False)[0]
            return t.transpose(1, 2).reshape(b, c, h, w)
    mk = lambda b, h, w: dict(image=R(b, 1, p * h, p * w))
    h, w = Dim("h", min=2, max=6), Dim("w", min=2, max=6)
    return seeded(M), [mk(2, 3, 4), mk(3, 2, 6), mk(2, 5, 2)], dict(image={0: Dim("batch", min=2, max=8), 2: p * h,
                                                                           3: p * w})


model("derived_14")(lambda: _patches(14))
model("derived_14_core", decompose=True)(lambda: _patches(14))


@model("derived_336")
def _():
    def f(self, image):
        y = F.avg_pool2d(self.m0(image), 4)
        tiles = y.unflatten(2, (-1, 6)).unflatten(4, (-1, 6)).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
        return tiles.mean((-1, -2)), F.interpolate(y, scale_factor=0.5, mode="bilinear", align_corners=False)
    h, w = Dim("h", min=2, max=4), Dim("w", min=2, max=4)
    mk = lambda h, w: dict(image=R(1, 3, 336 * h, 336 * w))
    return fn(f, lambda: nn.Conv2d(3, 4, 14, 14)), [mk(2, 3), mk(3, 2)], dict(image={2: 336 * h, 3: 336 * w})


@model("derived_from_one")
def _():
    def f(self, x, y):
        groups = x.unflatten(0, (-1, 14)).mean(1)
        return torch.softmax(groups, 0), y[:1] * groups, y[:1].expand(groups.shape[0], -1) + groups
    h = Dim("h", min=1, max=6)
    mk = lambda h, n: dict(x=R(14 * h, 4), y=R(n, 4))
    # without a minimum, y[:1] is Min(n, 1) long
    return fn(f), [mk(3, 5), mk(1, 2), mk(6, 1), mk(2, 9)], dict(x={0: 14 * h}, y={0: Dim("n", max=9)})


@model("size_arithmetic")
def _():
    def f(self, x):
        n = x.shape[0]
        y = F.pad(x, (0, 0, 0, 4)).unflatten(0, (-1, 4))
        half = n // 2
        return y.sum(1), x[:half], x[half:], x.new_zeros(2 * n + 1), torch.arange(n, 0, -1), torch.full((max(n, 7),),
            2.0), x.repeat(2, 1)[: n + 1], x.sum() / n, x * (n ** 0.5)
    return fn(f), [dict(x=R(4 * n, 3)) for n in (2, 3, 5)], dict(x={0: 4 * Dim("n", min=2, max=40)})


# ------------------------------------------------------------------ inputs and outputs of every kind
@dataclasses.dataclass
class Result:
    logits: torch.Tensor
    hidden: list
    extra: object = None


torch.export.register_dataclass(Result, serialized_type_name="zoo.Result")


@model("outputs_nested")
def _():
    def f(self, x): return {"a": x + 1, "list": [x * 2, (x.sum(), None)], "b": {"deep": x.mT}}, x, x, x.shape[0]
    return fn(f), [dict(x=R(3, 4)), dict(x=R(5, 4))], dict(x={0: seq()})


@model("outputs_dataclass")
def _():
    def f(self, x): return Result(logits=x.softmax(-1), hidden=[x + 1, x * 2])
    return fn(f), [dict(x=R(3, 4)), dict(x=R(5, 4))], dict(x={0: seq()})


@model("inputs_of_every_kind")
def _():
    def f(self, x, none=None, k=3, scale=0.5, flag=True, mode="add", *, pair, named):
        y = x * k * scale if flag else x
        y = y + pair[0] if mode == "add" else y - pair[0]
        return y @ pair[1] + named["bias"], named["unused"]
    mk = lambda n: dict(x=R(n, 4), none=None, k=3, scale=0.5, flag=True, mode="add", pair=[R(n, 4, seed=1),
        R(4, 2, seed=2)], named={"bias": R(2, seed=3), "unused": R(n, seed=4)})
    n = seq()
    return fn(f), [mk(3), mk(6)], dict(x={0: n}, none=None, k=None, scale=None, flag=None, mode=None,
                                       pair=[{0: n}, None], named={"bias": None, "unused": {0: n}})


@model("input_views_and_zero_sizes")
def _():
    def f(self, x, y): return torch.cat([x, y], 1), x[:0], x.sum(0), y.reshape(-1), x[:, :0].sum(1), (x @ x.mT).amax(0)
    mk = lambda n: dict(x=R(n, 4), y=R(n, 2, seed=1))
    n = seq()
    return fn(f), [mk(3), mk(6)], dict(x={0: n}, y={0: n})


@model("strides_in")
def _():
    def f(self, x):
        return x.permute(2, 0, 1).reshape(-1, 3) @ torch.ones(3, 2), x.transpose(0,
            1).contiguous().view(-1), x.mT.flatten(), x.unfold(1, 3, 2).sum(-1), x.as_strided((2, 2), (3, 1), 1)
    return fn(f), [dict(x=R(3, 7, 4))], None


# ------------------------------------------------------------------ convolutional nets, images, recurrences
@model("resnet_small_core", decompose=True)
@model("resnet_small")
def _():
    class Block(nn.Module):
        def __init__(self, a, b, s):
            super().__init__()
            self.c1, self.n1, self.c2, self.n2 = nn.Conv2d(a, b, 3, s, 1, bias=False), nn.BatchNorm2d(b), nn.Conv2d(b,
                b, 3, 1, 1), nn.BatchNorm2d(b)
            self.down = nn.Sequential(nn.Conv2d(a, b, 1, s), nn.BatchNorm2d(b))
        def forward(self, x): return F.relu(self.n2(self.c2(F.relu(self.n1(self.c1(x)), inplace=True))) + self.down(x))
    def make():
        m = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3), nn.BatchNorm2d(8), nn.ReLU(True), nn.MaxPool2d(3, 2, 1),
                          Block(8, 8, 1), Block(8, 12, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5))
        for b in m.modules():
            if isinstance(b, nn.BatchNorm2d):
                b.running_mean.normal_(), b.running_var.uniform_(0.5, 2)
        return m
    m = seeded(make)
    mk = lambda b, h, w: dict(input=R(b, 3, h, w))
    return m, [mk(2, 32, 48), mk(1, 40, 40)], dict(input={0: batch(), 2: Dim("h", min=32, max=64),
                                                          3: Dim("w", min=32, max=64)})


@model("pyramid_small")  # channels-last all the way: two levels, one up again, joined, pooled, as tokens
def _():
    def f(self, x):
        a = F.relu(self.m0(x))
        b = F.gelu(self.m1(F.max_pool2d(a, 3, 2, 1, ceil_mode=True)))
        up = F.interpolate(self.m2(b), size=x.shape[2:], mode="bilinear", align_corners=False)
        y = F.silu(self.m3(torch.cat([a, up, torch.sigmoid(a) * 2 - up], 1)) + a)
        return y, self.m4(y.flatten(2).transpose(1, 2)), F.avg_pool2d(y, 3, 2, 1,
                                                                      count_include_pad=False), F.adaptive_avg_pool2d(y, (2, 3))
    m = fn(f, lambda: nn.Conv2d(3, 20, 3, 1, 1), lambda: nn.Conv2d(20, 36, 3, 2, 1), lambda: nn.Conv2d(36, 20, 1),
           lambda: nn.Conv2d(60, 20, 1), lambda: nn.Linear(20, 7))
    mk = lambda b, h, w: dict(x=R(b, 3, h, w))
    return m, [mk(2, 16, 24), mk(1, 32, 20)], dict(x={0: batch(), 2: 4 * Dim("h", min=4, max=16),
                                                      3: 4 * Dim("w", min=4, max=16)})

@model("norms_small")  # channels-last in one, two and three dimensions; statistics in several parts
def _():
    def f(self, x):
        c = self.m0(x)
        up = F.interpolate(F.silu(self.m1(c)), scale_factor=2, mode="nearest")
        queries = c.unflatten(0, (-1, 1)) + torch.tanh(c)[:, None]  # pictures of each query
        line = F.interpolate(self.m5(self.m4(x.flatten(2))), scale_factor=3.0, mode="nearest")
        block = F.interpolate(self.m8(self.m7(x[:, :, None])), scale_factor=(1, 2, 1), mode="nearest-exact")
        return self.m3(F.relu(self.m2(up))), self.m6(F.relu(line)), self.m9(block.sigmoid()), \
            self.m3(queries.flatten(0, 1))
    m = fn(f, lambda: nn.Conv2d(2, 1024, 1), lambda: nn.GroupNorm(8, 1024), lambda: nn.BatchNorm2d(1024),
           lambda: nn.Conv2d(1024, 3, 1), lambda: nn.Conv1d(2, 6, 3), lambda: nn.GroupNorm(3, 6),
           lambda: nn.Conv1d(6, 2, 2), lambda: nn.Conv3d(2, 5, 1), lambda: nn.GroupNorm(1, 5, affine=False),
           lambda: nn.Conv3d(5, 1, 1))
    m.m2.running_mean.normal_(), m.m2.running_var.uniform_(0.5, 2)
    mk = lambda b, h, w: dict(x=R(b, 2, h, w))
    return m, [mk(2, 9, 8), mk(1, 12, 5)], dict(x={0: batch(), 2: Dim("h", min=4, max=16), 3: Dim("w", min=4, max=16)})


@model("no_minimum_declared")
def _():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places, self.layer = nn.Embedding(40, 16), nn.Embedding(24,
                16), nn.TransformerEncoderLayer(16, 2, 24, batch_first=True)

        def forward(self, ids, seen):
            x = self.words(ids) + self.places.weight[:ids.shape[1]]
            return self.layer(x, src_key_padding_mask=seen == 0), x.mean(1)

    def mk(b, n):
        seen = torch.ones(b, n, dtype=torch.int64)
        seen[-1, n // 2 + 1:] = 0
        return dict(ids=I(40, b, n), seen=seen)

    # torch writes 2 to infinity for the batch and 2 to 24 for the length, and runs 1 of either
    return seeded(M), [mk(2, 6), mk(1, 9), mk(3, 1), mk(1, 1)], dict(ids={0: Dim.DYNAMIC, 1: Dim.DYNAMIC},
                                                                     seen={0: Dim.DYNAMIC, 1: Dim.DYNAMIC})



@model("mask_lies_otherwise")  # a bias that comes with its heads last, at sizes of 1, whose strides say nothing
def _():
    def f(self, x, table, q, k, v):
        bias = table.permute(2, 0, 1).unsqueeze(0) + x[:, None, None]
        y = F.relu(table.permute(2, 0, 1)[None] * 2 - x[:, None, None])
        return F.scaled_dot_product_attention(q, k, v, bias), y @ v, y.softmax(-1)
    mk = lambda b, n, m: dict(x=R(b, m), table=R(n, m, 4, seed=1), q=R(b, 4, n, 8, seed=2), k=R(b, 4, m, 8, seed=3),
                              v=R(b, 4, m, 6, seed=4))
    rows, keys = Dim("rows", max=32), Dim("keys", max=32)
    dyn = dict(x={0: batch(), 1: keys}, table={0: rows, 1: keys}, q={0: batch(), 2: rows}, k={0: batch(), 2: keys},
               v={0: batch(), 2: keys})
    return fn(f), [mk(2, 3, 5), mk(1, 1, 2), mk(1, 3, 1), mk(1, 1, 7), mk(1, 5, 3), mk(3, 1, 1)], dyn


@model("unet_groupnorm")
def _():
    def f(self, x):
        a = F.silu(self.m1(self.m0(x)))
        b = F.leaky_relu(self.m2(F.avg_pool2d(a, 2)), 0.1)
        c = self.m3(b)
        d = F.interpolate(b, scale_factor=2, mode="nearest")
        e = F.pixel_shuffle(torch.cat([c, d, a], 1), 2)
        return F.hardswish(e), F.instance_norm(a), F.mish(b), F.softplus(c)
    return (fn(f, lambda: nn.Conv2d(3, 8, 3, padding=1), lambda: nn.GroupNorm(4, 8),
               lambda: nn.Conv2d(8, 16, 3, padding="same", groups=2), lambda: nn.ConvTranspose2d(16, 8, 2, 2)),
            [dict(x=R(2, 3, 8, 12)), dict(x=R(1, 3, 16, 8))],
            dict(x={0: batch(), 2: 2 * Dim("h", min=2, max=9), 3: 2 * Dim("w", min=2, max=9)}))


@model("window_attention_roll")
def _():
    def f(self, x):
        b, h, w, c = x.shape
        y = torch.roll(x, (-2, -2), (1, 2)).view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16,
            c)
        y = self.m0(y, y, y, need_weights=False)[0]
        return torch.roll(y.view(b, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c), (2, 2),
                          (1, 2))
    return fn(f, lambda: nn.MultiheadAttention(8, 2, batch_first=True)), [dict(x=R(2, 8, 12, 8)),
                                                                          dict(x=R(3, 8, 12, 8))], dict(x={0: batch()})


@model("sampling_grid")
def _():
    def f(self, x, grid):
        return F.grid_sample(x, grid, align_corners=False), F.grid_sample(x, grid, "nearest", "border",
                                                                          True), F.fold(F.unfold(x, 3, padding=1),
                                                                              x.shape[-2:], 3, padding=1)
    return fn(f), [dict(x=R(2, 3, 5, 6), grid=R(2, 4, 4, 2)),
                   dict(x=R(1, 3, 5, 6), grid=R(1, 4, 4, 2))], dict(x={0: (b := batch())}, grid={0: b})


@model("conv1d_audio")
def _():
    def f(self, x):
        return self.m1(F.gelu(self.m0(x.unsqueeze(1)))).transpose(1, 2), F.pad(x, (3, 3),
                                                                               mode="reflect"), x.unfold(-1, 16,
                                                                                   8).abs().amax(-1)
    return (fn(f, lambda: nn.Conv1d(1, 8, 10, 5),
               lambda: nn.utils.parametrizations.weight_norm(nn.Conv1d(8, 8, 4, padding=2, groups=2))),
            [dict(x=R(2, 80)), dict(x=R(3, 96))], dict(x={0: batch(), 1: Dim("n", min=40, max=400)}))


@model("lstm_gru")
def _():
    def f(self, x):
        a, (h, c) = self.m0(x)
        b, g = self.m1(x)
        return a, h, c, b, g
    return fn(f, lambda: nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True),
              lambda: nn.GRU(4, 5, batch_first=True)), [dict(x=R(2, 5, 4))], None


@model("recurrent")
def _():
    def f(self, x, h, c):
        y, (h, c) = self.m0(x, (h, c))
        z, g = self.m1(y)
        r, _ = self.m2(x.transpose(0, 1))
        return y, h, c, z, g, r, self.m3(x[:, 0]), self.m4(x[:, 1], g[0])
    mk = lambda b: dict(x=R(b, 5, 4), h=R(4, b, 3, seed=1), c=R(4, b, 6, seed=2))
    b = batch()
    return (fn(f, lambda: nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True, proj_size=3),
               lambda: nn.GRU(6, 7, 2, batch_first=True, bias=False), lambda: nn.RNN(4, 5, nonlinearity="relu"),
               lambda: nn.LSTMCell(4, 6), lambda: nn.GRUCell(4, 7)), [mk(2), mk(5)], dict(x={0: b}, h={1: b}, c={1: b}))


@model("order")
def _():
    def f(self, x):
        return (*x.median(1), x.median(), *x.nanmedian(-1), *x.kthvalue(3, 1), *x.mode(-1), *(x * 2).round().mode(1),
                *x.cummax(1), *x.cummin(0), x.logcumsumexp(1),
                            torch.linalg.matrix_norm(x), torch.linalg.matrix_norm(x, "nuc"),
                            torch.cdist(x, x[:1], 1.0), x[0].trace(), x.rot90(1, (1, 2)))
    return fn(f), [dict(x=R(2, 5, 8)), dict(x=R(3, 7, 8))], dict(x={0: batch(), 1: seq(mn=3, mx=25)})


@model("volumes_sampled")
def _():
    def f(self, x, theta):
        grid = F.affine_grid(theta, x.shape, align_corners=False)
        return (F.grid_sample(x, grid, align_corners=False), F.grid_sample(x, grid, "nearest", "reflection", True),
                F.interpolate(x, scale_factor=1.5, mode="trilinear"), F.interpolate(x, (3, 4, 9)),
                *F.max_pool3d(x, 2, return_indices=True), *F.adaptive_max_pool3d(x, (2, 1, 3), return_indices=True),
                F.avg_pool3d(x, 3, 2, 1, ceil_mode=True), F.adaptive_avg_pool3d(x, 2))
    mk = lambda b: dict(x=R(b, 2, 4, 5, 6), theta=R(b, 3, 4, seed=1) * 0.5)
    b = batch()
    return fn(f), [mk(2), mk(3)], dict(x={0: b}, theta={0: b})


@model("moe_topk")
def _():
    def f(self, x):
        w, i = self.m0(x).softmax(-1).topk(2, -1)
        y = torch.zeros_like(x)
        for e, expert in enumerate((self.m1, self.m2, self.m3)):
            y = y + expert(x) * (w * (i == e)).sum(-1, keepdim=True)
        return y, torch.gather(self.m0(x), 1, i), i, F.one_hot(i, 3).sum(1)
    return fn(f, *[lambda n=n: nn.Linear(6, n) for n in (3, 6, 6, 6)], std=0.5), [dict(x=R(5, 6)),
        dict(x=R(8, 6))], dict(x={0: seq()})


@model("norms_and_losses")
def _():
    def f(self, x):
        return (F.rms_norm(x, (8,), self.m0.weight), F.normalize(x, dim=1), F.cosine_similarity(x[:, :1], x, -1),
                torch.cdist(x, x), x.std(1), x.var((1, 2), unbiased=False),
                            F.log_softmax(x, 1), torch.linalg.vector_norm(x, dim=-1), x.sort(-1)[0], x.median(-1)[0],
                            F.glu(x), torch.cumprod(x, 1), x.tril(), torch.nan_to_num(x / 0))
    return fn(f, lambda: nn.LayerNorm(8)), [dict(x=R(2, 5, 8)), dict(x=R(3, 7, 8))], dict(x={0: batch(), 1: seq(mx=25)})


# ------------------------------------------------------------------ Fourier transforms
@model("fft_fnet")
def _():
    class FNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.out = nn.LayerNorm(16), nn.Linear(16, 16)
        def forward(self, x):
            h = self.norm(x + torch.fft.fftn(x, dim=(1, 2)).real)
            return h + self.out(h)
    return seeded(FNet), [dict(x=R(b, s, 16)) for b, s in ((2, 10), (3, 17), (1, 64))], dict(x={0: batch(), 1: seq()})


@model("fft_gfnet")
def _():
    class GlobalFilter(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(8, 5, 16, 2))
        def forward(self, x):
            z = torch.fft.rfft2(x, dim=(1, 2), norm="ortho") * torch.view_as_complex(self.w)
            return torch.fft.irfft2(z, s=x.shape[1:3], dim=(1, 2), norm="ortho")
    return seeded(GlobalFilter), [dict(x=R(b, 8, 8, 16)) for b in (2, 1, 5)], dict(x={0: batch()})


@model("fft_long_convolution")
def _():
    class Hyena(nn.Module):
        def __init__(self):
            super().__init__()
            self.k, self.d = nn.Parameter(torch.randn(16, 64)), nn.Parameter(torch.randn(16, 1))
        def forward(self, u):
            n = u.shape[-1]
            k = torch.fft.rfft(self.k[:, :n], n=2 * n) / (2 * n)
            y = torch.fft.irfft(torch.fft.rfft(u, n=2 * n) * k, n=2 * n, norm="forward")[..., :n]
            return y + u * self.d
    return (seeded(Hyena), [dict(u=R(b, 16, s)) for b, s in ((2, 40), (3, 17), (1, 63))],
            dict(u={0: batch(), 2: seq(mx=63)}))


@model("fft_mel")
def _():
    class Mel(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("window", torch.hann_window(64))
            self.register_buffer("mel", torch.rand(33, 10))
        def forward(self, x):
            power = torch.stft(x, 64, 16, window=self.window, return_complex=True).abs() ** 2
            return torch.log(torch.clamp(power.mT @ self.mel, min=1e-5))
    return (seeded(Mel), [dict(x=R(b, s)) for b, s in ((2, 200), (3, 333), (1, 1024))],
            dict(x={0: batch(), 1: seq("samples", 64, 4096)}))


@model("fft_neural_operator")
def _():
    class Operator(nn.Module):
        def __init__(self):
            super().__init__()
            self.low, self.high = (nn.Parameter(torch.randn(4, 6, 3, 3, dtype=torch.cfloat)) for _ in range(2))
        def forward(self, x):
            z = torch.fft.rfft2(x)
            out = torch.zeros(x.shape[0], 6, x.shape[2], x.shape[3] // 2 + 1, dtype=torch.cfloat)
            out[:, :, :3, :3] = torch.einsum("bixy,ioxy->boxy", z[:, :, :3, :3], self.low)
            out[:, :, -3:, :3] = torch.einsum("bixy,ioxy->boxy", z[:, :, -3:, :3], self.high)
            return torch.fft.irfft2(out, s=x.shape[2:])
    return (seeded(Operator), [dict(x=R(b, 4, h, w)) for b, h, w in ((2, 12, 10), (3, 15, 9), (1, 8, 8))],
            dict(x={0: batch(), 2: seq("h", 8), 3: seq("w", 8)}))


@model("factors_core", decompose=True)
def _():
    """run_decompositions() puts the checks of factorizations in an order by tokens."""
    def f(self, x, i):
        a = x @ x.mT + 3 * torch.eye(4)
        sign, log = torch.linalg.slogdet(a)
        y = torch.linalg.cholesky(a) + torch.linalg.inv(a) + torch.linalg.solve(a, x)
        return (y * torch.linalg.det(a)[:, None, None], sign * log, torch.linalg.eigvalsh(a), torch.linalg.svdvals(x),
                self.m0(i), torch.linalg.cond(a))
    return (fn(f, lambda: nn.EmbeddingBag(9, 4, mode="mean")),
            [dict(x=R(b, 4, 4), i=torch.randint(0, 9, (b, 3))) for b in (2, 3)], dict(x={0: batch()}, i={0: batch()}))


if hasattr(torch.linalg, "polar"):  # from PyTorch 2.15 on
    @model("ops_of_2_15")
    def _():
        class M(nn.Module):
            def forward(self, a, x, grid):
                spd = a.mT @ a + 0.1 * torch.eye(a.shape[-1])
                volume = F.grid_sample(x, grid, mode="bicubic", padding_mode="reflection", align_corners=False)
                picture = F.interpolate(x[:, :, 0], size=(5, 9), mode="lanczos", antialias=True)
                return (*torch.linalg.polar(a), torch.linalg.matrix_sqrth(spd), volume, picture,
                        torch.logit(x.sigmoid(), 0.6))
        b = batch()
        return (M(), [dict(a=R(n, 5, 3), x=R(n, 2, 3, 4, 6), grid=R(n, 2, 1, 3, 3, seed=1)) for n in (2, 1, 3)],
                dict(a={0: b}, x={0: b}, grid={0: b}))
