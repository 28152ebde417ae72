"""What tests of written models share: sizes, random tensors, modules from a function."""
import pytest
import torch
from torch import nn
from torch.export import Dim

B, S = Dim("b", min=1, max=8), Dim("s", min=2, max=64)


def R(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Attending(nn.Module):
    """x and an attention of 4 heads of 16 over it, with one projection of queries, keys and values."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (4, 16)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        return x + self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def fn(f, **parts):
    """A module whose forward is f, with the given parts."""
    class Module(nn.Module):
        forward = f
    m = Module()
    for name, part in parts.items():
        setattr(m, name, part)
    return m.eval()


def chain(path, ops):
    """An ONNX file of ops in a row, x0 to xN: torch.export takes seconds for a long one."""
    onnx = pytest.importorskip("onnx")
    ends = [onnx.helper.make_tensor_value_info(f"x{i}", onnx.TensorProto.FLOAT, [2]) for i in (0, len(ops))]
    nodes = [onnx.helper.make_node(op, [f"x{i}"], [f"x{i + 1}"]) for i, op in enumerate(ops)]
    graph = onnx.helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)]), path)
