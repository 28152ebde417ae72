"""The first-order bounds of docs/PROOF.md: how far the float32 results of a rule's both sides are from the real ones.

Each case is a spelling that one rule (or more) replaces, and the bound of its result, element by element, in float64.
Both sides must stay within it, hence within twice of it of each other; and a bound that is never approached within a
factor of SLACK would say nothing."""
import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
from torch import nn  # noqa: E402

U, EXP, SLACK = 2.0 ** -24, 8, 200  # half a unit in the last place; exp, erf, tanh, sin: within EXP of them, relative
F = nn.functional


def dot(x, w):
    """sum_k x_k w_k: K roundings of sums and products, in any order."""
    return x.shape[-1] * U * (x.abs() @ w.abs())


def rooted(x, eps, error):
    """x / sqrt(mean of x^2 + eps), x within error."""
    n, square = x.shape[-1], x.square().mean(-1, keepdim=True) + eps
    inner = (n + 2) / 2 * U + (x.abs() * error).mean(-1, keepdim=True) / square
    return (error + x.abs() * (inner + 4 * U)) / square.sqrt()


def soft(s, error):
    """softmax of s, each within error: relative to the result."""
    n, reach = s.shape[-1], (s - s.amax(-1, keepdim=True)).abs()
    off = error + U * reach
    return s.softmax(-1) * (off + off.amax(-1, keepdim=True) + (n + 2 * EXP + 2) * U)


def attention(q, k, v, bias=0.0, scale=None):
    """sum_j p_j v_j: the errors of the scores, the softmax, the sum."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    s = q @ k.transpose(-1, -2) * scale + bias
    error = (dot(q, k.transpose(-1, -2)) + 3 * U * (q.abs() @ k.transpose(-1, -2).abs())) * scale + U * s.abs()
    p = s.softmax(-1)
    return soft(s, error) @ v.abs() + (k.shape[-2] + 2) * U * (p @ v.abs())


def turned(x, c, s):
    half = x.shape[-1] // 2
    return x * c + torch.cat([-x[..., half:], x[..., :half]], -1) * s


def turned_bound(x, c, s):
    half = x.shape[-1] // 2
    return 2 * U * ((x * c).abs() + (torch.cat([x[..., half:], x[..., :half]], -1) * s).abs())


class Attention(nn.Module):
    rules = {"attention"}

    def forward(self, q, k, v, bias):
        return ((q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5 + bias).softmax(-1) @ v

    bound = staticmethod(attention)
    sizes = ((2, 2, 9, 16), (2, 2, 33, 16), (2, 2, 33, 16), (9, 33))


class Causal(nn.Module):
    rules = {"attention"}

    def forward(self, q, k, v):
        hide = torch.ones(17, 17, dtype=torch.bool).triu(1)
        return ((q * 0.3) @ k.transpose(-1, -2)).masked_fill(hide, float("-inf")).softmax(-1) @ v

    @staticmethod
    def bound(q, k, v):
        return attention(q, k, v, scale=0.3) + attention(
            q, k, v, torch.zeros(17, 17).double().masked_fill(torch.ones(17, 17, dtype=torch.bool).triu(1), -1e4), 0.3)
    sizes = ((2, 2, 17, 8),) * 3


class Softmax(nn.Module):
    rules = {"softmax_by_hand"}

    def forward(self, x):
        e = torch.exp(x - x.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)

    @staticmethod
    def bound(x):
        return soft(x, 0 * x)
    sizes = ((7, 40),)


class RmsNorm(nn.Module):
    rules = {"rms_norm_by_hand"}

    def forward(self, x, w):
        return w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    @staticmethod
    def bound(x, w):
        return (rooted(x, 1e-6, 0 * x)) * w.abs()
    sizes = (7, 48), (48,)


class LayerNorm(nn.Module):
    rules = {"layer_norm_by_hand"}

    def forward(self, x):
        c = x - x.mean(-1, keepdim=True)
        return c / torch.sqrt(c.pow(2).mean(-1, keepdim=True) + 1e-5)

    @staticmethod
    def bound(x):
        c = x - x.mean(-1, keepdim=True)
        return rooted(c, 1e-5, (x.shape[-1] + 1) * U * x.abs().mean(-1, keepdim=True) + U * c.abs())
    sizes = ((7, 48),)


class Gelu(nn.Module):
    rules = {"gelu_by_tanh"}

    def forward(self, x):
        return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x ** 3)))

    @staticmethod
    def bound(x):
        inner = 0.7978845608028654 * (x + 0.044715 * x ** 3)
        through = 8 * U * inner.abs() * (1 - inner.tanh() ** 2)
        return 0.5 * x.abs() * ((EXP + 4) * U * (1 + inner.tanh().abs()) + through)
    sizes = ((9, 32),)


class Rotary(nn.Module):
    rules = {"rotary_halves"}

    def forward(self, x, c, s):
        return turned(x, c, s)
    bound = staticmethod(turned_bound)
    sizes = ((2, 2, 5, 8), (5, 8), (5, 8))


class Folded(nn.Module):
    """(W x + b) s: the weights are rounded twice."""
    rules = {"fold_scale"}

    def __init__(self):
        super().__init__()
        self.linear, self.scale = nn.Linear(24, 12), nn.Parameter(torch.rand(12) + 0.5)

    def forward(self, x):
        return self.linear(x) * self.scale

    def bound(self, x):
        w, b, s = (t.detach().double() for t in (self.linear.weight, self.linear.bias, self.scale))
        return (dot(x, w.T) + 3 * U * (x.abs() @ w.T.abs() + b.abs())) * s.abs()
    sizes = ((6, 24),)


class Packed(nn.Module):
    """Three products of one operand."""
    rules = {"pack_qkv"}

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))

    def forward(self, x):
        q, k, v = (f(x).view(2, 9, 2, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        return F.scaled_dot_product_attention(q, k, v)

    def bound(self, x):
        out, off = [], []
        for f in (self.q, self.k, self.v):
            w, b = f.weight.detach().double(), f.bias.detach().double()
            for values, y in ((out, x @ w.T + b), (off, dot(x, w.T) + U * (x @ w.T + b).abs())):
                values.append(y.view(2, 9, 2, 8).transpose(1, 2))
        (q, k, v), (dq, dk, dv) = out, off
        s = q @ k.transpose(-1, -2) * 8 ** -0.5
        error = (dq @ k.abs().transpose(-1, -2) + q.abs() @ dk.transpose(-1, -2)) * 8 ** -0.5
        return attention(q, k, v) + soft(s, error) @ v.abs() + s.softmax(-1) @ dv
    sizes = ((2, 9, 16),)


class Gradient(nn.Module):
    """The gradients of sum(o * g), of products and a softmax: the pair of both passes takes their place."""
    rules = {"sdpa_backward"}

    def forward(self, q, k, v, g):
        return (((q @ k.mT) * q.shape[-1] ** -0.5).softmax(-1) @ v * g).sum()

    @staticmethod
    def gradients(q, k, v, g):
        p = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
        dp = g @ v.mT
        ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * q.shape[-1] ** -0.5
        return ds @ k, ds.mT @ q, p.mT @ g

    @staticmethod
    def bounds(q, k, v, g):
        """p of rounded scores and sums, its product with g v^T less the row's sum, and the last products."""
        scale, n, m = q.shape[-1] ** -0.5, q.shape[-2], k.shape[-2]
        s = q @ k.mT * scale
        p = s.softmax(-1)
        off = soft(s, (dot(q, k.mT) + 3 * U * (q.abs() @ k.mT.abs())) * scale + U * s.abs()
                   + U * s.logsumexp(-1, keepdim=True).abs())
        dp, reach, error = g @ v.mT, g.abs() @ v.mT.abs(), dot(g, v.mT) + U * (g @ v.mT).abs()
        row, size = (p * dp).sum(-1, keepdim=True), (p * reach).sum(-1, keepdim=True)
        gone = (off * reach + p * error).sum(-1, keepdim=True) + (m + v.shape[-1] + 2) * U * size
        ds = scale * (off * (dp - row).abs() + p * (error + gone) + 3 * U * p * (dp - row).abs())
        exact = scale * p * (dp - row).abs()
        return (ds @ k.abs() + (m + 2) * U * (exact @ k.abs()), ds.mT @ q.abs() + (n + 2) * U * (exact.mT @ q.abs()),
                off.mT @ g.abs() + (n + 2) * U * (p.mT @ g.abs()))
    sizes = ((2, 2, 9, 16), (2, 2, 33, 16), (2, 2, 33, 16), (2, 2, 9, 16))


