"""Meta's own checkpoint of SAM 3: names, both layouts, and files that are refused."""
import json
import pathlib
import re

import pytest
import warm

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from qkv import Error  # noqa: E402
from qkv.recipes import _sam3_meta, sam3  # noqa: E402
from qkv.recipes._sam3_module import Grounding  # noqa: E402

from transformers import Sam3Config, Sam3Model  # noqa: E402


def meta_names():
    """(name, shape) of all tensors of the detector at full size: sam3_names.txt is the state dict of what
    sam3.model_builder of Meta's package makes; [0-3,5] are the numbers of layers."""
    for line in (pathlib.Path(__file__).parent / "sam3_names.txt").read_text().splitlines():
        name, shape = line.split()
        shape = [int(n) for n in shape.split("x")]
        m = re.search(r"\[([\d,-]+)\]", name)
        for part in m[1].split(",") if m else [""]:
            first, _, last = part.partition("-")
            for i in range(int(first), int(last or first) + 1) if m else [0]:
                yield (f"{name[:m.start()]}{i}{name[m.end():]}" if m else name), shape


@pytest.fixture(scope="module")
def model():
    return sam3.random_model(tiny=True)


def meta_layout(model):
    """The model's weights by Meta's names: packed, with a class token's position, with what only Meta has."""
    state, out = model.state_dict(), {}
    for name, shape in meta_names():
        to = list(_sam3_meta.renamed(name, torch.empty(shape, device="meta")))
        if not to:
            out[name] = torch.randn(2, 2)
        elif to[0] in state:
            t = torch.cat([state[n] for n in to])
            if name == _sam3_meta.TEXT_PROJECTION:
                t = t.T
            out[name] = torch.cat([torch.randn_like(t[:, :1]), t], 1) if name == _sam3_meta.POSITIONS else t
    return out


def test_every_tensor_of_metas_model_has_a_place():
    with torch.device("meta"):
        expected = Sam3Model(Sam3Config()).state_dict()
        given = {name: torch.empty(shape) for name, shape in meta_names()}
    made = _sam3_meta.converted(given, expected)
    assert len(given) == 1134 and set(made) == set(expected) and len(made) == 1468


@pytest.mark.turns
@pytest.mark.parametrize("wrapped", [True, False])
def test_both_layouts_are_one_model(model, tmp_path, wrapped):
    tensors = {(f"detector.{n}" if wrapped else n): t for n, t in meta_layout(model).items()}
    tensors["tracker.maskmem_tpos_enc"] = torch.randn(7)
    torch.save({"model": tensors} if wrapped else tensors, tmp_path / "sam3.pt")
    model.save_pretrained(tmp_path / "hf")
    one = sam3.load_checkpoint(str(tmp_path / "sam3.pt"), model.config)
    other = sam3.load_checkpoint(str(tmp_path / "hf"))
    assert set(one.state_dict()) == set(other.state_dict())
    for name, t in other.state_dict().items():
        assert torch.equal(one.state_dict()[name], t), name
    for boxes in (False, True):
        x = sam3.sample(model, 2, 2, boxes)
        with torch.no_grad():
            results = [Grounding(m, "meta", boxes).eval()(*x.values()) for m in (one, other)]
        assert all(torch.equal(a, b) for a, b in zip(*results))


@pytest.mark.turns
def test_the_command_takes_metas_file(model, tmp_path):
    torch.save({"model": {f"detector.{n}": t for n, t in meta_layout(model).items()}}, tmp_path / "sam3.pt")
    (tmp_path / "config.json").write_text(json.dumps(model.config.to_dict(), default=str))
    (tmp_path / "merges.txt").write_text("".join(f"a{i} b{i}\n" for i in range(1024 - sam3.SPECIAL)))
    said = warm.run(["-m", "qkv.recipes.sam3", "--checkpoint", tmp_path / "sam3.pt", "--config",
                     tmp_path / "config.json", "--no-check", "-o", tmp_path / "sam3.pt2"])
    assert said.returncode == 0, said.stderr
    import qkv

    x = sam3.sample(model, 2, 1)
    with torch.no_grad():
        want = Grounding(model, "meta").eval()(*x.values())
    got = qkv.Model(tmp_path / "sam3.pt2").run_dlpack(x)
    for i, t in enumerate(want):
        assert float((torch.from_dlpack(got[f"output_{i}"]) - t).abs().max()) < 1e-4


def test_all_names_that_do_not_fit_are_listed(model, tmp_path):
    tensors = meta_layout(model)
    del tensors["transformer.decoder.norm.weight"], tensors["transformer.encoder.layers.1.self_attn.in_proj_bias"]
    tensors["backbone.new_thing.weight"] = tensors["transformer.encoder.layers.9.norm1.bias"] = torch.ones(3)
    tensors["dot_prod_scoring.hs_proj.bias"] = torch.ones(5)
    torch.save(tensors, tmp_path / "sam3.pt")
    with pytest.raises(Error) as e:
        sam3.load_checkpoint(str(tmp_path / "sam3.pt"), model.config)
    for text in ("4 of the model's tensors are not in it: detr_decoder.output_layer_norm.weight, "
                 "detr_encoder.layers.1.self_attn.k_proj.bias",
                 "2 of its names are not known: backbone.new_thing.weight, transformer.encoder.layers.9.norm1.bias",
                 "1 have other shapes: dot_product_scoring.query_proj.bias [5], expected [32]"):
        assert text in str(e.value)


class Evil:
    def __reduce__(self):
        return (print, ("unpickled",))


def test_other_files_are_refused(model, tmp_path, capsys):
    torch.save({"model": {"detector.x": Evil()}}, tmp_path / "evil.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    (tmp_path / "text.pt").write_text("hello")
    for name, message in (("evil.pt", "weights_only=True"), ("list.pt", "expected a dict of tensors"),
                          ("text.pt", "that torch.save wrote, as Meta's sam3.pt")):
        with pytest.raises(Error, match=message):
            sam3.load_checkpoint(str(tmp_path / name))
    assert "unpickled" not in capsys.readouterr().out
