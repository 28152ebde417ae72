"""If, Loop and Scan against ONNX Runtime: known counts and conditions, and data-dependent ones, at several sizes."""
import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
import qkv  # noqa: E402
from onnx import TensorProto as T, parser  # noqa: E402

rng = np.random.default_rng(0)


def floats(*shape):
    return rng.standard_normal(shape, dtype=np.float32)


def check(tmp_path, text, *feeds, ops=(), not_ops=()):
    model = parser.parse_model('<ir_version: 9, opset_import: ["" : 17]>\n' + text)
    path = str(tmp_path / "m.onnx")
    onnx.save(model, path)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    mine = qkv.Model(path, threads=1)
    graph = mine.graph_text()
    for op in ops:
        assert op in graph, graph
    for op in not_ops:
        assert op not in graph, graph
    names = [o.name for o in model.graph.output]
    for feed in feeds:
        for name, w in zip(names, session.run(names, feed)):
            g = np.asarray(mine.run(feed)[name])
            assert g.shape == w.shape and g.dtype == w.dtype, (name, g.shape, w.shape)
            np.testing.assert_allclose(g, w, atol=1e-5, rtol=1e-5)
    written = str(tmp_path / "w.onnx")  # and out again: the same values, in ONNX Runtime and read back
    mine.save_onnx(written)
    onnx.checker.check_model(onnx.load(written), full_check=True)
    session, mine = ort.InferenceSession(written, providers=["CPUExecutionProvider"]), qkv.Model(written, threads=1)
    for feed in feeds:
        feed = {i.name: feed[i.name] for i in session.get_inputs()}
        for name, w in zip(names, session.run(names, feed)):
            np.testing.assert_allclose(np.asarray(mine.run(feed)[name]), w, atol=1e-5, rtol=1e-5)
    mine.save_onnx(str(tmp_path / "second.onnx"))
    qkv.Model(str(tmp_path / "second.onnx")).save_onnx(str(tmp_path / "third.onnx"))
    nodes = [[n.op_type for n in onnx.load(tmp_path / name).graph.node] for name in ("second.onnx", "third.onnx")]
    assert nodes[0] == nodes[1]
    return mine


def test_loop_of_known_count_is_unrolled(tmp_path):
    text = """agraph (float[N] x) => (float[N] y, float[K, N] all)
    {
        n = Constant<value_int = 3>()
        yes = Constant<value = bool {1}>()
        y, all = Loop(n, yes, x) <body = b (int64 i, bool go, float[N] a) => (bool more, float[N] c, float[N] d)
            { more = Identity(go)  f = Cast<to = 1>(i)  c = Add(a, f)  d = Mul(a, c) }>
    }"""
    check(tmp_path, text, {"x": floats(4)}, {"x": floats(2)}, not_ops=["qkv.loop"])


def test_loop_count_from_data(tmp_path):
    text = """agraph (int64 n, float[B, N] x, float[N] w) => (float[B, N] y, float[K, B, N] all)
    {
        yes = Constant<value = bool {1}>()
        y, all = Loop(n, yes, x) <body = b (int64 i, bool go, float[B, N] a) => (bool more, float[B, N] c, float[B, N] d)
            { more = Identity(go)  c = Add(a, w)  d = Mul(a, c) }>
    }"""
    for n in (1, 5, 100):
        check(tmp_path, text, *[{"n": np.array(n), "x": floats(b, 3), "w": floats(3)} for b in (2, 4)],
              ops=["qkv.loop"])


def test_loop_of_many_known_turns(tmp_path):
    text = """agraph (float[N] x) => (float[N] y)
    {
        n = Constant<value_int = 1000>()
        y = Loop(n, , x) <body = b (int64 i, bool go, float[N] a) => (bool more, float[N] c)
            { more = Identity(go)  k = Constant<value = float {0.99}>()  c = Mul(a, k) }>
    }"""
    check(tmp_path, text, {"x": floats(4)}, ops=["limit=1000", "sure=true"])


