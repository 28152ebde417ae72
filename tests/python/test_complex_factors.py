"""Factors of complex matrices: what is saved, in PyTorch, and gradients against autograd."""
import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
from torch import nn  # noqa: E402

C = torch.complex128


def hermitian(a):
    return a + a.mH


def sides(*shape):
    return torch.randn(*shape, dtype=C)


def up_to_phases(u, vh):
    """U V^H, which no phase of a vector changes."""
    return u @ vh


CASES = {
    "det": (lambda a: torch.linalg.det(a), (2, 3, 3)),
    "slogdet": (lambda a: torch.linalg.slogdet(a), (3, 3)),
    "logdet": (lambda a: torch.logdet(a), (3, 3)),
    "lu": (lambda a: torch.linalg.lu(a)[1:], (3, 3)),
    "lu_tall": (lambda a: torch.linalg.lu(a)[1:], (2, 4, 3)),
    "lu_wide": (lambda a: torch.linalg.lu(a)[1:], (3, 5)),
    "lu_factor": (lambda a: torch.linalg.lu_factor(a)[0], (4, 4)),
    "lu_solve": (lambda a: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), a[:, :2]), (3, 3)),
    "qr": (lambda a: torch.linalg.qr(a), (2, 4, 3)),
    "qr_wide": (lambda a: torch.linalg.qr(a), (3, 4)),
    "eigh": (lambda a: (lambda w, v: (w, v.abs(), v * v[0].conj()))(*torch.linalg.eigh(hermitian(a))), (4, 4)),
    "svd": (lambda a: (lambda u, s, vh: (s, u.abs(), up_to_phases(u, vh)))(*torch.linalg.svd(a, False)), (4, 3)),
    "svd_wide": (lambda a: (lambda u, s, vh: (s, vh.abs(), up_to_phases(u, vh)))(*torch.linalg.svd(a, False)), (3, 5)),
    "pinv": (lambda a: torch.linalg.pinv(a), (2, 4, 3)),
    "pinv_hermitian": (lambda a: torch.linalg.pinv(hermitian(a), hermitian=True), (3, 3)),
    "eig": (lambda a: (lambda w, v: (w, v.abs(), v * v[:, :1].conj()))(*torch.linalg.eig(a)), (2, 4, 4)),
    "eig_real": (lambda a: (lambda w, v: (w, v.abs()))(*torch.linalg.eig(a.real)), (4, 4)),
    "eigvals": (lambda a: torch.linalg.eigvals(a), (3, 3)),
    "eigvals_real": (lambda a: torch.linalg.eigvals(a.imag), (2, 5, 5)),
    "logcumsumexp": (lambda a: torch.logcumsumexp(a * 3, 1), (2, 5, 3)),
    "geqrf": (lambda a: torch.geqrf(a), (4, 3)),
    "ldl": (lambda a: torch.linalg.ldl_solve(*torch.linalg.ldl_factor(hermitian(a), hermitian=True), a, hermitian=True),
            (4, 4)),
}
WITHOUT = ("geqrf", "ldl")  # PyTorch has no derivative of these


class Case(nn.Module):
    def __init__(self, f, loss=False):
        super().__init__()
        self.f, self.loss = f, loss

    def forward(self, a):
        y = self.f(a)
        y = tuple(y) if isinstance(y, (tuple, list)) else (y,)
        if not self.loss:
            return y
        reals = [torch.view_as_real(x) if x.is_complex() else x for x in y]
        return sum((x * torch.arange(x.numel(), dtype=x.dtype).cos().reshape(x.shape)).sum() for x in reals)


@pytest.mark.turns
@pytest.mark.parametrize("name", CASES)
def test_saved(name, tmp_path):
    torch.manual_seed(1)
    f, shape = CASES[name]
    a = sides(*shape)
    torch.export.save(torch.export.export(Case(f), (a,)), tmp_path / "m.pt2")
    model = qkv.Model(tmp_path / "m.pt2")
    model.save(tmp_path / "again.pt2")
    want = Case(f)(a)
    for got in (torch.export.load(tmp_path / "again.pt2").module()(a),
                [torch.from_dlpack(x) for x in model.run_dlpack([a]).values()]):
        for x, y in zip(got, want, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [n for n in CASES if n not in WITHOUT])
def test_gradient(name, tmp_path):
    torch.manual_seed(2)
    f, shape = CASES[name]
    a = sides(*shape).requires_grad_()
    module = Case(f, loss=True)
    torch.export.save(torch.export.export(module, (a,)), tmp_path / "m.pt2")
    want, = torch.autograd.grad(module(a), a)
    joint = qkv.Model(tmp_path / "m.pt2").joint(inputs=["a"])
    got = torch.from_dlpack(joint.run_dlpack([a.detach()])["grad.a"])
    torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-8)


def test_singular(tmp_path):
    """What its derivative would divide by is not part of the value."""
    a = torch.ones(2, 2, dtype=C)
    torch.export.save(torch.export.export(Case(torch.linalg.det), (a,)), tmp_path / "m.pt2")
    assert torch.from_dlpack(qkv.Model(tmp_path / "m.pt2").run_dlpack([a])["output_0"]) == 0


def test_no_derivative(tmp_path):
    a = sides(4, 3).requires_grad_()
    module = Case(lambda a: torch.linalg.svd(a, full_matrices=True), loss=True)
    torch.export.save(torch.export.export(module, (a,)), tmp_path / "m.pt2")
    with pytest.raises(qkv.Error, match="full matrices"):
        qkv.Model(tmp_path / "m.pt2").joint(inputs=["a"])
