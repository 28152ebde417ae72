"""qkv.Model.save against PyTorch: what is written loads there and here, with the same values and the same graph."""
import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
from parts import B, R, S, fn  # noqa: E402
from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402
from tolerance import tolerance  # noqa: E402

TOLERANCE = tolerance("TORCH")["f32"]


def leaves(out):
    """Tensors; numbers as a run gives them."""
    numbers = {int: torch.int64, float: torch.float64, bool: torch.bool}
    return [x.detach().clone() if isinstance(x, torch.Tensor) else torch.tensor(x, dtype=numbers[type(x)])
            for x in tree_leaves(out) if x is not None and not isinstance(x, str)]


def close(a, b):
    assert a.shape == b.shape and a.dtype == b.dtype, (a.shape, b.shape, a.dtype, b.dtype)
    if a.dtype.is_floating_point and a.numel():
        assert torch.equal(torch.isfinite(a), torch.isfinite(b))
        assert (torch.nan_to_num(a - b, 0, 0, 0)).abs().max() <= TOLERANCE * max(1e-6,
                                                                            torch.nan_to_num(b, 0, 0, 0).abs().max())
    else:
        assert torch.equal(a, b)


def flat(inputs):
    return [x.numpy() for x in tree_leaves(inputs) if isinstance(x, torch.Tensor)]


class Saved:
    """A module exported, saved by PyTorch, opened by qkv, saved by qkv."""

    def __init__(self, folder, module, inputs, dynamic=None, grad=False):
        self.module, self.path = module, str(folder / "saved.pt2")
        with torch.set_grad_enabled(grad):
            torch.export.save(torch.export.export(module, inputs, dynamic_shapes=dynamic), folder / "given.pt2")
        given = qkv.Model(folder / "given.pt2")
        given.save(self.path)
        self.given_text = given.graph_text()
        self.again = qkv.Model(self.path)
        self.ep = torch.export.load(self.path)

    def check(self, *variants, text=True):
        if text:
            assert self.again.graph_text() == self.given_text
        for inputs in variants:
            copied = lambda: tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, inputs)  # noqa: E731
            with torch.no_grad():
                want = copy.deepcopy(self.module)(*copied())
                got = copy.deepcopy(self.ep.module())(*copied())
            assert type(want) is type(got)
            for a, b in zip(leaves(got), leaves(want), strict=True):
                close(a, b)
            self.again.reset()
            for a, b in zip(self.again.run(flat(inputs)).values(), leaves(want), strict=True):
                close(torch.from_numpy(np.array(a)), b)
        return self


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)).eval()


def test_static(tmp_path):
    Saved(tmp_path, mlp(), (R(5, 4),)).check((R(5, 4, seed=1),))


def test_dynamic_attention_with_padding(tmp_path):
    torch.manual_seed(0)
    m = fn(lambda self, x, mask: self.mha(x, x, x, key_padding_mask=mask),
           mha=nn.MultiheadAttention(16, 2, batch_first=True))

    def inputs(b, s):
        mask = torch.zeros(b, s, dtype=torch.bool)
        mask[0, -1] = True
        return R(b, s, 16), mask

    Saved(tmp_path, m, inputs(2, 5), ({0: B, 1: S}, {0: B, 1: S})).check(inputs(2, 5), inputs(3, 9), inputs(1, 2))


def test_grouped_causal(tmp_path):
    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = self.q(x).view(b, s, 4, 8).transpose(1, 2), self.k(x).view(b, s, 2, 8).transpose(1,
            2), self.v(x).view(b, s, 2, 8).transpose(1, 2)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3, enable_gqa=True)
        return y.transpose(1, 2).reshape(b, s, -1)

    torch.manual_seed(0)
    m = fn(forward, q=nn.Linear(12, 32), k=nn.Linear(12, 16), v=nn.Linear(12, 16))
    Saved(tmp_path, m, (R(2, 5, 12),), ({0: B, 1: S},)).check((R(2, 5, 12),), (R(3, 7, 12),))


