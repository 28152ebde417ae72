"""Products and quotients of complex and real numbers, of which some are infinite, NaN or zeros with a sign: eager's."""
import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402

REAL = [0.0, -0.0, 1.0, -2.0, float("inf"), float("-inf"), float("nan")]
FORMS = {"z * r": lambda z, r: z[:, None] * r, "r * z": lambda z, r: r * z[:, None], "z * number": lambda z, r: z * 2.5,
         "number * z": lambda z, r: 3 * z, "z / r": lambda z, r: z[:, None] / r, "z / number": lambda z, r: z / 2.5,
         "z / zero": lambda z, r: z / 0.0, "r / z": lambda z, r: r / z[:, None], "1 / z": lambda z, r: 1 / z}


class Of(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, z, r):
        return torch.view_as_real(self.f(z, r))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("form", FORMS)
def test_infinities(form, dtype, tmp_path):
    z = torch.tensor([complex(a, b) for a in REAL for b in REAL], dtype=dtype)
    r, path = torch.tensor(REAL, dtype=z.real.dtype), tmp_path / "m.pt2"
    torch.export.save(torch.export.export(Of(FORMS[form]), (z, r)), path)
    given, = qkv.Model(path).run_dlpack([z, r]).values()
    torch.testing.assert_close(torch.from_dlpack(given), Of(FORMS[form])(z, r), equal_nan=True)
