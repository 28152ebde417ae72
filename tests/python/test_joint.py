"""Joint graphs: gradients are torch.autograd's, in qkv and in PyTorch after saving,
for sizes that the example did not have."""
import copy
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import optable  # noqa: E402

B, S = Dim("b", min=1, max=8), Dim("s", min=3, max=32)


class Attention(nn.Module):
    """Embedding (a row of padding, a tied head), grouped heads, causal or masked or biased attention, norms, an MLP,
    cross entropy."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.table = nn.Embedding(11, 16, padding_idx=0)
        self.norm, self.last = nn.LayerNorm(16), nn.RMSNorm(16)
        self.q, self.kv, self.out = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.bias = nn.Parameter(torch.randn(4, 1, 1))
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16), nn.SiLU())
        self.frozen = nn.Parameter(torch.ones(16), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, ids, x):
        h = self.table(ids) + x
        n = self.norm(h)
        q = self.q(n).unflatten(-1, (4, 4)).transpose(1, 2)
        k, v = self.kv(n).unflatten(-1, (2, 2, 4)).permute(2, 0, 3, 1, 4).unbind(0)
        if self.kind == "causal":
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True, scale=0.3)
        elif self.kind == "mask":
            a = F.scaled_dot_product_attention(q, k, v, (ids != 3)[:, None, None, :], enable_gqa=True)
        else:
            s = q @ k.repeat_interleave(2, 1).mT / 2 + self.bias
            a = s.softmax(-1) @ v.repeat_interleave(2, 1)
        h = h + self.out(a.transpose(1, 2).flatten(2)) * self.frozen
        h = self.last(h + self.mlp(h))
        logits = h @ self.table.weight.T
        loss = F.cross_entropy(logits.flatten(0, 1), ids.flatten())
        return {"loss": loss, "logits": logits}


class Picture(nn.Module):
    """Convolutions, pooling, resampling, group and batch norm, a grid, on pictures of any size."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.group, self.batch = nn.GroupNorm(2, 8), nn.BatchNorm2d(8)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)

    def forward(self, image, grid):
        x = F.relu(self.batch(self.group(self.a(image))))
        x = x + self.deep(F.max_pool2d(x, 3, 1, 1))
        x = F.interpolate(self.up(x), size=(9, 11), mode="bilinear") + F.adaptive_avg_pool2d(x, (9, 11))[:, ::2]
        sampled = F.grid_sample(x, grid, align_corners=False)
        return (sampled.square().mean() + F.avg_pool2d(x, 2).abs().amax(dim=(2, 3)).sum()).reshape(1)


def tokens(batch, length, dtype):
    ids = torch.randint(0, 11, (batch, length), generator=torch.Generator().manual_seed(batch))
    return ids, torch.randn(batch, length, 16, dtype=dtype)


def pictures(batch, size, dtype):
    return torch.randn(batch, 3, size, size + 2, dtype=dtype), torch.rand(batch, 3, 4, 2, dtype=dtype) * 2.4 - 1.2


CASES = {
    "causal": (lambda: Attention("causal"), tokens, ({0: B, 1: S}, {0: B, 1: S}), "x"),
    "mask": (lambda: Attention("mask"), tokens, ({0: B, 1: S}, {0: B, 1: S}), "x"),
    "bias": (lambda: Attention("bias"), tokens, ({0: B, 1: S}, {0: B, 1: S}), "x"),
    "picture": (Picture, pictures, ({0: B}, {0: B}), "*"),
}


def close(got, want, dtype, name):
    got, want = np.asarray(got), want.detach().numpy()
    assert got.shape == want.shape and got.dtype == want.dtype, name
    assert np.abs(got - want).max() <= (1e-4 if dtype == torch.float32 else 1e-9) * max(np.abs(want).max(), 1e-3), name


def all_core(program):
    """Every node is a core op of ATen, a number out of sizes, or an assert."""
    others = {str(n.target) for n in program.graph.nodes if isinstance(n.target, torch._ops.OpOverload)
              and torch.Tag.core not in n.target.tags}
    assert others <= {"aten._assert_scalar.default"}, others


def test_the_list_of_core_ops_is_pytorchs():
    found = set()
    for name in torch._C._dispatch_get_all_op_names():
        space, op, overload = (*name.replace("::", ".").split("."), "default")[:3]
        op = getattr(getattr(torch.ops, space), op, None) if space == "aten" else None
        if op is not None and overload in op.overloads() and torch.Tag.core in getattr(op, overload).tags:
            found.add(str(getattr(op, overload)))
    table = list(optable.rows())
    assert {r.name for r in table if "ATEN_CORE" in r.traits} == found & {r.name for r in table}


