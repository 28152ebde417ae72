"""ONNX's regions of pictures, deformable convolutions and mel weights: every axis a symbol, beside ONNX Runtime."""
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
import numpy as np  # noqa: E402
from test_onnx_ops import F, check, model  # noqa: E402


def boxes(n, images, size, seed=0):
    rng = np.random.default_rng(seed)
    corner, reach = rng.uniform(-3, size, (n, 2)), rng.uniform(0, size, (n, 2))
    return np.concatenate([rng.integers(0, images, (n, 1)), corner, corner + reach], 1).astype(np.float32)


@pytest.mark.parametrize("size, scale", [("3, 2", 1.0), ("2, 5", 0.5), ("1, 1", 0.0625)])
def test_largest_of_regions(size, scale, tmp_path):
    m = model(f"""g (float[N, C, H, W] x, float[R, 5] r) => (float[a, b, c, d] y) {{
        y = MaxRoiPool<pooled_shape = [{size}], spatial_scale = {scale}>(x, r)
    }}""")
    check(m, tmp_path, *({"x": F(n, c, h, w), "r": boxes(k, n, 14)}
                         for n, c, h, w, k in ((2, 3, 8, 9, 5), (1, 1, 5, 4, 2))))


@pytest.mark.parametrize("groups, parts, bias, mask, more", [
    (1, 1, True, True, dict(pads=[1, 1, 1, 1])), (2, 1, False, False, dict(strides=[2, 1], dilations=[1, 2])),
    (1, 2, True, False, dict(pads=[0, 2, 1, 0])), (2, 2, False, True, {})])
def test_deformed(groups, parts, bias, mask, more, tmp_path):
    """The picture's sizes are symbols; the result is as large as the offsets."""
    shapes = dict(x=["N", 4, "H", "W"], w=[6, 4 // groups, 3, 2], o=["N", 12 * parts, "P", "Q"])
    shapes |= dict(b=[6]) if bias else {}
    shapes |= dict(m=["N", 6 * parts, "P", "Q"]) if mask else {}
    node = onnx.helper.make_node("DeformConv", ["x", "w", "o", "b" * bias, "m" * mask], ["y"], group=groups,
                                 offset_group=parts, **more)
    m = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", [onnx.helper.make_tensor_value_info(n, 1, s) for n, s in shapes.items()],
                               [onnx.helper.make_tensor_value_info("y", 1, ["N", 6, "P", "Q"])]),
        opset_imports=[onnx.helper.make_opsetid("", 19)], ir_version=9)
    step, apart, pad = (more.get(k, d) for k, d in (("strides", [1, 1]), ("dilations", [1, 1]), ("pads", [0] * 4)))
    feeds = []
    for n, *size in ((2, 7, 8), (1, 9, 6)):
        p, q = ((size[k] + pad[k] + pad[2 + k] - apart[k] * (2 - k) - 1) // step[k] + 1 for k in (0, 1))
        given = dict(N=n, H=size[0], W=size[1], P=p, Q=q)
        feeds.append({name: F(*(given.get(d, d) for d in shape), seed=k) * (2 if name == "o" else 1)
                      for k, (name, shape) in enumerate(shapes.items())})
    check(m, tmp_path, *feeds)


@pytest.mark.parametrize("bins, length, rate, low, high", [(8, 16, 8192, 0.0, 4096.0), (20, 256, 16000, 20.0, 8000.0),
                                                           (40, 512, 22050, 60.0, 7600.0)])
def test_mel_weights(bins, length, rate, low, high, tmp_path):
    m = model(f"""g (float[S, {length // 2 + 1}] x) => (float[S, {bins}] y) {{
        n = Constant<value_int = {bins}>()
        l = Constant<value_int = {length}>()
        r = Constant<value_int = {rate}>()
        a = Constant<value_float = {low}>()
        b = Constant<value_float = {high}>()
        w = MelWeightMatrix(n, l, r, a, b)
        y = MatMul(x, w)
    }}""")
    check(m, tmp_path, {"x": F(3, length // 2 + 1)}, {"x": F(7, length // 2 + 1)})
