"""How many results there are where the data say it, of what a plan of the whole graph computes with fewer roundings
than one that only counts."""
import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
from torch import nn  # noqa: E402


class Above(nn.Module):
    """A sum that is 0 where the product is rounded before r is added, as r is that, negated."""

    def __init__(self, dtype):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(64, 64, dtype=dtype)

    def forward(self, x, r):
        h = self.linear(x) + r
        at = (h > 0).nonzero()
        return h, at, h[at[:, 0], at[:, 1]].exp()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_counts_of_what_is_fused(dtype, tmp_path):
    m = Above(dtype)
    given = [(x, -m.linear(x).detach()) for x in (torch.randn(n, 64).to(dtype) for n in (32, 20))]
    rows = {0: torch.export.Dim.AUTO}
    torch.export.save(torch.export.export(m, given[0], dynamic_shapes=(rows, rows)), tmp_path / "m.pt2")
    model = qkv.Model(tmp_path / "m.pt2")
    for x, r in [*given, given[0]]:
        h, at, e = (torch.from_dlpack(y) for y in model.run_dlpack({"x": x, "r": r}).values())
        torch.testing.assert_close(h, m.linear(x) + r, rtol=0, atol=0.02)
        assert torch.equal(at, (h > 0).nonzero())
        torch.testing.assert_close(e, h[h > 0].exp())
