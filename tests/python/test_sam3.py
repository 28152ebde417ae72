"""SAM 3's recipe on the tiny model: the module against transformers' Sam3Model, the file against the module,
in PyTorch, in C and as ONNX."""
import json
import os
import subprocess
import types

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
Image = pytest.importorskip("PIL.Image")
import qkv  # noqa: E402
import share  # noqa: E402
from qkv.recipes import _clip_merges, _sam3_module, sam3  # noqa: E402

from transformers import Sam3Model  # noqa: E402
from transformers.models.sam3 import modeling_sam3 as hf  # noqa: E402


@pytest.fixture(scope="module")
def model():
    return sam3.random_model(tiny=True)


QKV = os.environ.get("QKV", "build/qkv")


def tokens(text, merges):
    """CLIP's BPE of plain ASCII words, padded with 0 to 32."""
    byte = {chr(c): c - 33 for c in range(33, 127)}
    names = [*byte, *["?"] * (256 - len(byte))]
    ids = {n: i for i, n in enumerate([*names, *(n + "</w>" for n in names), *(m.replace(" ", "") for m in merges)])}
    out = [len(merges) + 512]
    for word in text.lower().split():
        parts = [*word[:-1], word[-1] + "</w>"]
        while True:
            ranks = [merges.index(f"{a} {b}") if f"{a} {b}" in merges else len(merges)
                     for a, b in zip(parts, parts[1:])]
            if not ranks or min(ranks) == len(merges):
                break
            k = ranks.index(min(ranks))
            parts[k:k + 2] = [parts[k] + parts[k + 1]]
        out += [ids[p] for p in parts]
    return [*out, len(merges) + 513, *[0] * (31 - len(out))]


def differences(want, got):
    return [float((a - b).abs().max()) for a, b in zip(want, got)]


def holds_in_c(path, module, cases, limit=1e-4):
    m = qkv.Model(path)
    for batch, prompts, size in cases:
        x = sam3.sample(module.model, batch, prompts, module.boxes, size, seed=2)
        with torch.no_grad():
            want = module(*x.values())
        got = m.run_dlpack(x)
        got = [torch.from_dlpack(got[f"output_{i}"]) for i in range(len(want))]
        assert [t.shape for t in got] == [t.shape for t in want]
        assert max(differences(want, got)) < limit, (batch, prompts, size)


FILES = {  # the options of make(), which checks against eager PyTorch where pairs are given
    "text": {}, "bf16": dict(dtype=torch.bfloat16, pairs=()),
    "boxes and sizes": dict(contract="hf", boxes=True, dynamic=True, pairs=())}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """exported(name of FILES, or "transformers"): path, module and what make() said; each is made once, or kept."""
    made, folder = {}, tmp_path_factory.mktemp("exported")

    def get(name):
        file = name.replace(" ", "_")
        path, kept = folder / f"{file}.pt2", folder / f"{file}.module"

        def make(out):
            said, fresh = [], f"{out}/{path.name}"
            module = as_is(fresh) if name == "transformers" else sam3.make(fresh, tiny=True, say=said.append,
                                                                           **FILES[name])
            torch.save(module, f"{out}/{kept.name}")
            return said

        if name not in made:
            said = share.exported("python/test_sam3.py", file, folder, make, package=True)
            made[name] = path, torch.load(kept, weights_only=False), said
        return made[name]

    return get


def as_is(path):
    """Sam3Model.forward untouched, every prompt on every image, exported to `path`;
    transformers' classes are as they were: the recipe patches none."""
    module = AsIs(sam3.random_model(tiny=True)).eval()
    module.boxes = False
    x = sam3.sample(module.model, 2, 3)
    dims = {0: torch.export.Dim("batch", min=1)}, {0: torch.export.Dim("prompts", min=1)}
    # with gradients, or it refuses a size from data
    program = torch.export.export(module, tuple(x.values()), dynamic_shapes=dims, strict=False)
    ops = sam3._ops(program)
    assert ops["aten.item.default"] and any("wrap_with_set_grad" in name for name in ops)
    torch.export.save(program, path)
    return module


