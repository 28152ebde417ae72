"""com.microsoft ops against ONNX Runtime's CPU kernels, at two sizes each through symbolic dimensions."""
import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
import qkv  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402

TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int32): TensorProto.INT32,
         np.dtype(np.int64): TensorProto.INT64, np.dtype(np.uint8): TensorProto.UINT8,
         np.dtype(np.int8): TensorProto.INT8, np.dtype(np.bool_): TensorProto.BOOL}
rng = np.random.default_rng(0)


def floats(*shape):
    return rng.standard_normal(shape, dtype=np.float32)


def check(tmp_path, op, inputs, outputs, attrs=(), weights=(), dynamic=(), more=(), domain="com.microsoft", atol=2e-5,
          defined=None, expect=None):
    """inputs: {name: array} in the op's order ("" = left out); weights: names that are initializers; dynamic: {name:
    {axis: symbol}}; more: further {name: array} at other sizes; defined(name, array, feeds): the part of an output
    that has a meaning; expect(feeds): what is run instead where ONNX Runtime's CPU has no kernel for the form."""
    node = helper.make_node(op, [k if v is not None else "" for k, v in inputs.items()], outputs, domain=domain,
                            **dict(attrs))
    infos, inits = [], []
    for k, x in inputs.items():
        if x is None:
            continue
        if k in weights:
            inits.append(helper.make_tensor(k, TYPES[x.dtype], x.shape, x.tobytes(), raw=True))
        else:
            axes = dict(dynamic).get(k, {})
            infos.append(helper.make_tensor_value_info(k, TYPES[x.dtype],
                                                       [axes.get(i, n) for i, n in enumerate(x.shape)]))
    named = [o for o in outputs if o]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info(o) for o in named], inits)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20),
                                                    helper.make_opsetid("com.microsoft", 1)], ir_version=9)
    path = str(tmp_path / "m.onnx")
    onnx.save(model, path)
    session = None if expect else ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    mine = qkv.Model(path, threads=1)
    for feeds in ({}, *more):
        feeds = {k: feeds.get(k, x) for k, x in inputs.items() if x is not None and k not in weights}
        want = expect(feeds) if expect else session.run(named, feeds)
        got = mine.run(feeds)
        for name, w in zip(named, want):
            g = np.asarray(got[name])
            if defined:
                g, w = defined(name, g, feeds), defined(name, w, feeds)
            assert g.shape == w.shape and g.dtype == w.dtype, (name, g.shape, w.shape, g.dtype, w.dtype)
            np.testing.assert_allclose(g, w, atol=atol, rtol=1e-4, err_msg=name)


# ---------------------------------------------------------------- attention

