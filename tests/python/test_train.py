"""Training against PyTorch: optimizers, schedules, order of examples, loss curves, resuming to the same bits,
interruption, and what is refused."""
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/bad"))
import growth  # noqa: E402
EXE = os.environ.get("QKV_EXE") or str(next(p for p in (ROOT / "build/cli/qkv", ROOT / "build/qkv") if p.exists()))


@pytest.fixture(autouse=True)
def few_threads(monkeypatch):
    """Small steps on a machine that others use: one thread, but where a test says otherwise."""
    monkeypatch.setenv("QKV_NUM_THREADS", "1")


class Classifier(nn.Module):
    """Attention over five tokens, a running mean as a buffer, a frozen parameter; the loss and the logits."""

    def __init__(self, dropout=0.0):
        super().__init__()
        # a key's bias has a gradient of rounding alone
        self.inside, self.q, self.head = nn.Linear(6, 16), nn.Linear(16, 48, bias=False), nn.Linear(16, 4)
        self.norm = nn.LayerNorm(16)
        self.register_buffer("mean", torch.zeros(16))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.frozen = nn.Parameter(torch.linspace(0.5, 1.5, 16), requires_grad=False)
        self.dropout = dropout

    def forward(self, x, target):
        h = F.gelu(self.inside(x))
        q, k, v = self.q(self.norm(h)).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4).unbind(0)
        h = h + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2) * self.frozen
        h = h.mean(1)
        logits = self.head(F.dropout(h - self.mean, self.dropout, self.training))
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * h.detach().mean(0))
            self.seen += 1
        return F.cross_entropy(logits, target), logits


def data(n=45, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 5, 6, generator=g)
    return {"x": x, "target": (x[:, 0, 0] > 0).long() + 2 * (x[:, 1, 1] > 0).long()}


