#!/usr/bin/env python3
"""PyTorch's own samples of its ops (OpInfo, the database of torch.testing), in float32 or another dtype, beside eager.

    opinfo.py                 a share of the entries (QKV_SHARE): does each do what docs/OPINFO.md says? TAP
    opinfo.py NAME ...        these entries: linalg.qr nn.functional.pad.circular
    opinfo.py --page          all entries; writes their section of docs/OPINFO.md
    --dtype int64             samples of another dtype, of the entries that take it
    --grad                    gradients of the entries that PyTorch differentiates, against autograd's
    --decomposed              programs after run_decompositions()
    --jobs N                  as many processes (1)

An entry is equal (on all its samples), refused (with an error, on all of them), refused in part, wrong, or not exported
(by torch.export). A wrong one is never as it should be. Each is printed when it is known. The page has a section for
float32, for each other dtype and for gradients; what it does not list is equal. Entries run in processes of their own,
so that a crash is one entry's. The samples are opinfo_samples.py's.
"""
import argparse
import collections
import contextlib
import json
import os
import pathlib
import queue
import re
import subprocess
import sys
import tempfile
import threading
import typing
import warnings

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "python")]
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("QKV_LIBRARY", str(ROOT / "build" / "libqkv.so"))
from opinfo_samples import BY_DIFFERENCES, SAMPLES, differentiable, entries, write  # noqa: E402
from share import exported, share  # noqa: E402
from tolerance import tolerance  # noqa: E402
PAGE = ROOT / "docs" / "OPINFO.md"
COLUMNS = {"float64": "f64", "complex128": "f64", "float32": "f32", "complex64": "f32", "float16": "f16",
           "complex32": "f16", "bfloat16": "bf16"}
TOLERANCE = {dtype: tolerance("OP")[column] for dtype, column in COLUMNS.items()}
GRADIENT = TOLERANCE | {"float64": 1e-7, "complex128": 1e-7}
UNSET = ("empty", "new_empty")  # elements of their results are whatever memory held
UNSTABLE = ("argsort", "sort")  # which of equal elements comes first is not said


class Way(typing.NamedTuple):
    """How entries are tried."""
    dtype: str = "float32"
    grads: bool = False
    decomposed: bool = False

    def flags(self):
        return ["--dtype", self.dtype, *["--grad"] * self.grads, *["--decomposed"] * self.decomposed]


# ------------------------------------------------------------------ running


def differ(got, want, unset, tolerances):
    """'' or what differs; got and want are tensors."""
    import torch
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    share_of_peak = tolerances.get(str(want.dtype).removeprefix("torch."))
    if unset:
        return ""
    if share_of_peak is None:
        same = torch.equal(got, want)
        return "" if same else f"{got.flatten()[:5].tolist()} instead of {want.flatten()[:5].tolist()}"
    got, want = (x.to(torch.promote_types(x.dtype, torch.float64)) for x in (got, want))
    finite = torch.isfinite(want)
    peak = want[finite].abs().max().item() if finite.any() else 0
    same = torch.isclose(got, want, rtol=0, atol=share_of_peak * peak + 1e-12, equal_nan=True)
    if same.all():
        return ""
    at = tuple(torch.nonzero(~same)[0].tolist())
    return f"element {list(at)} is {got[at].item():.9g} instead of {want[at].item():.9g}; the largest is {peak:.9g}"


def reason(e, path):
    """Of an error: the ops that are missing, or its message without the file."""
    said = " ".join(str(e).removeprefix(f"{path}: ").removeprefix("models/model.json: ").split())
    ops = re.findall(r"([\w.]+) \(node '", said) if "not supported: " in said else []
    return ", ".join(f"`{op}`" for op in ops) or said


