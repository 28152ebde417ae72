#!/usr/bin/env python3
"""Meta's own package sam3 beside transformers' model: eager PyTorch, and the C library on what the recipe exports.

    tests/sam3_own.py                   in small, of Meta's classes (sam3_small.py): one checkpoint in both layouts
                                        gives the same outputs, with and without boxes; two minutes of CPU
    tests/sam3_own.py text              what build_sam3_image_model makes at full size, with random weights: one
    tests/sam3_own.py boxes             picture, one text; with boxes. 3.4 GB on the disk, 9 GB of memory
    tests/sam3_own.py hf-boxes          the same of transformers' model: with boxes; with --dynamic-size
    tests/sam3_own.py hf-dynamic

Not part of CI. sam3 0.1.4 of PyPI is installed into a venv of its own, build/sam3, beside the packages of .venv. What
its modules import and an image on a CPU does not run (torchvision, which wants another torch, triton ...) is an empty
module.
"""
import importlib.abc
import importlib.machinery
import os
import pathlib
import subprocess
import sys
import sysconfig
import tempfile
import time
import types
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV, SPEC = ROOT / "build" / "sam3", "sam3.model_builder:build_sam3_image_model"
PACKAGES = ["sam3==0.1.4", "timm", "iopath", "portalocker", "ftfy", "wcwidth", "einops"]
EMPTY = ("torchvision", "triton", "decord", "pycocotools", "cv2", "skimage", "matplotlib", "psutil", "hydra",
         "omegaconf")
SHARE = 2e-5  # of an output's largest value, as tests/python/test_sam3.py
FULL = {"text": (True, False, False), "boxes": (True, True, False),  # Meta's code, boxes, any size
        "hf-boxes": (False, True, False), "hf-dynamic": (False, False, True)}


def venv():
    """The venv's python, in which .venv's packages and the checkout are found after its own."""
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        own = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True,
                             capture_output=True, text=True).stdout.strip()
        (pathlib.Path(own) / "beside.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT / 'python'}\n")
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "--disable-pip-version-check", *PACKAGES],
                       check=True)
    return python