def exported(path, module, args=None):
    args = args or tuple(v[:3] for v in data().values())
    torch.export.save(torch.export.export(module, args,
                                          dynamic_shapes=tuple({0: Dim("b", min=1, max=512)} for _ in args)), path)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The module as it was exported in training mode, its joint graph, the data as files."""
    folder = tmp_path_factory.mktemp("train")
    torch.manual_seed(1)
    module = Classifier().train()
    exported(folder / "m.pt2", module)
    qkv.joint(folder / "m.pt2", loss="output_0", path=folder / "j.pt2")
    for name, d in (("train", data()), ("val", data(23, 9))):
        np.savez(folder / f"{name}.npz", **{k: v.numpy() for k, v in d.items()})
    return folder, module


def module_like(module):
    copy = Classifier(module.dropout).train()
    copy.load_state_dict(module.state_dict())
    return copy


def order(n, epochs, batch, seed):
    """What the documentation promises: one torch.randperm an epoch."""
    g = torch.Generator().manual_seed(seed)
    return [torch.randperm(n, generator=g).split(batch) for _ in range(epochs)]


def run(*args, code=0, **kwargs):
    r = subprocess.run([EXE, *map(str, args)], capture_output=True, text=True, timeout=120, **kwargs)
    assert r.returncode == code, (r.returncode, r.stdout, r.stderr)
    return r


def weights(path):
    return {k: v for k, v in np.load(path).items()} if str(path).endswith(".npz") else __import__("safetensors.numpy",
        fromlist=["load_file"]).load_file(path)


OPTIMIZERS = {
    "adamw": (dict(), lambda p: torch.optim.AdamW(p, 3e-3)),
    "adam": (dict(weight_decay=0.1, betas=(0.8, 0.95), eps=1e-6),
             lambda p: torch.optim.Adam(p, 3e-3, (0.8, 0.95), 1e-6, 0.1)),
    "sgd": (dict(), lambda p: torch.optim.SGD(p, 3e-3)),
    "momentum": (dict(optimizer="sgd", momentum=0.9, dampening=0.2, weight_decay=0.05),
                 lambda p: torch.optim.SGD(p, 3e-3, 0.9, 0.2, 0.05)),
    "nesterov": (dict(optimizer="sgd", momentum=0.9, nesterov=True, clip_norm=0.05),
                 lambda p: torch.optim.SGD(p, 3e-3, 0.9, nesterov=True)),
}


@pytest.mark.turns
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(made, name):
    folder, module = made
    options, make = OPTIMIZERS[name]
    other, d = module_like(module), data()
    opt = make([p for p in other.parameters() if p.requires_grad])
    trainer = qkv.Trainer(folder / "j.pt2", **{"optimizer": name, "lr": 3e-3, **options})
    for i in range(200):
        rows = torch.arange(7) * (i % 5 + 1) % 45
        loss, _ = other(d["x"][rows], d["target"][rows])
        opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(other.parameters(), options.get("clip_norm", 1e9))
        opt.step()
        step = trainer.step({k: v[rows] for k, v in d.items()})
        assert step.step == i + 1 and step.lr == 3e-3
        assert abs(step.loss - loss.item()) < 2e-4 * max(1, abs(loss.item())), (i, step.loss, loss.item())
        assert i > 20 or abs(step.grad_norm - norm.item()) < 1e-3 * norm.item()
    for k, v in trainer.weights().items():
        assert np.abs(v - other.state_dict()[k].numpy()).max() < 2e-3 * max(1.0, np.abs(v).max()), k
    assert np.array_equal(trainer.weights()["frozen"], module.frozen.numpy()) and trainer.weights()["seen"] == 200


def test_optimizer_numbers_in_float64(tmp_path):
    """A quadratic in float64, where 150 steps leave no room for another formula."""

    class Quadratic(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.linspace(0.5, 1.5, 20000, dtype=torch.float64))

        def forward(self, x):
            return ((self.w * x - 1) ** 2).mean()

    x = torch.linspace(0.5, 2, 20000, dtype=torch.float64)
    torch.export.save(torch.export.export(Quadratic(), (x,)), tmp_path / "m.pt2")
    joint = qkv.joint(tmp_path / "m.pt2")
    for name, (options, make) in OPTIMIZERS.items():
        module = Quadratic()
        opt = make(module.parameters())
        trainer = qkv.Trainer(joint, **{"optimizer": name, "lr": 3e-3, **options})
        for _ in range(150):
            opt.zero_grad()
            module(x).backward()
            if "clip_norm" in options:
                nn.utils.clip_grad_norm_(module.parameters(), options["clip_norm"])
            opt.step()
            trainer.step({"x": x})
        assert np.abs(trainer.weights()["w"] - module.w.detach().numpy()).max() < 1e-12, name


SCHEDULES = {
    "constant": (dict(), lambda o: torch.optim.lr_scheduler.ConstantLR(o, 1.0)),
    "linear": (dict(schedule="linear", steps=40, lr_end=0.001),
               lambda o: torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.1, 40)),
    "cosine": (dict(schedule="cosine", steps=40, lr_end=0.002),
               lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 40, 0.002)),
    "step": (dict(schedule="step", step_size=7, gamma=0.5), lambda o: torch.optim.lr_scheduler.StepLR(o, 7, 0.5)),
    "warm": (dict(schedule="linear", steps=40, warmup=8),
             lambda o: torch.optim.lr_scheduler.SequentialLR(o, [torch.optim.lr_scheduler.LinearLR(o, 1 / 8, 1.0, 8),
                                                                 torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.0, 32)],
                                                             [8])),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(made, name):
    options, make = SCHEDULES[name]
    opt = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 0.01)
    scheduler = make(opt)
    trainer = qkv.Trainer(made[0] / "j.pt2", optimizer="sgd", lr=0.01, **options)
    for i in range(40):
        step = trainer.step({k: v[:4] for k, v in data().items()})
        assert abs(step.lr - opt.param_groups[0]["lr"]) < 1e-12, i
        opt.step()
        scheduler.step()


def test_epochs_as_in_pytorch(made, tmp_path):
    """Same seed, same order: the loss of every step, the accuracy, buffers;
    the result as weights and as a model that PyTorch runs."""
    folder, module = made
    r = run("train", folder / "j.pt2", "--data", folder / "train.npz", "--val", folder / "val.npz", "--logits",
            "output_1", "--label-input", "target", "--epochs", 6, "--batch-size", 8, "--lr", 0.005,
            "--schedule", "cosine", "--seed", 5, "--clip-norm", 1, "--log", tmp_path / "l.jsonl", "--plot",
            tmp_path / "l.svg", "--save", tmp_path / "w.safetensors", "--json")
    lines = [json.loads(s) for s in open(tmp_path / "l.jsonl")]
    steps, epochs = [x for x in lines if "lr" in x], [x for x in lines if "val_loss" in x]
    other, d, v = module_like(module), data(), data(23, 9)
    opt = torch.optim.AdamW([p for p in other.parameters() if p.requires_grad], 0.005)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 6 * 6)
    at = 0
    for batches in order(45, 6, 8, 5):
        for rows in batches:
            loss, _ = other(d["x"][rows], d["target"][rows])
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(other.parameters(), 1)
            opt.step()
            assert steps[at]["step"] == at + 1 and abs(steps[at]["loss"] - loss.item()) < 1e-3 and abs(steps[at]["lr"]
                - scheduler.get_last_lr()[0]) < 1e-9
            scheduler.step()
            at += 1
    assert at == len(steps) == 36 and len(epochs) == 6 and json.loads(r.stdout)["steps"] == 36
    before = {k: x.clone() for k, x in other.state_dict().items()}
    other.eval()
    with torch.no_grad():
        parts = [other(v["x"][i:i + 8], v["target"][i:i + 8]) for i in range(0, 23, 8)]
    logits = torch.cat([p[1] for p in parts])
    assert abs(epochs[-1]["val_loss"] - sum(p[0].item() * len(p[1]) for p in parts) / 23) < 1e-3
    assert epochs[-1]["val_accuracy"] == pytest.approx((logits.argmax(1) == v["target"]).float().mean().item())
    got = weights(tmp_path / "w.safetensors")
    assert set(got) == set(before) and all(np.abs(got[k] - x.numpy()).max() < 2e-3 for k, x in before.items())
    svg = open(tmp_path / "l.svg").read()
    assert svg.count("<polyline") == 3 and svg.rstrip().endswith("</svg>")


def test_models_come_out(made, tmp_path):
    """--save FILE.pt2, into another export too: torch.export.load runs it with the trained weights."""
    folder, module = made
    exported(tmp_path / "eval.pt2", module_like(module).eval())
    common = ["train", folder / "j.pt2", "--data", folder / "train.npz", "--epochs", 2, "--lr", 0.01]
    run(*common, "--save", tmp_path / "t.pt2")
    run(*common, "--save", tmp_path / "e.pt2", "--into", tmp_path / "eval.pt2")
    run(*common, "--save", tmp_path / "w.safetensors")
    run("convert", tmp_path / "eval.pt2", "--weights", tmp_path / "w.safetensors", "-o", tmp_path / "c.pt2")
    got = weights(tmp_path / "w.safetensors")
    other = Classifier()
    other.load_state_dict({k: torch.tensor(x) for k, x in got.items()})
    args = tuple(x[:9] for x in data(9, 3).values())
    for name, mode in (("t", other.train()), ("e", other.eval()), ("c", other.eval())):
        program = torch.export.load(tmp_path / f"{name}.pt2")
        state = program.state_dict
        assert all(np.array_equal(state[k].detach().numpy(), x) for k, x in got.items())
        found = program.module()(*args)
        copy = Classifier()
        copy.load_state_dict(other.state_dict())
        want = copy.train(mode.training)(*args)
        assert len(found) == 2 and torch.allclose(found[0], want[0], atol=1e-5) and torch.allclose(found[1], want[1],
            atol=1e-5)


def test_resume_has_the_same_bits(tmp_path):
    """Stopped at any step, within an epoch and at its end, with dropout, buffers, momenta and a schedule;
    in Python and by the command."""
    torch.manual_seed(2)
    exported(tmp_path / "m.pt2", Classifier(0.3).train())
    qkv.joint(tmp_path / "m.pt2", loss="output_0", path=tmp_path / "j.pt2")
    d, v = ({k: x.numpy() for k, x in data(*a).items()} for a in ((21,), (10, 4)))
    options = dict(lr=0.01, schedule="linear", warmup=2, seed=3)
    fit = dict(val=v, logits="output_1", labels="target", epochs=3, batch=8)
    whole = qkv.Trainer(tmp_path / "j.pt2", **options)
    events = []
    whole.fit(d, tell=events.append, **fit)
    want = whole.weights()
    assert sum(not e.epoch_end for e in events) == 9
    for stop in range(1, 10):
        first = qkv.Trainer(tmp_path / "j.pt2", **options)
        assert first.fit(d, checkpoint=tmp_path / "c.safetensors", tell=lambda e: e.step == stop and not e.epoch_end,
                         **fit)
        second, again = qkv.Trainer(tmp_path / "j.pt2", threads=2, **options), []
        assert not second.fit(d, resume=tmp_path / "c.safetensors", tell=again.append, **fit)
        assert [(e.loss, e.val_loss, e.val_accuracy) for e in again
                if e.epoch_end] == [(e.loss, e.val_loss, e.val_accuracy) for e in events if e.epoch_end], stop
        assert [(e.step, e.loss) for e in again] == [(e.step, e.loss) for e in events] and sum(e.replayed
            for e in again) >= stop
        assert all(np.array_equal(x, want[k]) for k, x in second.weights().items()), stop
    # steps by hand: weights, optimizer, generator
    a, b = qkv.Trainer(tmp_path / "j.pt2", **dict(options, steps=9)), qkv.Trainer(tmp_path / "j.pt2",
        **dict(options, steps=9))
    for _ in range(3):
        a.step(d)
    a.save(tmp_path / "s.safetensors")
    b.load(tmp_path / "s.safetensors")
    assert [a.step(d) for _ in range(3)] == [b.step(d) for _ in range(3)]
    assert all(np.array_equal(x, a.weights()[k]) for k, x in b.weights().items())


def test_interrupt_leaves_a_checkpoint(made, tmp_path):
    folder, _ = made
    common = ["train", folder / "j.pt2", "--data", folder / "train.npz", "--epochs", 400, "--batch-size", 4, "--seed",
              8]
    p = subprocess.Popen([EXE, *map(str, [*common, "--checkpoint", tmp_path / "c.safetensors", "--log",
                                          tmp_path / "l.jsonl", "--save", tmp_path / "no.safetensors"])],
                         stderr=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
    for _ in range(2000):
        if p.poll() is not None or (os.path.exists(tmp_path / "l.jsonl")
                                    and os.path.getsize(tmp_path / "l.jsonl") > 2000):
            break
        time.sleep(0.005)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 130 and "interrupted after step" in err, (out, err)
    assert not os.path.exists(tmp_path / "no.safetensors") and [f for f in os.listdir(tmp_path)
                                                                if f != "l.jsonl"] == ["c.safetensors"]
    run(*common, "--resume", tmp_path / "c.safetensors", "--save", tmp_path / "a.safetensors")
    run(*common, "--save", tmp_path / "b.safetensors")
    a, b = weights(tmp_path / "a.safetensors"), weights(tmp_path / "b.safetensors")
    assert all(np.array_equal(a[k], b[k]) for k in b)


def test_not_finite_names_step_and_node(tmp_path):
    class Log(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(4))
            self.register_buffer("seen", torch.zeros(4))

        def forward(self, x):
            h = x * self.w
            self.seen += h.detach().sum(0)
            masked = torch.where(x > 100, float("-inf"), h).softmax(1)
            return (torch.log(h) + masked).mean()

    exported(tmp_path / "m.pt2", Log(), (torch.rand(3, 4),))
    qkv.joint(tmp_path / "m.pt2", loss="output_0", path=tmp_path / "j.pt2")
    x = np.full((12, 4), 0.5, np.float32)
    x[9, 2] = -1  # its logarithm is NaN, in the third step
    np.savez(tmp_path / "d.npz", x=x)
    r = run("train", tmp_path / "j.pt2", "--data", tmp_path / "d.npz", "--batch-size", 4, "--in-order",
            "--checkpoint", tmp_path / "c.safetensors", code=1)
    assert "step 3: the loss is not finite: node 'log' (aten.log.default) made the first NaN" in r.stderr, r.stderr
    held = weights(tmp_path / "c.safetensors")
    trainer = qkv.Trainer(tmp_path / "j.pt2")
    for i in range(2):
        trainer.step({"x": x[4 * i:4 * i + 4]})
    assert held["steps"] == 2 and np.array_equal(held["weight.w"],
                                                 trainer.weights()["w"]) and np.array_equal(held["weight.seen"],
                                                     trainer.weights()["seen"])
    before = trainer.weights()
    with pytest.raises(qkv.Error, match="step 3: .* node 'log'"):
        trainer.step({"x": x[8:]})
    assert all(np.array_equal(v, before[k]) for k, v in trainer.weights().items())
    x[9, 2] = np.inf
    with pytest.raises(qkv.Error, match="input 'x' hold an infinity"):
        trainer.step({"x": x[8:]})
    assert trainer.step({"x": x[:4]}).step == 3


def test_refused(made, tmp_path):
    folder, module = made
    good = {k: v.numpy() for k, v in data().items()}
    base = ["train", folder / "j.pt2", "--data", tmp_path / "d.npz"]

    def refuse(words, d=None, *more, model=None, code=2):
        np.savez(tmp_path / "d.npz", **(good if d is None else d))
        assert words in run(*([base[0], model, *base[2:]] if model else base), *more, code=code).stderr

    refuse("the data have no 'target'", {"x": good["x"]})
    refuse("no input is called 'y'", {**good, "y": good["x"]})
    refuse("the data 'x' are f64, expected f32", {**good, "x": good["x"].astype(np.float64)})
    refuse("the data 'x' have rank 2, expected 3", {**good, "x": good["x"][:, 0]})
    refuse("axis 2 is 5, expected 6", {**good, "x": good["x"][:, :, :5]})
    refuse("have 44 rows, other data have 45", {**good, "x": good["x"][:44]})
    refuse("the data have no rows", {k: v[:0] for k, v in good.items()})
    refuse("the model has no gradients", None, model=folder / "m.pt2")
    refuse("expected adamw, adam or sgd", None, "--optimizer", "lion")
    refuse("expected constant, linear, cosine or step", None, "--schedule", "round")
    refuse("nesterov needs a momentum", None, "--optimizer", "sgd", "--nesterov")
    refuse("nothing is left to fall over", None, "--schedule", "linear", "--warmup-steps", 2)
    refuse("no output 'output_7'", None, "--val", folder / "val.npz", "--logits", "output_7", "--label-input", "target")
    refuse("bytes", None, "--memory-limit", "1K", code=5)
    run(*base, "--checkpoint", tmp_path / "c.safetensors")
    refuse("another optimizer", None, "--optimizer", "sgd", "--momentum", 0.9, "--resume", tmp_path / "c.safetensors")
    refuse("the batch was 32, found 8", None, "--batch-size", 8, "--resume", tmp_path / "c.safetensors")
    raw = (tmp_path / "c.safetensors").read_bytes()
    n = int.from_bytes(raw[:8], "little")
    at = 8 + n + json.loads(raw[8:8 + n])["steps"]["data_offsets"][0]
    for steps in (-1, 2**63 - 1):
        (tmp_path / "s.safetensors").write_bytes(raw[:at] + steps.to_bytes(8, "little", signed=True) + raw[at + 8:])
        refuse(f"'steps' is {steps}", None, "--resume", tmp_path / "s.safetensors", code=3)
    assert not [f for f in os.listdir(tmp_path) if "tmp" in f]
    half = Classifier().half()
    exported(tmp_path / "h.pt2", half, (data()["x"][:3].half(), data()["target"][:3]))
    qkv.joint(tmp_path / "h.pt2", loss="output_0", path=tmp_path / "hj.pt2")
    with pytest.raises(qkv.Error, match="is f16: training takes f32 and f64"):
        qkv.Trainer(tmp_path / "hj.pt2")
    with pytest.raises(qkv.Error, match="has no weight 'nobody'"):
        qkv.Trainer(folder / "j.pt2").set_weights({"nobody": np.zeros(1)})
    trainer = qkv.Trainer(folder / "j.pt2")
    trainer.set_weights({"head.bias": np.full(4, 2, np.float32)})
    assert np.array_equal(trainer.weights()["head.bias"],
                          np.full(4, 2)) and np.array_equal(qkv.Trainer(folder / "j.pt2").weights()["head.bias"],
                                                            module.head.bias.detach())
    fixed = torch.export.export(module_like(module), tuple(v[:6] for v in data().values()))
    torch.export.save(fixed, tmp_path / "f.pt2")
    qkv.joint(tmp_path / "f.pt2", loss="output_0", path=tmp_path / "fj.pt2")
    refuse("45 rows are not a multiple of the batch of 6", None, model=tmp_path / "fj.pt2")
    refuse("takes batches of 6, found 8", None, "--batch-size", 8, model=tmp_path / "fj.pt2")
    run("train", tmp_path / "fj.pt2", "--data", tmp_path / "d.npz", "--drop-last")


def test_many_parameters(tmp_path):
    """1,200: looking each up among all for each of them took minutes."""
    growth.onnx_loss(tmp_path / "m.onnx", 1200)
    np.savez(tmp_path / "d.npz", x=np.ones((8, 8), np.float32))
    subprocess.run([EXE, "joint", "m.onnx", "-o", "j.pt2"], cwd=tmp_path, check=True, capture_output=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([EXE, "train", "j.pt2", "--data", "d.npz", "--batch", "8", "--save", "w.safetensors"], cwd=tmp_path,
                   check=True, capture_output=True, timeout=120)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 8