def compared(got, want, unset, what):
    """(state, what is said of it)"""
    import torch
    if len(got) != len(want):
        return "wrong", f"{len(got)} {what}s instead of {len(want)}"
    for k, (a, b) in enumerate(zip(got, want)):
        a = a if isinstance(a, torch.Tensor) else torch.from_dlpack(a).clone()
        said = differ(a, b, unset, GRADIENT if what == "gradient" else TOLERANCE)
        if said:
            return "wrong", f"{what} {k}: {said}"
    return "equal", ""


def picked_by(x, at):
    """The elements of x that a sort's indices pick; its dim is the one along which they are a permutation."""
    import torch
    for d in range(x.dim()):
        every = torch.arange(x.shape[d]).view(-1, *[1] * (x.dim() - 1 - d)).expand(x.shape)
        if torch.equal(at.sort(d).values, every):
            return x.gather(d, at)
    return at


def run(path, inputs, want, name):
    import qkv
    import torch
    try:
        outputs = list(qkv.Model(path, threads=1).run_dlpack([x.clone() for x in inputs]).values())
    except qkv.Error as e:
        return "refused", reason(e, path)
    if name in UNSTABLE:
        outputs[-1], want[-1] = (picked_by(inputs[0], torch.from_dlpack(x)) for x in (outputs[-1], want[-1]))
    return compared(outputs, want, name.startswith(UNSET), "result")


def run_gradients(path, inputs, want, name):
    """An input that the sum does not depend on has a gradient of zeros."""
    import qkv
    import torch
    wanted = [k for k, x in enumerate(inputs) if x.requires_grad]
    fed = [x.detach().clone() for x in inputs]
    try:
        model = qkv.Model(path, threads=1)
        names = [model.inputs[k] for k in wanted]
        joint = model.joint(inputs=names)
        found = joint.run_dlpack(fed)
    except qkv.Error as e:
        if "does not depend on any" in str(e):
            return compared([torch.zeros_like(g) for g in want], want, False, "gradient")
        return "refused", reason(e, path)
    got = [found.get(f"grad.{n}", torch.zeros_like(g)) for n, g in zip(names, want)]
    return compared(got, want, name.startswith(UNSET), "gradient")


def one(name, op, way):
    """(state, reason) of an entry"""
    import torch
    judge = run_gradients if way.grads else run
    with tempfile.TemporaryDirectory() as folder:
        key = name + ":grad" * way.grads + ":decomposed" * way.decomposed + f":{way.dtype}" * (way.dtype != "float32")
        reasons = exported("ops/opinfo_samples.py", key, folder,
                           lambda made: write(made, op, way.grads, way.dtype, way.decomposed))
        states, said = collections.Counter(), ""
        for k in range(SAMPLES):
            path = pathlib.Path(folder) / f"{k}.pt2"
            if path.exists():
                state, why = judge(str(path), *torch.load(path.with_suffix(".pt")), name)
                states[state] += 1
                said = why if not said or state == "wrong" else said
    if not states:
        return "not exported", reasons[0] if reasons else "no samples"
    if states["wrong"]:
        return "wrong", said
    if states["refused"]:
        return "refused in part" if states["equal"] else "refused", said
    return "equal", ""


def worker(way):
    """Names on stdin, a line of JSON for each on stdout."""
    warnings.simplefilter("ignore")
    table = entries(way.dtype)
    for line in sys.stdin:
        name = line.strip()
        print(json.dumps([name, *one(name, table[name], way)]), flush=True)


# ------------------------------------------------------------------ many


