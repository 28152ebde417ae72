"""Wide models: long lists of modules, functions and tensor methods applied to the same input,
as a survey of what exports may contain.

One model is one list; its outputs are the results. An op that is missing is named by the loader together
with all others.
"""
from zoo import *


def wide(name, fs, inputs, dims, modules=(), decompose=True, tol=None):
    """fs: functions of (x, y, modules) giving a tensor or a tuple; inputs: one dict per size."""
    def build():
        class Wide(nn.Module):
            def __init__(self):
                super().__init__()
                self.parts = nn.ModuleList([m() for m in modules])
            def forward(self, x, y=None):
                out = [part(x) for part in self.parts]
                for f in fs:
                    r = f(x, y)
                    out += list(r) if isinstance(r, (tuple, list)) else [r]
                return tuple(out)
        return seeded(Wide), inputs, dims
    model("wide_" + name, tol=tol)(build)
    if decompose:
        model("wide_" + name + "_core", decompose=True, tol=tol)(build)


def xy(*shapes, dt=torch.float32, y=True):
    return [dict(x=R(*s, dt=dt), **(dict(y=R(*s, seed=1, dt=dt)) if y else {})) for s in shapes]


def rows(y=True, mn=2, mx=64):
    n = Dim("n", min=mn, max=mx)
    return dict(x={0: n}, y={0: n}) if y else dict(x={0: n})


A = nn
wide("activations", [], xy((3, 8), (5, 8), y=False), rows(False), modules=[
    A.ReLU, A.ReLU6, A.GELU, lambda: A.GELU("tanh"), A.SiLU, A.Mish, A.ELU, A.CELU, A.SELU, A.LeakyReLU,
    lambda: A.PReLU(8), A.Hardswish, A.Hardsigmoid, A.Hardtanh, A.Hardshrink,
    A.Softshrink, A.Tanhshrink, A.Softplus, A.Softsign, A.Sigmoid, A.LogSigmoid, A.Tanh,
    lambda: A.Threshold(0.1, 2.0), A.GLU, lambda: A.Softmax(1), lambda: A.LogSoftmax(0), lambda: A.Softmin(1),
    A.Identity, A.Dropout, A.AlphaDropout, lambda: A.RReLU()])
for _dt, _n in ((torch.float16, "f16"), (torch.bfloat16, "bf16"), (torch.float64, "f64")):
    wide("activations_" + _n, [], xy((3, 8), (5, 8), dt=_dt, y=False), rows(False), decompose=False,
         tol={"f16": 6e-3, "bf16": 3e-2}.get(_n), modules=[
        A.ReLU, A.GELU, lambda: A.GELU("tanh"), A.SiLU, A.Mish, A.ELU, A.LeakyReLU, A.Hardswish, A.Hardsigmoid,
        A.Softplus, A.Sigmoid, A.LogSigmoid, A.Tanh, A.GLU, lambda: A.Softmax(1),
        lambda: A.LogSoftmax(0), A.ReLU6])
