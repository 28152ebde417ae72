"""Golden cases of the linalg family: products, convolutions, attention, recurrent cells."""
from golden import *
from golden_cases import backward


def matrix_sqrth(a):
    w, q = torch.linalg.eigh(a)
    return q * w.clamp(min=0).sqrt().unsqueeze(-2) @ q.mT


def polar(a):
    u, s, vh = torch.linalg.svd(a, full_matrices=False)
    return u @ vh, vh.mT * s.unsqueeze(-2) @ vh


def products(F):
    c = F.op("aten.matmul.default")
    for a, b in (((4, 5), (5, 6)), ((5,), (5,)), ((4, 5), (5,)), ((5,), (5, 6)), ((2, 4, 5), (5, 6)),
                 ((2, 4, 5), (2, 5, 6)), ((2, 4, 5), (5,)), ((5,), (2, 5, 6)),
                 ((4, 5), (3, 5, 6)), ((2, 1, 4, 5), (3, 5, 6)), ((2, 3, 4, 5), (2, 3, 5, 7)), ((1, 1), (1, 1)),
                 ((4, 0), (0, 3)), ((0, 4), (4, 3)), ((33, 17), (17, 65)),
                 ((2, 3, 9, 33), (2, 3, 33, 9))):
        c(t(a), t(b))
    for dt in FLOATS + INTS:
        c.maybe(t(3, 7, dt=dt), t(7, 4, dt=dt))
        c.maybe(t(2, 3, 7, dt=dt), t(2, 7, 4, dt=dt))
    x = t(3, 4)
    x[0, 1], x[1, 2] = inf, nan
    c(x, t(4, 2))
    for n, a, b in (("mm", (4, 5), (5, 3)), ("bmm", (2, 4, 5), (2, 5, 3)), ("mv", (4, 5), (5,)), ("dot", (9,), (9,)),
                    ("vdot", (9,), (9,)), ("outer", (3,), (4,)),
                    ("ger", (3,), (4,)), ("inner", (2, 5), (3, 5)), ("kron", (2, 3), (3, 2)),
                    ("linalg_vecdot", (3, 5), (3, 5)), ("linalg_matmul", (2, 4, 5), (5, 3))):
        c = F.op(f"aten.{n}.default")
        c(t(a), t(b))
        for dt in FLOATS[1:] + [i64]:
            c.maybe(t(a, dt=dt), t(b, dt=dt))
    bytes_of = lambda *shape: t(shape, dt=i8, lo=-128, hi=127)
    for m, k, n in ((5, 16, 32), (20, 32, 32), (3, 7, 5), (0, 4, 3)):
        F.op("aten._int_mm.default")(bytes_of(m, k), bytes_of(k, n))
    for m, k, n in ((5, 16, 32), (20, 32, 32), (1, 48, 64)):  # PyTorch crashes on halves of some other sizes
        c = F.op("aten._weight_int8pack_mm.default")
        c(t(m, k), bytes_of(n, k), t(n))
        c(t(m, k, dt=bf16), bytes_of(n, k), t(n, dt=bf16))
    c = F.op("aten.linear.default")
    c(t(3, 4), t(4))
    c(t(2, 3, 4, dt=bf16), t(4, dt=bf16))
    c(t(4), t(4))
    for s, o in (((4, 5), 6), ((2, 3, 5), 6), ((5,), 6), ((2, 2, 3, 5), 1), ((0, 5), 6), ((7, 33), 65)):
        c(t(s), t(o, s[-1]), t(o))
        c(t(s), t(o, s[-1]))
    for dt in FLOATS:
        c(t(3, 9, dt=dt), t(4, 9, dt=dt), t(4, dt=dt))
    c(t(3, 9, dt=bf16), t(4, 9, dt=bf16))
    c = F.op("aten.addmm.default")
    for kw in ({}, dict(beta=0.5, alpha=2.0), dict(beta=0)):
        c(t(6), t(4, 5), t(5, 6), **kw)
        c(t(4, 6), t(4, 5), t(5, 6), **kw)
        c(t(4, 1), t(4, 5), t(5, 6), **kw)
    for dt in FLOATS[1:] + [i64]:
        c(t(6, dt=dt), t(4, 5, dt=dt), t(5, 6, dt=dt))
    for n, s in (("baddbmm", (2, 4, 6)), ("addbmm", (4, 6))):
        c = F.op(f"aten.{n}.default")
        c(t(s), t(2, 4, 5), t(2, 5, 6))
        c(t(1, 6) if n == "addbmm" else t(2, 1, 6), t(2, 4, 5), t(2, 5, 6), beta=0.5, alpha=-1.5)
        c(t(s, dt=bf16), t(2, 4, 5, dt=bf16), t(2, 5, 6, dt=bf16))
        c(torch.full(s, nan), t(2, 4, 5), t(2, 5, 6), beta=0)
        c(t(s, dt=i64), t(2, 4, 5, dt=i64), t(2, 5, 6, dt=i64), beta=-1.9, alpha=2.7)
    F.op("aten.addmv.default")(t(4), t(4, 5), t(5), beta=0.5, alpha=2)
    F.op("aten._addmm_activation.default")(t(6), t(4, 5), t(5, 6))
    F.op("aten._addmm_activation.default")(t(6), t(4, 5), t(5, 6), use_gelu=True)
    F.op("aten._addmm_activation.default")(t(4, 6), t(4, 5), t(5, 6), beta=0.5, alpha=2)
    c = F.op("aten.einsum.default")
    for eq, *s in (("ij,jk->ik", (3, 4), (4, 5)), ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
                   ("bhqk,bhkd->bqhd", (2, 2, 3, 4), (2, 2, 4, 5)), ("ii->i", (3, 3)), ("ii", (3, 3)),
                   ("ij->ji", (3, 4)), ("ij->", (3, 4)), ("i,j->ij", (3,), (4,)),
                   ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)), ("bchw,bnc->bnhw", (2, 3, 4, 5), (2, 6, 3)),
                   ("bqc,bchw->bqhw", (2, 3, 4), (2, 4, 2, 3)), ("ij,ij->i", (3, 4), (3, 4)),
                   ("ab,bc,cd->ad", (2, 3), (3, 4), (4, 2)), ("...d,d->...", (2, 3, 4), (4,)),
                   ("bhwc,hkc->bhwk", (2, 3, 4, 5), (3, 6, 5)), ("bij,bjk", (2, 3, 4), (2, 4, 2)),
                   ("n,d->nd", (5,), (2,)), ("i,i->", (4,), (4,)), ("bn,bnd->bd", (2, 3), (2, 3, 4))):
        c(eq, [t(x) for x in s])
    for dt in (b8, i64, f32):  # an axis of 1 that is summed beside a longer one
        c("ij,ij->j", [t(3, 4, dt=dt), t(1, 4, dt=dt)])
        c("ij,ij->ij", [t(3, 4, dt=dt), t(1, 4, dt=dt)])
    c("ij,jk->ik", [t(3, 4, dt=bf16), t(4, 5, dt=bf16)])
    c("i,j->ij", [t(3, dt=i64), t(4, dt=i64)])
    for eq, *s in (("ij->i", (3, 4)), ("ij,k->ik", (3, 4), (5,)), ("ij,jk->jk", (3, 4), (4, 5)),
                   ("ij,jk->ik", (3, 4), (4, 5))):
        c(eq, [t(x, dt=u8) for x in s])
    for eq, *s in (("ij,kj->ki", (3, 4), (5, 1)), ("ij,kj->ki", (3, 1), (5, 4)), ("ij,kj->ki", (0, 4), (5, 1)),
                   ("bhij,bhjk->bhik", (1, 2, 3, 4), (3, 2, 4, 5)), ("bij,bjk->bik", (1, 3, 4), (2, 1, 5)),
                   ("bhqd,bhkd->bhqk", (2, 1, 3, 4), (1, 3, 5, 4)),
                   # an axis of 1 in the first two terms, longer in the third
                   ("bij,bik,bjk->b", (2, 3, 1), (2, 3, 1), (2, 1, 3)), ("ij,jk,kl->il", (3, 1), (4, 1), (5, 2))):
        c(eq, [t(x) for x in s], static=True)
    F.op("aten.bilinear.default")(t(3, 4), t(3, 5), t(2, 4, 5), t(2))
    c = F.op("aten.tensordot.default")
    c(t(1, 1, 1, dt=u8), t(2, 1, 2, dt=u8), [0, 1], [2, 0], static=True)
    c(t(1, 1, 1), t(2, 1, 2), [0, 1], [2, 0], static=True)
    c(t(4, 3, 2), t(1, 4, 2), [-1, 0], [0, 1], static=True)
    c(t(3, 4, 5), t(4, 3, 2), [1, 0], [0, 1])
    c(t(3, 4), t(4, 5), [1], [0])
    F.op("aten.linalg_matrix_norm.default")(t(3, 4), inf)
    F.op("aten.linalg_matrix_norm.default")(t(2, 3, 4), 1)
    for p in (1, -1, 2, -2, inf, -inf):
        F.op("aten.linalg_matrix_norm.default")(t(2, 3, 4), p, [0, -1], p > 0)
    F.op("aten.linalg_matrix_norm.default")(t(4, 4, dt=f64), 2)
    F.op("aten.linalg_matrix_norm.default")(torch.ones(3, 2), -2)
    for shape, p in (((5, 0), 1), ((0, 5), inf), ((2, 5, 0), 2)):
        F.op("aten.linalg_matrix_norm.default")(t(*shape), p, static=True)
    for shape in ((3, 4), (2, 5, 3), (4, 4), (1, 6), (2, 0, 3)):
        F.op("aten.linalg_svdvals.default")(t(*shape))
    F.op("aten.linalg_svdvals.default")(t(2, 3, 4, dt=f64))
    F.op("aten.linalg_svdvals.default")(torch.zeros(3, 2))
    F.op("aten.linalg_matrix_norm.str_ord")(t(2, 3, 4))
    F.op("aten.linalg_matrix_norm.str_ord")(t(2, 3, 4), "nuc", [-1, 0], True)
    for n in ("_weight_norm", "_weight_norm_interface"):
        F.op(f"aten.{n}.default")(t(4, 3, 2), t(4, 1, 1), 0, static=True)
        F.op(f"aten.{n}.default")(t(4, 3, 2), t(1, 1, 2), 2, static=True)
    F.op("aten._weight_norm.default")(t(4, 3, 2), t(), -1, static=True)  # the norm of the whole
    F.op("aten._weight_norm.default")(t(4, 3), t(4, 1), -2, static=True)