class Composite(nn.Module):
    """Ops that ATen's core has not, in both passes."""

    def __init__(self):
        super().__init__()
        self.fc, self.rms, self.slope = nn.Linear(6, 6), nn.RMSNorm(6), nn.PReLU(3)
        self.conv = nn.Conv1d(3, 3, 3, padding=1, padding_mode="replicate")

    def forward(self, x):
        h = self.slope(self.conv(self.rms(self.fc(x))))
        h = F.silu(h) + F.mish(h) + F.softplus(h) + F.hardswish(h) + F.logsigmoid(h) + F.hardshrink(h) + F.softshrink(h)
        h = h + torch.logaddexp(h, -h) + torch.xlogy(h.abs() + 1, h.abs() + 2) + torch.hypot(h,
            h + 3) + torch.nan_to_num(h) + torch.special.ndtr(h) + torch.frac(h)
        n = torch.linalg.vector_norm(h, dim=-1) + torch.linalg.vector_norm(h, ord=3, dim=-1) + torch.logsumexp(h,
            -1) + torch.cdist(h, h + 1).sum(-1)
        d = torch.diagonal(h @ h.mT, 1, 1, 2)
        seen = torch.eye(3, dtype=torch.bool) | (torch.tril(h @ h.mT) > 0).all(-1, keepdim=True)
        s = F.softmax((h @ h.mT).masked_fill(~seen, float("-inf")), -1)
        up = F.interpolate(h[:, None], scale_factor=2.0, mode="bilinear") * torch.linspace(0, 1, 12)
        return n.sum() + d.square().sum() + (torch.triu(s)
                                             @ h).square().mean() + up.square().mean() + torch.where(h > 0, 1.0,
                                                 2.0).mul(h).mean()


@pytest.mark.turns
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_core_ops_alone(dtype, tmp_path):
    torch.manual_seed(0)
    module, x = Composite().to(dtype), torch.randn(2, 3, 6, dtype=dtype)
    torch.export.save(torch.export.export(module, (x,), dynamic_shapes=({0: B},)), tmp_path / "m.pt2")
    joint = qkv.joint(tmp_path / "m.pt2", path=tmp_path / "j.pt2", decompose="core")
    loaded = torch.export.load(tmp_path / "j.pt2")
    all_core(loaded)
    for x in (x, torch.randn(5, 3, 6, dtype=dtype)):
        loss = module(x)
        want = [loss, *torch.autograd.grad(loss, list(module.parameters()))]
        for got in (joint.run([x.numpy()]).values(), qkv.Model(tmp_path / "j.pt2").run([x.numpy()]).values(),
                    loaded.module()(x)):
            for g, w, name in zip(got, want, ["loss", *dict(module.named_parameters())], strict=True):
                close(g.detach() if torch.is_tensor(g) else g, w, dtype, name)


def test_no_core_form(tmp_path):
    class Sorting(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.rand(5))

        def forward(self, x):
            return torch.lgamma(self.w * x + 1).sum()

    torch.export.save(torch.export.export(Sorting(), (torch.rand(5),)), tmp_path / "m.pt2")
    with pytest.raises(qkv.Error, match=r"node 'lgamma' .*aten.lgamma.default is not in ATen's core") as e:
        qkv.joint(tmp_path / "m.pt2", path=tmp_path / "j.pt2", decompose="core")
    assert e.value.code == 4 and not (tmp_path / "j.pt2").exists()


@pytest.mark.turns
@pytest.mark.parametrize("dtype, decompose", [(torch.float32, "none"), (torch.float64, "math"),
                                              (torch.float64, "core")])