def test_loop_ends_by_its_condition(tmp_path):
    """A while loop: double until the sum is large, count the turns."""
    text = """agraph (float[N] x) => (float[N] y, int64 turns)
    {
        zero = Constant<value = int64 {0}>()
        yes = Constant<value = bool {1}>()
        y, turns = Loop( , yes, x, zero) <body = b (int64 i, bool go, float[N] a, int64 t) => (bool more, float[N] c, int64 u)
            { c = Add(a, a)  s = ReduceSum<keepdims = 0>(c)  top = Constant<value = float {1000.0}>()  more = Less(s, top)
              one = Constant<value = int64 {1}>()  u = Add(t, one) }>
    }"""
    check(tmp_path, text, {"x": np.abs(floats(4))}, {"x": np.abs(floats(9)) * 30}, ops=["qkv.loop"])


def test_loop_ends_by_its_count_or_its_condition(tmp_path):
    """As a .pt2, the condition of PyTorch's while_loop counts the turns, too."""
    torch = pytest.importorskip("torch")
    text = """agraph (int64 n, float[N] x) => (float[N] y)
    {
        yes = Constant<value = bool {1}>()
        y = Loop(n, yes, x) <body = b (int64 i, bool go, float[N] a) => (bool more, float[N] c)
            { c = Add(a, a)  s = ReduceSum<keepdims = 0>(c)  top = Constant<value = float {100.0}>()
              more = Less(s, top) }>
    }"""
    feeds = [{"n": np.array(n), "x": np.abs(floats(k)) + 1} for n, k in ((3, 4), (0, 2), (50, 4))]
    check(tmp_path, text, *feeds, ops=["qkv.loop"]).save(tmp_path / "m.pt2")
    module = torch.export.load(tmp_path / "m.pt2").module()
    for feed in feeds:
        y = module(*[torch.from_numpy(x) for x in feed.values()])
        np.testing.assert_allclose(y[0] if isinstance(y, tuple) else y, qkv.Model(tmp_path / "m.onnx").run(feed)["y"])


def test_loop_carries_what_grows(tmp_path):
    """Each turn appends a row."""
    text = """agraph (int64 n, float[1, N] x) => (float[K, N] y)
    {
        y = Loop(n, , x) <body = b (int64 i, bool go, float[M, N] a) => (bool more, float[L, N] c)
            { more = Identity(go)  f = Cast<to = 1>(i)  r = Add(x, f)  c = Concat<axis = 0>(a, r) }>
    }"""
    mine = check(tmp_path, text, *[{"n": np.array(n), "x": floats(1, 3)} for n in (0, 1, 6)], ops=["qkv.loop"])
    assert np.asarray(mine.run({"n": np.array(70), "x": floats(1, 5)})["y"]).shape == (71, 5)


def test_loop_in_loop(tmp_path):
    text = """agraph (int64 n, float[N] x) => (float[N] y)
    {
        y = Loop(n, , x) <body = b (int64 i, bool go, float[N] a) => (bool more, float[N] c)
            { more = Identity(go)  d = Loop(i, , a) <body = e (int64 j, bool go2, float[N] p) => (bool more2, float[N] q)
                { more2 = Identity(go2)  q = Add(p, x) }>
              c = Identity(d) }>
    }"""
    check(tmp_path, text, *[{"n": np.array(n), "x": floats(3)} for n in (1, 4)], ops=["qkv.loop"])


@pytest.mark.parametrize("direction", [0, 1])
def test_scan_of_any_length(tmp_path, direction):
    """A recurrent net over a sequence of a length that is not known: h' = tanh(x W + h U)."""
    text = f"""agraph (float[B, S, 4] x, float[B, 3] h, float[4, 3] w, float[3, 3] u) => (float[B, 3] last, float[B, S, 3] all)
    {{
        last, all = Scan<num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1], scan_input_directions = [{direction}],
            scan_output_directions = [{direction}], body = b (float[B, 3] a, float[B, 4] p) => (float[B, 3] c, float[B, 3] d)
            {{ q = MatMul(p, w)  r = MatMul(a, u)  s = Add(q, r)  c = Tanh(s)  d = Identity(c) }}>(h, x)
    }}"""
    feeds = [{"x": floats(b, s, 4), "h": floats(b, 3), "w": floats(4, 3), "u": floats(3, 3)}
             for b, s in ((2, 5), (3, 1), (1, 90))]
    check(tmp_path, text, *feeds, ops=["qkv.loop"])


