"""What tests of written models share: sizes, random tensors, modules from a function."""
import torch
from torch import nn
from torch.export import Dim

B, S = Dim("b", min=1, max=8), Dim("s", min=2, max=64)


def R(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def fn(f, **parts):
    """A module whose forward is f, with the given parts."""
    class Module(nn.Module):
        forward = f
    m = Module()
    for name, part in parts.items():
        setattr(m, name, part)
    return m.eval()