wide("images", [], xy((2, 4, 9, 8), (1, 4, 9, 8), y=False), rows(False, 1), modules=[
    lambda: A.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), lambda: A.Conv2d(4, 4, 3, 2, groups=4, bias=False),
    lambda: A.Conv2d(4, 8, 1), lambda: A.Conv2d(4, 4, 3, dilation=2, padding="same"),
    lambda: A.ConvTranspose2d(4, 3, 3, 2, 1, 1), lambda: A.ConvTranspose2d(4, 4, 4, 2, 1, groups=2),
    lambda: A.MaxPool2d(3, 2, 1), lambda: A.MaxPool2d(2, ceil_mode=True), lambda: A.AvgPool2d(3, 2, 1),
    lambda: A.AvgPool2d(2, count_include_pad=False), lambda: A.AdaptiveAvgPool2d(1),
    lambda: A.AdaptiveAvgPool2d((3, 5)), lambda: A.AdaptiveMaxPool2d((3, 2)), lambda: A.LPPool2d(2, 2),
    lambda: A.ReflectionPad2d(2), lambda: A.ReplicationPad2d((1, 2, 0, 3)), lambda: A.ZeroPad2d(1),
    lambda: A.ConstantPad2d((1, -1, 0, 1), 2.5), lambda: A.CircularPad2d(1),
    lambda: A.BatchNorm2d(4), lambda: A.InstanceNorm2d(4, affine=True), lambda: A.GroupNorm(2, 4),
    lambda: A.LocalResponseNorm(3), lambda: A.PixelShuffle(2), lambda: A.ChannelShuffle(2),
    lambda: A.Upsample(scale_factor=2), lambda: A.Upsample((5, 11), mode="bilinear"),
    lambda: A.Upsample(scale_factor=1.5, mode="bicubic"), lambda: A.Upsample((7, 7), mode="nearest-exact"),
    lambda: A.UpsamplingBilinear2d(scale_factor=2), lambda: A.UpsamplingNearest2d((4, 4)),
    lambda: A.Unfold(3, padding=1), lambda: A.Flatten(), lambda: A.Flatten(2), lambda: A.Dropout2d(),
    lambda: A.Softmax2d(), lambda: A.PixelUnshuffle(1)])
wide("sequences", [], xy((2, 4, 12), (3, 4, 12), y=False), rows(False), modules=[
    lambda: A.Conv1d(4, 6, 3, padding=1), lambda: A.Conv1d(4, 4, 5, 2, groups=4), lambda: A.ConvTranspose1d(4, 3, 4,
        2, 1), lambda: A.MaxPool1d(3, 2), lambda: A.AvgPool1d(4, 3, 1), lambda: A.AdaptiveAvgPool1d(5),
    lambda: A.AdaptiveMaxPool1d(3), lambda: A.BatchNorm1d(4), lambda: A.InstanceNorm1d(4), lambda: A.LayerNorm(12),
    lambda: A.LayerNorm((4, 12), elementwise_affine=False), lambda: A.RMSNorm(12),
    lambda: A.RMSNorm((4, 12)), lambda: A.ReflectionPad1d(3), lambda: A.ReplicationPad1d((0, 2)),
    lambda: A.ConstantPad1d(1, 0.5), lambda: A.CircularPad1d(2), lambda: A.Upsample(scale_factor=2, mode="linear"),
    lambda: A.Upsample(9, mode="nearest"), lambda: A.Linear(12, 5), lambda: A.Linear(12, 3, bias=False),
    lambda: A.Unflatten(2, (3, 4)), lambda: A.GroupNorm(4, 4), lambda: A.Dropout1d()])
wide("volumes", [], xy((2, 2, 5, 6, 7), (1, 2, 5, 6, 7), y=False), rows(False, 1), modules=[
    lambda: A.Conv3d(2, 3, 3, padding=1), lambda: A.ConvTranspose3d(2, 2, 2, 2), lambda: A.MaxPool3d(2),
    lambda: A.AvgPool3d(2, 1), lambda: A.AdaptiveAvgPool3d(2), lambda: A.BatchNorm3d(2),
    lambda: A.InstanceNorm3d(2), lambda: A.ReplicationPad3d(1), lambda: A.ReflectionPad3d(1),
    lambda: A.Upsample(scale_factor=2, mode="trilinear"), lambda: A.ConstantPad3d(1, 1.0)])
wide("unary",
     [lambda x, y, f=f: getattr(torch, f)(x)
      for f in """abs ceil cos cosh deg2rad erf erfc exp exp2 expm1 floor frac isfinite isinf isnan neg rad2deg reciprocal round sgn
    sigmoid sign signbit sin sinc sinh square tan tanh trunc asinh atan isneginf isposinf relu logical_not positive""".split()]
     + [lambda x, y, f=f: getattr(torch, f)(x.abs() + 0.3)
        for f in "log log10 log1p log2 rsqrt sqrt lgamma digamma".split()]
     + [lambda x, y, f=f: getattr(torch, f)(x.sigmoid() * 0.9) for f in "acos asin atanh logit erfinv".split()]
     + [lambda x, y: torch.acosh(x.abs() + 1), lambda x, y: torch.round(x, decimals=1)],
     xy((3, 8), (5, 8), y=False), rows(False))