def started(way):
    return subprocess.Popen([sys.executable, __file__, "--worker", *way.flags()],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def lane(names, way):
    """Results of these entries; a process that ends is started again for the rest."""
    process = None
    for name in names:
        process = process or started(way)
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(name + "\n")
            process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            yield name, "wrong", f"the process ended with {process.wait()}"
            process = None
            continue
        yield tuple(json.loads(line))
    if process:
        process.stdin.close()
        process.wait()


def results(names, jobs, way):
    """(name, state, reason) of each entry, when it is known"""
    found = queue.Queue()

    def work(k):
        for result in lane(names[k::jobs], way):
            found.put(result)
    for k in range(jobs):
        threading.Thread(target=work, args=(k,), daemon=True).start()
    for _ in names:
        yield found.get()


# ------------------------------------------------------------------ the page

ROW = re.compile(r"\| `([^`]+)` \| (refused in part|refused|not exported) \|")
GRADIENTS = ("`qkv.joint` of a weighted sum of the results, against autograd on the same samples with requires_grad;\n"
             "of " + " and ".join(f"`{n}`" for n in BY_DIFFERENCES)
             + ", whose gradient in PyTorch is not the derivative, against differences.\n"
               "Gradients of gradients are not supported.")


def heading(way):
    if way.grads:
        return f"Gradients in {'float64' if way.dtype == 'float32' else way.dtype}"
    return f"{way.dtype} after run_decompositions()" if way.decomposed else way.dtype


def intro(way):
    if not way.grads:
        return f"Every entry that takes {way.dtype}."
    where = "in float64 where the op takes it, else in float32" if way.dtype == "float32" else f"in {way.dtype}"
    return f"Of the entries that PyTorch differentiates, {where}:\n{GRADIENTS}"


def table_of(found):
    lines = ["| entry | state | why |", "|---|---|---|"]
    for name, (state, why) in sorted(found.items()):
        if state != "equal":
            lines.append(f"| `{name}` | {state} | {why.replace('|', chr(92) + '|')} |")
    return lines if lines[2:] else []


def counted(found):
    counts = collections.Counter(state for state, _ in found.values())
    ran = len(found) - counts["not exported"]
    wrong = f"{counts['wrong']} are wrong. " if counts["wrong"] else ""
    return [f"Of {ran} entries that torch.export exports, {counts['equal']} "
            f"({100 * counts['equal'] / ran:.1f} %) are equal on all samples,",
            f"{counts['refused']} are refused, {counts['refused in part']} are refused on some samples. {wrong}"
            f"{counts['not exported']} are not exported.", ""]


def sections():
    """The page's text before its first section, and {heading: text} of its sections."""
    first, *rest = PAGE.read_text().rstrip("\n").split("\n\n## ")
    return first, dict(part.split("\n", 1) for part in rest)


def write_section(way, found):
    """In the place of the one that the page has, or at its end."""
    first, parts = sections()
    parts[heading(way)] = "\n".join(["", intro(way), *counted(found), *table_of(found)]).rstrip("\n")
    PAGE.write_text("\n\n## ".join([first, *("\n".join(part) for part in parts.items())]) + "\n")


def expected_states(way):
    rows = sections()[1].get(heading(way), "").split("\n")
    return {m[1]: m[2] for m in map(ROW.match, rows) if m}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--jobs", type=int, default=1)
    ap.add_argument("--page", action="store_true")
    ap.add_argument("--grad", action="store_true")
    ap.add_argument("--decomposed", action="store_true")
    ap.add_argument("--dtype", default="float32")
    ap.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    ap.add_argument("names", nargs="*")
    a = ap.parse_args()
    way = Way(a.dtype, a.grad, a.decomposed)
    if a.worker:
        return worker(way)
    table = differentiable(a.dtype) if a.grad else entries(a.dtype)
    unknown = [n for n in a.names if n not in table]
    if unknown:
        ap.error(f"not an entry for {a.dtype}: {', '.join(unknown)}")
    names = list(table) if a.page else a.names or share(list(table), {})
    expected = expected_states(way)
    counts, found = collections.Counter(), {}
    print(f"1..{len(names)}", flush=True)
    for name, state, why in results(names, a.jobs, way):
        right = state == expected.get(name, "equal")
        said = "" if right else f", {PAGE.name} says {expected.get(name, 'equal')}"
        print(f"{'ok' if right else 'not ok'} - opinfo: {name} {state}{said}{': ' + why if why else ''}", flush=True)
        counts[state] += 1
        found[name] = state, why
    print("# " + ", ".join(f"{n} {state}" for state, n in counts.most_common()))
    if a.page:
        write_section(way, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