@pytest.mark.parametrize("name", CASES)
def test_autograd(name, dtype, decompose, tmp_path):
    make, inputs, dynamic, wanted = CASES[name]
    torch.manual_seed(0)
    module = make().to(dtype).eval()
    torch.export.save(torch.export.export(module, inputs(2, 6, dtype), dynamic_shapes=dynamic), tmp_path / "m.pt2")
    joint = qkv.joint(tmp_path / "m.pt2", loss="output_0", path=tmp_path / "j.pt2", inputs=wanted, decompose=decompose)
    written, loaded = qkv.Model(tmp_path / "j.pt2"), torch.export.load(tmp_path / "j.pt2")
    if decompose == "core":
        all_core(loaded)
    signature = loaded.graph_signature
    for args in (inputs(2, 6, dtype), inputs(3, 6 if name == "picture" else 9, dtype)):
        leaves = {n: p for n, p in module.named_parameters() if p.requires_grad
                  and n not in joint.joint_report["without"]}
        floats = {n: a.requires_grad_() for n, a in zip(joint.inputs, args) if a.is_floating_point()}
        result = module(*args)
        loss = result["loss"] if isinstance(result, dict) else result
        want = dict(zip([*leaves, *floats], torch.autograd.grad(loss.sum(), [*leaves.values(), *floats.values()])))
        args = [a.detach() for a in args]
        feeds = {n: a.numpy() for n, a in zip(joint.inputs, args)}
        outputs = ["output_0", *(["output_1"] if isinstance(result, dict) else [])]  # of a file, which is a tuple
        for run, names in ((joint.run(feeds), list(result) if isinstance(result, dict) else outputs),
                           (written.run(feeds), outputs)):
            assert list(run) == [*names, *("grad." + n for n in want)]
            close(run["output_0"], loss, dtype, "loss")
            for n, g in want.items():
                close(run["grad." + n], g, dtype, n)
        values = loaded.module()(*args)
        assert [s.kind.name for s in signature.output_specs] == ["LOSS_OUTPUT",
                                                                 *(["USER_OUTPUT"] if isinstance(result, dict)
                                                                   else []), *["GRADIENT_TO_PARAMETER"] * len(leaves),
                                                                 *["GRADIENT_TO_USER_INPUT"] * len(floats)]
        for s, v in zip(signature.output_specs, values):
            close(v.detach().numpy(), loss if s.kind.name == "LOSS_OUTPUT" else want[s.target] if s.target
                  else result["logits"], dtype, s)
    assert joint.joint_report["without"] == {"picture": [], "bias": ["unused"]}.get(name, ["bias", "unused"])
    assert set(signature.backward_signature.gradients_to_parameters.values()) == set(leaves)


@pytest.mark.parametrize("both", [False, True])
def test_names_of_a_tied_weight(both, tmp_path):
    """The gradient has every name of the state dict that the weight has, in files that use it under one and under two;
    an optimizer takes it once, and the trained file's names still share it."""
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids):
            return self.head(self.table(ids)).logsumexp(-1).sum()

    torch.manual_seed(0)
    module, ids = Tied(), torch.tensor([[1, 2, 3]])
    program = torch.export.export(module, (ids,))
    used = [n for n in program.graph.nodes if n.op == "placeholder"]
    if both:  # the linear's
        for node in program.graph.nodes:
            if node.target == torch.ops.aten.linear.default:
                node.args = (node.args[0], used[0])
    torch.export.save(program, tmp_path / "m.pt2")
    joint = qkv.joint(tmp_path / "m.pt2", path=tmp_path / "j.pt2")
    module(ids).backward()
    names = ["table.weight", "head.weight"]
    for m in (joint, qkv.Model(tmp_path / "j.pt2")):
        results = m.run([ids])
        for name in names:
            close(results[f"grad.{name}"], module.table.weight.grad, torch.float32, name)
    trainer = qkv.Trainer(tmp_path / "j.pt2", optimizer="sgd", lr=0.1)
    norm = trainer.step({"ids": ids}).grad_norm
    assert abs(norm - module.table.weight.grad.norm().item()) < 1e-5 * norm
    torch.optim.SGD(module.parameters(), lr=0.1).step()
    for name in names:
        close(trainer.weights()[name], module.table.weight, torch.float32, name)
    trainer.model().save(tmp_path / "t.pt2")
    loaded = torch.export.load(tmp_path / "t.pt2").state_dict
    assert loaded[names[0]].data_ptr() == loaded[names[1]].data_ptr()
    close(loaded[names[0]].detach(), module.table.weight, torch.float32, "trained")


def test_buffers_dropout_and_given_masks(tmp_path):
    """A buffer that changes comes first and is not taken for the loss; a mask of dropout that is an input;
    loss of shape (1,)."""

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("steps", torch.zeros(()))
            self.fc = nn.Linear(4, 2)

        def forward(self, x, keep):
            self.steps.add_(1)
            return F.dropout(self.fc(x), 0.0, True) * keep, (self.fc(x * keep.sum()) ** 2).mean(0, keepdim=True).sum(1)

    module, x, keep = Counting(), torch.randn(3, 4, requires_grad=True), torch.tensor([1.0, 0.0])
    torch.export.save(torch.export.export(module, (x, keep)), tmp_path / "m.pt2")
    joint = qkv.joint(tmp_path / "m.pt2", "output_1", path=tmp_path / "j.pt2")
    assert list(joint.outputs) == ["output_0", "output_1", "grad.fc.weight", "grad.fc.bias", "grad.x"]
    ep = torch.export.load(tmp_path / "j.pt2")
    assert [s.kind.name for s in ep.graph_signature.output_specs][:3] == ["BUFFER_MUTATION", "USER_OUTPUT",
                                                                          "LOSS_OUTPUT"]
    loss = module(x, keep)[1]
    loss.sum().backward()
    run = joint.run([x.detach().numpy(), keep.numpy()])
    for name, g in (("fc.weight", module.fc.weight.grad), ("fc.bias", module.fc.bias.grad), ("x", x.grad)):
        close(run["grad." + name], g, torch.float32, name)