wide("binary", [lambda x, y, f=f: getattr(torch, f)(x, y)
                for f in """add sub mul div true_divide floor_divide remainder fmod atan2 maximum minimum fmax fmin eq ne lt le gt ge logical_and
    logical_or logical_xor hypot copysign logaddexp logaddexp2 heaviside nextafter rsub max min greater less_equal""".split()]
     + [lambda x, y: x.abs() ** y, lambda x, y: torch.xlogy(x, y.abs()), lambda x, y: torch.lerp(x, y, 0.3),
        lambda x, y: torch.lerp(x, y, y), lambda x, y: torch.addcmul(x, x, y, value=0.5),
        lambda x, y: torch.addcdiv(x, x, y), lambda x, y: x.clamp(-1, 0.5), lambda x, y: x.clamp(min=y),
        lambda x, y: x.clip(max=0.1), lambda x, y: torch.where(x > y, x, y),
        lambda x, y: torch.where(x > 0, 1.0, y), lambda x, y: torch.where(x > 0, x, 0),
        lambda x, y: x.masked_fill(y > 0, 3), lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        lambda x, y: torch.div(x, 3, rounding_mode="floor"), lambda x, y: 2 - x, lambda x, y: 1 / (x + 9),
        lambda x, y: 2 ** x, lambda x, y: x ** 3, lambda x, y: x.abs() ** 0.5, lambda x, y: x // 0.7,
        lambda x, y: x % 0.7, lambda x, y: x.isclose(y), lambda x, y: torch.dist(x, y),
        lambda x, y: (x > 0) ^ (y > 0), lambda x, y: (x > 0) | (y > 0), lambda x, y: ~(x > 0),
        lambda x, y: x + (y > 0), lambda x, y: x.double() + y, lambda x, y: x.half() + y.bfloat16(),
        lambda x, y: x.long() * 2.5, lambda x, y: x.int() // 2, lambda x, y: x.long() / 2,
        lambda x, y: torch.add(x, y, alpha=2), lambda x, y: torch.sub(x, 1, alpha=3), lambda x, y: x.nan_to_num(),
        lambda x, y: torch.float_power(x.abs(), 1.5), lambda x, y: F.cosine_similarity(x, y),
        lambda x, y: F.mse_loss(x, y), lambda x, y: F.l1_loss(x, y), lambda x, y: F.smooth_l1_loss(x, y),
        lambda x, y: F.huber_loss(x, y), lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid())],
     xy((3, 8), (5, 8)), rows())