class Nothing(type):
    """What an empty module has: a class that takes anything and has anything."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return anything()


def anything():
    return Nothing("anything", (), {"__init__": lambda self, *a, **k: None, "__call__": lambda self, *a, **k: self})


class Empty(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EMPTY:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return types.ModuleType(spec.name)

    def exec_module(self, module):
        module.__getattr__ = Nothing.__getattr__.__get__(module)


def import_meta():
    """Meta's modules; nothing else finds the empty ones."""
    finder = Empty()
    sys.meta_path.append(finder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module(SPEC.partition(":")[0])
    sys.meta_path.remove(finder)
    for name in [n for n, m in sys.modules.items() if getattr(m, "__loader__", None) is finder]:
        del sys.modules[name]


def outputs(model, x):
    """Of the C library, as NumPy arrays."""
    import qkv

    begun = time.perf_counter()
    got = qkv.Model(model).run(x)
    print(f"{model}: {time.perf_counter() - begun:.1f} s in C", flush=True)
    return [got[f"output_{i}"] for i in range(4)]


def compared(what, got, want, share=SHARE):
    """One line; whether each output is the same."""
    import numpy as np

    names = ("pred_logits", "pred_boxes", "pred_masks", "presence_logit_dec")
    got, want = ([np.asarray(x) for x in part] for part in (got, want))
    shares = [float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(got, want)]
    print(f"{what:<44}" + "  ".join(f"{n} {s:.1e}" for n, s in zip(names, shares)), flush=True)
    return all(s <= share for s in shares) and all(np.ptp(b) > 0 for b in want[:3])


# ------------------------------------------------------------------ small


def meta_checkpoint(path):
    """Meta's module with random weights, and its file as facebookresearch/sam3 has it."""
    import sam3_small
    import torch
    from qkv.recipes._sam3_own import randomize

    torch.manual_seed(0)
    model = sam3_small.build()
    randomize(model)
    tensors = {f"detector.{n}": t for n, t in model.state_dict().items()}
    tensors["detector.backbone.vision_backbone.sam2_convs.0.conv_1x1.weight"] = torch.randn(3)
    tensors["tracker.no_obj_ptr"] = torch.randn(1, 4)
    torch.save({"model": tensors}, path)
    return model


def roi_align(features, boxes, size):
    """torchvision's, for boxes by image."""
    import torch

    rows = [torch.cat([torch.full_like(b[:, :1], i), b], 1) for i, b in enumerate(boxes)]
    return torch.ops.torchvision.roi_align(features, torch.cat(rows), 1.0, size, size, -1, False)


def small():
    import sam3_small
    import torch
    from qkv.recipes import sam3
    from qkv.recipes._sam3_module import Grounding
    from qkv.recipes._sam3_own import OwnGrounding

    same = True
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        folder = pathlib.Path(folder)
        meta = meta_checkpoint(folder / "sam3.pt")
        sys.modules["sam3.model.geometry_encoders"].torchvision.ops.roi_align = roi_align
        torch.Tensor.pin_memory = lambda self: self  # wants a GPU
        hf = sam3.load_meta(str(folder / "sam3.pt"), sam3_small.config())
        for boxes, how in ((False, ""), (True, ", with boxes")):
            own, other = OwnGrounding(meta, boxes, 112).eval(), Grounding(hf, "meta", boxes).eval()
            x = sam3.sample(own.model, 2, 3, boxes, seed=1)
            feeds, want, found = {k: v.numpy() for k, v in x.items()}, own(*x.values()), other(*x.values())
            same &= compared(f"transformers' model and Meta's code{how}", found, want, 2e-4)  # they round differently
            sam3.make_own(folder / "own.pt2", "sam3_small:build", folder / "sam3.pt", boxes, image_size=112)
            same &= compared(f"Meta's code in C and in PyTorch{how}", outputs(folder / "own.pt2", feeds), want)
            sam3.make(folder / "hf.pt2", str(folder / "sam3.pt"), boxes=boxes, config=sam3_small.config(), pairs=())
            same &= compared(f"transformers' model, the same{how}", outputs(folder / "hf.pt2", feeds), found)
    return same


# ------------------------------------------------------------------ full size


def exported(kind, folder):
    """model.pt2, inputs and eager outputs in a folder."""
    import numpy as np
    import torch
    from qkv.recipes import sam3
    from qkv.recipes._sam3_patches import applied

    meta, boxes, dynamic = FULL[kind]
    path = str(folder / "model.pt2")
    if meta:
        module = sam3.make_own(path, SPEC, boxes=boxes, pairs=())
    else:
        module = sam3.make(path, boxes=boxes, dynamic=dynamic, pairs=())
    x = sam3.sample(module.model, 1, 1, boxes, (672, 1008) if dynamic else None, seed=1)
    begun = time.perf_counter()
    with applied(say=lambda text: None) if meta else torch.no_grad(), torch.no_grad():
        want = module(*x.values())
    print(f"{time.perf_counter() - begun:.1f} s in eager PyTorch", flush=True)
    np.savez(folder / "in.npz", **{k: v.numpy() for k, v in x.items()})
    np.savez(folder / "want.npz", **{str(i): t.numpy() for i, t in enumerate(want)})


def full(kind):
    """Each side in a process of its own, so that the weights are in memory once."""
    import numpy as np

    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
        folder = pathlib.Path(folder)
        subprocess.run([sys.executable, __file__, "export", kind, folder], check=True)
        want = np.load(folder / "want.npz")
        got = outputs(folder / "model.pt2", dict(np.load(folder / "in.npz")))
        return compared(kind, got, [want[str(i)] for i in range(4)])


if __name__ == "__main__":
    inside = pathlib.Path(sys.prefix).resolve() == VENV.resolve()
    if not inside:
        os.execv(python := venv(), [python, __file__, *sys.argv[1:]])
    import_meta()
    if sys.argv[1:2] == ["export"]:
        exported(sys.argv[2], pathlib.Path(sys.argv[3]))
    else:
        sys.exit(not (full(sys.argv[1]) if sys.argv[1:] else small()))