def test_dropout_of_a_seed(tmp_path):
    """In training mode, attention's dropout included: numbers and gradients are PyTorch's after torch.manual_seed (0
    for a new session)."""

    class Dropping(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)

        def forward(self, x):
            q = F.dropout(F.relu(self.a(x)), 0.3, True).reshape(2, 3, 2, 8).transpose(1, 2)
            return self.b(F.scaled_dot_product_attention(q, q, q, dropout_p=0.2).transpose(1,
                2).flatten(2)).square().mean()

    module, x = Dropping(), torch.randn(2, 3, 8)
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "m.pt2")
    torch.manual_seed(0)
    loss = module(x)
    loss.backward()
    want = {"output_0": loss, **{"grad." + n: p.grad for n, p in module.named_parameters()}}
    for options in ({}, {"decompose": "core", "path": tmp_path / "j.pt2"}):
        run = qkv.joint(tmp_path / "m.pt2", **options).run([x.numpy()])
        for name, w in want.items():
            close(run[name], w, torch.float32, name)
    loaded = torch.export.load(tmp_path / "j.pt2")
    all_core(loaded)
    torch.manual_seed(0)
    for got, (name, w) in zip(loaded.module()(x), want.items(), strict=True):
        close(got.detach(), w, torch.float32, name)


