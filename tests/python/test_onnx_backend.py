"""The standard's own tests of nodes (onnx.backend.test), all of them; what is refused must say why. `-rA` lists them
by name.

    .venv/bin/python -m pytest -q tests/python/test_onnx_backend.py -k layer_normalization
"""
import re
import warnings

import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("ml_dtypes")
pytest.importorskip("onnx.backend.test")
from onnx.backend.test import BackendTest  # noqa: E402
from onnx.backend.test.loader import load_model_tests  # noqa: E402

from qkv import Error, check  # noqa: E402
from qkv.onnx_backend import Backend  # noqa: E402

# ops that transformers use: test_onnx_ops.py runs these with symbols for sizes, too
OPS = set("""
Abs Add And ArgMax Attention AveragePool BatchNormalization Cast CastLike Ceil Clip Concat Constant ConstantOfShape Conv Cos CumSum DepthToSpace
DequantizeLinear Div Dropout DynamicQuantizeLinear Einsum Equal Erf Exp Expand EyeLike Flatten Floor Gather GatherElements GatherND Gelu Gemm
GlobalAveragePool Greater GreaterOrEqual GroupNormalization HardSwish Identity InstanceNormalization IsInf IsNaN LayerNormalization Less
LessOrEqual Log LogSoftmax MatMul MatMulInteger Max MaxPool Min Mod Mul Neg NonZero Not OneHot Or Pad Pow QLinearMatMul QuantizeLinear
RMSNormalization Range Reciprocal ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape RotaryEmbedding Round
ScatterElements ScatterND Shape Sigmoid Sign Sin Size Slice Softmax SpaceToDepth Split Sqrt Squeeze Sub Swish Tanh TensorScatter Tile TopK
Transpose Trilu Unsqueeze Where Xor""".split())
# pattern of names: what the library says of them
REFUSED = {
    "ada(grad|m)|(nesterov_)?momentum|ai_onnx_ml|flexattention|image_decoder|"
    "regex|string_|strnormalizer|tfidf": "not known",
    "affine_grid_3d_align_corners_expanded": "result 0 is f32 of rank 0 in one branch, f32 of rank 1 in the other",
    "col2im_5d": "images of 3 axes; two are supported",
    "if_(seq|opt)|loop13_seq|loop16_seq": "is a sequence, expected a tensor",
    "roialign_mode_max": "mode 'max'; averages are supported",
    "scan_sum": "num_scan_inputs is 1 for 3 inputs",
}
EXCLUDED = {
    "resize_downsample_scales_(linear|cubic)_align_corners": "the standard's reference aligns the corners of an image "
                                                             "of 2.4 pixels, ONNX Runtime's and this one's of 2",
    "cast(like)?_FLOAT(16)?_to_U?INT[24]": "the standard leaves open what floats beyond the range become; ml_dtypes "
                                           "0.7, whose results are wanted, makes 0 of them, earlier ones wrap around",
    "bernoulli": "which elements are drawn is the runtime's choice",
    "basic_deform_conv_with_padding": "0 is wanted of a tap one pixel outside of the picture; in words of a grid of "
                                      "float32 it is 2e-7 nearer",
}
# the same, as the op's own function body
EXPANDED = re.compile("test_(attention|rotary_embedding|rms_normalization|layer_normalization).*_expanded$")
# of one op that transformers use, and expanded (93 of them Attention), and all, by version of the package onnx
COUNT = {"1.23.2": (885, 139, 1884)}

warnings.filterwarnings("ignore")
ALL = {t.name: t for t in load_model_tests(kind="node")}
SINGLE = {n for n, t in ALL.items() if len(t.model.graph.node) == 1 and t.model.graph.node[0].op_type in OPS
          and not n.endswith("_expanded")}
BODIES = {n for n in ALL if EXPANDED.match(n)}
NAMES = SINGLE | BODIES


def named(patterns):
    """{name of a test: what patterns say of it}"""
    return {n: says for n in ALL for p, says in patterns.items() if re.match(f"test_({p})", n)}


refused = {n: says for n, says in named(REFUSED).items() if not re.match("test_flexattention.*_expanded", n)}
skipped = named(EXCLUDED)
tests = BackendTest(Backend, __name__)
for case in tests.test_cases.values():
    for name in [n for n in vars(case) if n.startswith("test_")]:
        plain = re.sub("_(cpu|cuda)$", "", name)
        if name.endswith("_cuda") or plain not in ALL or plain in refused:
            delattr(case, name)
        elif plain in skipped:
            setattr(case, name, pytest.mark.skip(reason=skipped[plain])(getattr(case, name)))
    if any(n.startswith("test_") for n in vars(case)):
        globals()[case.__name__] = case


@pytest.mark.parametrize("name", sorted(refused))
def test_refused(name):
    t = ALL[name]
    with pytest.raises(Error, match=re.escape(refused[name])):
        Backend.prepare(t.model).run(list(t.data_sets[0][0]))


def test_the_checker_finds_no_errors(tmp_path):
    wrong, path = [], tmp_path / "m.onnx"
    for name, t in ALL.items():
        path.write_bytes(t.model.SerializeToString())
        if not (report := check(path)):
            wrong.append(f"{name}: {report.errors[0]}")
    assert not wrong, wrong


def test_the_list_is_complete():
    counts = len(SINGLE), len(BODIES), len(ALL)
    assert counts == COUNT.get(onnx.__version__, counts) and len(SINGLE) > 800 and len(BODIES) > 100
    assert all(named({p: ""}) for p in (*REFUSED, *EXCLUDED)), "a pattern that names no test"
