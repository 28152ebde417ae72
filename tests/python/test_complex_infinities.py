"""Products and quotients of complex and real numbers, of which some are infinite, NaN or zeros with a sign: eager's.
And a complex number less a tensor."""
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


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_numbers_less_tensors(dtype, tmp_path):
    class Less(torch.nn.Module):
        def forward(self, z, r):
            return [torch.view_as_real(x) for x in ((1 - 2j) - z, (1 - 2j) - r, torch.rsub(z, 2, alpha=1j),
                                                    torch.rsub(r, z, alpha=2), torch.rsub(z, 1 + 1j, alpha=0.5))]

    z, path = torch.randn(2, 5, dtype=dtype), tmp_path / "m.pt2"
    r = torch.randn(5, dtype=z.real.dtype)
    torch.export.save(torch.export.export(Less(), (z, r)), path)
    for got, want in zip(qkv.Model(path).run_dlpack([z, r]).values(), Less()(z, r), strict=True):
        torch.testing.assert_close(torch.from_dlpack(got), want)