@pytest.mark.turns
@pytest.mark.parametrize("functional", [False, True])
def test_batch_norm_in_training(functional, tmp_path):
    """Statistics of the batch, running ones moved after each run, as PyTorch does;
    also as its functional form, and written again."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 2),
                           nn.BatchNorm2d(3, momentum=0.3, affine=False)).double()
    x = torch.randn(2, 2, 6, 5, dtype=torch.float64)

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = module

        def forward(self, x):
            return self.net(x).pow(3).mean()

    program = torch.export.export(Loss(), (x,), dynamic_shapes=({0: B},))
    torch.export.save(program.run_decompositions({}) if functional else program, tmp_path / "m.pt2")
    joint = qkv.joint(tmp_path / "m.pt2", path=tmp_path / "j.pt2", decompose="core")
    program = torch.export.load(tmp_path / "j.pt2")
    all_core(program)
    assert len(program.graph_signature.buffers_to_mutate) == 6
    written, loaded = qkv.Model(tmp_path / "j.pt2"), program.module()
    for x in (x, torch.randn(3, 2, 6, 5, dtype=torch.float64)):
        loss = Loss()(x)
        want = [loss, *torch.autograd.grad(loss, list(module.parameters()))]
        for got in (joint.run([x.numpy()]).values(), written.run([x.numpy()]).values(), loaded(x)):
            for g, w in zip(got, want, strict=True):
                close(g.detach() if torch.is_tensor(g) else g, w, torch.float64, "batch norm")
    for name, buffer in module.named_buffers():
        assert torch.allclose(loaded.state_dict()["net." + name], buffer, rtol=1e-12), name


class Blocks(nn.Module):
    """Residual blocks of attention and an MLP with dropout."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.ModuleDict({"norm": nn.LayerNorm(16), "qkv": nn.Linear(16, 48),
                                                   "out": nn.Linear(16, 16), "last": nn.RMSNorm(16),
                                                   "up": nn.Linear(16, 64), "down": nn.Linear(64, 16)})
                                    for _ in range(6))

    def forward(self, x):
        for layer in self.layers:
            q, k, v = layer["qkv"](layer["norm"](x)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4).unbind(0)
            x = x + layer["out"](F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            x = x + F.dropout(layer["down"](F.gelu(layer["up"](layer["last"](x)))), 0.25, True)
        return x.square().mean()


@pytest.mark.turns
@pytest.mark.parametrize("decompose", ["none", "math", "core"])
def test_recompute(decompose, tmp_path):
    """Less memory by the plan, also of the written file; the same values, and the masks of dropout drawn once."""
    torch.manual_seed(0)
    module, x = Blocks(), torch.randn(2, 32, 16)
    torch.export.save(torch.export.export(module, (x,), dynamic_shapes=({0: B, 1: S},)), tmp_path / "m.pt2")
    model, memory, runs = qkv.Model(tmp_path / "m.pt2"), {}, {}
    for how in ("none", "cheap", "blocks"):
        joint = qkv.joint(model, path=tmp_path / "j.pt2", decompose=decompose, recompute=how, dims={"batch": 4})
        assert how == "none" or joint.joint_report["recompute"]["how"] == how
        memory[how] = joint.joint_report["recompute"] if how != "none" else None
        runs[how] = joint.run([x.numpy()])
        written = qkv.Model(tmp_path / "j.pt2", threads=1).session()
        for name, got in written.run([x.numpy()]).items():
            assert np.array_equal(got, runs[how][name]) or decompose == "core", name
        assert written._model.graph_text().count("aten.bernoulli.p(") == 6
        if how != "none":  # another size, in the same memory as the report says
            written.run([torch.randn(4, 32, 16).numpy()])
            # the room of kernels themselves, which is a thread's
            assert 0 < written.stats()["activation_bytes"] < 1.05 * memory[how]["with"]["memory"] + (48 << 10)
    torch.manual_seed(0)
    loss = module(x)
    loss.backward()
    for run in runs.values():
        close(run["output_0"], loss, torch.float32, "loss")
        for name, p in module.named_parameters():
            close(run["grad." + name], p.grad, torch.float32, name)
    without = memory["cheap"]["without"]
    assert without == memory["blocks"]["without"] and memory["cheap"]["sizes"] == memory["blocks"]["sizes"]
    assert sorted(memory["cheap"]["sizes"].values()) == [4, 32]
    cheap, blocks = memory["cheap"]["with"], memory["blocks"]["with"]
    assert cheap["memory"] < 0.85 * without["memory"] and cheap["flops"] < 1.1 * without["flops"]
    assert blocks["memory"] < 0.65 * without["memory"] and cheap["flops"] < blocks["flops"] < 1.5 * without["flops"]


class Detached(nn.Module):
    """Values that pass and stop gradients: detach, torch.no_grad(), both of a buffer's new value and of an input's."""

    def __init__(self):
        super().__init__()
        self.fc, self.out = nn.Linear(4, 4), nn.Linear(4, 1)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        h = self.fc(x)
        self.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
        with torch.no_grad():
            target = torch.tanh(self.out(h) + x.sum())
            size = (x * x).sum() + 1
        return (self.out(h - self.mean) - target).square().mean() / size + (h * x.detach()).sum() * 0.1


@pytest.mark.turns
@pytest.mark.parametrize("decompose", ["none", "core"])
def test_detach(decompose, tmp_path):
    torch.manual_seed(0)
    module, x = Detached().double(), torch.randn(3, 4, dtype=torch.float64)
    torch.export.save(torch.export.export(module, (x,), dynamic_shapes=({0: B},)), tmp_path / "m.pt2")
    qkv.joint(tmp_path / "m.pt2", path=tmp_path / "j.pt2", loss="output_0", inputs=["x"], decompose=decompose)
    assert "detach" not in str(torch.export.load(tmp_path / "j.pt2").graph)
    for x in (x, torch.randn(5, 4, dtype=torch.float64)):
        own, at = copy.deepcopy(module), x.clone().requires_grad_()
        loss = own(at)
        want = torch.autograd.grad(loss, [*own.parameters(), at])
        for step in (qkv.joint(tmp_path / "m.pt2", loss="output_0", inputs=["x"],
                               decompose=decompose).run([x.numpy()]), qkv.Model(tmp_path / "j.pt2").run([x.numpy()])):
            close(step["output_0"], loss, torch.float64, "loss")
            for name, w in zip([*dict(own.named_parameters()), "x"], want, strict=True):
                close(step["grad." + name], w, torch.float64, name)
        close(qkv.Model(tmp_path / "m.pt2").run([x.numpy()])["output_0"], loss, torch.float64, "without gradients")


class Narrow(nn.Module):
    """What transformers' models do in a float64 run, too: the norm and the angles are computed in `part`."""

    def __init__(self, part):
        super().__init__()
        self.part, self.weight, self.q = part, nn.Parameter(torch.randn(8)), nn.Linear(8, 8)

    def forward(self, x):
        y = x.to(self.part)
        y = self.weight * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
        angle = torch.arange(x.shape[1], dtype=self.part)[:, None] * torch.arange(1, 9, dtype=self.part)
        return (self.q(y) * angle.cos().to(x.dtype)).softmax(-1).pow(2).sum()


@pytest.mark.parametrize("part, limit", [(torch.float32, 2e-6), (torch.float64, 1e-13)])
def test_float32_within_float64(part, limit, tmp_path):
    """docs/JOINT.md: what is left of a difference in float64 is the model's own float32."""
    torch.manual_seed(0)
    module, x = Narrow(part).double(), torch.randn(3, 5, 8, dtype=torch.float64)
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "m.pt2")
    step = qkv.joint(tmp_path / "m.pt2").run([x.numpy()])
    module(x).backward()
    for name, p in module.named_parameters():
        assert np.abs(step["grad." + name] - p.grad.numpy()).max() <= limit * p.grad.abs().max().item(), name


