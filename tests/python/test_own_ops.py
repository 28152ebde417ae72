"""qkv.register_op: models with ops of one's own."""
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from parts import R, fn  # noqa: E402
from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402

import qkv  # noqa: E402


@torch.library.custom_op("own::smooth", mutates_args=())
def smooth(x: torch.Tensor, by: float = 2.0, times: int = 1) -> torch.Tensor:
    for _ in range(times):
        x = torch.sigmoid(by * x)
    return x.clone()


@smooth.register_fake
def _(x, by=2.0, times=1):
    return torch.empty_like(x)


@torch.library.custom_op("own::halves", mutates_args=())
def halves(x: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.cat([x, at], 1) * 2, x.sum(0)


@halves.register_fake
def _(x, at):
    return x.new_empty(x.shape[0], x.shape[1] + at.shape[1]), x.new_empty(x.shape[1])


def numpy_smooth(x, by, times):
    for _ in range(times):
        x = 1 / (1 + np.exp(-by * x))
    return x


@pytest.fixture(scope="module", autouse=True)
def registered():
    with pytest.raises(qkv.Error, match=r"own.smooth.default \(node 'smooth'\); ops of your own .* qkv_register_op"):
        qkv.Model(torch.export.export(fn(lambda self, x: torch.ops.own.smooth(x)), (R(2, 3),)))
    qkv.register_op("own::smooth", "(Tensor x, float by=2.0, int times=1) -> Tensor", lambda x, by, times: x,
                    numpy_smooth, gradient="own::smooth_backward")
    qkv.register_op("own::smooth_backward", "(Tensor grad, Tensor x, float by, int times) -> Tensor",
                    lambda grad, x, by, times: x,
                    lambda grad, x, by, times: grad * by * (y := numpy_smooth(x, by, 1)) * (1 - y))
    qkv.register_op("own::halves", "(Tensor x, Tensor at) -> (Tensor, Tensor)",
                    lambda x, at: (qkv.Meta(x.dtype, (x.shape[0], x.shape[1] + at.shape[1])),
                                   qkv.Meta(x.dtype, x.shape[1:])),
                    halves, arrays="torch")


def run(model, *inputs):
    return [torch.from_dlpack(x) for x in model.run_dlpack(list(inputs)).values()]


def test_a_pt2_with_an_op_of_ones_own_runs_at_all_sizes(tmp_path):
    model = fn(lambda self, x: self.b(torch.ops.own.smooth(self.a(x), 1.5, times=2)), a=nn.Linear(6, 8),
               b=nn.Linear(8, 4))
    program = torch.export.export(model, (R(3, 6),), dynamic_shapes=({0: Dim("n", max=99)},))
    loaded = qkv.Model(program)
    for n in (1, 3, 17):
        torch.testing.assert_close(run(loaded, R(n, 6))[0], model(R(n, 6)).detach())
    loaded.save(tmp_path / "again.pt2")  # PyTorch reads what is written, and so do we
    torch.testing.assert_close(torch.export.load(tmp_path / "again.pt2").module()(R(3, 6)), model(R(3, 6)))
    torch.testing.assert_close(run(qkv.Model(tmp_path / "again.pt2"), R(3, 6))[0], model(R(3, 6)).detach())


def test_sizes_and_several_results_by_torch():
    model = fn(lambda self, x, at: torch.ops.own.halves(x, at)[0].sin() + torch.ops.own.halves(x, at)[1].sum())
    n, k = Dim("n", max=99), Dim("k", max=99)
    loaded = qkv.Model(torch.export.export(model, (R(3, 6), R(3, 4)), dynamic_shapes=({0: n}, {0: n, 1: k})))
    for a, b in ((3, 4), (5, 1)):
        torch.testing.assert_close(run(loaded, R(a, 6), R(a, b))[0], model(R(a, 6), R(a, b)))
    rows, columns = loaded.describe()["outputs"][0]["shape"]
    assert rows in loaded.symbols and columns.endswith("+ 6")
    y = fn(lambda self, x, at: torch.ops.own.halves(x.t(), at)[0])  # strides: the kernel gets contiguous memory
    torch.testing.assert_close(run(qkv.Model(torch.export.export(y, (R(6, 3), R(3, 4)))), R(6, 3), R(3, 4))[0],
                               y(R(6, 3), R(3, 4)))


def test_gradients_are_another_op():
    model = fn(lambda self, x: torch.ops.own.smooth(self.a(x), 1.5).square().mean(), a=nn.Linear(6, 8))
    program = torch.export.export(model, (R(3, 6),))
    step = qkv.Model(program).joint()
    got = step.run([R(3, 6)])
    x = 1.5 * (R(3, 6) @ model.a.weight.T + model.a.bias)
    (x.sigmoid() ** 2).mean().backward()
    np.testing.assert_allclose(got["grad.a.weight"], model.a.weight.grad, atol=1e-6)
    np.testing.assert_allclose(got["grad.a.bias"], model.a.bias.grad, atol=1e-6)
    other = fn(lambda self, x: torch.ops.own.halves(self.a(x), x)[0].mean(), a=nn.Linear(6, 8))
    with pytest.raises(qkv.Error, match="registered without a gradient"):
        qkv.Model(torch.export.export(other, (R(3, 6),))).joint()


def test_onnx_domains(tmp_path):
    from onnx import TensorProto, helper, save

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 6])
    nodes = [helper.make_node("Relu", ["x"], ["r"]),
             helper.make_node("smooth", ["r"], ["y"], domain="own", by=0.5, times=2)]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    save(helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=opsets), tmp_path / "m.onnx")
    model = qkv.Model(tmp_path / "m.onnx")
    for n in (2, 5):
        torch.testing.assert_close(run(model, R(n, 6))[0], smooth(R(n, 6).relu(), 0.5, 2))
    nodes[1].op_type = "rough"
    save(helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=opsets), tmp_path / "m.onnx")
    with pytest.raises(qkv.Error, match="own.rough .*; ops of your own are added with qkv_register_op"):
        qkv.Model(tmp_path / "m.onnx")