wide("reduce",
     [lambda x, y, f=f: getattr(torch, f)(x)
      for f in "sum mean prod amax amin all any max min argmax argmin count_nonzero median std var logsumexp_ "
               "std_mean var_mean aminmax norm nansum nanmean".split()
      if hasattr(torch, f)]
     + [lambda x, y, f=f: getattr(torch, f)(x, dim=1)
        for f in """sum mean prod amax amin all any max min argmax argmin count_nonzero median std var logsumexp std_mean var_mean aminmax norm nansum nanmean
        cumsum cumprod cummax cummin logcumsumexp softmax log_softmax sort argsort""".split()]
     + [lambda x, y, f=f: getattr(torch, f)(x, dim=(0, 2), keepdim=True)
        for f in "sum mean amax amin std var logsumexp nansum nanmean norm all any".split()]
     + [lambda x, y: x.topk(2, -1), lambda x, y: x.topk(1, 1, largest=False), lambda x, y: x.kthvalue(2, -1),
        lambda x, y: x.quantile(0.4, -1), lambda x, y: x.diff(dim=1), lambda x, y: x.sum(dtype=torch.float64),
        lambda x, y: x.var(-1, unbiased=False), lambda x, y: x.std(1, correction=0), lambda x, y: F.normalize(x,
            dim=-1), lambda x, y: F.normalize(x, p=1, dim=1), lambda x, y: torch.linalg.norm(x, dim=-1),
        lambda x, y: torch.linalg.vector_norm(x, 1, -1), lambda x, y: x.norm(p="fro"), lambda x, y: x.renorm(2, 0,
            1.0), lambda x, y: torch.cdist(x, x), lambda x, y: x.flip(-1), lambda x, y: x.any(-1),
        lambda x, y: x.gt(0).sum(-1),
        lambda x, y: x.gt(0).float().mean((-1, -2)), lambda x, y: x.msort(), lambda x, y: x.nanmedian(-1),
        lambda x, y: torch.trapezoid(x, dim=-1), lambda x, y: F.softmax(x, -1, dtype=torch.float64)],
     xy((2, 5, 4), (3, 5, 4), y=False), rows(False))
wide("shapes", [lambda x, y: x.view(x.shape[0], -1), lambda x, y: x.reshape(-1), lambda x, y: x.flatten(1),
                lambda x, y: x.unflatten(1, (3, 2)), lambda x, y: x.transpose(1, 2), lambda x, y: x.permute(2, 0, 1),
                lambda x, y: x.mT, lambda x, y: x.movedim(0, -1), lambda x, y: x.swapaxes(0, 1),
                lambda x, y: x.unsqueeze(1), lambda x, y: x[:, :1].squeeze(1), lambda x, y: x.expand(2, -1, -1, -1),
                lambda x, y: x.repeat(1, 2, 1), lambda x, y: x.tile(2), lambda x, y: x.repeat_interleave(2, 1),
                lambda x, y: x.roll(1, 0), lambda x, y: x.roll((1, -1), (1, 2)), lambda x, y: x.flip(0, 1),
                lambda x, y: x.rot90(1, (1, 2)), lambda x, y: x.chunk(3, 1), lambda x, y: x.split(4, 1),
                lambda x, y: x.split([1, 5], 1), lambda x, y: x.unbind(1)[:2], lambda x, y: x.tensor_split(4, 1),
                lambda x, y: x.narrow(1, 2, 3), lambda x, y: x.select(1, -1), lambda x, y: x[:, 1:-1:2],
                lambda x, y: x[..., -2:], lambda x, y: x[0], lambda x, y: x[:, None, 2],
                lambda x, y: x.diagonal(dim1=1, dim2=2), lambda x, y: x.unfold(1, 3, 2),
                lambda x, y: x.tril(), lambda x, y: x.triu(1), lambda x, y: torch.cat([x, y], 1),
                lambda x, y: torch.stack([x, y], -1), lambda x, y: torch.hstack([x, y]),
                lambda x, y: torch.vstack([x, y]), lambda x, y: torch.dstack([x, y]), lambda x, y: F.pad(x, (1, 2)),
                lambda x, y: F.pad(x, (0, 1, 2, 0), value=3.0), lambda x, y: F.pad(x, (1, 1), mode="reflect"),
                lambda x, y: F.pad(x, (-1, 0)), lambda x, y: torch.broadcast_tensors(x, y[:1]),
                lambda x, y: torch.atleast_3d(x), lambda x, y: x.diag_embed(), lambda x, y: torch.block_diag(x[0],
                    y[0]), lambda x, y: x.ravel(), lambda x, y: x.contiguous().view(torch.int32),
                lambda x, y: torch.movedim(x, (0, 1), (1, 0)), lambda x, y: x.view_as(y) + x.reshape_as(y),
                lambda x, y: x.expand_as(y), lambda x, y: torch.meshgrid(x[0, :, 0], y[0, 0], indexing="xy"),
                lambda x, y: torch.cartesian_prod(x[0, :2, 0], y[0, 0]), lambda x, y: x.T.shape[0] * torch.ones(1),
                lambda x, y: torch.squeeze(x[:1], 0), lambda x, y: x.numel() * torch.ones(())],
     xy((2, 6, 5), (3, 6, 5)), rows())