MASKS = {
    "none": lambda B, N, M: None,
    "lengths": lambda B, N, M: np.array([M - 1, M][:B], np.int32),
    "lengths_and_starts": lambda B, N, M: np.array([M - 1, M, 0, 1][:2 * B], np.int32),
    "raw": lambda B, N, M: (np.arange(M)[None] < np.array([M - 2, M])[:B, None]).astype(np.int32),
    "queries": lambda B, N, M: (rng.random((B, N, M)) < 0.7).astype(np.int32),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("past", [0, 3])
def test_attention(tmp_path, mask, causal, past):
    B, N, H, D = 2, 5, 4, 8

    def sized(N):
        return {"x": floats(B, N, 16), "mask": MASKS[mask](B, N, N + past)}

    inputs = {"x": None, "w": floats(16, 3 * H * D) / 4, "b": floats(3 * H * D), "mask": None,
              "past": floats(2, B, H, past, D) if past else None, "bias": None}
    inputs.update(sized(N))
    dynamic = {"x": {0: "batch", 1: "seq"}, "past": {1: "batch", 3: "past"}}
    dynamic["mask"] = {"lengths": {0: "batch"}, "lengths_and_starts": {0: "2*batch"},
                       "raw": {0: "batch", 1: "total"}}.get(mask, {})
    if mask == "queries":
        dynamic["mask"] = {0: "batch", 1: "seq", 2: "total"}
    check(tmp_path, "Attention", inputs, ["y", "present"] if past else ["y"],
          {"num_heads": H, "unidirectional": causal}, ("w", "b"), dynamic, [sized(7)])


def test_attention_sizes_and_bias(tmp_path):
    """A value of another width, a scale, a bias of scores, no bias of the projection."""
    inputs = {"x": floats(2, 5, 16), "w": floats(16, 32 + 32 + 16), "b": floats(80), "mask": None, "past": None,
              "bias": floats(2, 4, 5, 5)}
    check(tmp_path, "Attention", inputs, ["y"], {"num_heads": 4, "qkv_hidden_sizes": [32, 32, 16], "scale": 0.3},
          ("w", "b"))


@pytest.mark.parametrize("mask", ["none", "lengths", "raw"])
@pytest.mark.parametrize("form", ["separate", "bias", "packed_kv", "packed_qkv", "past", "cross_cache"])
def test_multi_head_attention(tmp_path, form, mask):
    B, N, M, H, D = 2, 5, 6, 4, 8
    if form == "packed_qkv":
        M = N

    def sized(N, M):
        kv = {"separate": (floats(B, M, H * D), floats(B, M, H * 8)),
              "bias": (floats(B, M, H * D), floats(B, M, H * D)), "packed_kv": (floats(B, M, H, 2, D), None),
              "packed_qkv": (None, None), "past": (floats(B, M, H * D), floats(B, M, H * D)),
              "cross_cache": (floats(B, H, M, D), floats(B, H, M, D))}[form]
        q = floats(B, N, H, 3, D) if form == "packed_qkv" else floats(B, N, H * D)
        return {"q": q, "k": kv[0], "v": kv[1], "mask": MASKS[mask](B, N, M + (3 if form == "past" else 0))}

    def separate(feeds):
        """ONNX Runtime's answer for a packed form, unpacked: its CPU has no kernel for those."""
        parts = [feeds["q"][:, :, :, i] for i in range(3)] if form == "packed_qkv" else [feeds["q"]] + [feeds["k"][:,
            :, :, i] for i in range(2)]
        plain = {n: x.reshape(*x.shape[:2], -1) for n, x in zip("qkv", parts)}
        if "mask" in feeds:
            plain["mask"] = feeds["mask"]
        node = helper.make_node("MultiHeadAttention", ["q", "k", "v", "", "mask" if "mask" in plain else ""], ["y"],
                                domain="com.microsoft", num_heads=H)
        infos = [helper.make_tensor_value_info(n, TYPES[x.dtype], x.shape) for n, x in plain.items()]
        graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20),
                                                        helper.make_opsetid("com.microsoft", 1)], ir_version=9)
        return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, plain)

    inputs = {"q": None, "k": None, "v": None, "b": floats(3 * H * D) if form == "bias" else None, "mask": None,
              "bias": None, "pk": floats(B, H, 3, D) if form == "past" else None,
              "pv": floats(B, H, 3, D) if form == "past" else None}
    inputs.update(sized(N, M))
    axis = 2 if form == "cross_cache" else 1
    dynamic = {"q": {0: "batch", 1: "seq"}, "k": {0: "batch", axis: "keys"}, "v": {0: "batch", axis: "keys"},
               "pk": {0: "batch", 2: "past"}, "pv": {0: "batch", 2: "past"}}
    if mask == "raw":
        dynamic["mask"] = {0: "batch", 1: "total"}
    outputs = ["y", "present_k", "present_v"] if form == "past" else ["y"]
    more = [sized(7, 7)] if form == "packed_qkv" else [sized(3, 9)]
    check(tmp_path, "MultiHeadAttention", inputs, outputs, {"num_heads": H}, ("b",), dynamic, more,
          expect=separate if form.startswith("packed") else None)


def test_multi_head_attention_causal_bias(tmp_path):
    inputs = {"q": floats(2, 5, 32), "k": floats(2, 5, 32), "v": floats(2, 5, 32), "b": None, "mask": None,
              "bias": floats(1, 4, 5, 5)}
    check(tmp_path, "MultiHeadAttention", inputs, ["y"], {"num_heads": 4, "unidirectional": 1, "scale": 0.2})