def test_causal_with_a_negative_scale(tmp_path):
    """PyTorch's kernel for CPUs gives NaN for is_causal with such a scale."""
    def forward(self, q):
        allowed = torch.arange(q.shape[-2])[None, :] <= torch.arange(q.shape[-2])[:, None]
        return torch.softmax(torch.where(allowed, q @ q.mT * -0.5, float("-inf")), -1) @ q

    m, x = fn(forward), R(2, 3, 5, 8)
    torch.export.save(torch.export.export(m, (x,), dynamic_shapes=({0: B, 2: S},)), tmp_path / "given.pt2")
    model = qkv.Model(tmp_path / "given.pt2")
    assert model.rewrite()["attentions_fused"] == 1
    model.save(tmp_path / "saved.pt2")
    saved = torch.export.load(tmp_path / "saved.pt2").module()
    for y in (x, R(3, 3, 7, 8)):
        close(saved(y), m(y))


def test_thin_masks(tmp_path):
    """PyTorch takes a mask of rank 0 or 1 beside queries of rank 3, but not of rank 4."""
    def forward(self, q, one, keys):
        sdpa = nn.functional.scaled_dot_product_attention
        return sdpa(q, q, q, one), sdpa(q, q, q, keys)

    inputs = R(2, 5, 8), torch.tensor(True), torch.tensor([True, False, True, True, False])
    Saved(tmp_path, fn(forward), inputs).check(inputs, text=False)


@pytest.mark.turns
def test_encoder(tmp_path):
    def forward(self, ids, keep):
        h = self.embed(ids) + self.place(torch.arange(ids.shape[1]))
        h = self.encoder(h, src_key_padding_mask=~keep)
        return {"last": h, "pooled": (h * keep[..., None]).sum(1) / keep.sum(1, keepdim=True), "count": keep.sum()}

    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, activation="gelu", batch_first=True, norm_first=True)
    m = fn(forward, embed=nn.Embedding(50, 16), place=nn.Embedding(64, 16),
           encoder=nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    torch.backends.mha.set_fastpath_enabled(False)

    def inputs(b, s):
        keep = torch.ones(b, s, dtype=torch.bool)
        keep[0, -1] = False
        return torch.randint(0, 50, (b, s), generator=torch.Generator().manual_seed(s)), keep

    Saved(tmp_path, m, inputs(2, 6), ({0: B, 1: S}, {0: B, 1: S})).check(inputs(2, 6), inputs(4, 11))


def test_convolutions(tmp_path):
    torch.manual_seed(0)
    m = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                      nn.Conv2d(8, 8, 3, padding=1, groups=2),
                      nn.Upsample(scale_factor=2, mode="bilinear"), nn.ConvTranspose2d(8, 4, 2, 2),
                      nn.GroupNorm(2, 4), nn.Conv2d(4, 2, 1),
                      nn.AdaptiveAvgPool2d(3), nn.Flatten()).eval()
    h, w = Dim("h", min=2, max=20), Dim("w", min=2, max=20)
    Saved(tmp_path, m, (R(2, 3, 32, 40),), ({0: B, 2: 8 * h, 3: 8 * w},)).check((R(2, 3, 32, 40),), (R(3, 3, 16, 24),))


@pytest.mark.turns
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
def test_resampling(tmp_path, mode):
    def forward(self, x, y):
        f = nn.functional.interpolate
        return f(x, scale_factor=1.7, mode=mode), f(x, size=y.shape[2:], mode=mode), f(x, scale_factor=(0.5, 2),
            mode=mode, recompute_scale_factor=True)

    h, w = Dim("h", min=4, max=20), Dim("w", min=4, max=20)
    dims = {2: Dim("k", min=2, max=30), 3: Dim("l", min=2, max=30)}
    Saved(tmp_path, fn(forward), (R(1, 2, 4, 6), R(1, 1, 9, 5)),
          ({2: h, 3: w}, dims)).check((R(1, 2, 4, 6), R(1, 1, 9, 5)), (R(1, 2, 7, 8), R(1, 1, 3, 11)))