wide("indexing", [lambda x, y: x[:, [0, 2]], lambda x, y: x[:, torch.tensor([1, -1]), 1],
                  lambda x, y: x.index_select(1, torch.tensor([3, 0])), lambda x, y: x.gather(1, (y > 0).long()),
                  lambda x, y: x.take(torch.tensor([0, 5, 9])), lambda x, y: x.take_along_dim(x.argsort(1), 1),
                  lambda x, y: x.scatter(1, (y > 0).long()[:, :1], 9.0), lambda x, y: x.scatter(1,
                      torch.zeros_like(y).long(), y[:, :1].expand_as(y)),
                  lambda x, y: x.scatter_add(1, (y > 0).long(), y),
                  lambda x, y: x.scatter_reduce(1, (y > 0).long(), y, "amax"), lambda x, y: x.index_add(1,
                      torch.tensor([0, 2]), y[:, :2]), lambda x, y: x.index_copy(1, torch.tensor([0, 2]), y[:, :2]),
                  lambda x, y: x.index_fill(1, torch.tensor([1]), -1),
                  lambda x, y: x.index_put((torch.tensor([0, 1]),), y[:2]),
                  lambda x, y: x.index_put((torch.tensor([0, 0]),), y[:2], accumulate=True),
                  lambda x, y: torch.slice_scatter(x, y[:, :2], 1, 1, 3), lambda x, y: torch.select_scatter(x,
                      y[:, 0], 1, 2), lambda x, y: torch.diagonal_scatter(x[:, :, :4], y[:, 0,
                          :4].mean() * torch.ones(x.shape[0], 4), 0, 1, 2),
                  lambda x, y: x.masked_scatter(y > 0, x.flip(1)), lambda x, y: F.one_hot((x[:, 0] > 0).long(), 3),
                  lambda x, y: F.embedding((x[:, :, 0] > 0).long(), y[0]),
                  lambda x, y: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])),
                  lambda x, y: torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), x, right=True),
                  lambda x, y: torch.isin((x * 2).long(), torch.tensor([1, 2])), lambda x, y: x - 1],
     xy((3, 4, 5)), None)
wide("making", [lambda x, y: torch.zeros(x.shape), lambda x, y: torch.ones_like(x),
                lambda x, y: torch.full((2, x.shape[0]), 1.5), lambda x, y: torch.full_like(x, 7),
                lambda x, y: x.new_zeros(3), lambda x, y: x.new_ones(x.shape[0], 2),
                lambda x, y: x.new_full((2,), 3.0), lambda x, y: x.new_tensor([1.0, 2.0]),
                lambda x, y: torch.arange(x.shape[0]), lambda x, y: torch.arange(1, x.shape[0], 2.0),
                lambda x, y: torch.arange(0, 1, 0.25), lambda x, y: torch.linspace(-1, 1, x.shape[0]),
                lambda x, y: torch.logspace(0, 1, 4), lambda x, y: torch.eye(x.shape[0]), lambda x, y: torch.eye(2,
                    3), lambda x, y: torch.tril_indices(3, 3), lambda x, y: torch.triu_indices(3, 4, 1),
                lambda x, y: torch.tensor([[1, 2], [3, 4]]), lambda x, y: torch.tensor(x.shape[0]),
                lambda x, y: torch.scalar_tensor(2.5), lambda x, y: torch.empty_like(x).fill_(2),
                lambda x, y: x.new_empty(2, 2).zero_(), lambda x, y: torch.zeros_like(x, dtype=torch.int32),
                lambda x, y: torch.hann_window(6), lambda x, y: torch.diag(x[0]), lambda x, y: torch.vander(x[0]),
                lambda x, y: torch.ones(2, dtype=torch.bool),
                lambda x, y: x.float().long().double().half().bfloat16().bool().int(), lambda x, y: x.to(torch.int8),
                lambda x, y: x.type_as(torch.ones(1, dtype=torch.float64)), lambda x, y: x.cpu().detach().clone()],
     xy((3, 5), y=False), None)