def test_scan_of_known_length(tmp_path):
    text = """agraph (float[5, N] x, float[N] h) => (float[N] last, float[5, N] all)
    {
        last, all = Scan<num_scan_inputs = 1, body = b (float[N] a, float[N] p) => (float[N] c, float[N] d) { c = Add(a, p)  d = Mul(c, p) }>(h, x)
    }"""
    check(tmp_path, text, {"x": floats(5, 3), "h": floats(3)}, not_ops=["qkv.loop"])


def test_if_from_data(tmp_path):
    """Only the branch that is taken runs: the other one would divide the index out of range."""
    text = """agraph (float[N] x, int64 k) => (float[M] y)
    {
        n = Shape(x)
        zero = Constant<value_ints = [0]>()
        m = Gather(n, zero)
        kk = Reshape(k, zero_shape)
        c = Less(kk, m)
        cc = Squeeze(c)
        y = If(cc) <then_branch = t () => (float[M] a) { one = Constant<value_ints = [1]>()  idx = Reshape(k, one)  a = Gather(x, idx) },
                    else_branch = e () => (float[M] b) { b = Add(x, x) }>
    }"""
    text = text.replace("kk = Reshape(k, zero_shape)",
                        "ones = Constant<value_ints = [1]>()\n        kk = Reshape(k, ones)")
    check(tmp_path, text, {"x": floats(4), "k": np.array(2)}, {"x": floats(3), "k": np.array(9)}, ops=["qkv.branch"])


def test_many_branches(tmp_path):
    """Each takes what its node takes: a file of 70 KB holds 500."""
    one = "{to} = If(c) <then_branch = t () => (float[N] a{i}) {{ a{i} = Sin({of}) }}, " \
          "else_branch = e () => (float[N] b{i}) {{ b{i} = Cos({of}) }}>\n"
    text = "agraph (float[N] x, bool c) => (float[N] y)\n{" + "".join(
        one.format(i=i, of=f"r{i}" if i else "x", to=f"r{i + 1}" if i < 499 else "y") for i in range(500)) + "}"
    check(tmp_path, text, {"x": floats(4), "c": np.array(True)}, {"x": floats(4), "c": np.array(False)})


def test_if_known(tmp_path):
    text = """agraph (float[2, N] x) => (float[N] y)
    {
        s = Shape(x)
        zero = Constant<value_int = 0>()
        two = Constant<value_int = 2>()
        b = Gather(s, zero)
        c = Equal(b, two)
        y = If(c) <then_branch = t () => (float[N] a) { i = Constant<value_int = 1>()  a = Gather(x, i) },
                   else_branch = e () => (float[N] d) { d = ReduceSum<keepdims = 0>(x) }>
    }"""
    check(tmp_path, text, {"x": floats(2, 3)}, not_ops=["qkv.branch"])


def test_text_of_bodies_parses_back(tmp_path):
    """Graph text with a loop inside is read again by the C tests' reader: here, that it stands and is indented."""
    text = """agraph (int64 n, float[N] x) => (float[N] y)
    {
        y = Loop(n, , x) <body = b (int64 i, bool go, float[N] a) => (bool more, float[N] c) { more = Identity(go)  c = Add(a, x) }>
    }"""
    mine = check(tmp_path, text, {"n": np.array(2), "x": floats(3)})
    assert "{\n  symbol" in mine.graph_text() and "\n}, limit=" in mine.graph_text()


def test_nodes_out_of_order(tmp_path):
    """Not legal, but ONNX Runtime sorts them, and its own float16 converter writes such files; a cycle is refused."""
    text = """agraph (float[N] x) => (float[N] y) { a = Add(x, x)  b = Mul(a, x)  y = Sub(b, a) }"""
    model = parser.parse_model('<ir_version: 9, opset_import: ["" : 17]>\n' + text)
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))
    onnx.save(model, tmp_path / "m.onnx")
    x = floats(4)
    np.testing.assert_allclose(np.asarray(qkv.Model(str(tmp_path / "m.onnx")).run({"x": x})["y"]), 2 * x * x - 2 * x,
                               rtol=1e-6)
    model.graph.node[2].input[0] = "b"
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(qkv.Error, match="is not computed before this node"):
        qkv.Model(str(tmp_path / "m.onnx"))