def test_onnx_domains_with_dots(tmp_path):
    """As vendors name theirs; an optional input, a list of floats, two results, inside a branch."""
    from onnx import TensorProto, helper, save

    qkv.register_op("com.own::levels", "(Tensor x, Tensor? mask, Tensor bias, float[] levels=[]) -> (Tensor, Tensor)",
                    lambda x, mask, bias, levels: (x, qkv.Meta(x.dtype, x.shape[:1])),
                    lambda x, mask, bias, levels: (x + bias + sum(levels), x.sum(1)))

    def model(**attributes):
        node = helper.make_node("levels", ["x", "", "b"], ["t", "s"], domain="com.own", **attributes)
        then = helper.make_graph([node], "then", [], [helper.make_tensor_value_info("t", TensorProto.FLOAT, ["n", 6])])
        otherwise = helper.make_graph([helper.make_node("Neg", ["x"], ["e"])], "else", [],
                                      [helper.make_tensor_value_info("e", TensorProto.FLOAT, ["n", 6])])
        given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6]),
                 helper.make_tensor_value_info("b", TensorProto.FLOAT, [6]),
                 helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
        branch = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise)
        graph = helper.make_graph([branch], "g", given, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.own", 1)]
        save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "m.onnx")
        return qkv.Model(tmp_path / "m.onnx")

    x, b = R(2, 6), R(6, seed=1)
    close = torch.testing.assert_close
    close(run(model(levels=[0.5, 0.25]), x, b, torch.tensor(True))[0], x + b + 0.75)
    close(run(model(), x, b, torch.tensor(True))[0], x + b)
    close(run(model(), x, b, torch.tensor(False))[0], -x)
    with pytest.raises(qkv.Error, match="without a parameter for the attribute 'level'"):
        model(level=1.0)
    with pytest.raises(qkv.Error, match="attribute 'levels': expected a list of floats"):
        model(levels=2.0)
    with pytest.raises(qkv.Error, match="PyTorch has no namespaces with a dot"):
        model().save(tmp_path / "m.pt2")


def test_onnx_attributes_of_all_kinds(tmp_path):
    """A list of inputs takes all that follow; attributes are the other parameters, or what is left out."""
    from onnx import TensorProto, helper, save

    seen = []

    def kernel(x, *words):
        seen.append(words)
        return x + len(words[0])

    schema = '(Tensor x, Tensor[] more, int n=1, bool up=True, int[] sizes=[], str mode="a", Scalar by=1) -> Tensor'
    qkv.register_op("com.own::kinds", schema, lambda x, *_: x, kernel)

    def load(inputs, **attributes):
        node = helper.make_node("kinds", inputs, ["y"], domain="com.own", **attributes)
        given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xbc"]
        graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.own", 1)]
        save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "m.onnx")
        return qkv.Model(tmp_path / "m.onnx")

    x = [R(2, seed=k) for k in range(3)]
    torch.testing.assert_close(run(load("xbc", n=3, up=0, sizes=[4, 5], mode="b", by=0.5), *x)[0], x[0] + 2)
    assert seen[-1][1:] == (3, False, [4, 5], "b", 0.5)
    torch.testing.assert_close(run(load(["x"]), *x)[0], x[0])
    assert seen[-1][1:] == (1, True, [], "a", 1)
    for attributes in ({"n": 1.5}, {"up": "yes"}, {"sizes": 2.5}, {"mode": 3}, {"by": [1.0]}):
        with pytest.raises(qkv.Error, match=f"attribute '{next(iter(attributes))}'"):
            load("xb", **attributes)
    with pytest.raises(qkv.Error, match="input 'x' is missing"):
        load(["", "b"])
    with pytest.raises(qkv.Error, match="2 inputs are given, .* takes 1"):
        qkv.register_op("com.own::one", "(Tensor x) -> Tensor", lambda x: x, lambda x: x)
        node = helper.make_node("one", ["x", "x"], ["y"], domain="com.own")
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
        graph = helper.make_graph([node], "g", ends[:1], ends[1:])
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("com.own", 1)],
                               ir_version=9), tmp_path / "m.onnx")
        qkv.Model(tmp_path / "m.onnx")


