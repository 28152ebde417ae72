"""The standard's own tests (onnx.backend.test): every test of one node whose op transformers use.
`-rA` lists them by name.

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

from qkv.onnx_backend import Backend  # noqa: E402

OPS = set("""
Abs Add And ArgMax Attention AveragePool BatchNormalization Cast CastLike Ceil Clip Concat Constant ConstantOfShape Conv Cos CumSum DepthToSpace
DequantizeLinear Div Dropout DynamicQuantizeLinear Einsum Equal Erf Exp Expand EyeLike Flatten Floor Gather GatherElements GatherND Gelu Gemm
GlobalAveragePool Greater GreaterOrEqual GroupNormalization HardSwish Identity InstanceNormalization IsInf IsNaN LayerNormalization Less
LessOrEqual Log LogSoftmax MatMul MatMulInteger Max MaxPool Min Mod Mul Neg NonZero Not OneHot Or Pad Pow QLinearMatMul QuantizeLinear
RMSNormalization Range Reciprocal ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape RotaryEmbedding Round
ScatterElements ScatterND Shape Sigmoid Sign Sin Size Slice Softmax SpaceToDepth Split Sqrt Squeeze Sub Swish Tanh TensorScatter Tile TopK
Transpose Trilu Unsqueeze Where Xor""".split())
EXCLUDED = {}  # name: why
# the same, as the op's own function body
EXPANDED = re.compile("test_(attention|rotary_embedding|rms_normalization|layer_normalization).*_expanded$")
COUNT = {"1.23.2": (885, 139)}  # of one op, and expanded (93 of them Attention), by version of the package onnx

warnings.filterwarnings("ignore")
ALL = list(load_model_tests(kind="node"))
SINGLE = {t.name for t in ALL if len(t.model.graph.node) == 1 and t.model.graph.node[0].op_type in OPS
          and not t.name.endswith("_expanded")}
BODIES = {t.name for t in ALL if EXPANDED.match(t.name)}
NAMES = SINGLE | BODIES

tests = BackendTest(Backend, __name__)
for case in tests.test_cases.values():
    for name in [n for n in vars(case) if n.startswith("test_")]:
        plain = re.sub("_(cpu|cuda)$", "", name)
        if name.endswith("_cuda") or plain not in NAMES:
            delattr(case, name)
        elif plain in EXCLUDED:
            setattr(case, name, pytest.mark.skip(reason=EXCLUDED[plain])(getattr(case, name)))
    if any(n.startswith("test_") for n in vars(case)):
        globals()[case.__name__] = case


def test_the_list_is_complete():
    assert set(EXCLUDED) <= NAMES
    assert (len(SINGLE), len(BODIES)) == COUNT.get(onnx.__version__,
                                                   (len(SINGLE),
                                                    len(BODIES))) and len(SINGLE) > 800 and len(BODIES) > 100
