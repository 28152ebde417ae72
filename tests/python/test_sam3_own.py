"""Meta's own code of SAM 3 by --module: a small package with the same shapes of code (caches by sizes, what is computed
ahead on a GPU, asserts on sizes, pin_memory, x.dim) in place of Meta's, whose torchvision does not fit this torch."""
import pathlib
import re
import sys

import pytest
import warm

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
import qkv  # noqa: E402
from qkv import Error  # noqa: E402
from qkv.recipes import _sam3_own, _sam3_patches, sam3  # noqa: E402

HERE = pathlib.Path(__file__).parent
SPEC = "sam3.model_builder:build_sam3_image_model"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The stand-in as the package sam3, in a folder of its own; the texts of the patches are in it as they are."""
    root = tmp_path / "site" / "sam3"
    (root / "model").mkdir(parents=True)
    source = (HERE / "sam3_own_package.py").read_text()
    for name, body in re.findall(r"^# ---- (\S+)\n(.*?)(?=^# ---- |\Z)", source, re.DOTALL | re.MULTILINE):
        (root / name).write_text(body)
    for name in [n for n in sys.modules if n.split(".")[0] == "sam3"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(root.parent))
    yield root
    for name in [n for n in sys.modules if n.split(".")[0] == "sam3"]:
        del sys.modules[name]


@pytest.mark.turns
@pytest.mark.parametrize("boxes", [False, True])
def test_metas_code_is_patched_and_exports(package, tmp_path, capsys, monkeypatch, boxes):
    monkeypatch.setattr(sam3, "clip_merges", lambda count, folder: [f"a{i} b{i}" for i in range(count)])
    module = sam3.make_own(tmp_path / "own.pt2", SPEC, boxes=boxes, pairs=((1, 1), (3, 2)), image_size=56)
    said = capsys.readouterr().out
    assert f"{len(_sam3_patches.PATCHES)} patches of Meta's code, " in said
    for patch in _sam3_patches.PATCHES:
        assert patch.name in said and patch.why in said
    assert "nn.MultiheadAttention replaced: 1" in said
    with _sam3_patches.applied(say=lambda text: None), torch.no_grad():
        x = sam3.sample(module.model, 2, 3, boxes, seed=5)
        want = module(*x.values())
    got = qkv.Model(tmp_path / "own.pt2").run_dlpack(x)
    for i, t in enumerate(want):
        assert float((torch.from_dlpack(got[f"output_{i}"]) - t).abs().max()) <= 2e-5 * float(t.abs().max())


def test_padded_boxes_may_stand_anywhere(package):
    """Meta's code wants them on the right; the module puts them there."""
    with _sam3_patches.applied(say=lambda text: None), torch.no_grad():
        module = _sam3_own.OwnGrounding(_sam3_own.build(SPEC), True, 56).eval()
        prompts = []
        module.model.forward_grounding = lambda out, find, target, prompt: prompts.append(prompt) or dict.fromkeys(
            sam3.OUTPUTS)
        x = sam3.sample(module.model, 1, 2, True)
        x["box_labels"] = torch.tensor([[[-10, 1, 0], [0, -10, 1]]])
        module(*x.values())
    assert prompts[0].box_mask.tolist() == [[False, False, True]] * 2
    assert prompts[0].box_labels.T.tolist() == [[1, 0, 0], [0, 1, 0]]
    boxes = x["boxes"][0]
    assert torch.equal(prompts[0].box_embeddings[:2, 1], boxes[1, [0, 2]])
    assert torch.equal(prompts[0].box_embeddings[:2, 0], boxes[0, [1, 2]])


def built(checkpoint=None):
    with _sam3_patches.applied(say=lambda text: None):
        return _sam3_own.build(SPEC, checkpoint)