def test_tied_and_strided_weights(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.embed, self.out = nn.Embedding(11, 6), nn.Linear(6, 11, bias=False)
            self.out.weight = self.embed.weight
            base = R(5, 7)
            self.register_buffer("turned", base.t())
            self.register_buffer("part", base[1:3, 2:6])
            self.register_buffer("wide", torch.ones(1, 6).expand(3, 6))
            self.register_buffer("none", torch.empty(0, 4))
            self.register_buffer("scratch", torch.arange(4.0), persistent=False)
            self.scale = nn.Parameter(R(6).half(), requires_grad=False)

        def forward(self, ids):
            return (self.out(self.embed(ids)), self.turned.sum(0), self.part * self.scratch, self.wide * self.scale,
                    self.none.sum(0))

    saved = Saved(tmp_path, Tied(), (torch.arange(5),), ({0: Dim("n", min=2, max=11)},)).check((torch.arange(5),),
        (torch.arange(9),))
    state, given = saved.ep.state_dict, torch.export.load(tmp_path / "given.pt2").state_dict
    assert list(state) == list(given) and all(torch.equal(state[k], given[k]) and type(state[k]) is type(given[k])
                                              for k in given)
    assert all(state[k].stride() == given[k].stride() and state[k].requires_grad == given[k].requires_grad
               for k in given)
    assert state["embed.weight"].data_ptr() == state["out.weight"].data_ptr() and state["turned"].untyped_storage().data_ptr() == state["part"].untyped_storage().data_ptr()
    assert saved.ep.graph_signature.non_persistent_buffers == ("scratch",) and "scratch" not in state


def test_written_buffers(tmp_path):
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("k", torch.zeros(8, 4))
            self.register_buffer("last", torch.zeros(4))
            self.register_buffer("calls", torch.zeros((), dtype=torch.long))

        def forward(self, x, at):
            before = self.k.clone()
            self.last.copy_(self.k[0])
            self.k.index_copy_(0, at, x)
            self.calls += 1
            return before[:3], self.k * 2, self.calls, self.last

    inputs = [(R(n, 4, seed=n), torch.arange(n)) for n in (3, 2, 5)]
    n = Dim("n", min=2, max=8)
    saved = Saved(tmp_path, Cache(), inputs[0], ({0: n}, {0: n})).check(*inputs)
    module, eager = saved.ep.module(), Cache()
    saved.again.reset()
    for x, at in inputs:  # the state goes on
        want = leaves(eager(x, at))
        for a, b, c in zip(leaves(module(x, at)), want, saved.again.run(flat((x, at))).values(), strict=True):
            close(a, b)
            close(torch.from_numpy(np.array(c)), b)
    assert sorted(saved.ep.graph_signature.buffers_to_mutate.values()) == ["calls", "k", "last"]


def test_written_buffers_take_their_sizes(tmp_path):
    """As copy_ has it: a number for all elements, another dtype."""
    class Means(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(1000))
            self.register_buffer("last", torch.zeros(3))

        def forward(self, x):
            y = x + self.mean.sum() + self.last
            self.mean = x.mean()
            self.last = x[0].long()
            return y

    xs = [3 * R(n, 3, seed=n) for n in (2, 4, 3)]
    ep = torch.export.export(Means(), (xs[0],), dynamic_shapes=({0: B},)).run_decompositions()
    assert sorted(ep.graph_signature.buffers_to_mutate.values()) == ["last", "mean"]
    torch.export.save(ep, tmp_path / "given.pt2")
    given = qkv.Model(tmp_path / "given.pt2")
    given.save(tmp_path / "again.pt2")
    models = given, qkv.Model(tmp_path / "again.pt2")
    modules = ep.module(), torch.export.load(tmp_path / "again.pt2").module()
    for x in xs:
        want = modules[0](x)
        close(modules[1](x), want)
        for m in models:
            close(torch.from_numpy(np.array(m.run([x.numpy()])["output_0"])), want)


@pytest.mark.turns
def test_written_inputs(tmp_path):
    def forward(self, x, y, z):
        before = x[0].clone()
        x.mul_(2)
        y[:, 1:] += x[:, 1:]
        z.copy_(x)
        return before, x, y[0] + 1

    def inputs(n):
        return R(n, 4), R(n, 4, seed=1), R(n, 4, seed=2)

    for rounds in range(2):  # as PyTorch's training IR, and as its functional form
        folder = tmp_path / str(rounds)
        folder.mkdir()
        saved = Saved(folder, fn(forward), inputs(3), ({0: S},) * 3).check(inputs(3), inputs(6))
        ep = saved.ep.run_decompositions() if rounds else saved.ep
        if rounds:
            torch.export.save(ep, folder / "functional.pt2")
            qkv.Model(folder / "functional.pt2").save(folder / "again.pt2")
            ep = torch.export.load(folder / "again.pt2")
        assert sorted(ep.graph_signature.user_inputs_to_mutate.values()) == ["x", "y", "z"]
        want, got = inputs(5), inputs(5)
        for a, b in zip(leaves(ep.module()(*got)), leaves(fn(forward)(*want)), strict=True):
            close(a, b)
        for a, b in zip(got, want):
            close(a, b)


def test_derived_sizes(tmp_path):
    def forward(self, image, mask):
        h = self.conv(image)
        b, c, y, x = h.shape
        f = h.flatten(2).transpose(1, 2)
        far = (torch.arange(y * x)[:, None] // x - torch.arange(y * x)[None] // x).abs()
        return f @ f.transpose(1, 2) + far + mask[..., : y * x].sum(), torch.zeros(y + 2 * x - 1,
            max(x, 3)), f.reshape(b, y, x, c)[:, 1:]

    h, w = Dim("h", min=2, max=6), Dim("w", min=2, max=6)
    torch.manual_seed(0)
    m = fn(forward, conv=nn.Conv2d(1, 4, 14, 14))
    spec = ({0: B, 2: 14 * h, 3: 14 * w}, {1: Dim("m", min=40, max=80)})
    saved = Saved(tmp_path, m, (R(2, 1, 42, 56), R(2, 50)), spec).check((R(2, 1, 42, 56), R(2, 50)),
                                                                        (R(3, 1, 28, 84), R(2, 41)))
    ranges = {str(k): (v.lower, v.upper) for k, v in saved.ep.range_constraints.items()}
    assert sorted(ranges.values()) == [(1, 8), (2, 6), (2, 6), (40, 80)] or sorted(ranges.values())[1:] == [(2, 6),
        (2, 6), (40, 80)]


def test_sizes_out_of_data(tmp_path):
    def forward(self, x, grid, keep):
        h, w = grid.tolist()
        torch._check(h >= 2)
        torch._check(w >= 2)
        torch._check(h * w == x.shape[0])
        kept = x[keep.nonzero()[:, 0]]
        return x.view(h, w, 4).transpose(0, 1) + torch.arange(h)[:, None], kept * 2, torch.zeros(h + 1, w) + h

    def inputs(h, w):
        keep = torch.zeros(h * w, dtype=torch.bool)
        keep[::2] = True
        return R(h * w, 4), torch.tensor([h, w]), keep

    n = Dim("n", min=4, max=100)
    saved = Saved(tmp_path, fn(forward), inputs(3, 4), ({0: n}, None, {0: n})).check(inputs(3, 4), inputs(2, 7))
    with pytest.raises(RuntimeError):
        saved.ep.module()(R(12, 4), torch.tensor([5, 2]), torch.ones(12, dtype=torch.bool))


def test_sizes_out_of_data_with_a_range_and_another_size(tmp_path):
    """PyTorch has one symbol for the two that an assert says are equal, in ranges and shapes, too."""
    def items(self, x, n):
        u, v = n.item(), n.sum().item()
        torch._check(u >= 0), torch._check(u <= 7)
        torch._check(v == u), torch._check(v <= 7)
        return x.repeat(u + 1, 1), torch.zeros(v + 1)

    def rows(self, x):
        y = x[x[:, 0] > 0]
        torch._check(y.shape[0] == x.shape[1]), torch._check(y.shape[0] >= 1), torch._check(y.shape[0] <= 50)
        return y @ y

    def several(self, x, n, m):
        u, v, w = n.nonzero().shape[0], m.nonzero().shape[0], n.sum().item()
        torch._check(u == v), torch._check(w >= 2), torch._check(w == u), torch._check(w == v)
        torch._check(w == x.shape[0])
        return x + torch.arange(w)[:, None], torch.zeros(u, 2) + m.nonzero()

    same = [(R(n, 2), torch.ones(n, dtype=torch.long), torch.ones(n, dtype=torch.long)) for n in (4, 6)]
    for name, forward, variants, dynamic in (
            ("several", several, same, ({0: Dim.DYNAMIC},) * 3),
            ("items", items, [(R(4, 4), torch.tensor(k)) for k in (4, 0)], (None, None)),
            ("rows", rows, [(R(n, n).abs() + 0.1,) for n in (4, 6)], ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},))):
        (tmp_path / name).mkdir()
        Saved(tmp_path / name, fn(forward), variants[0], dynamic).check(*variants, text=False)


