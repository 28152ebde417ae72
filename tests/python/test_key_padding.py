"""docs/KEY_PADDING_MASK.md, step by step: what the page says is what happens."""
import glob
import os
import pathlib
import subprocess
import zipfile

import numpy as np
import pytest
import warm

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLE = os.path.join(ROOT, "examples", "key_padding")
QKV = os.environ.get("QKV", os.path.join(ROOT, "build", "qkv"))
LIBRARY = os.path.dirname(qkv.library_path()) or "."
FORMS = ["bool", "--float", "--inside"]


def run(*args, code=0, error=False):
    done = subprocess.run(list(map(str, args)), capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr if error else done.stdout


MADE = {}  # pytest ends a module's fixture when another parameter comes between


@pytest.fixture(scope="module", params=FORMS)
def exported(request, tmp_path_factory):
    """Steps 1 and 2: encoder.pt2, and ONNX for each runtime."""
    if request.param in MADE:
        return request.param, MADE[request.param]
    folder = MADE[request.param] = tmp_path_factory.mktemp("padding")
    done = warm.run([os.path.join(EXAMPLE, "export.py"), folder, *([request.param] if request.param != "bool" else [])])
    assert done.returncode == 0, done.stderr
    for profile in ("ort", "openvino", "spec"):
        run(QKV, "convert", folder / "encoder.pt2", "-o", folder / f"{profile}.onnx", "--target", profile, "--opset",
            23 if profile == "spec" else 18)
    return request.param, folder


@pytest.fixture(scope="module", params=[("gcc", "-std=c17"), ("g++", "-xc++", "-std=c++20")], ids=["C", "C++"])
def program(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("c") / "encode"
    quiet = ["-Wno-missing-field-initializers"] if request.param[0] == "g++" else []  # which C++ counts otherwise
    run(*request.param, "-Wall", "-Wextra", "-Wpedantic", "-Werror", *quiet, f"-I{ROOT}/include",
        os.path.join(EXAMPLE, "encode.c"), "-xnone", f"-L{LIBRARY}", "-lqkv",
        f"-Wl,-rpath,{LIBRARY}", "-o", out)
    return out


def batch_of(form, sequences):
    """The sequences padded to the longest, and the second input."""
    lengths = np.array([len(s) for s in sequences])
    x = np.zeros((len(sequences), lengths.max(), sequences[0].shape[1]), np.float32)
    for row, s in zip(x, sequences):
        row[:len(s)] = s
    mask = np.arange(lengths.max())[None, :] >= lengths[:, None]
    second = {"bool": mask, "--float": np.where(mask, -np.inf, 0).astype(np.float32), "--inside": lengths}[form]
    return x, second


def files(folder):
    s, w = load_file(folder / "sequences.safetensors"), load_file(folder / "expected.safetensors")
    return [s[str(i)] for i in range(len(s))], [w[str(i)] for i in range(len(w))]


def runtimes(folder):
    """How each of them runs the exported model: (src, second) -> output."""
    import onnxruntime as ort
    import openvino as ov

    def by_torch(*args):
        return torch.export.load(folder / "encoder.pt2").module()(*map(torch.from_numpy, args)).detach().numpy()

    def by_ort(*args):
        s = ort.InferenceSession(str(folder / "ort.onnx"), providers=["CPUExecutionProvider"])
        return s.run(None, dict(zip([i.name for i in s.get_inputs()], args)))[0]

    def by_openvino(*args):
        return ov.Core().compile_model(ov.Core().read_model(folder / "openvino.onnx"), "CPU",
                                       {"INFERENCE_PRECISION_HINT": "f32"})(list(args))[0]

    def by_qkv(name):
        model = qkv.Model(str(folder / name), threads=1)
        return lambda *args: model.run(dict(zip(model.inputs, args)))["output_0"]

    return {"torch": by_torch, "ort": by_ort, "openvino": by_openvino, "qkv .pt2": by_qkv("encoder.pt2"),
            "qkv ort.onnx": by_qkv("ort.onnx"), "qkv spec.onnx": by_qkv("spec.onnx")}


@pytest.mark.turns
def test_every_runtime_equals_eager_without_padding(exported):
    form, folder = exported
    sequences, alone = files(folder)
    for pick in ([0, 1, 2, 3], [2, 0], [1]):
        x, second = batch_of(form, [sequences[i] for i in pick])
        for name, f in runtimes(folder).items():
            y = f(x, second)
            for row, i in zip(y, pick):
                np.testing.assert_allclose(row[:len(sequences[i])], alone[i], atol=5e-6, err_msg=name)


def test_check_finds_no_error(exported):
    _, folder = exported
    for name in ("encoder.pt2", "ort.onnx", "openvino.onnx", "spec.onnx"):
        run(QKV, "check", folder / name)


def test_run_command(exported, tmp_path):
    form, folder = exported
    sequences, alone = files(folder)
    x, second = batch_of(form, sequences)
    np.savez(tmp_path / "in.npz", src=x, **{"lengths" if form == "--inside" else "padding": second})
    for name in ("encoder.pt2", "ort.onnx"):
        run(QKV, "run", folder / name, "-i", tmp_path / "in.npz", "-o", tmp_path / "out.safetensors")
        y = load_file(tmp_path / "out.safetensors")["output_0"]
        for row, w in zip(y, alone):
            np.testing.assert_allclose(row[:len(w)], w, atol=5e-6)


@pytest.mark.turns
def test_c_program(exported, program, tmp_path):
    _, folder = exported
    _, alone = files(folder)
    for name in ("encoder.pt2", "ort.onnx"):
        run(program, folder / name, folder / "sequences.safetensors", tmp_path / "out.safetensors")
        got = load_file(tmp_path / "out.safetensors")
        for i, w in enumerate(alone):
            np.testing.assert_allclose(got[str(i)], w, atol=5e-6)


@pytest.fixture(scope="module")
def twin(tmp_path_factory):
    """encode.c on ONNX Runtime: its library is in its own wheel, its headers in amd-quark's."""
    ort = pytest.importorskip("onnxruntime")
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "qkv")
    wheels = sorted(glob.glob(os.path.join(cache, "amd_quark-*.whl")))
    if not wheels:
        pytest.skip("no headers of ONNX Runtime: tools/setup.sh torch downloads them")
    folder = tmp_path_factory.mktemp("ort")
    with zipfile.ZipFile(wheels[-1]) as z:
        z.extractall(folder, [n for n in z.namelist() if n.endswith(".h") and "/include/onnxruntime" in n])
    header, = folder.rglob("onnxruntime_cxx_api.h")
    library, = pathlib.Path(ort.__file__).parent.glob("capi/libonnxruntime.so.*")
    for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
        (folder / name).symlink_to(library)
    run("g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-isystem", header.parent, f"-I{ROOT}/include",
        os.path.join(EXAMPLE, "encode_ort.cpp"), f"-L{LIBRARY}", "-lqkv", f"-L{folder}", "-lonnxruntime",
        f"-Wl,-rpath,{LIBRARY}:{folder}", "-o", folder / "encode_ort")
    return folder / "encode_ort"


def test_twin_on_onnxruntime(exported, twin, tmp_path):
    _, folder = exported
    _, alone = files(folder)
    run(twin, folder / "ort.onnx", folder / "sequences.safetensors", tmp_path / "out.safetensors")
    got = load_file(tmp_path / "out.safetensors")
    for i, w in enumerate(alone):
        np.testing.assert_allclose(got[str(i)], w, atol=5e-6)
    assert "File doesn't exist" in run(twin, folder / "none.onnx", folder / "sequences.safetensors", tmp_path / "o",
                                 code=1, error=True)


def test_row_of_padding_alone(exported):
    """A sample without any position: attention gives 0, the layers around it stay finite,
    and no other sample notices."""
    form, folder = exported
    sequences, alone = files(folder)
    x, second = batch_of(form, sequences[:2])
    x, second = np.concatenate([x, np.ones_like(x[:1])]), np.concatenate([second, np.full_like(second[:1],
        {"bool": True, "--float": -np.inf, "--inside": 0}[form])])
    rows = {}
    for name, f in runtimes(folder).items():
        y = f(x, second)
        for row, w in zip(y, alone[:2]):
            np.testing.assert_allclose(row[:len(w)], w, atol=5e-6, err_msg=name)
        rows[name] = y[2]
    for name, row in rows.items():
        assert np.isfinite(row).all(), name
        np.testing.assert_allclose(row, rows["torch"], atol=5e-6, err_msg=name)


def test_eager_on_a_row_of_padding_alone():
    """The page's table: eager nn.MultiheadAttention gives NaN with weights, 0 without."""
    torch.manual_seed(0)
    mha = torch.nn.MultiheadAttention(16, 4, batch_first=True, bias=False).eval()
    x, padding = torch.randn(1, 3, 16, requires_grad=True), torch.ones(1, 3, dtype=torch.bool)
    assert torch.isnan(mha(x, x, x, key_padding_mask=padding, need_weights=True)[0]).all()
    assert (mha(x, x, x, key_padding_mask=padding, need_weights=False)[0] == 0).all()