def test_onnx(tmp_path):
    ort = pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    args = tokens(2, 6, torch.float32)
    torch.export.save(torch.export.export(Attention("bias").eval(), args), tmp_path / "m.pt2")
    joint = qkv.joint(tmp_path / "m.pt2", "output_0", path=tmp_path / "j.onnx")
    feeds = {n: a.numpy() for n, a in zip(joint.inputs, args)}
    session = ort.InferenceSession(tmp_path / "j.onnx", providers=["CPUExecutionProvider"])
    want = joint.run(feeds)
    for o, got in zip(session.get_outputs(), session.run(None, feeds)):
        assert np.abs(got - want[o.name]).max() <= 1e-4 * max(np.abs(want[o.name]).max(), 1e-3), o.name


@pytest.mark.turns
def test_grid_sample(tmp_path):
    """Reflection, bicubic sampling and a volume."""

    class Samples(nn.Module):
        def forward(self, x, grid):
            loss = 0
            for mode, padding, aligned in (("bilinear", "reflection", True), ("nearest", "reflection", False),
                                           ("bicubic", "zeros", False), ("bicubic", "border", True),
                                           ("bicubic", "reflection", False)):
                loss = loss * 0.9 + F.grid_sample(x, grid, mode, padding, aligned).tanh().sum()
            places = torch.cat([grid, grid[..., :1] * 0.7], -1)[:, :, :, None]
            return loss + F.grid_sample(x[:, None], places, padding_mode="border", align_corners=False).tanh().sum()

    def inputs(batch, size, places):
        return torch.randn(batch, 3, size, size + 1, dtype=torch.float64), torch.randn(batch, places, 3, 2,
            dtype=torch.float64) * 1.5

    torch.manual_seed(0)
    size = Dim("size", min=2, max=20)
    torch.export.save(torch.export.export(Samples(), inputs(2, 4, 3),
                                          dynamic_shapes={"x": {0: B, 2: size, 3: size + 1},
                                                          "grid": {0: B, 1: Dim("places", min=2, max=20)}}),
                      tmp_path / "m.pt2")
    joint = qkv.joint(tmp_path / "m.pt2", "output_0", path=tmp_path / "j.pt2", inputs=["x", "grid"])
    loaded = torch.export.load(tmp_path / "j.pt2").module()
    for args in (inputs(2, 4, 3), inputs(3, 7, 5)):
        leaves = [a.requires_grad_() for a in args]
        loss = Samples()(*leaves)
        want = [loss, *torch.autograd.grad(loss, leaves)]
        args = [a.detach() for a in args]
        for got in (joint.run([a.numpy() for a in args]).values(), [v.detach().numpy() for v in loaded(*args)]):
            for g, w in zip(got, want, strict=True):
                close(g, w, torch.float64, "grid_sample")


@pytest.mark.parametrize("sampling, aligned", [(-1, False), (2, True)])
def test_roi_align(sampling, aligned, tmp_path):
    """Box prompts: the gradient is torchvision's op in the .pt2, two products in ONNX;
    against autograd through those products of the forward pass."""
    ort = pytest.importorskip("onnxruntime")
    from qkv.recipes import _sam3_module as sam3

    class Boxes(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, padding=1)
            self.align = torch.ops.torchvision.roi_align

        def forward(self, image, rois):
            return self.align(self.conv(image), rois, 0.75, 3, 2, sampling, aligned).tanh().square().mean()

    def inputs(batch, boxes, size):
        corner = torch.rand(boxes, 2) * size
        return torch.randn(batch, 3, size, size + 2), torch.cat([torch.arange(boxes).float()[:, None] % batch, corner,
                                                                 corner + torch.rand(boxes, 2) * size], 1)

    torch.manual_seed(0)
    module, n, size = Boxes(), Dim("n", min=2, max=9), Dim("size", min=4, max=20)
    torch.export.save(torch.export.export(module, inputs(2, 5, 7),
                                          dynamic_shapes={"image": {0: B, 2: size, 3: size + 2}, "rois": {0: n}}),
                      tmp_path / "m.pt2")
    joint = qkv.joint(tmp_path / "m.pt2", "output_0", path=tmp_path / "j.pt2", inputs=["image"])
    joint.save_onnx(tmp_path / "j.onnx")
    written, loaded = qkv.Model(tmp_path / "j.pt2"), torch.export.load(tmp_path / "j.pt2").module()
    session = ort.InferenceSession(tmp_path / "j.onnx", providers=["CPUExecutionProvider"])
    module.align = sam3.roi_align
    for args in (inputs(2, 5, 7), inputs(3, 7, 11)):
        args[0].requires_grad_()
        loss = module(*args)
        want = [loss, *torch.autograd.grad(loss, [module.conv.weight, module.conv.bias, args[0]])]
        args = [a.detach() for a in args]
        feeds = {n: a.numpy() for n, a in zip(joint.inputs, args)}
        for got in (joint.run(feeds).values(), written.run(feeds).values(),
                    [v.detach().numpy() for v in loaded(*args)], session.run(None, feeds)):
            for g, w in zip(got, want, strict=True):
                close(g, w, torch.float32, "roi_align")


