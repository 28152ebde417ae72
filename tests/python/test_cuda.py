"""Where there is a GPU: the table of `qkv backends` against PyTorch's own choice there, and what `qkv joint --device`
writes, run on it, against autograd. Without a GPU nothing here runs.

    QKV_LIBRARY=libqkv.so python3 -m pytest tests/python/test_cuda.py
"""
import copy
import itertools

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)
import qkv  # noqa: E402
import test_backends  # noqa: E402
import test_joint_device  # noqa: E402

HERE = "cuda-sm%d%d" % torch.cuda.get_device_capability()
CUDNN = torch.backends.cudnn.version()
OLD = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)
if OLD:  # it runs ops whose results it cannot read from a file
    from torch._export.serde import serialize
    serialize._SERIALIZE_TO_TORCH_DTYPE.setdefault(35, torch.uint64)


def changed_since(q, v, dropout, gqa):
    """Rules that PyTorch 2.13 has and 2.11 had not: grouped heads and alignment in efficient; dropout, head sizes and
    batches in cuDNN."""
    return gqa or q.storage_offset() or q.shape[0] > 65535 or dropout * 16 != int(dropout * 16) or \
        (q.dim() == 4 and max(q.shape[-1], v.shape[-1]) > 128)


def calls():
    """(what, q, k, v, mask, dropout, causal, gqa): the CPU test's, and sizes at which rules for GPUs change."""
    yield from test_backends.grid()
    for dtype, size, own, grad in itertools.product((torch.float16, torch.bfloat16, torch.float32),
            (1, 4, 8, 12, 60, 64, 72, 128, 136, 160, 192, 200, 224, 256, 264, 512), (0, 64, 128, 192), (False, True)):
        def new(*shape):
            return torch.empty(shape, dtype=dtype, requires_grad=grad)
        q, k, v = new(2, 4, 16, size), new(2, 4, 24, size), new(2, 4, 24, own or size)
        for what, mask, dropout, causal in [("plain", None, 0.0, False), ("causal", None, 0.0, True),
                ("masked", torch.empty(16, 24, dtype=dtype), 0.0, False),
                ("masked by head", torch.empty(1, 4, 16, 24, dtype=dtype), 0.0, False),
                ("odd mask", torch.empty(16, 25, dtype=dtype)[:, :24], 0.0, False),
                ("turned mask", torch.empty(24, 16, dtype=dtype).t(), 0.0, False),
                ("mask of one key", torch.empty(2, 1, 1, 24, dtype=torch.bool), 0.0, False),
                ("dropout", None, 0.1, False), ("dropout of a sixteenth", None, 0.125, True)]:
            yield f"{dtype} {size} {own} grad {grad} {what}", q, k, v, mask, dropout, causal, False
        yield f"{dtype} {size} square causal", q, new(2, 4, 16, size), new(2, 4, 16, size), None, 0.0, True, False
        yield f"{dtype} {size} one query", new(2, 4, 1, size), k, k, None, 0.0, False, False
        yield f"{dtype} {size} one key", q, new(2, 4, 1, size), new(2, 4, 1, size), None, 0.0, False, False
        yield f"{dtype} {size} offset", new(2, 4, 16, size + 1)[..., 1:], k, k, None, 0.0, False, False
        for heads in ((1, 1), (2, 2), (2, 4), (3, 3)):
            few = [new(2, h, 16, size) for h in heads]
            yield f"{dtype} {size} heads {heads}", q, *few, None, 0.0, False, True
    many = torch.empty(70000, 1, 2, 8, dtype=torch.float16)
    yield "70000 of a batch", many, many, many, None, 0.0, False, False


def test_table():
    wrong, n, seen = [], 0, {}
    with torch.device("cuda"):
        for what, q, k, v, mask, dropout, causal, gqa in calls():
            if OLD and changed_since(q, v, dropout, gqa):
                continue
            try:
                want = test_backends.truth(q, k, v, mask, dropout, causal, gqa)
            except RuntimeError as e:  # PyTorch refuses the call
                seen[str(e)[:40]] = seen.get(str(e)[:40], 0) + 1
                continue
            got = qkv.sdpa_choice(q, k, v, mask, dropout, causal, enable_gqa=gqa, device=HERE, cudnn=CUDNN)
            n, seen[want] = n + 1, seen.get(want, 0) + 1
            if got != want:
                wrong.append(f"{what}: {got}, PyTorch {want}")
    print(HERE, "cuDNN", CUDNN, n, seen)
    assert not wrong, f"{len(wrong)} of {n}: " + "; ".join(wrong[::len(wrong) // 10 + 1])
    assert n >= 2000 and {"math", "flash", "efficient"} <= set(seen), (n, seen)


def on_gpu(program):
    from torch.export.passes import move_to_device_pass
    return move_to_device_pass(program, "cuda").module()


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("kind, heads, kv, size, dtype, device, kernel",
                         [c for c in test_joint_device.CASES if c[5] != "cpu"])
def test_joint_on_the_gpu(tmp_path, kind, heads, kv, size, dtype, device, kernel, static):
    torch.manual_seed(0)
    module = test_joint_device.Attend(kind, heads, kv, size, dtype)
    source = qkv.Model(test_joint_device.exported(module, static))
    given = {"seq": 12, "batch": 3} if kernel == "cudnn" and not static else None
    joint = source.joint(device=device, dims=given)
    joint.save(tmp_path / "joint.pt2")
    step = on_gpu(torch.export.load(tmp_path / "joint.pt2"))
    module.cuda()
    exact = copy.deepcopy(module).double()

    def step_of(m, inputs):
        m.zero_grad()
        loss = m(*inputs)
        loss.backward()
        return [loss.detach().double(), *(p.grad.double() for p in m.parameters())]

    for batch, seq in [(3, 12)] if static or "bias" in kind else [(3, 12), (2, 12), (5, 33), (4, 128)]:
        inputs = (torch.randn(batch, seq, 24, dtype=dtype, device="cuda"),)
        if "padding" in kind:
            lengths = torch.linspace(seq, 2, batch, device="cuda").long()
            inputs += (torch.arange(seq, device="cuda") < lengths[:, None],)
        theirs, truth = step_of(module, inputs), step_of(exact, (inputs[0].double(), *inputs[1:]))
        peak = max(float(t.abs().max()) for t in truth)  # a key's bias has no gradient but rounding
        with torch.no_grad():
            ours = step(*inputs)
        for name, a, b, want in zip(["loss", *(n for n, _ in module.named_parameters())], ours, theirs, truth,
                                    strict=True):
            rounding = 1e-5 if dtype == torch.float32 else 0.01
            limit = 3 * float((b - want).abs().max()) + rounding * (float(want.abs().max()) + 1e-3 * peak)
            far = float((a.double() - want).abs().max())
            assert far <= limit, (name, far, limit, batch, seq)
