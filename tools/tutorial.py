#!/usr/bin/env python3
"""Runs docs/TUTORIAL-SAM3.md: draws its scene, runs its commands, and writes what they print, and their pictures,
into the document.

    make tutorial          or: tools/tutorial.py build/qkv

Commands are the lines that begin with "$ " in the document's indented blocks, as in tests/cli/*.t; what follows them
is replaced. Pictures that the document shows are copied to docs/tutorial. Needs PyTorch, transformers and Pillow
(.venv). tests/python/test_segment.py repeats the commands that need neither of the first two.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "TUTORIAL-SAM3.md"
WIDTH, HEIGHT, FINE = 480, 320, 4  # FINE: drawn so many times as large, then reduced


def scene():
    """A street: a red car and a red balloon, a green tree, a blue car."""
    from PIL import Image, ImageDraw

    im = Image.new("RGB", (WIDTH * FINE, HEIGHT * FINE))
    d = ImageDraw.Draw(im)

    def at(*numbers):
        return [v * FINE for v in numbers]

    for y in range(HEIGHT):
        d.rectangle(at(0, y, WIDTH, y + 1), fill=(190 + y // 8, 215 + y // 16, 240))
    d.rectangle(at(0, 225, WIDTH, HEIGHT), fill=(120, 120, 124))
    d.rectangle(at(0, 212, WIDTH, 226), fill=(176, 170, 160))
    for x in range(10, WIDTH, 70):
        d.rectangle(at(x, 268, x + 36, 272), fill=(230, 230, 220))
    for x, w, h, wall, roof in ((16, 92, 84, (222, 203, 170), (98, 100, 112)), (118, 70, 112, (205, 190, 185),
                                                                                (92, 92, 104)),
                                (300, 84, 74, (228, 214, 190), (100, 98, 108))):
        d.rectangle(at(x, 212 - h, x + w, 212), fill=wall)
        d.polygon(at(x - 6, 212 - h, x + w / 2, 182 - h, x + w + 6, 212 - h), fill=roof)
        for k in range(int(h // 40)):
            for c in (0.18, 0.62):
                d.rectangle(at(x + c * w, 224 - h + 38 * k, x + (c + 0.2) * w, 244 - h + 38 * k), fill=(120, 130, 142))
    d.rectangle(at(416, 160, 426, 216), fill=(112, 84, 60))
    for x, y, r in ((421, 130, 36), (398, 148, 26), (444, 150, 27)):
        d.ellipse(at(x - r, y - r, x + r, y + r), fill=(30, 150, 40))

    def car(x, y, body, glass):
        d.rounded_rectangle(at(x, y, x + 120, y + 34), radius=10 * FINE, fill=body)
        d.polygon(at(x + 22, y + 2, x + 38, y - 24, x + 84, y - 24, x + 102, y + 2), fill=body)
        d.polygon(at(x + 31, y, x + 42, y - 19, x + 60, y - 19, x + 60, y), fill=glass)
        d.polygon(at(x + 65, y, x + 65, y - 19, x + 81, y - 19, x + 93, y), fill=glass)
        for wheel in (26, 94):
            d.ellipse(at(x + wheel - 14, y + 20, x + wheel + 14, y + 48), fill=(36, 36, 40))
            d.ellipse(at(x + wheel - 6, y + 28, x + wheel + 6, y + 40), fill=(170, 170, 176))

    car(62, 224, (214, 26, 30), (200, 214, 224))
    car(288, 246, (24, 52, 204), (200, 214, 224))
    d.ellipse(at(256, 30, 304, 86), fill=(220, 30, 34))
    d.polygon(at(276, 84, 284, 84, 280, 92), fill=(180, 24, 28))
    d.line(at(280, 92, 276, 130, 283, 160), fill=(90, 90, 90), width=FINE)
    return im.resize((WIDTH, HEIGHT), Image.Resampling.BOX)


def prepare(folder, im):
    """What the document's commands find: the scene, the same as a phone would store it,
    and a model that needs no PyTorch."""
    from PIL import Image

    im.save(folder / "scene.png", optimize=True)
    exif = Image.Exif()
    exif[0x0112] = 6
    im.transpose(Image.Transpose.ROTATE_90).save(folder / "phone.jpg", quality=92, exif=exif)
    (folder / "photos").mkdir()
    for i, part in enumerate(((0, 0, 240, 320), (240, 0, 480, 320), (100, 60, 420, 300))):
        im.crop(part).save(folder / "photos" / f"{i + 1}.png", optimize=True)
    (folder / "photos" / "4.jpg").write_bytes((folder / "phone.jpg").read_bytes()[:3000])
    shutil.copy(ROOT / "tests" / "cli" / "models" / "ground.pt2", folder / "colours.pt2")


def blocks(text):
    """[line without output, [output lines]]; a line that is a command is followed by what it prints, up to the end of
    its indented block: the blank lines in it are its, those after it are the page's."""
    out, inside, blank = [], False, 0
    for line in text.splitlines():
        indented = line.startswith("    ")
        if inside and not line.strip():
            blank += 1
        elif inside and indented and not line[4:].startswith("$ "):
            out[-1][1] += [""] * blank + [line[4:]]
            blank = 0
        else:
            out += [["", []] for _ in range(blank)]
            inside, blank = indented and line[4:].startswith("$ "), 0
            out.append([line, []])
    return out + [["", []] for _ in range(blank)]


def run(command, folder, qkv):
    """What a command prints on a terminal that has no colours: stdout and stderr together,
    without what differs from run to run."""
    names = folder.parent / "names"
    names.mkdir(exist_ok=True)
    if not (names / "qkv").exists():
        (names / "qkv").symlink_to(pathlib.Path(qkv).resolve())
    env = {**os.environ, "PATH": f"{names}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
           "PYTHONPATH": str(ROOT / "python"), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    return [re.sub(r"in \d+\.\d s", "in N s", line).rstrip() for line in done.stdout.splitlines()]


def main():
    qkv = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build" / "qkv")
    text = DOCUMENT.read_text()
    with tempfile.TemporaryDirectory() as d:
        folder = pathlib.Path(d) / "work"
        folder.mkdir()
        prepare(folder, scene())
        lines = []
        for line, _ in blocks(text):
            lines.append(line)
            if line.startswith("    $ "):
                lines += ["    " + one if one else "" for one in run(line[6:], folder, qkv)]
        shown = re.findall(r"\(tutorial/([\w.-]+)\)", text)
        for name in shown:
            shutil.copy(folder / name, ROOT / "docs" / "tutorial" / name)
    DOCUMENT.write_text("\n".join(lines) + "\n")
    size = sum((ROOT / "docs" / "tutorial" / name).stat().st_size for name in shown)
    print(f"{DOCUMENT}: {len(shown)} pictures, {size} bytes")


if __name__ == "__main__":
    main()