CASES = {c.__name__: c for c in (Attention, Causal, Softmax, RmsNorm, LayerNorm, Gelu, Rotary, Folded, Packed)}


def both(path, case, args):
    """The results of the file as it is and rewritten."""
    source, made = qkv.Model(path, optimize=False), qkv.Model(path)
    fired = {f["rule"] for f in made.rewrite()["firings"]}
    assert fired & case.rules, fired
    return [[torch.from_numpy(r.copy()).double() for r in m.run([a.numpy() for a in args]).values()]
            for m in (source, made)]


def within(results, want, bound):
    off = [(r - want).abs() for r in results]
    for which, d in zip(("as it was", "rewritten"), off):
        assert (d <= bound).all(), (which, (d / bound).max())
    assert ((results[0] - results[1]).abs() <= 2 * bound).all()
    assert max((d / bound).max() for d in off) > 1 / SLACK, "the bound says nothing"


@pytest.mark.parametrize("name", CASES)
def test_bound(name, tmp_path):
    torch.manual_seed(4)
    case = CASES[name]()
    args = tuple(2 * torch.randn(*size) for size in CASES[name].sizes)
    torch.export.save(torch.export.export(case, args), tmp_path / "m.pt2")
    results = both(tmp_path / "m.pt2", case, args)
    bound = case.bound(*(a.double() for a in args))
    with torch.no_grad():
        want = case.double()(*(a.double() for a in args))
    within([r[0] for r in results], want, bound)


def test_bound_of_gradients(tmp_path):
    torch.manual_seed(4)
    args = tuple(2 * torch.randn(*size) for size in Gradient.sizes)
    torch.export.save(torch.export.export(Gradient(), args), tmp_path / "m.pt2")
    model = qkv.Model(tmp_path / "m.pt2", optimize=False)
    model.joint(inputs=["q", "k", "v"], decompose="math").save(tmp_path / "j.pt2")
    results = both(tmp_path / "j.pt2", Gradient, args)
    exact = tuple(a.double() for a in args)
    for k, (want, bound) in enumerate(zip(Gradient.gradients(*exact), Gradient.bounds(*exact))):
        within([r[k + 1] for r in results], want, bound)