def factors(F):
    """Where several answers are right (signs of vectors), the cases have one: diagonal matrices."""
    spd = lambda *s, dt=f32: (lambda a: a @ a.mT + 3 * torch.eye(s[-1], dtype=dt))(t(*s, s[-1], dt=dt))
    for n in ("linalg_inv", "inverse", "linalg_det", "det", "logdet", "linalg_slogdet", "slogdet", "linalg_cholesky",
              "cholesky", "linalg_eigvalsh", "cholesky_inverse"):
        c = F.op(f"aten.{n}.default")
        c(spd(4))
        c(spd(2, 3))
        c(spd(2, 3, dt=f64))
        c(spd(0))
    for n in ("linalg_det", "linalg_slogdet", "logdet"):
        c = F.op(f"aten.{n}.default")
        c(t(5, 3, 3))
        c(torch.ones(2, 2))
    for n, outs in (("_linalg_det", 1), ("_linalg_slogdet", 2)):  # and what they were found with, which nothing gives
        c = F.op(f"aten.{n}.default")
        c(t(5, 3, 3), outs=outs)
        c(spd(2, 3, dt=f64), outs=outs)
        c(spd(0), outs=outs)
    c = F.op("aten._linalg_solve_ex.default")
    c(t(4, 4), t(4, 2), outs=1)
    c(t(2, 4, 4), t(2, 2, 4), left=False, outs=1)
    c = F.op("aten._linalg_eigh.default")
    c(torch.diag(torch.tensor([3.0, 1, 2])))
    c(spd(2, 3), "U", False, outs=1)
    c = F.op("aten._linalg_svd.default")
    c(torch.diag(torch.tensor([3.0, 2, 1])))
    c(torch.diag(torch.tensor([3.0, 2, 1]))[:, :2], True)
    c = F.op("aten.linalg_inv_ex.default")
    c(spd(4))
    c(torch.tensor([[1.0, 2], [2, 4]]), outs=0)
    c = F.op("aten.linalg_cholesky_ex.default")
    c(spd(3))
    c(spd(2, 3), upper=True)
    for n in ("linalg_solve", "linalg_solve_ex"):
        c = F.op(f"aten.{n}.default")
        c(t(4, 4), t(4, 2))
        c(t(4, 4), t(4))
        c(t(2, 1, 3, 3), t(4, 3, 2), static=True, outs=1)
        c(t(2, 3, 3), t(2, 3), static=True)
        c(t(4, 4), t(2, 4), left=False)
        c(t(4, 4, dt=f64), t(4, 2, dt=f64))
    c = F.op("aten.linalg_solve_triangular.default")
    for upper in (True, False):
        for left in (True, False):
            for one in (True, False):
                c(spd(3), t(*((3, 2) if left else (2, 3))), upper=upper, left=left, unitriangular=one)
    c(spd(2, 3), t(1, 3, 4), upper=True, static=True)
    for a in ((), (False,), (True, True), (False, True, True)):
        F.op("aten.triangular_solve.default")(t(3, 2), spd(3), *a)
    for upper in (False, True):
        F.op("aten.cholesky_solve.default")(t(3, 2), spd(3).triu() if upper else spd(3).tril(), upper)
        F.op("aten.cholesky_inverse.default")(spd(3), upper)
    for s in ((4, 4), (2, 5, 3), (3, 4)):
        for n in ("linalg_lu", "linalg_lu_factor", "linalg_lu_factor_ex", "_lu_with_info", "linalg_qr", "qr"):
            F.op(f"aten.{n}.default")(t(*s))
        F.op("aten.lu_unpack.default")(*torch.linalg.lu_factor(t(*s)))
        F.op("aten.linalg_qr.default")(t(*s), "complete")
        F.op("aten.linalg_qr.default")(t(*s), "r", static=True)
        F.op("aten.qr.default")(t(*s), False)
        F.op("aten.geqrf.default")(t(*s))
        a, tau = torch.geqrf(t(*s))
        tall = a.shape[-2] >= a.shape[-1]
        for dt in (f32, f64) if tall else ():
            F.op("aten.linalg_householder_product.default")(a.to(dt), tau.to(dt))
            F.op("aten.orgqr.default")(a.to(dt), tau[..., :2].to(dt))
        for left in (True, False) if tall else ():
            for transpose in (True, False):
                rows = a.shape[-2]
                c = t(*s[:-2], *((rows, 2) if left else (2, rows)))
                F.op("aten.ormqr.default")(a, tau, c, left, transpose)
    indefinite = torch.tensor([[0.0, 1, 2, 3], [1, 0, 4, -1], [2, 4, 0.5, 1], [3, -1, 1, 0.1]])
    for a in (spd(4), spd(2, 3), indefinite, spd(3, dt=f64), indefinite - torch.eye(4), t(2, 6, 6), spd(0)):
        a = a + a.mT
        for n in ("", "_ex"):
            F.op(f"aten.linalg_ldl_factor{n}.default")(a)
        F.op("aten.linalg_ldl_solve.default")(*torch.linalg.ldl_factor(a), t(*a.shape[:-1], 2, dt=a.dtype))
    F.op("aten.linalg_ldl_solve.default")(*torch.linalg.ldl_factor(spd(3)), t(2, 3, 2))
    lu = torch.linalg.lu_factor(t(2, 3, 3))
    for left in (True, False):
        for adjoint in (True, False):
            F.op("aten.linalg_lu_solve.default")(*lu, t(2, 3, 3), left=left, adjoint=adjoint)
    F.op("aten.lu_solve.default")(t(2, 3, 1), *lu)
    for n in ("linalg_eigh", "linalg_svd", "svd"):
        F.op(f"aten.{n}.default")(torch.diag(torch.tensor([3.0, 2, 1] if "svd" in n else [1.0, 2, 3])))
    F.op("aten.linalg_eigvalsh.default")(t(3, 3), "U")
    roots = F.own("aten.linalg_matrix_sqrth.default", matrix_sqrth)     # this and polar: of PyTorch 2.15
    for a in (spd(4), spd(2, 3, dt=f64), torch.tensor([[-1.0, 9], [0, 4]]), torch.eye(3), torch.zeros(2, 0, 0)):
        roots(a)
    for a in (t(3, 3), t(2, 5, 3), t(4, 1, dt=f64), torch.eye(3)):
        F.own("aten.linalg_polar.default", polar)(a)
    for s in ((4, 4), (2, 5, 3), (3, 4), (3, 0)):
        F.op("aten.linalg_pinv.atol_rtol_tensor")(t(*s), static=True)
        F.op("aten.linalg_pinv.atol_rtol_float")(t(*s), rtol=0.1, static=True)
        F.op("aten.pinverse.default")(t(*s), static=True)
        F.op("aten.linalg_matrix_rank.atol_rtol_tensor")(t(*s), static=True)
        F.op("aten.linalg_matrix_rank.atol_rtol_float")(t(*s), atol=1.5, static=True)
    F.op("aten.linalg_pinv.atol_rtol_tensor")(spd(2, 3), atol=torch.tensor([0.1, 4.0]), hermitian=True)
    F.op("aten.linalg_pinv.default")(t(3, 4), 0.2)
    F.op("aten.linalg_pinv.rcond_tensor")(t(2, 3, 4), torch.tensor([0.2, 0.0]))
    F.op("aten.linalg_matrix_rank.atol_rtol_tensor")(torch.diag(torch.tensor([3.0, -2, 0])), hermitian=True)
    F.op("aten.linalg_matrix_rank.default")(t(3, 4), 2.0)
    F.op("aten.linalg_matrix_rank.tol_tensor")(t(2, 3, 4), torch.tensor([1.0, 3.0]))
    for p in (None, 2, -2, 1, inf):
        F.op("aten.linalg_cond.default")(spd(2, 3), p, static=True)
    F.op("aten.linalg_cond.p_str")(spd(3), "fro", static=True)
    F.op("aten.linalg_tensorinv.default")(t(4, 6, 8, 3), 2, static=True)
    F.op("aten.linalg_tensorsolve.default")(t(2, 3, 6), t(2, 3), static=True)
    F.op("aten.linalg_tensorsolve.default")(t(2, 6, 3), t(2, 3), [1], static=True)
    for n in ("matrix_exp", "linalg_matrix_exp"):
        for s in ((3, 3), (2, 4, 4), (1, 1), (0, 0)):
            F.op(f"aten.{n}.default")(t(*s))
        F.op(f"aten.{n}.default")(t(3, 3, dt=f64))
    F.op("aten.matrix_power.default")(spd(3), -2)