def tables(n, half):
    angle = np.arange(n)[:, None] * (10000.0 ** (-np.arange(half) / half))[None]
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rotary", [None, 0, 1])
@pytest.mark.parametrize("window", [-1, 3])
@pytest.mark.parametrize("step", ["prompt", "padded_prompt", "decode", "decode_shared", "decode_uneven"])
def test_group_query_attention(tmp_path, step, window, rotary, packed):
    B, H, K, D = 2, 4, 2, 16

    def sized(N, P):
        past = {"prompt": 0, "padded_prompt": 0, "decode": P, "decode_shared": P + 6, "decode_uneven": P}[step]
        if step.endswith("prompt"):
            P = 0
        total = P + N
        lengths = np.array([total - 1, total - 1], np.int32)
        if step in ("padded_prompt", "decode_uneven"):
            lengths[0] -= 2
        kv = [floats(B, N, K * D) for _ in range(2)]
        q = floats(B, N, (H + 2 * K) * D) if packed else floats(B, N, H * D)
        return {"q": q, "k": None if packed else kv[0], "v": None if packed else kv[1], "pk": floats(B, K, past, D),
                "pv": floats(B, K, past, D), "lengths": lengths, "total": np.array(total, np.int32)}

    decode = not step.endswith("prompt")
    inputs = {**sized(1 if decode else 6, 5), "cos": None, "sin": None}
    if rotary is not None:
        inputs["cos"], inputs["sin"] = tables(32, D // 2)
    dynamic = {"q": {0: "batch", 1: "seq"}, "k": {0: "batch", 1: "seq"}, "v": {0: "batch", 1: "seq"},
               "pk": {0: "batch", 2: "past"}, "pv": {0: "batch", 2: "past"},
               "lengths": {0: "batch"}}
    attrs = {"num_heads": H, "kv_num_heads": K, "local_window_size": window, "do_rotary": int(rotary is not None),
             "rotary_interleaved": rotary or 0}
    def defined(name, array, feeds):
        """Cached positions up to each sample's length; rows of a padded prompt up to it."""
        end = feeds["lengths"] + 1
        if name == "y":
            return np.concatenate([row[:n].ravel() for row, n in zip(array, end)])
        return np.concatenate([row[:, :n].ravel() for row, n in zip(array, end)])

    check(tmp_path, "GroupQueryAttention", inputs, ["y", "present_k", "present_v"], attrs, ("cos", "sin"), dynamic,
          [sized(1 if decode else 4, 7)], defined=defined)


def test_group_query_attention_smooth_softcap(tmp_path):
    B, H, K, D, N = 1, 4, 2, 16, 5
    inputs = {"q": floats(B, N, H * D), "k": floats(B, N, K * D), "v": floats(B, N, K * D), "pk": floats(B, K, 0, D),
              "pv": floats(B, K, 0, D), "lengths": np.array([N - 1], np.int32), "total": np.array(N, np.int32)}
    for attrs in ({"softcap": 5.0}, {"smooth_softmax": 1}):
        check(tmp_path, "GroupQueryAttention", inputs, ["y"], {"num_heads": H, "kv_num_heads": K, **attrs})


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("form", ["3d", "4d", "offset", "partial"])
def test_rotary(tmp_path, form, interleaved):
    cos, sin = tables(32, 4)
    x = floats(2, 3, 5, 8 if form != "partial" else 12) if form == "4d" else floats(2, 5,
        24 if form != "partial" else 36)
    positions = np.array([7], np.int64) if form == "offset" else np.array([[0, 1, 2, 3, 4], [3, 4, 5, 9, 8]], np.int64)
    attrs = {"interleaved": interleaved}
    if form == "partial":
        attrs.update(rotary_embedding_dim=8, num_heads=3)
    check(tmp_path, "RotaryEmbedding", {"x": x, "p": positions, "cos": cos, "sin": sin}, ["y"], attrs, ("cos", "sin"))


# ---------------------------------------------------------------- the rest

@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("simplified", [False, True])
@pytest.mark.parametrize("broadcast", [False, True])
def test_skip_layer_norm(tmp_path, bias, simplified, broadcast):
    inputs = {"x": floats(2, 5, 16), "skip": floats(5, 16) if broadcast else floats(2, 5, 16), "gamma": floats(16),
              "beta": floats(16), "bias": floats(16) if bias else None}
    if simplified:
        del inputs["beta"]
    check(tmp_path, "SkipSimplifiedLayerNormalization" if simplified else "SkipLayerNormalization", inputs,
          ["y", "", "", "sum"], {"epsilon": 1e-5}, ("gamma", "beta", "bias"),
          {"x": {0: "batch"}} if not broadcast else {"x": {0: "batch"}})


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("segments", [False, True])
def test_embed_layer_norm(tmp_path, mask, segments):
    inputs = {"ids": rng.integers(0, 30, (2, 5)).astype(np.int32),
              "seg": rng.integers(0, 2, (2, 5)).astype(np.int32) if segments else None, "word": floats(30, 16),
              "pos": floats(9, 16), "segw": floats(2, 16) if segments else None, "gamma": floats(16),
              "beta": floats(16), "mask": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32) if mask else None}
    check(tmp_path, "EmbedLayerNormalization", inputs, ["y", "lengths", "sum"], {"epsilon": 1e-5},
          ("word", "pos", "segw", "gamma", "beta"))


@pytest.mark.parametrize("op", ["BiasGelu", "FastGelu", "Gelu", "QuickGelu"])
def test_gelu(tmp_path, op):
    inputs = {"x": floats(2, 5, 16) * 3}
    if op == "BiasGelu":
        inputs["b"] = floats(16)
    check(tmp_path, op, inputs, ["y"], weights=("b",), dynamic={"x": {0: "batch"}}, more=[{"x": floats(4, 5, 16)}])