def transformers_outputs(model, x, boxes=None, labels=None):
    """Sam3Model.forward on every pair of an image and a prompt."""
    batch, prompts = len(x["patch_batch"]), len(x["token_ids"])
    mask = (x["token_ids"] != 0).long().repeat(batch, 1)
    with torch.no_grad():
        o = model(pixel_values=x["patch_batch"].repeat_interleave(prompts, 0),
                  input_ids=x["token_ids"].repeat(batch, 1), attention_mask=mask,
                  input_boxes=boxes, input_boxes_labels=labels)
    return o.pred_logits, o.pred_boxes, o.pred_masks, o.presence_logits


@pytest.fixture
def with_roi_align(monkeypatch):
    """transformers calls torchvision.ops.roi_align(features, list of boxes, size), which is not installed."""

    def roi_align(features, boxes, size):
        rois = torch.cat([torch.cat([torch.full((len(b), 1), float(i)), b], 1) for i, b in enumerate(boxes)])
        return torch.ops.torchvision.roi_align(features, rois, 1.0, size, size, -1, False)

    monkeypatch.setattr(hf, "torchvision", types.SimpleNamespace(ops=types.SimpleNamespace(roi_align=roi_align)),
                        raising=False)


# ------------------------------------------------------------------ the module against transformers


@pytest.mark.parametrize("batch,prompts", [(1, 1), (2, 3)])
def test_hf_contract_is_transformers(model, batch, prompts):
    x = sam3.sample(model, batch, prompts)
    with torch.no_grad():
        got = _sam3_module.Grounding(model, "hf").eval()(*x.values())
    want = transformers_outputs(model, x)
    assert [t.shape for t in got] == [t.shape for t in want]
    assert max(differences(want, got)) < 1e-5


def test_hf_contract_takes_padding_with_the_end(model):
    x = sam3.sample(model, 1, 3)
    module = _sam3_module.Grounding(model, "hf").eval()
    padded = torch.where(x["token_ids"] == 0, 1023, x["token_ids"])
    with torch.no_grad():
        assert max(differences(module(*x.values()), module(x["patch_batch"], padded))) < 1e-6


def test_boxes_are_transformers(model, with_roi_align):
    x = sam3.sample(model, 2, 3, boxes=True)
    with torch.no_grad():
        got = _sam3_module.Grounding(model, "hf", boxes=True).eval()(*x.values())
    want = transformers_outputs(model, x, x["boxes"].flatten(0, 1), x["box_labels"].flatten(0, 1))
    assert max(differences(want, got)) < 1e-5


def test_meta_contract_is_transformers_with_an_empty_box(model, with_roi_align):
    x = sam3.sample(model, 2, 2)
    with torch.no_grad():
        logits, boxes, masks, presence = _sam3_module.Grounding(model, "meta").eval()(*x.values())
    want = transformers_outputs(model, x, torch.rand(4, 1, 4), torch.full((4, 1), -10))
    assert logits.shape == (4, 20, 1)
    assert max(differences(want, (logits[..., 0], _sam3_module.corners(boxes), masks, presence.clamp(-10, 10)))) < 1e-5
    plain = transformers_outputs(model, x)  # without it, another result: the two contracts differ
    assert float((plain[0] - want[0]).abs().max()) > 1e-3


def test_presence_is_clamped_for_hf_alone(model):
    other = sam3.random_model(tiny=True)
    with torch.no_grad():
        other.detr_decoder.presence_head.layer3.bias.fill_(25.0)
        x = sam3.sample(other, 1, 1)
        assert float(_sam3_module.Grounding(other, "hf")(*x.values())[3]) == 10.0
        assert float(_sam3_module.Grounding(other, "meta")(*x.values())[3]) > 20.0