def test_loops_train(tmp_path):
    """A loop that stacks, its weights carried and captured, in a branch's company: autograd's gradients."""
    torch = pytest.importorskip("torch")
    text = """<ir_version: 9, opset_import: ["" : 17]>
    agraph (float[N, 4] x) => (float loss) <float[4, 4] w, float[4] h> {
        half = Constant<value_float = 0.5>()
        yes = Constant<value = bool {1}>()
        turns = Size(x)
        last, all = Loop(turns, yes, h) <body = b (int64 i, bool go, float[4] a) => (bool more, float[4] c, float[4] d)
            { more = Identity(go)  e = MatMul(a, w)  t = Tanh(e)  c = Add(t, half)  d = Mul(a, c) }>
        sum = ReduceSum<keepdims = 0>(x)
        zero = Constant<value_float = 0.0>()
        up = Greater(sum, zero)
        y = If(up) <then_branch = yes () => (float[4] p) { p = Mul(last, h) },
                    else_branch = no () => (float[4] q) { q = Neg(last) }>
        square = Mul(all, all)
        parts = ReduceSum<keepdims = 0>(square)
        more = ReduceSum<keepdims = 0>(y)
        loss = Add(parts, more)
    }"""
    model, weights = parser.parse_model(text), {"w": floats(4, 4), "h": floats(4)}
    del model.graph.initializer[:]
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in weights.items())
    onnx.save(model, tmp_path / "m.onnx")
    joint = qkv.Model(tmp_path / "m.onnx").joint()
    for rows, sign in ((1, 1), (2, -1)):
        w, h = (torch.tensor(weights[name], requires_grad=True) for name in "wh")
        a, loss = h, 0
        for _ in range(4 * rows):
            c = torch.tanh(a @ w) + 0.5
            a, loss = c, loss + (a * c).square().sum()
        loss = loss + (a * h if sign > 0 else -a).sum()
        loss.backward()
        got = joint.run({"x": np.full((rows, 4), sign, np.float32)})
        for key, want in (("loss", loss.detach()), ("grad.w", w.grad), ("grad.h", h.grad)):
            np.testing.assert_allclose(np.asarray(got[key]), want.numpy(), rtol=2e-5, atol=2e-5, err_msg=key)


def test_loops_in_bf16(tmp_path):
    text = """<ir_version: 9, opset_import: ["" : 17]>
    agraph (float[N, 64] x, int64 turns) => (float[N, 64] y) <float[64, 64] w> {
        yes = Constant<value = bool {1}>()
        y = Loop(turns, yes, x) <body = b (int64 i, bool go, float[N, 64] a) => (bool more, float[N, 64] c)
            { more = Identity(go)  e = MatMul(a, w)  c = Tanh(e) }>
    }"""
    model = parser.parse_model(text)
    del model.graph.initializer[:]
    model.graph.initializer.append(onnx.numpy_helper.from_array(floats(64, 64) / 8, "w"))
    onnx.save(model, tmp_path / "m.onnx")
    full, few = qkv.Model(tmp_path / "m.onnx"), qkv.Model(tmp_path / "m.onnx", compute="bf16")
    for rows, turns in ((3, 2), (17, 5)):
        feeds = {"x": floats(rows, 64), "turns": np.array(turns)}
        want, got = (np.asarray(m.run(feeds)["y"]) for m in (full, few))
        assert got.dtype == np.float32 and 0 < np.abs(got - want).max() < 2e-2 * np.abs(want).max()


@pytest.mark.parametrize("depth", [9, 31])
def test_branches_in_branches(depth, tmp_path):
    """All that ONNX may nest is read again from what is written."""
    def graph(k):
        if k == depth:
            return f"b{k} () => (float[2] o{k}) {{ o{k} = Exp(x) }}"
        return (f"b{k} () => (float[2] o{k}) {{ o{k} = If (c) <then_branch = {graph(k + 1)}, "
                f"else_branch = n{k} () => (float[2] e{k}) {{ e{k} = Neg(x) }}> }}")
    text = graph(0).replace("b0 ()", "b0 (float[2] x, bool c)", 1)
    onnx.save(parser.parse_model('<ir_version: 9, opset_import: ["" : 17]>\n' + text), tmp_path / "m.onnx")
    model, x = qkv.Model(tmp_path / "m.onnx"), floats(2)
    model.save(tmp_path / "m.pt2")
    again = qkv.Model(tmp_path / "m.pt2")
    for c in (False, True):
        got = again.run({"x": x, "c": np.array(c)})["output_0"]
        np.testing.assert_allclose(got, np.exp(x) if c else -x, rtol=1e-5)