def test_threads_run_it_at_once():
    model = qkv.Model(torch.export.export(fn(lambda self, x: torch.ops.own.smooth(x) + 1), (R(30, 6),)))
    found = [None] * 4

    def work(i):
        for _ in range(20):
            found[i] = run(model, R(30, 6, seed=i))[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for i, y in enumerate(found):
        torch.testing.assert_close(y, smooth(R(30, 6, seed=i)) + 1)


def test_what_functions_raise_names_the_node():
    def broken(x):
        raise ValueError("no such luck")

    @torch.library.custom_op("own::breaks", mutates_args=())
    def breaks(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    breaks.register_fake(torch.empty_like)
    program = torch.export.export(fn(lambda self, x: torch.ops.own.breaks(x)), (R(2, 3),))
    qkv.register_op("own::breaks", "(Tensor x) -> Tensor", lambda x: x, broken)
    with pytest.raises(qkv.Error, match="node 'breaks'.*ValueError: no such luck"):
        qkv.Model(program).run([R(2, 3)])


@pytest.mark.parametrize("shape, message", [
    (lambda x: qkv.Meta("f32", (x.shape[0] if x.shape[0] > 3 else 1,)), "cannot branch on it"),
    (lambda x: (x, x), "returned 2 results, the schema has 1"),
    (lambda x: qkv.Meta("f32", ("s0 +",)), "size 0 of result 0"),
])
def test_shape_functions_that_cannot_be(shape, message):
    k = test_shape_functions_that_cannot_be.count = getattr(test_shape_functions_that_cannot_be, "count", 0) + 1
    op = torch.library.custom_op(f"own::odd_{k}", lambda x: x.clone(), mutates_args=(), schema="(Tensor x) -> Tensor")
    op.register_fake(torch.empty_like)
    call = getattr(torch.ops.own, f"odd_{k}")
    program = torch.export.export(fn(lambda self, x: call(x)), (R(4, 3),), dynamic_shapes=({0: Dim("n", max=9)},))
    qkv.register_op(f"own::odd_{k}", "(Tensor x) -> Tensor", shape, lambda x: x)
    with pytest.raises(qkv.Error, match=message):
        qkv.Model(program)


def test_names_and_schemas_are_checked():
    ok = dict(shape=lambda x: x, kernel=lambda x: x)
    for name, schema, message in [("own::smooth", "(Tensor x) -> Tensor", "an op of that name already"),
                                  ("aten::relu", "(Tensor x) -> Tensor", "an op of that name already"),
                                  ("relu", "(Tensor x) -> Tensor", "expected a name like my::op"),
                                  ("own::a-b", "(Tensor x) -> Tensor", "expected a name like my::op"),
                                  ("com..own::x1", "(Tensor x) -> Tensor", "expected a name like my::op"),
                                  ("own::x1", "Tensor x -> Tensor", "its schema is not one"),
                                  ("own::x1", "(Tensor x", "its schema is not one"),
                                  ("own::x1", "(Tensor x=[1) -> Tensor", "its schema is not one"),
                                  ("own::x1", "(Tensor(a!) x) -> Tensor", "near 'Tensor\\(a!\\) x"),
                                  ("own::x1", "(Tensor x) -> int", "near 'int'"),
                                  ("own::x1", "(int x) -> Tensor", "its schema is not one")]:
        with pytest.raises(qkv.Error, match=message):
            qkv.register_op(name, schema, **ok)


def test_torch_compile_hands_it_over():
    import qkv.dynamo

    torch._dynamo.reset()
    with torch.no_grad():
        model = fn(lambda self, x: torch.ops.own.smooth(self.a(x)), a=nn.Linear(6, 8))
        found = qkv.dynamo.explain(model, R(3, 6), rounds=1)
    assert found.graphs[0].in_c == found.graphs[0].ops and found.difference < 1e-6