def test_refused(tmp_path):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.rand(5))

        def forward(self, x):
            return torch.histc(self.w * x, 4).exp().sum(), self.w * x

    torch.export.save(torch.export.export(Odd(), (torch.rand(5),)), tmp_path / "m.pt2")
    model = qkv.Model(tmp_path / "m.pt2")
    for options, code, words in (({"loss": "output_0"}, 4, "histc -> exp -> sum_1 -> the loss"),
                                 ({"loss": "output_1"}, 2, r"its shape is \(5\), expected a scalar"),
                                 ({}, 2, "which output is the loss"), ({"loss": "output_9"}, 2,
                                                                       "no output 'output_9'"),
                                 ({"loss": "output_0", "decompose": "x"}, 2, "none, core or math"),
                                 ({"loss": "output_0", "recompute": "x"}, 2, "none, cheap or blocks")):
        with pytest.raises(qkv.Error, match=words) as e:
            model.joint(**options)
        assert e.value.code == code


@pytest.mark.parametrize("f", [torch.abs, torch.angle, lambda z: torch.view_as_real(torch.sgn(z))[..., 0] * 2,
    lambda z: torch.sgn(z).imag, lambda z: torch.linalg.vector_norm(z, dim=-1)],
    ids=["abs", "angle", "sgn_real", "sgn_imag", "norm"])
def test_gradients_at_a_complex_zero(f, tmp_path):
    class M(torch.nn.Module):
        def forward(self, x, w):
            return (f(torch.view_as_complex(x)) * w).sum()
    x = torch.tensor([[[0.0, 0.0], [3.0, -4.0], [0.0, 2.0]], [[-1.0, 0.0], [0.0, 0.0], [0.5, 0.25]]])
    w = torch.tensor([1.5, -2.0, 0.5]) if f(torch.view_as_complex(x)).dim() == 2 else torch.tensor([1.5, -2.0])
    path = str(tmp_path / "m.pt2")
    torch.export.save(torch.export.export(M(), (x, w)), path)
    x.requires_grad_()
    M()(x, w).backward()
    got = qkv.joint(path, inputs=["*"]).run([x.detach(), w])
    np.testing.assert_allclose(np.asarray(got["grad.x"]), x.grad.numpy(), rtol=1e-6, atol=1e-6)