wide("products", [lambda x, y: x @ y.mT, lambda x, y: torch.bmm(x, y.mT), lambda x, y: torch.matmul(x, y[0, 0]),
                  lambda x, y: torch.einsum("bij,bkj->bik", x, y), lambda x, y: torch.einsum("bij,bij->b", x, y),
                  lambda x, y: torch.einsum("bij->bji", x), lambda x, y: torch.einsum("bij,kj->bik", x, y[0]),
                  lambda x, y: x[0] @ y[0, 0], lambda x, y: torch.mv(x[0], y[0, 0]),
                  lambda x, y: torch.dot(x[0, 0], y[0, 0]), lambda x, y: torch.outer(x[0, 0], y[0, 0]),
                  lambda x, y: torch.mm(x[0], y[0].T), lambda x, y: torch.addmm(x[0, 0, :4], x[0], y[0].T),
                  lambda x, y: torch.baddbmm(x @ y.mT, x, y.mT, beta=0.5, alpha=2),
                  lambda x, y: torch.addbmm(x[0] @ y[0].T, x, y.mT), lambda x, y: F.linear(x, y[0]),
                  lambda x, y: F.bilinear(x, y, torch.ones(2, 5, 5)), lambda x, y: torch.tensordot(x, y, ([2], [2])),
                  lambda x, y: torch.inner(x, y[0]), lambda x, y: torch.kron(x[0], y[0]),
                  lambda x, y: torch.linalg.multi_dot([x[0], y[0].T, x[0]]), lambda x, y: torch.cross(x[..., :3],
                      y[..., :3], dim=-1), lambda x, y: torch.matrix_power(x[0, :4, :4], 3),
                  lambda x, y: torch.linalg.vecdot(x, y), lambda x, y: torch.chain_matmul(x[0], y[0].T),
                  lambda x, y: F.scaled_dot_product_attention(x, y, y),
                  lambda x, y: F.scaled_dot_product_attention(x[:, None], y[:, None], y[:, None], is_causal=True),
                  lambda x, y: x.unsqueeze(1) @ y.unsqueeze(2).mT],
     xy((2, 4, 5), (3, 4, 5)), rows())
_t = lambda y: (y > 0).long()
_c = lambda x: (x[:, 0].abs() * 3).long() % 8
wide("losses", [lambda x, y, r=r: f(x, y, r) for r in ("none", "mean", "sum") for f in (
        lambda x, y, r: F.smooth_l1_loss(x, y, reduction=r, beta=0.5), lambda x, y, r: F.huber_loss(x, y,
            reduction=r), lambda x, y, r: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction=r),
        lambda x, y, r: F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=torch.ones(8) * 2, reduction=r),
        lambda x, y, r: F.kl_div(x, y.softmax(-1), reduction=r),
        lambda x, y, r: F.poisson_nll_loss(x, y.abs(), full=True, reduction=r),
        lambda x, y, r: F.cosine_embedding_loss(x, y, _t(y)[:, 0] * 2 - 1, reduction=r),
        lambda x, y, r: F.hinge_embedding_loss(x, _t(y) * 2 - 1, reduction=r),
        lambda x, y, r: F.margin_ranking_loss(x, y, _t(y) * 2 - 1, reduction=r),
        lambda x, y, r: F.soft_margin_loss(x, _t(y) * 2 - 1, reduction=r),
        lambda x, y, r: F.triplet_margin_loss(x, y, x + 1, swap=True, reduction=r),
        lambda x, y, r: F.multi_margin_loss(x, _c(y), reduction=r), lambda x, y, r: F.nll_loss(x, _c(y), reduction=r),
        lambda x, y, r: F.cross_entropy(x, _c(y), label_smoothing=0.1, reduction=r),
        lambda x, y, r: F.cross_entropy(x, y.softmax(-1), weight=torch.arange(8.0), reduction=r),
        lambda x, y, r: F.multilabel_soft_margin_loss(x, _t(y), reduction=r),
        lambda x, y, r: F.mse_loss(x, y, reduction=r))],
     xy((3, 8), (5, 8)), rows())