def test_roi_align_is_the_definition():
    torch.manual_seed(0)
    features = torch.randn(2, 3, 6, 9)
    rois = torch.tensor([[0, 1.0, 1.5, 7.2, 4.9], [1, -4.1, -3.0, 2.0, 30.0], [1, 5.0, 2.0, 5.1, 2.1],
                         [0, 20.0, 20.0, 30.0, 30.0], [0, 0.0, 0.0, 9.0, 6.0]])

    def at(image, y, x):
        h, w = image.shape[1:]
        if y < -1 or y > h or x < -1 or x > w:
            return torch.zeros(len(image), dtype=torch.float64)
        y, x = min(max(y, 0.0), h - 1.0), min(max(x, 0.0), w - 1.0)
        y0, x0 = int(y), int(x)
        y1, x1, fy, fx = min(y0 + 1, h - 1), min(x0 + 1, w - 1), y - y0, x - x0
        return (image[:, y0, x0] * (1 - fx) + image[:, y0, x1] * fx) * (1 - fy) + (image[:, y1,
            x0] * (1 - fx) + image[:, y1, x1] * fx) * fy

    want = torch.zeros(len(rois), 3, 7, 7, dtype=torch.float64)
    for k, (b, x0, y0, x1, y1) in enumerate(rois.double().tolist()):
        bh, bw = max(y1 - y0, 1.0) / 7, max(x1 - x0, 1.0) / 7
        nh, nw = -int(-bh // 1), -int(-bw // 1)
        for p in range(7):
            for q in range(7):
                s = sum(at(features[int(b)].double(), y0 + p * bh + (i + 0.5) * bh / nh,
                           x0 + q * bw + (j + 0.5) * bw / nw)
                        for i in range(nh) for j in range(nw))
                want[k, :, p, q] = s / (nh * nw)
    got = torch.ops.torchvision.roi_align(features, rois, 1.0, 7, 7, -1, False)
    assert float((got - want).abs().max()) < 1e-5
    assert float(want[3].abs().max()) == 0 and float(want[1].abs().max()) > 0.1


# ------------------------------------------------------------------ the file


@pytest.mark.turns
def test_file_in_pytorch_and_in_c(exported, tmp_path):
    """make() itself asserts a difference of 0 to eager PyTorch, before and after saving."""
    path, module, said = exported("text")
    assert "21 attentions; nn.MultiheadAttention replaced: 0" in said[0] and len(said) == 12
    holds_in_c(path, module, [(b, p, None) for b, p in sam3.SIZES])
    command = [QKV, "rewrite", "--require-fused", str(path), "-o", str(tmp_path / "fused.pt2")]
    assert "21 attentions fused, 0 left" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for batch, prompts, name in ((0, 1, "patch_batch"), (1, 0, "token_ids")):
        with pytest.raises(qkv.Error, match=name):
            qkv.Model(path).run_dlpack({"patch_batch": torch.zeros(batch, 3, 112, 112),
                                        "token_ids": torch.zeros(prompts, 32, dtype=torch.long)})

    extra = {"qkv/tokenizer.bpe": "", "qkv/processor.json": ""}
    torch.export.load(path, extra_files=extra)
    along = dict.fromkeys(extra, "")
    torch.export.load(tmp_path / "fused.pt2", extra_files=along)
    assert along == extra and all(extra.values())
    text = {k: v if isinstance(v, str) else v.decode() for k, v in extra.items()}
    merges = text["qkv/tokenizer.bpe"].splitlines()
    assert len(merges) == 1024 - 514 and merges[:3] == ["i n", "t h", "a n"]
    given = json.loads(text["qkv/processor.json"])
    assert given["contract"] == "meta" and given["box_format"] == "cxcywh" and given["outputs"] == list(sam3.OUTPUTS)
    assert given["image"]["height"] == 112 and given["text"] == {"length": 32, "vocabulary": 1024, "start": 1022,
                                                                 "end": 1023, "pad": 0, "merges": "qkv/tokenizer.bpe"}

    # the whole way in C: text and picture in, scores and boxes out
    image = torch.randint(0, 256, (112, 112, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    Image.fromarray(image.numpy()).save(tmp_path / "a.png")
    texts = ["A red car", "the"]
    ids = torch.tensor([tokens(t, merges) for t in texts])
    with torch.no_grad():
        logits, boxes, _, presence = module((image.permute(2, 0, 1)[None] / 255 - 0.5) / 0.5, ids)
    scores, boxes = (logits[..., 0].sigmoid() * presence.sigmoid()).flatten(), (_sam3_module.corners(boxes)
                                                                                * 112).flatten(0, 1)
    limit = float(scores.sort().values[-6:-4].mean())  # five are above
    command = [QKV, "segment", str(path), "--image", str(tmp_path / "a.png"), "--threshold", str(limit), "--json"]
    out = subprocess.run(command + sum((["--text", t] for t in texts), []), capture_output=True, text=True,
                         check=True).stdout
    found = sorted(json.loads(out)["annotations"], key=lambda a: -a["score"])
    assert len(found) == 5
    for a, k in zip(found, scores.argsort(descending=True)):
        x, y, w, h = a["bbox"]
        assert a["category_id"] == int(k) // 20 + 1 and abs(a["score"] - float(scores[k])) < 1e-5
        assert (torch.tensor([x, y, x + w, y + h]) - boxes[k].clamp(0, 112)).abs().max() < 1e-2


def as_near_as_autocast(module, cases):
    """Of all cases [(inputs, outputs)] together: a prompt's presence is one number,
    of which bf16 keeps three digits."""
    exactly, each = _sam3_module.Grounding(module.model), []
    with torch.no_grad():
        for x, got in cases:
            each.append([[t.flatten() for t in out] for out in (exactly(*x.values()), module(*x.values()), got)])
    for k in range(4):
        exact, rounded, got = (torch.cat([case[i][k] for case in each]) for i in range(3))
        assert got.dtype == torch.float32
        assert float((got - exact).abs().mean()) < 1.5 * float((rounded - exact).abs().mean()) + 1e-4


@pytest.mark.turns
def test_bfloat16_in_c(exported):
    """Autocast's rules are not in the file. C is as near to float32 as PyTorch's autocast is."""
    path, module, _ = exported("bf16")
    m, inputs = qkv.Model(path), [sam3.sample(module.model, b, p, seed=3) for b, p in sam3.SIZES]
    as_near_as_autocast(module, [(x, [torch.from_dlpack(t) for t in m.run_dlpack(x).values()]) for x in inputs])


@pytest.mark.turns
def test_boxes_and_sizes_in_c(exported):
    path, module, _ = exported("boxes and sizes")
    sides = (112, 168, 560)
    holds_in_c(path, module, [(1 + (h == w), 1 + h % 3, (h, w)) for h in sides for w in sides])
    with pytest.raises(qkv.Error, match="patch_batch"):
        qkv.Model(path).run_dlpack(sam3.sample(module.model, 1, 1, True, (140, 112)))


@pytest.mark.turns
def test_dynamic_size_is_the_model_of_that_size(model):
    """At another size the module is what transformers gives for a model configured at that size."""
    config = sam3.tiny_config()
    config.vision_config.backbone_config.image_size = 168
    config.vision_config.backbone_feature_sizes = [[48, 48], [24, 24], [12, 12]]
    larger = Sam3Model(config).eval()
    larger.load_state_dict(model.state_dict())
    x = sam3.sample(larger, 1, 2)
    with torch.no_grad():
        got = _sam3_module.Grounding(model, "hf", dynamic=True)(*x.values())
    assert max(differences(transformers_outputs(larger, x), got)) < 1e-5


class AsIs(torch.nn.Module):
    """Sam3Model.forward untouched, every prompt on every image."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, patch_batch, token_ids):
        m, batch, prompts = self.model, patch_batch.shape[0], token_ids.shape[0]
        mask = (token_ids != 0).long()
        image = m.vision_encoder(patch_batch)
        text = m.get_text_features(input_ids=token_ids, attention_mask=mask)
        image.fpn_hidden_states = tuple(f.repeat_interleave(prompts, 0) for f in image.fpn_hidden_states)
        image.fpn_position_encoding = tuple(f.repeat_interleave(prompts, 0) for f in image.fpn_position_encoding)
        text.pooler_output = text.pooler_output.repeat(batch, 1, 1)
        o = m(vision_embeds=image, text_embeds=text, attention_mask=mask.repeat(batch, 1))
        return o.pred_logits, o.pred_boxes, o.pred_masks, o.presence_logits


@pytest.mark.turns
def test_transformers_model_as_it_is_in_c(exported):
    path, module, _ = exported("transformers")
    holds_in_c(path, module, [(b, p, None) for b, p in sam3.SIZES])


# ------------------------------------------------------------------ ONNX


def in_onnx_runtime(path):
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, x)


def in_openvino(path):
    openvino = pytest.importorskip("openvino")
    compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda x: [compiled(x)[i] for i in range(4)]


@pytest.mark.turns
@pytest.mark.parametrize("name,opset,profile", [(n, o, "ort") for n in (*FILES, "transformers") for o in (18, 23)]
                         + [("boxes and sizes", 23, "openvino")])
def test_onnx(exported, tmp_path, name, opset, profile):
    """The file as ONNX in another runtime, at any number of images and prompts; and in qkv again."""
    path, module, _ = exported(name)
    onnx = str(tmp_path / "sam3.onnx")
    subprocess.run([QKV, "convert", path, "-o", onnx, "--opset", str(opset), "--target", profile], check=True,
                   capture_output=True)
    run = (in_onnx_runtime if profile == "ort" else in_openvino)(onnx)
    sizes = [(168, 112), (112, 168), (560, 112), (112, 112)] if "sizes" in name else [None] * 4
    inputs = [sam3.sample(module.model, b, p, module.boxes, size, seed=3) for (b, p), size in zip(sam3.SIZES, sizes)]
    outputs = [[torch.from_numpy(t.copy()) for t in run({k: v.numpy() for k, v in x.items()})] for x in inputs]
    if name == "bf16":
        return as_near_as_autocast(module, list(zip(inputs, outputs)))
    for x, got in zip(inputs, outputs):
        with torch.no_grad():
            want = module(*x.values())
        assert [t.shape for t in got] == [t.shape for t in want]
        assert max(differences(want, got)) < 1e-4
    holds_in_c(onnx, module, [(3, 2, sizes[2])])
    verified = subprocess.run([QKV, "verify", onnx, path, "-D", "patch_batch.0=2", "-D", "token_ids.0=3"],
                              capture_output=True, text=True)
    assert "all outputs agree" in verified.stdout, verified


# ------------------------------------------------------------------ checkpoints


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, model):
    folder = tmp_path_factory.mktemp("sam3")
    sam3.random_model(tiny=True, seed=5).save_pretrained(folder)
    lines = "\n".join(f"a {chr(97 + i % 26)}{i}" for i in range(600))
    (folder / "merges.txt").write_text(f"#version: 0.2\n{lines}\n")
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.4, 0.5, 0.6],
                                                                 "image_std": [0.2, 0.3, 0.4]}))
    return folder


def test_checkpoint(checkpoint, tmp_path):
    model = sam3.load_checkpoint(str(checkpoint))
    want = sam3.random_model(tiny=True, seed=5).state_dict()
    got = model.state_dict()
    assert want.keys() == got.keys() and all(torch.equal(want[k], got[k]) for k in want)
    assert _clip_merges.clip_merges(510, str(checkpoint))[509] == f"a {chr(97 + 509 % 26)}509"
    assert sam3.processor(model, "hf", checkpoint=str(checkpoint))["image"]["mean"] == [0.4, 0.5, 0.6]
    with pytest.raises(qkv.Error, match="600 merges; the model's vocabulary needs 48894"):
        _clip_merges.clip_merges(48894, str(checkpoint))


def test_checkpoint_of_the_video_model(checkpoint, tmp_path):
    """facebook/sam3's own folder: the detector under detector_model, with the tracker beside it."""
    from safetensors.torch import load_file, save_file

    config = json.loads((checkpoint / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "sam3_video", "detector_config": config,
                                                      "tracker_config": {}}))
    tensors = {f"detector_model.{k}": v for k, v in load_file(checkpoint / "model.safetensors").items()}
    save_file({**tensors, "tracker_model.no_memory_embedding": torch.zeros(3)}, tmp_path / "model.safetensors",
              metadata={"format": "pt"})
    got, want = sam3.load_checkpoint(str(tmp_path)).state_dict(), sam3.random_model(tiny=True, seed=5).state_dict()
    assert all(torch.equal(want[k], got[k]) for k in want)


@pytest.mark.parametrize("change,sentence", [
    ({"model_type": "bert"}, "a checkpoint of model_type 'bert'; this recipe takes 'sam3' or 'sam3_video'"),
    ({"detr_decoder_config": {"model_type": "sam3_detr_decoder", "num_layers": 3, "num_queries": 20,
                              "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}},
     "of the model's tensors are not in the checkpoint, 'detr_decoder.layers.2"),
])
def test_another_architecture_is_refused(checkpoint, tmp_path, change, sentence):
    config = json.loads((checkpoint / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
    (tmp_path / "model.safetensors").write_bytes((checkpoint / "model.safetensors").read_bytes())
    with pytest.raises(qkv.Error, match=sentence):
        sam3.load_checkpoint(str(tmp_path))


def test_no_checkpoint_is_one_sentence(tmp_path):
    with pytest.raises(SystemExit,
                       match="^sam3: .*no config.json in it; a checkpoint is a folder with config.json and"):
        sam3.main(["--checkpoint", str(tmp_path), "-o", str(tmp_path / "x.pt2")])
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(qkv.Error, match="config.json is not a JSON object"):
        sam3.load_checkpoint(str(tmp_path))