def test_in_torch_under_no_grad(tmp_path):
    """docs/JOINT.md: values are the same without torch.no_grad(), and autograd records the backward pass, too, which it
    cannot go back through."""
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.proj = nn.Linear(8, 24)

        def forward(self, x):
            q, k, v = self.proj(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
            return (torch.nn.functional.scaled_dot_product_attention(q, k, v) ** 2).sum()
    x = torch.randn(2, 4, 8)
    torch.export.save(torch.export.export(Attention(), (x,)), tmp_path / "m.pt2")
    qkv.joint(tmp_path / "m.pt2", path=tmp_path / "joint.pt2")
    module = torch.export.load(tmp_path / "joint.pt2").module()
    with torch.no_grad():
        plain = module(x)
    recorded = module(x)
    assert all(torch.equal(a, b) for a, b in zip(plain, recorded, strict=True))
    assert not any(y.requires_grad for y in plain) and all(y.requires_grad for y in recorded)
    with pytest.raises(RuntimeError, match="derivative for .*flash_attention_for_cpu_backward is not implemented"):
        recorded[-1].sum().backward()


@pytest.mark.parametrize("f", [lambda x: x.shape[0] ** x, lambda x: torch.xlogy(x, 3), lambda x: torch.xlogy(x, 0.5),
                               lambda x: x.index_fill(1, torch.tensor([-1, 0]), 2.0)])
def test_numbers_as_operands(f, tmp_path):
    class Loss(nn.Module):
        def forward(self, x):
            return f(x).pow(2).sum()

    x = torch.randn(3, 4, dtype=torch.float64)
    torch.export.save(torch.export.export(Loss(), (x,), dynamic_shapes=({0: B},)), tmp_path / "m.pt2")
    joint = qkv.Model(tmp_path / "m.pt2").joint(inputs=["x"])
    for n in (3, 5):
        x = torch.randn(n, 4, dtype=torch.float64, requires_grad=True)
        want, = torch.autograd.grad(Loss()(x), x)
        torch.testing.assert_close(torch.as_tensor(joint.run({"x": x.detach().numpy()})["grad.x"]), want)


@pytest.mark.parametrize("f", [F.relu6, lambda x: F.hardtanh(x, 0.0, 4.0), lambda x: F.hardtanh_(x * 1, 0, 4),
                               lambda x: x.clamp(0, 4), F.hardswish, F.hardsigmoid])
def test_gradients_where_an_activation_begins(f, tmp_path):
    """relu6 and hardtanh pass nothing on at 0, where dead channels are; clamp does. hardswish bends at -3 and 3."""
    class Loss(nn.Module):
        def forward(self, x):
            return f(x).sum()

    x = torch.tensor([-3.0, -1.0, 0.0, -0.0, 1.0, 3.0, 9.0])
    torch.export.save(torch.export.export(Loss(), (x,)), tmp_path / "m.pt2")
    want, = torch.autograd.grad(Loss()(x.requires_grad_()), x)
    joint = qkv.Model(tmp_path / "m.pt2").joint(inputs=["x"])
    assert torch.equal(torch.as_tensor(joint.run({"x": x.detach().numpy()})["grad.x"]), want)


NAN, INF = float("nan"), float("inf")
BOUNDS = {"x": [0, 1, 2, 3, NAN, 1, INF], "low": [0, 2, 1, 1, 0, NAN, 0], "high": [1, 3, 1, 2, 1, 2, NAN],
          "far": [INF, -INF, 0.0, 1, 2, NAN, 0.5], "near": [0.0, 0, INF, 0, 1, 0, 0]}


@pytest.mark.parametrize("f, names", [
    (torch.clamp, ["x", "low", "high"]), (lambda x, a: x.clamp(min=a), ["x", "low"]),
    (lambda x, a: x.clamp(max=a), ["x", "high"]), (torch.clamp_min, ["x", "high"]), (torch.clamp_max, ["x", "low"]),
    (lambda x, y: F.huber_loss(x, y, reduction="none", delta=0.5), ["far", "near"]),
    (lambda x, y: F.smooth_l1_loss(x, y, beta=2.0), ["far", "near"])])
def test_gradients_at_bounds(f, names, tmp_path):
    """Bounds that are tensors, that are NaN and that are met; losses with a straight part, at infinity."""
    class Loss(nn.Module):
        def forward(self, *args):
            return (f(*args) * torch.arange(1.0, 8)).sum()

    args = tuple(torch.tensor(BOUNDS[n]) for n in names)
    torch.export.save(torch.export.export(Loss(), args), tmp_path / "m.pt2")
    joint = qkv.Model(tmp_path / "m.pt2").joint(inputs="*")
    got = joint.run({n: x.numpy() for n, x in zip(joint.inputs, args, strict=True)})
    want = torch.autograd.grad(Loss()(*(x.requires_grad_() for x in args)), args)
    for g, w in zip([g for n, g in got.items() if n.startswith("grad")], want, strict=True):
        torch.testing.assert_close(torch.as_tensor(g), w, equal_nan=True)


EDGES = {"equal": torch.tensor([[2.0, 2.0, 2.0], [1.0, 2.0, 4.0]]), "one": torch.tensor([[3.0], [-1.0]]),
         "single": torch.tensor([5.0]), "two": torch.tensor([1.0, 4.0]), "none": torch.empty(0, 3),
         "zeros": torch.tensor([[0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [1.0, 2.0, 3.0]])}


@pytest.mark.parametrize("f, x", [
    (lambda x: x.std(-1), "equal"), (lambda x: x.std(-1, correction=0, keepdim=True), "equal"),
    (lambda x: torch.std_mean(x, 0)[0], "equal"), (lambda x: x[:1].std(), "equal"), (lambda x: x.var(-1), "equal"),
    (lambda x: x.std(-1, correction=0), "one"), (lambda x: x.std(-1), "one"), (lambda x: x.var(-1), "one"),
    (lambda x: x.std(), "single"), (lambda x: x.var(correction=0), "single"), (lambda x: x.var(), "single"),
    (lambda x: x.var(correction=3), "two"), (lambda x: x.var(0, correction=2), "two"),
    (lambda x: x.prod(0), "none"), (lambda x: x.prod(), "none"), (lambda x: x.prod(-1), "zeros"),
    (lambda x: x.prod(), "zeros")])
@pytest.mark.parametrize("decompose", ["none", "core"])
def test_gradients_of_reductions_at_their_edges(f, x, decompose, tmp_path):
    class Loss(nn.Module):
        def forward(self, x):
            y = f(x)
            return (y * torch.arange(1.0, y.numel() + 1).view(y.shape)).sum()

    x = EDGES[x].clone()
    torch.export.save(torch.export.export(Loss(), (x,)), tmp_path / "m.pt2")
    want, = torch.autograd.grad(Loss()(x.requires_grad_()), x)
    try:
        joint = qkv.Model(tmp_path / "m.pt2").joint(inputs=["x"], decompose=decompose)
    except qkv.Error as e:
        assert decompose == "core" and "cumprod" in str(e)
        return
    got = torch.as_tensor(joint.run({"x": x.detach().numpy()})["grad.x"])
    torch.testing.assert_close(got, want, equal_nan=True)