class Fixed:
    """Channels and kernels are constants in every file; batch and spatial sizes may be symbols."""
    def __init__(self, recorder): self.recorder = recorder
    def __call__(self, x, w, *args, **kw):
        self.recorder(x, w, *args, fixed=f"0.{int(x.dim() == w.dim())} 1 2", **kw)


def convolutions(F):
    conv = lambda name: Fixed(F.op(name))
    for dt in FLOATS:
        conv("aten.conv1d.default")(t(2, 4, 9, dt=dt), t(6, 4, 3, dt=dt), t(6, dt=dt))
        conv("aten.conv2d.default")(t(2, 4, 7, 6, dt=dt), t(6, 4, 3, 3, dt=dt), t(6, dt=dt), [2, 1], [1, 1])
        conv("aten.conv_transpose2d.input")(t(2, 4, 5, 4, dt=dt), t(4, 3, 3, 2, dt=dt), t(3, dt=dt), [2, 2], [1, 0])
    c = conv("aten.conv1d.default")
    c(t(2, 4, 9), t(6, 4, 1))
    c(t(2, 4, 9), t(6, 2, 3), None, [2], [1], [1], 2)
    c(t(2, 4, 9), t(4, 1, 3), t(4), [1], [2], [2], 4)
    c(t(4, 9), t(6, 4, 3))
    c(t(1, 1, 40), t(3, 1, 10), None, [5])
    c = conv("aten.conv2d.default")
    c(t(1, 3, 8, 8), t(5, 3, 4, 4), t(5), [4, 4])
    c(t(1, 3, 9, 8), t(5, 3, 1, 1))
    c(t(2, 6, 5, 5), t(6, 1, 3, 3), t(6), [1, 1], [1, 1], [1, 1], 6)
    c(t(2, 6, 5, 5), t(9, 2, 3, 3), None, [1, 1], [2, 2], [2, 2], 3)
    c(t(3, 6, 7), t(4, 3, 3, 2))
    c(t(1, 16, 6, 6), t(32, 16, 3, 3), t(32), [1, 1], [1, 1])
    for n in ("1d", "2d", "3d"):
        k = int(n[0])
        c = conv(f"aten.conv{n}.padding")
        for pad in ("same", "valid"):
            c(t([1, 2] + [6] * k), t([3, 2] + [3] * k), t(3), [1] * k, pad)
            c(t([1, 2] + [6] * k), t([3, 2] + [2] * k), None, [1] * k, pad)
    c(t(1, 2, 6, 6, 6), t(3, 2, 3, 3, 3), None, [1, 1, 1], "same", [2, 2, 2])
    c = conv("aten.conv3d.default")
    c(t(1, 2, 4, 5, 6), t(3, 2, 2, 3, 2), t(3))
    c(t(1, 2, 4, 5, 6), t(4, 1, 2, 2, 2), None, [2, 1, 1], [1, 0, 1], [1, 1, 1], 2)
    c = conv("aten.conv_transpose1d.default")
    c(t(2, 4, 5), t(4, 3, 3), t(3))
    c(t(2, 4, 5), t(4, 2, 4), None, [2], [1], [1], 2)
    c = conv("aten.conv_transpose2d.input")
    c(t(1, 4, 3, 3), t(4, 2, 2, 2), t(2), [2, 2])
    c(t(1, 4, 3, 4), t(4, 2, 3, 3), None, [2, 2], [1, 1], [1, 1], 2, [2, 1])
    c(t(4, 3, 3), t(4, 2, 2, 2))
    conv("aten.conv_transpose3d.input")(t(1, 2, 3, 3, 2), t(2, 3, 2, 2, 2), t(3), [2, 2, 2])
    c = conv("aten.convolution.default")
    c(t(2, 4, 9), t(6, 4, 3), t(6), [1], [0], [1], False, [0], 1)
    c(t(2, 4, 7, 6), t(6, 2, 3, 3), None, [1, 2], [1, 0], [1, 1], False, [0, 0], 2)
    c(t(2, 4, 5, 4), t(4, 3, 2, 2), t(3), [2, 2], [0, 0], [1, 1], True, [1, 1], 1)
    c(t(0, 4, 5, 4), t(3, 4, 2, 2), t(3), [2, 2], [0, 0], [1, 1], False, [0, 0], 1)
    c(t(2, 4, 7, 6), t(6, 4, 3, 3), t(6), [2], [0], [1], False, [0], 1)  # as conv2d with padding "valid" decomposes
    conv("aten._convolution.default")(t(2, 4, 9), t(6, 4, 3), t(6), [1], [0], [1], False, [0], 1, False, False, True,
                                      True)
    F.op("aten.conv_tbc.default")(t(5, 2, 3), t(3, 3, 4), t(4), 1, fixed="0.2 1")
    F.op("aten.conv_tbc.default")(t(5, 2, 3, dt=f64), t(2, 3, 4, dt=f64), t(4, dt=f64), fixed="0.2 1")


def attention(F):
    c = F.op("aten.scaled_dot_product_attention.default")
    c(t(4, 3, 8), t(2, 4, 6, 8), t(2, 4, 6, 8))
    c(t(2, 4, 3, 8), t(4, 6, 8), t(4, 6, 8))
    c(t(1, 3, 8), t(4, 6, 8), t(4, 6, 8), static=True)
    q = lambda *s, dt=f32: t(*s, dt=dt, lo=-2, hi=2)
    for dt in FLOATS:
        c(q(2, 2, 5, 8, dt=dt), q(2, 2, 7, 8, dt=dt), q(2, 2, 7, 6, dt=dt))
        c(q(2, 2, 5, 8, dt=dt), q(2, 2, 5, 8, dt=dt), q(2, 2, 5, 8, dt=dt), None, 0.0, True)
        c(q(2, 2, 5, 8, dt=dt), q(2, 2, 7, 8, dt=dt), q(2, 2, 7, 8, dt=dt), t(2, 1, 5, 7, dt=b8))
        c(q(2, 2, 5, 8, dt=dt), q(2, 2, 7, 8, dt=dt), q(2, 2, 7, 8, dt=dt), t(5, 7, dt=dt))
    k3 = lambda: (q(2, 2, 5, 8), q(2, 2, 7, 8), q(2, 2, 7, 8))
    c(*k3(), scale=0.3)
    c(*k3(), t(2, 2, 5, 7), scale=1.0)
    c(*k3(), t(1, 1, 1, 7, dt=b8))
    dead = t(2, 1, 5, 7, dt=b8)
    dead[:, :, 1] = False
    c(*k3(), dead)
    c(*k3(), torch.zeros(5, 7).masked_fill(dead[0, 0], -inf))
    c(*k3(), torch.full((2, 1, 5, 7), torch.finfo(f32).min).masked_fill(t(2, 1, 5, 7, dt=b8), 0.0))
    c(*k3(), None, 0.0, True)
    c(q(2, 2, 7, 8), q(2, 2, 3, 8), q(2, 2, 3, 8), None, 0.0, True)
    c(q(2, 4, 5, 8), q(2, 2, 7, 8), q(2, 2, 7, 6), None, 0.0, False, scale=None, enable_gqa=True)
    c(q(2, 4, 5, 8), q(2, 1, 5, 8), q(2, 1, 5, 8), None, 0.0, True, enable_gqa=True)
    c(q(2, 3, 5, 8), q(3, 2, 1, 7, 8), q(3, 2, 1, 7, 8), static=True)
    c(q(2, 4, 5, 8), q(2, 2, 7, 8), q(2, 1, 7, 6), None, 0.0, False, enable_gqa=True, static=True)
    c(q(5, 8), q(7, 8), q(7, 8))
    c(q(3, 5, 8), q(3, 7, 8), q(3, 7, 8))
    c(q(3, 5, 8), q(3, 7, 8), q(3, 7, 8), t(3, 5, 7))
    c(q(2, 2, 1, 8), q(2, 2, 40, 8), q(2, 2, 40, 8))
    c(q(1, 2, 33, 16), q(1, 2, 70, 16), q(1, 2, 70, 16))
    c(q(1, 2, 1, 1), q(1, 2, 1, 1), q(1, 2, 1, 1))
    c(q(2, 1, 5, 8), q(1, 3, 7, 8), q(2, 3, 7, 8))      # batch dims broadcast
    # rows hidden by a number
    c(*k3(), torch.full((5, 7), -1e30).masked_fill(t(5, 7, dt=b8), -inf).index_fill(1, torch.tensor(2),
        -1e30).index_fill(0, torch.tensor(3), 0.0))
    c = F.op("aten._scaled_dot_product_flash_attention_for_cpu.default")
    for kw in ({}, dict(is_causal=True), dict(attn_mask=t(2, 1, 5, 7)), dict(scale=0.4)):
        c(q(2, 2, 5, 8), q(2, 2, 7, 8), q(2, 2, 7, 8), **kw)
    # CUDA's forms, by their meaning
    math = torch.ops.aten._scaled_dot_product_attention_math.default
    flash = lambda q, k, v, p=0.0, is_causal=False, **kw: math(q, k, v, None, p, is_causal, **kw)
    F.own("aten._scaled_dot_product_flash_attention.default", flash)(*k3(), outs=1)
    F.own("aten._scaled_dot_product_flash_attention.default", flash)(*k3(), 0.0, True, scale=0.4, outs=1)
    efficient = lambda q, k, v, bias, lse, p=0.0, is_causal=False, **kw: math(q, k, v, bias, p, is_causal, **kw)
    F.own("aten._scaled_dot_product_efficient_attention.default", efficient)(*k3(), None, False, outs=1)
    F.own("aten._scaled_dot_product_efficient_attention.default", efficient)(*k3(), t(2, 2, 5, 7), False, scale=0.4,
                                                                             outs=1)
    F.own("aten._scaled_dot_product_cudnn_attention.default", efficient)(*k3(), t(2, 2, 5, 7), False, outs=1)
    c = F.op("aten._scaled_dot_product_attention_math.default")
    for kw in ({}, dict(is_causal=True), dict(attn_mask=t(2, 1, 5, 7)), dict(scale=0.4)):
        c(q(2, 2, 5, 8), q(2, 2, 7, 8), q(2, 2, 7, 8), outs=1, **kw)