def test_inputs_and_outputs_of_every_kind(tmp_path):
    def forward(self, x, flag, scale, mode, none, pair, named):
        y = x * scale if flag and mode == "mul" else x
        return {"sum": y + pair[0] * pair[1]["a"], "rest": [None, 3, 0.5, (named["b"], y)], "n": x.shape[0], "x": x}

    def inputs(n):
        return R(n, 3), True, 0.5, "mul", None, (R(3), {"a": R(n, 3, seed=1)}), {"b": R(2), "unused": R(n)}

    dyn = ({0: S}, None, None, None, None, (None, {"a": {0: S}}), {"b": None, "unused": {0: S}})
    saved = Saved(tmp_path, fn(forward), inputs(5), dyn).check(inputs(5), inputs(9))
    got = saved.ep.module()(*inputs(4))
    assert got["rest"][:3] == [None, 3, 0.5] and got["n"] == 4 and list(got) == ["sum", "rest", "n", "x"]


def test_dynamic_integers(tmp_path):
    def forward(self, x, n, k):
        return x * n, torch.arange(n) + x.shape[0], torch.zeros(k + 1), n + 1

    saved = Saved(tmp_path, fn(forward), (R(3, 4), 5, 7), ({0: S}, Dim.DYNAMIC, Dim.DYNAMIC))
    assert saved.again.graph_text() == saved.given_text and "symbol L" not in saved.given_text
    for inputs in ((R(3, 4), 5, 7), (R(6, 4), 2, 9)):
        want, got = forward(None, *inputs), saved.ep.module()(*inputs)
        assert got[3] == want[3]
        for a, b in zip(got[:3], want[:3]):
            close(a, b)