@pytest.mark.parametrize("a", [0, 1])
@pytest.mark.parametrize("b", [0, 1])
def test_fused_matmul(tmp_path, a, b):
    x, y = floats(2, 3, 4), floats(2, 4, 5)
    check(tmp_path, "FusedMatMul", {"x": x.swapaxes(1, 2).copy() if a else x, "y": y.swapaxes(1, 2).copy() if b
                                    else y}, ["z"], {"transA": a, "transB": b, "alpha": 0.5})


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("K", [64, 80])
def test_matmul_nbits(tmp_path, K, zeros):
    N, block = 12, 32
    blocks = -(-K // block)
    inputs = {"x": floats(3, K), "w": rng.integers(0, 256, (N, blocks, block // 2), dtype=np.uint8),
              "s": floats(N, blocks), "z": rng.integers(0, 256, (N, -(-blocks // 2)), dtype=np.uint8) if zeros
              else None}
    check(tmp_path, "MatMulNBits", inputs, ["y"], {"K": K, "N": N, "bits": 4, "block_size": block}, ("w", "s", "z"),
          {"x": {0: "rows"}}, atol=1e-3)


def test_simplified_layer_norm(tmp_path):
    check(tmp_path, "SimplifiedLayerNormalization", {"x": floats(2, 5, 16), "w": floats(16)}, ["y"],
          {"epsilon": 1e-6, "axis": -1}, ("w",), domain="")


def test_second_results_of_norms(tmp_path):
    """Mean and 1 / deviation: ONNX Runtime's CPU gives them for the simplified norm alone."""
    check(tmp_path, "SimplifiedLayerNormalization", {"x": floats(2, 5, 16), "w": floats(16)}, ["y", "inv"],
          {"epsilon": 1e-6, "axis": -1}, ("w",), domain="")
    x, skip, one = floats(2, 5, 16), floats(2, 5, 16), np.ones(16, np.float32)

    def expect(feeds):
        s = feeds["x"] + feeds["skip"]
        mean, inv = s.mean(-1, keepdims=True), 1 / np.sqrt(s.var(-1, keepdims=True) + 1e-5)
        return [(s - mean) * inv, mean, inv]

    check(tmp_path, "SkipLayerNormalization", {"x": x, "skip": skip, "w": one}, ["y", "mean", "inv"],
          {"epsilon": 1e-5}, ("w",), expect=expect)


# ---------------------------------------------------------------- few bits

def small(*shape, high=128, dtype=np.uint8):
    return rng.integers(0, high, shape).astype(dtype)


def number(x, dtype=np.float32):
    return np.array(x, dtype)


@pytest.mark.parametrize("K", [64, 80])
def test_matmul_nbits_with_zero_points_as_floats(tmp_path, K):
    N, block = 12, 32
    blocks = -(-K // block)
    check(tmp_path, "MatMulNBits", {"x": floats(3, K), "w": small(N, blocks, block // 2, high=256),
                                    "s": floats(N, blocks), "z": floats(N, blocks) * 8}, ["y"],
          {"K": K, "N": N, "bits": 4, "block_size": block}, ("w", "s", "z"), {"x": {0: "rows"}}, atol=1e-3)


@pytest.mark.parametrize("out", ["bytes", "floats"])
def test_qgemm(tmp_path, out):
    inputs = {"a": small(6, 5), "as": number(0.02), "az": number(60, np.uint8), "b": small(4, 6), "bs": number(0.05),
              "bz": number(70, np.uint8), "c": small(4, high=900, dtype=np.int32)}
    if out == "bytes":
        inputs |= {"ys": number(0.2), "yz": number(90, np.uint8)}
    check(tmp_path, "QGemm", inputs, ["y"], {"alpha": 0.5, "transA": 1, "transB": 1},
          [k for k in inputs if k not in "ab"], atol=1 if out == "bytes" else 1e-4)


def test_matmul_integer_to_float(tmp_path):
    check(tmp_path, "MatMulIntegerToFloat",
          {"a": small(2, 3, 8), "b": small(8, 5), "as": number(0.02), "bs": number(0.05), "az": number(60, np.uint8),
           "bz": number(70, np.uint8), "c": floats(5)}, ["y"], weights=("as", "bs", "az", "bz"), atol=1e-4)


def test_leaky_relu_of_bytes(tmp_path):
    check(tmp_path, "QLinearLeakyRelu", {"x": small(3, 40, high=256), "xs": number(0.05), "xz": number(128, np.uint8),
                                         "ys": number(0.04), "yz": number(60, np.uint8)}, ["y"], {"alpha": 0.3},
          ("xs", "xz", "ys", "yz"), atol=1)