def fused_attention(F):
    """What nn.MultiheadAttention and nn.TransformerEncoderLayer call where no gradient is wanted. True, or not 0, in a
    mask: nothing is attended. No row of a mask hides all keys but in _masked_softmax, where PyTorch gives NaN."""
    seen = lambda *s: torch.tril(t(*s, dt=b8), -1)  # the first key is always attended
    pad = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 1]]).bool()
    c = F.op("aten._masked_softmax.default")
    c(t(2, 2, 5, 5), pad, 3, 1)
    c(t(2, 2, 5, 5), pad, 1, 1)
    c(t(2, 2, 5, 5), seen(5, 5), None, 0)
    c(t(2, 2, 5, 5), t(2, 2, 5, 5, dt=b8), -1, 2)
    c(t(2, 2, 5, 5), t(2, 2, 5, 5, dt=b8))
    c(t(4, 5), torch.ones(4, 5, dtype=b8).tril(1), 1, 0)
    x = lambda dt=f32, n=5: t(2, n, 8, dt=dt, lo=-1, hi=1)
    heads = lambda dt=f32: (8, 2, *(t(*s, dt=dt, lo=-1, hi=1) for s in ((24, 8), (24,), (8, 8), (8,))))
    c = F.op("aten._native_multi_head_attention.default")
    for dt in FLOATS:
        y = x(dt)
        c.maybe(y, x(dt), x(dt), *heads(dt), None, False, fixed="0.1 0.2 1.1 1.2 2.1 2.2 3 4 5 6")
    for average in (True, False):
        c(x(), x(), x(), *heads(), None, True, average, static=True)
        c(x(), x(), x(), *heads(), pad, True, average, 1, static=True)
    c(x(), x(), x(), *heads(), pad, False, True, 1, static=True)
    c(x(), x(), x(), *heads(), seen(5, 5), False, True, 0, static=True)
    c(x(), x(), x(), *heads(), seen(2, 2, 5, 5), True, True, 2, static=True)
    floats = torch.zeros(5, 5).masked_fill(seen(5, 5), -inf)
    c(x(), x(), x(), *heads(), floats, True, True, 0, static=True)
    c = F.op("aten._transformer_encoder_layer_fwd.default")
    rest = lambda dt=f32: [t(*s, dt=dt, lo=-1, hi=1) for s in ((8,), (8,), (8,), (8,), (12, 8), (12,), (8, 12), (8,))]
    for gelu in (False, True):
        for first in (False, True):
            c(x(), *heads(), gelu, first, 1e-5, *rest(), static=True)
            c(x(n=1), *heads(), gelu, first, 1e-3, *rest(), pad[:, :1], 1, static=True)
            c(x(), *heads(), gelu, first, 1e-5, *rest(), torch.zeros(2, 5).masked_fill(pad, -inf), 1, static=True)
            c(x(), *heads(), gelu, first, 1e-5, *rest(), floats.expand(2, 2, 5, 5), 2, static=True)
    c(x(f64), *heads(f64), True, False, 1e-5, *rest(f64), seen(5, 5), 0, static=True)


def trained(F):
    """Attention with the logarithms of its sums, and its gradient:
    PyTorch's autograd over products and a softmax in float64."""
    def scores(q, k, mask, is_causal, scale, softcap, lower, upper):
        N, M = q.shape[2], k.shape[2]
        s = q @ k.mT * (q.shape[3] ** -0.5 if scale is None else scale)
        if softcap:
            s = softcap * torch.tanh(s / softcap)
        d = torch.arange(M) - torch.arange(N)[:, None]
        hidden = (d < (-9999 if lower is None else lower)) | (d > min(0 if is_causal else 9999,
                                                                      9999 if upper is None else upper))
        if mask is not None:
            s = s.masked_fill(~mask, -inf) if mask.dtype == b8 else s + mask
        return s.masked_fill(hidden, -inf)

    def attend(q, k, v, mask, *how):
        per = q.shape[1] // k.shape[1]
        s = scores(q, k.repeat_interleave(per, 1), mask, *how)
        lse = torch.logsumexp(s, -1)
        none = (lse == -inf)[..., None]
        p = torch.softmax(s.masked_fill(none, 0.0), -1).masked_fill(none, 0.0)
        return p @ v.repeat_interleave(per, 1), lse

    wide = lambda x: x if x is None or x.dtype == b8 else x.double()

    def forward(q, k, v, mask=None, is_causal=False, scale=None, softcap=0.0, lower=None, upper=None):
        y, lse = attend(wide(q), wide(k), wide(v), wide(mask), is_causal, scale, softcap, lower, upper)
        return y.to(q.dtype), lse.to(f64 if q.dtype == f64 else f32)

    def backward(grad, q, k, v, y, lse, mask=None, is_causal=False, scale=None, softcap=0.0, lower=None, upper=None,
                 grad_mask=False):
        with torch.enable_grad():
            x = [wide(a).clone().requires_grad_() for a in (q, k, v)] + [mask if mask is None or mask.dtype == b8
                                                                         else wide(mask).clone().requires_grad_()]
            out, _ = attend(*x, is_causal, scale, softcap, lower, upper)
            g = torch.autograd.grad(out, x[:3] + ([x[3]] if grad_mask else []), wide(grad))
        return tuple(a.to(q.dtype) for a in g[:3]) + ((g[3].to(mask.dtype),) if grad_mask
                                                      else (torch.empty(0, dtype=q.dtype),))

    one, back = F.own("qkv.sdpa_lse.default", forward), F.own("qkv.sdpa_backward.default", backward)
    q = lambda *s, dt=f32: t(*s, dt=dt, lo=-2, hi=2)

    def both(q, k, v, *mask, **kw):
        one(q, k, v, *mask, **{n: x for n, x in kw.items() if n != "grad_mask"})
        y, lse = forward(q, k, v, *mask, **{n: x for n, x in kw.items() if n != "grad_mask"})
        back(t(*y.shape, dt=y.dtype), q, k, v, y, lse, *mask, **kw)

    three = lambda N=5, M=7, H=2, kv=2, D=8, E=8, dt=f32: (q(2, H, N, D, dt=dt), q(2, kv, M, D, dt=dt),
                                                           q(2, kv, M, E, dt=dt))
    for dt in FLOATS:
        both(*three(dt=dt, E=6))
        both(*three(dt=dt, N=7), is_causal=True)
        both(*three(dt=dt), t(2, 1, 5, 7, dt=b8), scale=0.4)
        both(*three(dt=dt), t(5, 7, dt=dt), grad_mask=True)
    both(*three(H=4, E=6))
    both(*three(H=4, kv=1), t(1, 4, 1, 7), grad_mask=True)
    both(*three(), t(2, 1, 1, 7), softcap=1.5, grad_mask=True)
    both(*three(N=9, M=9), lower=-3, upper=2, softcap=2.0, scale=1.0)
    both(*three(N=9, M=4), lower=-2)                                            # the last queries see no key
    both(*three(N=4, M=9), is_causal=True)
    dead = t(2, 1, 5, 7, dt=b8).index_fill(2, torch.tensor(1), False)
    both(*three(), dead)
    both(*three(N=1, M=40))
    both(*three(N=33, M=70, D=16))
    both(*three(N=3, M=4), torch.zeros(3, 4), grad_mask=False)