S = torch.special
wide("special", [lambda x, y, f=f: f(x.abs() + 0.2) for f in (S.gammaln, S.psi, S.i0, S.entr, S.exp2, S.log1p,
                                                              torch.lgamma)]
     + [lambda x, y, f=f: f(x) for f in (S.sinc, S.ndtr, S.expit, S.erf, S.expm1, S.round)]
     + [lambda x, y: S.logit(x.sigmoid()), lambda x, y: S.xlog1py(x, y.abs()), lambda x, y: S.xlogy(2, y.abs()),
        lambda x, y: torch.ldexp(x, y.round()), lambda x, y: torch.logaddexp2(x, y)], xy((3, 8), (5, 8)), rows())
wide("statistics", [lambda x, y: torch.quantile(x, 0.3), lambda x, y: torch.quantile(x, torch.tensor([0.2, 0.9]),
    dim=0, keepdim=True), lambda x, y: torch.quantile(x, 0.5, 1, interpolation="midpoint"),
                    lambda x, y: torch.nanquantile(torch.where(x > 1, float("nan"), x), 0.4, dim=0),
                    lambda x, y: torch.trapezoid(x, y, dim=0), lambda x, y: torch.trapezoid(x, dx=0.5),
                    lambda x, y: torch.trapz(x, y[0]), lambda x, y: torch.cumulative_trapezoid(x, dim=0),
                    lambda x, y: torch.cumulative_trapezoid(x, y), lambda x, y: x.renorm(2, 0, 1.5),
                    lambda x, y: F.batch_norm(x, None, None, training=True), lambda x, y: F.batch_norm(x[:, :, None],
                        None, None, y[0], y[1], training=True), lambda x, y: torch.lerp(x, y, 0.7)],
     xy((4, 8), (6, 8)), rows(mn=4))
wide("made", [lambda x, y, f=f: f(7) * f(7, False) for f in (torch.hann_window, torch.hamming_window,
                                                             torch.blackman_window, torch.bartlett_window,
                                                             torch.kaiser_window)]
     + [lambda x, y: torch.hamming_window(6, True, 0.6, 0.3), lambda x, y: torch.logspace(-1, 1, 5, 2),
        lambda x, y: torch.tril_indices(3, 5, 1), lambda x, y: torch.triu_indices(5, 3, -1),
        lambda x, y: torch.diag(x[:, 0]), lambda x, y: torch.diag(x, 1), lambda x, y: torch.diagflat(x[:2]),
        lambda x, y: torch.vander(x[:, 0], 3), lambda x, y: torch.linalg.vander(x),
        lambda x, y: torch.block_diag(x, y[0], y), lambda x, y: torch.cartesian_prod(x[:, 0], y[0], y[:, 1]),
        lambda x, y: torch.dstack([x, y]), lambda x, y: torch.column_stack([x, y[:, 0]]),
        lambda x, y: torch.row_stack([x, y]), lambda x, y: torch.hsplit(x, [2, 5]), lambda x, y: torch.inner(x, y),
        lambda x, y: torch.kron(x, y), lambda x, y: torch.cross(x[:, :3], y[:, :3]),
        lambda x, y: torch.addr(x, x[:, 0], y[0])], xy((4, 8)), None)