def test_training_goes_on(tmp_path):
    m = mlp()
    saved = Saved(tmp_path, m, (R(5, 4),), ({0: S},), grad=True)
    module, x = saved.ep.module(), R(7, 4, seed=3)
    module(x).square().sum().backward()
    m(x).square().sum().backward()
    want, got = dict(m.named_parameters()), dict(module.named_parameters())
    assert list(want) == list(got)
    for name, p in got.items():
        close(p.grad, want[name].grad)


@pytest.mark.turns
def test_decompositions(tmp_path):
    torch.manual_seed(0)
    m = fn(lambda self, x: self.mha(x, x, x, need_weights=False)[0], mha=nn.MultiheadAttention(8, 2, batch_first=True))
    saved = Saved(tmp_path, m, (R(2, 5, 8),), ({0: B, 1: S},))
    close(saved.ep.run_decompositions().module()(R(3, 7, 8)), m(R(3, 7, 8)))


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_padding_of_pictures_and_volumes(tmp_path, mode):
    """One row of the table stands for padding of every rank, in packed files, too."""
    for rank, sizes in ((2, (1, 2, 2, 1)), (3, (1, 0, 2, 1, 0, 2))):
        x = R(1, 2, *(5,) * rank)
        m = fn(lambda self, x: nn.functional.pad(x, sizes, mode=mode))
        Saved(tmp_path, m, (x,))
        torch.export.save(torch.export.export(m, (x,)), tmp_path / "pad.pt2")
        qkv.Model(tmp_path / "pad.pt2").pack(tmp_path / "pad.qkv")
        got = qkv.Model(tmp_path / "pad.qkv").run([x.numpy()])["output_0"]
        assert np.array_equal(got, m(x).numpy())


def test_same_bytes_and_no_remains(tmp_path):
    torch.export.save(torch.export.export(mlp(), (R(5, 4),)), tmp_path / "given.pt2")
    model = qkv.Model(tmp_path / "given.pt2")
    model.save(tmp_path / "a.pt2")
    model.save(tmp_path / "b.pt2")
    qkv.Model(tmp_path / "a.pt2").save(tmp_path / "c.pt2")
    a, b, c = ((tmp_path / f"{n}.pt2").read_bytes() for n in "abc")
    assert a == b == c
    for bad in (tmp_path / "none" / "x.pt2", tmp_path):
        with pytest.raises(qkv.Error):
            model.save(bad)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.pt2", "b.pt2", "c.pt2", "given.pt2"]
    model.save(tmp_path / "given.pt2")  # over the file that it reads from
    assert (tmp_path / "given.pt2").read_bytes() == a and np.isfinite(model.run([R(5, 4).numpy()])["output_0"]).all()


def test_xlog1py_of_a_number(tmp_path):
    x = torch.rand(3)
    model = fn(lambda m, x: (torch.special.xlog1py(x, 2), torch.special.xlog1py(2, x)))
    torch.export.save(torch.export.export(model, (x,)), tmp_path / "a.pt2")
    qkv.Model(tmp_path / "a.pt2").save(tmp_path / "b.pt2")
    for a, b in zip(torch.export.load(tmp_path / "b.pt2").module()(x), model(x)):
        assert torch.allclose(a, b)