def backends(F):
    """The gradients of the kernels that PyTorch chooses among: its CPU's by itself, CUDA's by their meaning."""
    q = lambda *s, dt=f32: t(*s, dt=dt, lo=-2, hi=2)
    forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    c = F.op("aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
    for dt in FLOATS:
        x = q(2, 2, 5, 8, dt=dt), q(2, 2, 7, 8, dt=dt), q(2, 2, 7, 8, dt=dt)
        for causal, kw in ((False, {}), (True, {}), (False, dict(attn_mask=t(2, 1, 5, 7, dt=dt))),
                           (False, dict(scale=0.4))):
            c(t(2, 2, 5, 8, dt=dt), *x, *forward(*x, 0.0, causal, **kw), 0.0, causal, **kw)
    x = q(2, 4, 5, 8), q(2, 2, 7, 8), q(2, 2, 7, 8)
    c(t(2, 4, 5, 8), *x, *forward(*x), 0.0, False)

    def gradients(grad, q, k, v, bias, is_causal, scale=None):
        with torch.enable_grad():
            x = [a.double().requires_grad_() for a in (q, k, v)] + ([] if bias is None
                                                                    else [bias.double().requires_grad_()])
            y = torch.ops.aten._scaled_dot_product_attention_math.default(*x[:3], x[3] if bias is not None else None,
                                                                          0.0, is_causal, scale=scale)[0]
            return [g.to(grad.dtype) for g in torch.autograd.grad(y, x, grad.double())]

    flash = lambda g, q, k, v, out, lse, a, b, n, m, p, causal, seed, offset, **kw: gradients(g, q, k, v, None,
        causal, **kw)
    cudnn = lambda g, q, k, v, out, lse, seed, offset, bias, a, b, n, m, p, causal, **kw: gradients(g, q, k, v, bias,
        causal, **kw)[:3]
    efficient = lambda g, q, k, v, bias, out, lse, seed, offset, p, wanted, causal=False, **kw: gradients(g, q, k, v,
        bias, causal, **kw)
    y, lse = forward(*(x := (q(2, 2, 5, 8), q(2, 2, 5, 8), q(2, 2, 5, 8))), 0.0, True, scale=0.4)
    F.own("aten._scaled_dot_product_flash_attention_backward.default", flash)(t(2, 2, 5, 8), *x, y, lse, None, None,
                                                                              5, 5, 0.0, True, None, None, scale=0.4,
                                                                              static=True)
    bias = t(1, 2, 5, 5)
    y, lse = forward(*x, attn_mask=bias)
    F.own("aten._scaled_dot_product_cudnn_attention_backward.default", cudnn)(t(2, 2, 5, 8), *x, y, lse[..., None],
                                                                              None, None, bias, None, None, 5, 5, 0.0,
                                                                              False, static=True)
    padded = torch.cat([lse, torch.full((2, 2, 27), inf)], 2)  # to a multiple of 32
    c = F.own("aten._scaled_dot_product_efficient_attention_backward.default", efficient)
    c(t(2, 2, 5, 8), *x, bias, y, padded, None, None, 0.0, [True, True, True, True], static=True)
    y, lse = forward(*x, 0.0, True)
    c(t(2, 2, 5, 8), *x, None, y, lse, None, None, 0.0, [True, True, True, False], True, outs=3, static=True)


def kernels(F):
    """The kernels beneath CUDA's ops, (batch, rows, heads, size), by their meaning in float64:
    causal and windows count from the last query and the last key, custom_mask_type 1 from the first."""
    q = lambda *s, dt=f32: t(*s, dt=dt, lo=-2, hi=2)

    def attend(x, bias, scale, top, left, right):
        a, b, c = (y.double().transpose(1, 2) for y in x)
        b, c = (y.repeat_interleave(a.shape[1] // y.shape[1], 1) for y in (b, c))
        n, m = a.shape[2], b.shape[2]
        s = a @ b.mT * (a.shape[3] ** -0.5 if scale is None else scale) + (0 if bias is None else bias.double())
        ahead = torch.arange(m) - torch.arange(n)[:, None] - (0 if top else m - n)
        hidden = torch.zeros(n, m, dtype=torch.bool)
        hidden |= ahead > right if right is not None else hidden
        hidden |= ahead < -left if left is not None else hidden
        s = s.masked_fill(hidden, -inf)
        return (torch.softmax(s, -1).masked_fill(hidden.all(-1)[:, None], 0) @ c).transpose(1, 2), torch.logsumexp(s,
            -1)

    def gradients(grad, x, bias, *how):
        with torch.enable_grad():
            x = [a.double().requires_grad_() for a in x]
            b = None if bias is None else bias.double().requires_grad_()
            g = torch.autograd.grad(attend(x, b, *how)[0], x + ([] if b is None else [b]), grad.double())
        return [a.to(grad.dtype) for a in g]

    side = lambda w: None if w is None or w < 0 else w
    def flash_how(causal, scale=None, window_size_left=None, window_size_right=None):
        return scale, False, side(window_size_left), 0 if causal else side(window_size_right)
    def efficient_how(kind, scale=None): return scale, kind == 1, None, 0 if kind else None
    def rounded(x, y): return y[0].to(x.dtype), y[1].float()
    flash = lambda q, k, v, a, b, n, m, p, causal, debug, **kw: rounded(q, attend((q, k, v), None,
        *flash_how(causal, **kw)))
    efficient = lambda q, k, v, bias, a, b, n, m, p, kind, lse, **kw: rounded(q, attend((q, k, v), bias,
        *efficient_how(kind, **kw)))
    flash_back = lambda g, q, k, v, o, lse, a, b, n, m, p, causal, r, u, **kw: gradients(g, (q, k, v), None,
        *flash_how(causal, **kw))
    efficient_back = lambda g, q, k, v, bias, o, a, b, n, m, lse, p, r, u, kind, wanted, **kw: gradients(g, (q, k, v),
        bias, *efficient_how(kind, **kw))[:4 if wanted else 3]
    forward, backward = F.own("aten._flash_attention_forward.default",
                              flash), F.own("aten._flash_attention_backward.default", flash_back)
    x, few, wide = (q(2, 5, 4, 8), q(2, 7, 2, 8), q(2, 7, 2, 8)), (q(2, 7, 3, 8), q(2, 5, 3, 8),
                                                                   q(2, 5, 3, 8)), (q(2, 5, 2, 8), q(2, 5, 2, 8),
                                                                       q(2, 5, 2, 8))
    for y, causal, kw in ((x, False, {}), (x, True, dict(scale=0.4)),
                          (x, False, dict(window_size_left=2, window_size_right=1)),
                          (x, True, dict(window_size_left=3, window_size_right=-1)),
                          (few, False, dict(window_size_left=-1, window_size_right=2)), (wide, True, {})):
        n, m = y[0].shape[1], y[1].shape[1]
        args = (*y, None, None, n, m, 0.0, causal, False)
        forward(*args, outs=2, **kw)
        backward(t(*y[0].shape), *y, *flash(*args, **kw), None, None, n, m, 0.0, causal, None, None, **kw)
    forward(*few, None, None, 7, 5, 0.0, True, False, outs=1)  # queries before every key: 0
    forward, backward = F.own("aten._efficient_attention_forward.default",
                              efficient), F.own("aten._efficient_attention_backward.default", efficient_back)
    x = q(2, 5, 2, 8), q(2, 7, 2, 8), q(2, 7, 2, 6)
    for bias, kind, kw in ((None, 0, {}), (t(2, 2, 5, 7), 0, dict(scale=0.4)), (None, 1, {}), (t(2, 2, 5, 7), 2, {})):
        args = (*x, bias, None, None, None, None, 0.0, kind, True)
        y, lse = efficient(*args, **kw)
        forward(*args, outs=2, **kw)
        padded = torch.cat([lse, torch.full((2, 2, 27), inf)], 2)  # to a multiple of 32
        backward(t(*y.shape), *x, bias, y, None, None, 5, 7, padded, 0.0, None, None, kind, bias is not None,
                 static=True, **kw)


def sequences(F):
    """Attention over sequences of different lengths, one after the other: PyTorch's on each alone."""
    def varlen(q, k, v, qo, ko, key_bias=None, scale=None, softcap=0.0, lower=None, upper=None):
        out = torch.zeros(q.shape[0], q.shape[1], v.shape[2], dtype=q.dtype)
        for b in range(len(qo) - 1):
            x, y, z = q[qo[b]:qo[b + 1]].transpose(0, 1), k[ko[b]:ko[b + 1]].transpose(0,
                1), v[ko[b]:ko[b + 1]].transpose(0, 1)
            per = x.shape[0] // y.shape[0]
            y, z = y.repeat_interleave(per, 0), z.repeat_interleave(per, 0)
            N, M = x.shape[1], y.shape[1]
            d = torch.arange(M) - torch.arange(N)[:, None]
            mask = torch.zeros(N, M, dtype=q.dtype) if key_bias is None else key_bias[ko[b]:ko[b
                + 1]].to(q.dtype).expand(N, M)
            mask = mask.masked_fill((d < (-9999 if lower is None else lower))
                                    | (d > (9999 if upper is None else upper)), -inf)
            out[qo[b]:qo[b + 1]] = torch.nn.functional.scaled_dot_product_attention(x[None], y[None], z[None], mask,
                scale=scale)[0].transpose(0, 1)
        return out

    c = F.own("qkv.sdpa_varlen.default", varlen)
    q = lambda *s, dt=f32: t(*s, dt=dt, lo=-2, hi=2)
    at = lambda *n: torch.tensor(n)
    for dt in FLOATS:
        c(q(9, 2, 8, dt=dt), q(9, 2, 8, dt=dt), q(9, 2, 6, dt=dt), at(0, 4, 9), at(0, 4, 9))
        c(q(9, 2, 8, dt=dt), q(11, 2, 8, dt=dt), q(11, 2, 8, dt=dt), at(0, 1, 9), at(0, 8, 11), t(11, dt=dt))
        c(q(9, 2, 8, dt=dt), q(9, 2, 8, dt=dt), q(9, 2, 8, dt=dt), at(0, 4, 9), at(0, 4, 9), upper=0)
    # one sequence is empty
    c(q(9, 4, 8), q(9, 2, 8), q(9, 2, 6), at(0, 4, 4, 9), at(0, 4, 4, 9), scale=0.3, fixed="0.1 1.1 2.1")
    # one has queries and no key: 0
    c(q(9, 2, 8), q(5, 2, 8), q(5, 2, 8), at(0, 4, 9), at(0, 5, 5), t(5))
    c(q(70, 2, 16), q(70, 2, 16), q(70, 2, 16), at(0, 1, 40, 70), at(0, 1, 40, 70), lower=-3, upper=2)
    c(q(0, 2, 8), q(0, 2, 8), q(0, 2, 8), at(0, 0, 0), at(0, 0, 0))


def integers(F):
    """A linear layer of integers, and attention whose probabilities are quantized."""
    def linear(x, scale, zero, w, w_scale, bias=None):
        x = (x.to(f64) - (0 if zero is None else zero)) * scale.to(f64)
        y = x @ (w.to(f64) * w_scale.to(f64).reshape(-1, 1)).T
        return (y if bias is None else y + bias).to(f32)

    c, some = F.own("qkv.linear_integer.default", linear), lambda *s: idx(120, *s, dt=i8)
    c(some(3, 5), torch.tensor(0.02), None, some(4, 5), t(4, lo=0.01, hi=0.1))
    c(some(2, 3, 8), torch.tensor(0.02), torch.tensor(-3, dtype=i8), some(17, 8), torch.tensor([0.03]), t(17))
    c(idx(250, 7, 40, dt=u8), torch.tensor(0.02), torch.tensor(131, dtype=u8), some(50, 40), t(50, lo=0.01, hi=0.1),
      t(50))
    c(some(2, 3, 8), t(2, 3, 1, lo=0.01, hi=0.1), None, some(5, 8), t(5, lo=0.01, hi=0.1), t(5))
    c(some(0, 8), torch.tensor(0.02), None, some(5, 8), t(5, lo=0.01, hi=0.1))
    c(idx(250, 2, 3, 8, dt=u8), t(2, 3, 1, lo=0.01, hi=0.1), idx(250, 2, 3, 1, dt=u8), some(5, 8),
      t(5, lo=0.01, hi=0.1))

    def convolution(x, scale, zero, w, w_scale, bias, kernel, stride, padding, dilation, groups=1):
        x = (x.to(f64) - (0 if zero is None else zero)) * scale.to(f64)
        w = (w.to(f64) * w_scale.to(f64).reshape(-1, 1)).reshape(len(w), *kernel, x.shape[1] // groups).movedim(-1, 1)
        f = getattr(torch.nn.functional, f"conv{len(kernel)}d")
        return f(x, w, None if bias is None else bias.to(f64), stride, padding, dilation, groups).to(f32)

    c, by = F.own("qkv.convolution_integer.default", convolution), torch.tensor(0.02)
    c(some(2, 5, 7, 6), by, None, some(4, 45), t(4, lo=0.01, hi=0.1), t(4), [3, 3], [1, 1], [1, 1], [1, 1])
    c(idx(250, 1, 3, 9, 8, dt=u8), by, torch.tensor(131, dtype=u8), some(65, 12), torch.tensor([0.03]), None, [2, 2],
      [2, 1], [1, 0], [1, 2])
    c(some(2, 8, 5, 5), by, torch.tensor(-3, dtype=i8), some(17, 8), t(17, lo=0.01, hi=0.1), t(17), [1, 1], [1, 1],
      [0, 0], [1, 1])
    c(some(3, 4, 9), by, None, some(5, 20), t(5, lo=0.01, hi=0.1), t(5), [5], [2], [2], [1])
    c(some(1, 2, 4, 5, 6), by, torch.tensor(7, dtype=i8), some(5, 24), t(5, lo=0.01, hi=0.1), t(5), [3, 2, 2],
      [1, 2, 1], [1, 0, 2], [1, 1, 3])
    c(some(0, 2, 4, 4), by, None, some(5, 8), t(5, lo=0.01, hi=0.1), None, [2, 2], [1, 1], [0, 0], [1, 1])
    c(some(1, 12, 5, 9), by, None, some(50, 108), t(50, lo=0.01, hi=0.1), t(50), [3, 3], [1, 2], [1, 1], [1, 1])
    c(some(2, 49, 6, 7), by, torch.tensor(-3, dtype=i8), some(49, 9), t(49, lo=0.01, hi=0.1), t(49), [3, 3], [1, 1],
      [1, 1], [1, 1], 49)
    c(idx(250, 1, 6, 9, 8, dt=u8), by, torch.tensor(131, dtype=u8), some(6, 10), torch.tensor([0.03]), None, [5, 2],
      [2, 1], [2, 0], [1, 2], 6)
    c(some(2, 3, 4, 5, 6), by, torch.tensor(7, dtype=i8), some(3, 12), t(3, lo=0.01, hi=0.1), t(3), [3, 2, 2],
      [1, 2, 1], [1, 0, 2], [1, 1, 3], 3)

    def by_blocks(x, scale, w, w_scale, zero, block, bits, bias=None):
        each = lambda v: v.to(f64).repeat_interleave(block, 1)[:, :w.shape[1]]
        w = (w.to(f64) - (0 if zero is None else each(zero))) * each(w_scale)
        y = (x.to(f64) if scale is None else x.to(f64) * scale.to(f64)) @ w.T
        return (y if bias is None else y + bias).to(f32)

    c, four = F.own("qkv.linear_blocks.default", by_blocks), lambda *s: idx(16, *s, dt=i8) - 8
    c(t(3, 64), None, four(5, 64), t(5, 2, lo=0.01, hi=0.1), None, 32, 4)
    c(t(2, 3, 40), None, four(17, 40), t(17, 3, lo=0.01, hi=0.1), four(17, 3), 16, 4, t(17))
    c(t(1, 24), None, some(50, 24), t(50, 1, lo=0.01, hi=0.1), None, 24, 8)
    c(some(2, 3, 40), t(2, 3, 1, lo=0.01, hi=0.1), idx(250, 7, 40, dt=u8), t(7, 5, lo=0.01, hi=0.1),
      idx(250, 7, 5, dt=u8), 8, 8, t(7))
    c(some(4, 64), torch.tensor(0.02), four(49, 64), t(49, 2, lo=0.01, hi=0.1), None, 32, 4, t(49))
    c(t(0, 8), None, four(5, 8), t(5, 1, lo=0.01, hi=0.1), None, 8, 4)

    def rows(x, dtype, least):
        low, high = x.amin(-1, True).clamp(max=0), x.amax(-1, True).clamp(min=0)
        if dtype is i8:
            scale = x.abs().amax(-1, True).clamp(min=least) / 127
            zero = torch.zeros_like(scale)
        else:
            scale = ((high - low) / 255).clamp(min=least)
            zero = (-low / scale).round().clamp(0, 255)
        q = (x * (1 / scale)).round() + zero
        return q.clamp(-128 if dtype is i8 else 0, 127 if dtype is i8 else 255).to(dtype), scale, zero.to(dtype)

    c = F.own("qkv.quantize_rows.default", rows)
    c(t(3, 70), i8, 1e-5)
    c(t(2, 3, 17), u8, 1e-7)
    c(t(4, 5, lo=1, hi=2), u8, 1e-7)
    c(t(1, 5, lo=-2, hi=-1), u8, 1e-7)
    c(torch.zeros(2, 4), i8, 1e-5)
    c(torch.zeros(2, 0, 4), u8, 1e-5)

    def through(x, scale, zero):
        return x if scale is None else (x.to(f64) - (0 if zero is None else zero)) * scale.to(f64)

    def attend(q, k, v, mask, scale_p, zero_p, dtype_p, scale=None, softcap=0.0, lower=None, upper=None, scale_q=None,
               zero_q=None, scale_k=None, zero_k=None, scale_v=None, zero_v=None, by_inverse=False):
        q, k, v = (through(x.to(f64), s, z) for x, s, z in ((q, scale_q, zero_q), (k, scale_k, zero_k),
                                                          (v, scale_v, zero_v)))
        per = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(per, 1), v.repeat_interleave(per, 1)
        s = q @ k.transpose(-1, -2) * (q.shape[-1]**-0.5 if scale is None else scale)
        if softcap:
            s = softcap * torch.tanh(s / softcap)
        if mask is not None:
            s = s.masked_fill(~mask, -inf) if mask.dtype is torch.bool else s + mask
        far = torch.arange(k.shape[2]) - torch.arange(q.shape[2])[:, None]
        s = s.masked_fill(far < (-9999 if lower is None else lower), -inf)
        s = s.masked_fill(far > (9999 if upper is None else upper), -inf)
        p = torch.softmax(s, -1).nan_to_num(0)
        info, zero = torch.iinfo(dtype_p), 0 if zero_p is None else int(zero_p)
        p = ((p / scale_p.to(f64)).round() + zero).clamp(info.min, info.max) - zero
        return (p * scale_p.to(f64) @ v).to(f32)

    c, one = F.own("qkv.sdpa_quantized.default", attend), torch.tensor(1 / 127)
    for shape in ((1, 2, 5, 8), (2, 4, 19, 16)):
        q, k, v = t(*shape), t(shape[0], 2, 21, shape[3]), t(shape[0], 2, 21, 6)
        c(q, k, v, None, one, None, i8)
        c(q, k, v, t(shape[2], 21), one, torch.tensor(0, dtype=i8), i8, scale=0.3, by_inverse=True)
        c(q, k, v, torch.rand(shape[2], 21) > 0.5, torch.tensor(1 / 255), torch.tensor(0, dtype=u8), u8, upper=4)
        by = dict(scale_q=torch.tensor(0.02), scale_k=torch.tensor(0.03), scale_v=torch.tensor(0.01))
        q, k, v = some(*shape), some(shape[0], 2, 21, shape[3]), some(shape[0], 2, 21, 6)
        c(q, k, v, None, one, None, i8, **by)
        c(q, k, v, t(21), one, None, i8, softcap=3.0, lower=-2, **by)
        q, k, v = (idx(250, *x.shape, dt=u8) for x in (q, k, v))
        zeros = {f"zero_{n}": torch.tensor(z, dtype=u8) for n, z in (("q", 120), ("k", 9), ("v", 200))}
        c(q, k, v, None, one, None, i8, scale=0.01, **by, **zeros)


def grouped(F):
    """Rows after the last group are undefined in PyTorch: the last offset is the number of rows."""
    offs = lambda *n: torch.tensor(n, dtype=i32)
    c = F.op("aten._grouped_mm.default")
    for dt in FLOATS[:1] + [bf16]:
        c(t(7, 8, dt=dt), t(3, 8, 16, dt=dt), offs=offs(2, 2, 7))
        c(t(7, 8, dt=dt), t(4, 8, 16, dt=dt), offs=offs(0, 0, 7, 7))
        c(t(2, 4, 8, dt=dt), t(2, 8, 16, dt=dt))
    c(t(7, 8, dt=bf16), t(3, 8, 16, dt=bf16), offs=offs(2, 2, 7), out_dtype=bf16)

    def fallback(x, w, offs):
        """transformers.integrations.moe._grouped_mm_fallback"""
        out, start = torch.zeros(x.shape[0], w.shape[2], dtype=x.dtype), 0
        for g, end in enumerate(offs.tolist()):
            out[start:end] = x[start:end] @ w[g]
            start = end
        return out
    c = F.own("transformers.grouped_mm_fallback.default", fallback)
    for dt in FLOATS:
        c(t(7, 5, dt=dt), t(3, 5, 6, dt=dt), offs(2, 2, 5))
    c(t(7, 5), t(3, 5, 6), torch.tensor([0, 1, 7]))
    c(t(0, 5), t(3, 5, 6), offs(0, 0, 0))


def recurrent(F):
    """Sequences (steps first or batch first), layers, directions, biases, projections, dtypes."""
    i = 3

    def weights(gates, h, layers=1, both=False, bias=True, proj=0, dt=f32):
        out = []
        for k in range(layers):
            for _ in range(1 + both):
                out += [t(gates * h, i if k == 0 else (proj or h) * (1 + both), dt=dt, lo=-1, hi=1),
                        t(gates * h, proj or h, dt=dt, lo=-1, hi=1)]
                out += [t(gates * h, dt=dt), t(gates * h, dt=dt)] if bias else []
                out += [t(proj, h, dt=dt, lo=-1, hi=1)] if proj else []
        return out
    shapes = (dict(), dict(both=True), dict(layers=2), dict(layers=3, both=True), dict(bias=False),
              dict(layers=2, both=True, bias=False))
    for name, gates in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)):
        c = F.op(f"aten.{name}.input")
        lstm = name == "lstm"
        state = lambda n, b, h, p=0, dt=f32: [t(n, b, p or h, dt=dt), t(n, b, h, dt=dt)] if lstm else t(n, b, h, dt=dt)

        def case(T, B, h, first=False, dt=f32, **kw):
            n, both = kw.get("layers", 1), kw.get("both", False)
            x = t(B, T, i, dt=dt) if first else t(T, B, i, dt=dt)
            c(x, state(n * (1 + both), B, h, kw.get("proj", 0), dt), weights(gates, h, dt=dt, **kw),
              kw.get("bias", True), n, 0.0, False, both, first)
        for kw in shapes:
            case(5, 2, 4, **kw)
            case(4, 3, 5, True, **kw)
        case(1, 1, 1)
        case(7, 1, 33, both=True)
        case(3, 40, 6)
        for dt in FLOATS[1:]:
            case(3, 2, 4, dt=dt, both=True)
        if lstm:
            for kw in shapes[:4]:
                case(4, 2, 5, True, proj=2, **kw)
            case(4, 2, 5, proj=3, bias=False, dt=f64)
        cell = F.op(f"aten.{name}_cell.default")
        for dt in FLOATS:
            for bias in (True, False):
                cell.maybe(t(2, i, dt=dt), [t(2, 4, dt=dt), t(2, 4, dt=dt)] if lstm else t(2, 4, dt=dt),
                           *weights(gates, 4, bias=bias, dt=dt))


def other_products(F):
    c = F.op("aten.addr.default")
    for kw in ({}, dict(beta=3, alpha=2), dict(beta=0), dict(alpha=0)):
        c(t(3, 4, dt=b8), t(3, dt=b8), t(4, dt=b8), **kw)
    for kw in ({}, dict(beta=0.5, alpha=2.0), dict(beta=0)):
        c(t(3, 4), t(3), t(4), **kw)
        c(t(4), t(3), t(4), **kw)
    c(torch.full((3, 4), nan), t(3), t(4), beta=0)
    c(t(3, 4, dt=i64), t(3, dt=i64), t(4, dt=i64), beta=2, alpha=3)
    c = F.op("aten.inner.default")
    for a, b in (((5,), (5,)), ((2, 3, 5), (4, 5)), ((2, 5), (5,)), ((), (3,)), ((2, 3), ()), ((), ()),
                 ((2, 0), (3, 0))):
        c(t(a), t(b))
    c = F.op("aten.kron.default")
    for a, b in (((3,), (2,)), ((2, 3), (4,)), ((2,), (2, 3, 2)), ((), (2, 3)), ((2, 1, 2), (1, 3, 2)),
                 ((0, 2), (2, 2))):
        c(t(a), t(b))
    c(t(2, 2, dt=i64), t(2, 2))
    for n in ("cross", "linalg_cross"):
        c = F.op(f"aten.{n}.default")
        for dt in FLOATS + INTS[:2]:
            c(t(4, 3, dt=dt), t(4, 3, dt=dt), fixed="0.1 1.1")
        c(t(3, 4), t(3, 4), dim=0, fixed="0.0 1.0")
        c(t(2, 3, 4), t(2, 3, 4), dim=-2, fixed="0.1 1.1")
        c(t(2, 3), t(1, 3), dim=1, fixed="0.1 1.1")
        c(t(0, 3), t(0, 3), fixed="0.1 1.1")
    F.op("aten.cross.default")(t(2, 3, 3), t(2, 3, 3), fixed="0 1")
    c = F.op("aten._trilinear.default")
    for a, w, b in ((3, 2, 5), (1, 2, 5), (3, 1, 5), (3, 2, 1)):
        c(t(a, 4), t(w, 4, b), t(a, b), [1, 3], [0], [1, 2], [2, 3])
    c(t(3, 1, 4, 1), t(1, 2, 4, 5), t(3, 1, 1, 5), [1], [0], [3], [2], static=True)
    c(t(3, 4), t(3, 4), t(3, 4), [], [], [], [1])
    c(t(3, 4), t(4), t(3), [], [0], [1], [])
    for n in ("linalg_multi_dot", "chain_matmul"):
        c = F.op(f"aten.{n}.default")
        for dt in FLOATS[:2] + [bf16]:
            c.maybe([t(3, 4, dt=dt), t(4, 5, dt=dt), t(5, 2, dt=dt)])
        c([t(3, 4), t(4, 5)])
        c([t(3, 4), t(4, 5), t(5, 2), t(2, 6)])
    F.op("aten.linalg_multi_dot.default")([t(4), t(4, 5), t(5)])
    F.op("aten.chain_matmul.default")([t(3, 4)])
    for n in ("matrix_power", "linalg_matrix_power"):
        c = F.op(f"aten.{n}.default")
        for k in (0, 1, 2, 3, 6, 7):
            c(t(3, 3), k)
        c(t(2, 3, 3), 0)
        c(t(2, 3, 3, dt=f64), 5)
        c(t(0, 0), 3)


def z(*shape):
    return torch.complex(t(*shape), t(*shape))


def complex_matrices(F):
    square, tall = z(2, 4, 4), z(4, 3)
    hermitian = square @ square.mH + torch.eye(4)
    for n in ("cholesky", "cholesky_ex", "inv", "inv_ex", "svdvals"):
        F.op(f"aten.linalg_{n}.default")(hermitian)
    F.op("aten.linalg_cholesky.default")(hermitian, upper=True)
    for side in "LU":
        F.op("aten.linalg_eigvalsh.default")(square, side)
    F.op("aten.linalg_svdvals.default")(tall)
    F.op("aten.matrix_exp.default")(square)
    F.op("aten.linalg_solve.default")(square, z(2, 4, 3))
    F.op("aten.linalg_solve.default")(square[0], z(4))
    F.op("aten.linalg_solve.default")(square, z(2, 3, 4), left=False)
    for upper in (False, True):
        for one in (False, True):
            F.op("aten.linalg_solve_triangular.default")(square, z(2, 4, 3), upper=upper, unitriangular=one)
        F.op("aten.cholesky_solve.default")(z(4, 2), torch.linalg.cholesky(hermitian[0], upper=upper), upper)
    F.op("aten.linalg_matrix_norm.str_ord")(tall, "nuc")
    for n in (0, 3, -2):
        F.op("aten.linalg_matrix_power.default")(square, n)
    F.op("aten.linalg_householder_product.default")(tall * 0.3, z(3) * 0.3)
    for s in ((4, 4), (2, 5, 3), (3, 4)):
        for n in ("linalg_lu", "linalg_lu_factor", "linalg_lu_factor_ex", "_lu_with_info", "linalg_qr", "qr", "geqrf"):
            F.op(f"aten.{n}.default")(z(*s))
        F.op("aten.lu_unpack.default")(*torch.linalg.lu_factor(z(*s)))
        F.op("aten.linalg_qr.default")(z(*s), "complete")
        F.op("aten.linalg_qr.default")(z(*s), "r", static=True)
        F.op("aten.linalg_pinv.atol_rtol_tensor")(z(*s), static=True)
    for n in ("linalg_det", "linalg_slogdet", "logdet"):
        for a in (square, z(5, 3, 3), torch.ones(2, 2, dtype=torch.complex64))[:2 if n == "logdet" else 3]:
            F.op(f"aten.{n}.default")(a)
    indefinite = square + square.mH - 3 * torch.eye(4)
    large, hollow = z(2, 9, 9), indefinite * (1 - torch.eye(4))
    for given in (square + square.mT, indefinite, hermitian, large + large.mH, hollow):
        for flag in (False, True):
            for n in ("", "_ex"):
                F.op(f"aten.linalg_ldl_factor{n}.default")(given, hermitian=flag)
            F.op("aten.linalg_ldl_solve.default")(*torch.linalg.ldl_factor(given, hermitian=flag),
                                                  z(*given.shape[:-1], 2), hermitian=flag)
    lu = torch.linalg.lu_factor(square)
    for left in (True, False):
        for adjoint in (True, False):
            F.op("aten.linalg_lu_solve.default")(*lu, z(2, 4, 4), left=left, adjoint=adjoint)
    for n in ("linalg_eigh", "linalg_svd", "svd"):  # vectors of others have any phase
        F.op(f"aten.{n}.default")(torch.diag(torch.tensor([3.0, 2, 1] if "svd" in n else [1.0, 2, 3])) + 0j)
    F.op("aten.linalg_pinv.atol_rtol_tensor")(hermitian, hermitian=True)
    F.op("aten.addr.default")(z(3, 4), z(3), z(4), beta=2, alpha=0.5)
    F.op("aten.conv1d.default")(z(2, 3, 7), z(4, 3, 3), z(4), [2], [1], static=True)
    F.op("aten.conv_transpose1d.default")(z(2, 4, 5), z(4, 2, 3), None, [1], [0], [0], 2, static=True)


def eigen(F):
    """Of general matrices; signs of vectors are LAPACK's up to where its copies agree."""
    ring = torch.eye(5)[[1, 2, 3, 4, 0]]
    blocks = torch.block_diag(*map(torch.tensor, ([[1.0, 2], [-3, 1]], [[4.0, 1], [0, 4]], [[7.0]])))
    scaled = torch.tensor([[1.0, 1e6, 2], [1e-6, 2, 3e-6], [0.5, 2e6, -1]])
    for n in ("linalg_eigvals", "_linalg_eigvals"):
        c = F.op(f"aten.{n}.default")
        for a in (t(4, 4), t(2, 3, 5, 5), t(7, 7), z(4, 4), z(2, 6, 6), z(30, 30), ring, blocks, scaled,
                  torch.zeros(3, 3), torch.zeros(2, 0, 0), torch.zeros(0, 3, 3), t(5, 5).triu()):
            c(a)
    c = F.op("aten.linalg_eig.default")
    for a in (t(3, 3), t(2, 4, 4), z(4, 4), z(2, 5, 5), t(6, 6).triu(), blocks, scaled, torch.eye(3),
              torch.zeros(2, 0, 0), torch.ones(1, 1)):
        c(a)


def fourier(F):
    for n in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
        one, two, many = (F.op(f"aten.fft_{n}{k}.default") for k in ("", "2", "n"))
        for x in [t, z] if n not in ("rfft", "ihfft") else [t]:
            for size in (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 30, 31, 37, 64, 74, 101):
                given = size % 3 == 0 or size == 1
                bins = size // 2 + 1 if n in ("irfft", "hfft") else size
                one(x(2, bins), *([size] if given else []), static=given)
            for norm in ("forward", "ortho"):
                one(x(3, 10), None, 0, norm)
                many(x(2, 6, 5), None, None, norm)
            one(x(3, 10), 7, static=True)
            one(x(3, 10), 23, -2, static=True)
            two(x(2, 6, 8))
            two(x(2, 6, 8), [5, -1], [0, 2], static=True)
            many(x(3, 4, 6), [5, 9], static=True)
            many(x(3, 4, 6), None, [2, 0])
        if n not in ("rfft", "ihfft"):
            one(t(2, 8, dt=i64))
    c = F.op("aten._fft_c2c.default")
    c(z(3, 4, 5), [0, 2], 1, False)
    c(z(3, 4, 5), [1], 2, True)
    c = F.op("aten._fft_r2c.default")
    c(t(3, 4, 5), [0, 2], 2, True)
    c(t(3, 4, 5), [2, 1], 0, False)
    c = F.op("aten._fft_c2r.default")
    c(z(3, 4, 5), [0, 2], 1, 9, static=True)
    c(z(3, 4, 5), [2], 2, 8, static=True)
    for n in ("fftshift", "ifftshift"):
        c = F.op(f"aten.fft_{n}.default")
        c(t(4, 5))
        c(t(4, 5), [1])
        c(z(3, 5), [-1, 0])
        c(t(5, dt=i64))
    for n in ("fftfreq", "rfftfreq"):
        c = F.op(f"aten.fft_{n}.default")
        for size in (1, 8, 9):
            c(size, 0.25)
        c(7, dtype=f64)


def windows_of_signals(F):
    w = torch.hann_window(16)
    c = F.op("aten.stft.default")
    for kw in (dict(), dict(hop_length=5), dict(normalized=True), dict(onesided=False)):
        c(t(2, 50), 16, window=w, return_complex=True, **kw)
    c(t(50), 15, return_complex=True)
    for x in (t(2, 50), z(2, 50)):
        c(x, 16, window=torch.complex(w, -w), return_complex=True)
    c(t(2, 50), 16, win_length=9, window=w[:9], return_complex=True)
    c(t(2, 50), 16, win_length=9, return_complex=False)
    c(t(2, 50), 16, win_length=9, window=w[:9], return_complex=True, align_to_window=True)
    c(t(50), 15, win_length=10, return_complex=True, align_to_window=True)
    c(z(2, 50), 16, window=w, return_complex=True)
    c = F.op("aten.stft.center")
    for mode in ("reflect", "constant", "replicate"):
        c(t(2, 50), 16, window=w, pad_mode=mode, return_complex=True)
    c = F.op("aten.istft.default")
    for kw in (dict(), dict(hop_length=5), dict(normalized=True), dict(length=30), dict(length=60)):
        c(z(2, 9, 7), 16, window=w, fixed="0.1", **kw)
    c(z(9, 7), 16, fixed="0.0")
    c(z(2, 8, 7), 15, 4, 9, torch.ones(9), fixed="0.1")
    c(z(2, 16, 7), 16, window=w, onesided=False, fixed="0.1")
    c(z(2, 9, 7), 16, window=torch.ones(16), center=False, fixed="0.1")
    for kw in (dict(window=w), dict(normalized=True, center=False), dict(window=w, hop_length=5, length=30)):
        c(z(2, 16, 7), 16, onesided=False, return_complex=True, fixed="0.1", **kw)
    c(z(15, 4), 15, onesided=False, return_complex=True, fixed="0.0")


def varlen(q, k, v, starts_q, starts_k, max_q, max_k, causal=False, scale=None, window=None, gqa=False):
    """torch.nn.attention.varlen, sequence by sequence, as it has no kernel for the CPU."""
    left, right = window or (-1, -1)
    right = 0 if causal else right
    out = torch.zeros(q.shape[0], q.shape[1], v.shape[2], dtype=q.dtype)
    for a, b, c, d in zip(starts_q, starts_q[1:], starts_k, starts_k[1:]):
        ahead = (torch.arange(d - c) - (d - c)) - (torch.arange(b - a) - (b - a))[:, None]
        seen = (ahead <= right if right >= 0 else ahead == ahead) & (ahead >= -left if left >= 0 else ahead == ahead)
        x, y, z = (p.transpose(0, 1) for p in (q[a:b], k[c:d], v[c:d]))
        y, z = (p.repeat_interleave(q.shape[1] // k.shape[1], 0) for p in (y, z))
        out[a:b] = torch.nn.functional.scaled_dot_product_attention(x, y, z, seen, scale=scale).transpose(0, 1)
    return out


def varlens(F):
    c = F.own("torch_attn._varlen_attn.default", varlen)
    s, r = torch.tensor([0, 3, 4, 9], dtype=torch.int32), torch.tensor([0, 5, 6, 13], dtype=torch.int32)
    for dt in (f32, f64):
        c(t(9, 4, 8, dt=dt), t(9, 4, 8, dt=dt), t(9, 4, 8, dt=dt), s, s, 5, 5, static=True)
        c(t(9, 4, 8, dt=dt), t(13, 2, 8, dt=dt), t(13, 2, 6, dt=dt), s, r, 5, 7, True, 0.3, None, True, static=True)
        c(t(9, 2, 8, dt=dt), t(9, 2, 8, dt=dt), t(9, 2, 8, dt=dt), s, s, 5, 5, False, None, [2, 1], static=True)
        c(t(9, 2, 8, dt=dt), t(9, 2, 8, dt=dt), t(9, 2, 8, dt=dt), s, s, 5, 5, True, None, [1, -1], static=True)


def add(F):
    varlens(F)
    fourier(F)
    complex_matrices(F)
    eigen(F)
    windows_of_signals(F)
    factors(F)
    other_products(F)
    products(F)
    convolutions(F)
    attention(F)
    fused_attention(F)
    trained(F)
    backends(F)
    kernels(F)
    sequences(F)
    integers(F)
    grouped(F)
    recurrent(F)
    backward.add(F)