def test_a_checkpoint_is_metas_and_whole(package, tmp_path):
    model = built()
    tensors = {f"detector.{n}": torch.randn_like(t) for n, t in model.state_dict().items()}
    tensors["detector.backbone.vision_backbone.sam2_convs.0.weight"] = torch.ones(2)  # the tracker's neck
    torch.save({"model": {**tensors, "tracker.x": torch.ones(1)}}, tmp_path / "sam3.pt")
    for name, t in built(tmp_path / "sam3.pt").state_dict().items():
        assert torch.equal(t, tensors[f"detector.{name}"])
    gone = sorted(n for n in tensors if "sam2_convs" not in n)[:2]
    torch.save({"model": {"detector.new.weight": torch.ones(1), **{n: t for n, t in tensors.items() if n not in gone}}},
               tmp_path / "sam3.pt")
    with pytest.raises(Error) as e:
        built(tmp_path / "sam3.pt")
    assert "2 of the module's tensors are not in it: " in str(e.value)
    assert "1 of its names are not known: new.weight" in str(e.value)
    assert all(n.removeprefix("detector.") in str(e.value) for n in gone)


def test_a_package_without_its_vocabulary(package, monkeypatch):
    """PyPI's sam3 0.1.4 has no assets."""
    path = package / "model_builder.py"
    path.write_text(path.read_text().replace("    return Sam3Image()", """\
    import gzip
    with gzip.open(bpe_path or "/no/such/bpe_simple_vocab_16e6.txt.gz", "rt") as f:
        assert f.read().split("\\n")[1:3] == ["a b", "c d"]
    return Sam3Image()"""))
    monkeypatch.setattr(_sam3_own, "clip_merges", lambda count: ["a b", "c d"])
    assert built().backbone is not None


def test_the_functions_are_metas_again_afterwards(package):
    import importlib

    module = importlib.import_module("sam3.model.decoder")
    before = module.TransformerDecoder._get_rpb_matrix
    with _sam3_patches.applied(say=lambda text: None):
        assert module.TransformerDecoder._get_rpb_matrix is not before
    assert module.TransformerDecoder._get_rpb_matrix is before


def test_a_source_that_has_changed_is_refused(package):
    path = package / "model" / "geometry_encoders.py"
    path.write_text(path.read_text().replace("scale.pin_memory()", "scale.pin_memory(None)"))
    with pytest.raises(Error, match="patch 'box prompts without pinned memory': the source of sam3.model.geometry_"
                                    "encoders:SequenceGeometryEncoder._encode_boxes has changed: expected once, found "
                                    "0 times: 'scale = scale.pin_memory"):
        with _sam3_patches.applied(say=lambda text: None):
            pass
    import sam3.model.decoder as decoder

    assert "compilable_cord_cache is None" in open(decoder.__file__).read()  # none was applied
    assert decoder.TransformerDecoder._get_rpb_matrix.__code__.co_filename == decoder.__file__


def test_a_function_that_is_gone_is_refused(package):
    path = package / "model" / "encoder.py"
    path.write_text(path.read_text().replace("class TransformerEncoderFusion", "class Other"))
    with pytest.raises(Error, match="patch 'x.dim is a method': .* is not there .*sam3 0.1.4"):
        with _sam3_patches.applied(say=lambda text: None):
            pass


@pytest.mark.parametrize("spec, message", [
    ("sam3.model_builder", "expected package.module:function"),
    ("sam3.model_builder:nothing", "has no attribute 'nothing'"),
    ("no_such_package.builder:make", "No module named 'no_such_package'"),
    ("torch.nn:Identity", "a Identity without backbone, transformer, geometry_encoder, forward_grounding"),
])
def test_modules_that_are_not_metas(package, spec, message):
    with pytest.raises(Error, match=re.escape(message)):
        _sam3_own.build(spec)


def test_the_command_refuses_what_does_not_go_together(tmp_path):
    said = warm.run(["-m", "qkv.recipes.sam3", "--module", SPEC, "--dynamic-size", "-o", tmp_path / "x.pt2"])
    assert said.returncode == 2 and "leave out --dynamic-size" in said.stderr
    said = warm.run(["-m", "qkv.recipes.sam3", "--module", "no_such:thing", "-o", tmp_path / "x.pt2"])
    assert said.returncode == 1 and "sam3: " in said.stderr
