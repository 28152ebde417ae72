#!/usr/bin/env python3
"""Goes over every configuration of transformers that its Auto classes know, each tiny and with random weights
(tiny_configs.py), through all that qkv does with a model, and compares with PyTorch at every step. Not part of CI.

    every_config.py --out DIR                     all of them, smallest first; continues where it stopped
    every_config.py --out DIR --only 'qwen*'      some; --again: also those that are done
    every_config.py --out DIR --part 0/2          one of two halves
    every_config.py --out DIR --build             up to eager's outputs: does the configuration suit?
    every_config.py --out DIR --summary           counts, and what is not right

DIR/results.jsonl has a line a model: its class, how torch exported it, and for each step '' or what is wrong; DIR/kept
has the files of models with something wrong. Each model runs in a process of its own with limits of time and memory.
Steps: run (eager's values), prove (qkv rewrite --prove --certify, and qkv-certify), rewritten (loads in torch, the same
values), save (the same of the model as it is), ort (ONNX in ONNX Runtime), back (that ONNX as .pt2, in both), grad
(gradients of a scalar over all outputs, against autograd). Comparison and tolerances: run_models.py.
"""
import argparse
import collections
import contextlib
import fnmatch
import json
import multiprocessing
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "python")]
STEPS = ["run", "prove", "rewritten", "save", "ort", "back", "grad"]
# Of several classes of a type the one with most of it: its heads are small beside it.
FIRST = ["CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "SPEECH_SEQ_2_SEQ", "MASKED_LM",
         "CTC", "OBJECT_DETECTION", "ZERO_SHOT_OBJECT_DETECTION", "UNIVERSAL_SEGMENTATION", "INSTANCE_SEGMENTATION",
         "SEMANTIC_SEGMENTATION", "DEPTH_ESTIMATION", "IMAGE_CLASSIFICATION", "VIDEO_CLASSIFICATION",
         "AUDIO_CLASSIFICATION", "TIME_SERIES_PREDICTION"]


def entries(every):
    """[(model type, class name)], the smallest source first."""
    import transformers
    from transformers.models.auto import configuration_auto, modeling_auto
    names = [f"MODEL_FOR_{n}_MAPPING_NAMES" for n in FIRST]
    names.append("MODEL_MAPPING_NAMES")
    names += [n for n in vars(modeling_auto) if n.startswith("MODEL_") and n.endswith("_NAMES")]
    found = collections.defaultdict(list)
    for name in dict.fromkeys(names):
        for model_type, classes in getattr(modeling_auto, name).items():
            for c in classes if isinstance(classes, (list, tuple)) else [classes]:
                if c not in found[model_type]:
                    found[model_type].append(c)
    root = pathlib.Path(transformers.__file__).parent / "models"
    def size(model_type):
        folder = root / configuration_auto.model_type_to_module_name(model_type).replace(".", "/")
        return sum(f.stat().st_size for f in folder.glob("modeling_*.py"))
    order = sorted((t for t in found if t in configuration_auto.CONFIG_MAPPING_NAMES), key=lambda t: (size(t), t))
    return [(t, c) for t in order for c in (found[t] if every else found[t][:1])]


# ------------------------------------------------------------------ one model, in a process of its own
class Late(Exception):
    pass


@contextlib.contextmanager
def within(seconds):
    """Of CPU time: the machine may have other work."""
    def late(*_):
        raise Late(f"more than {seconds} s")
    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def whole(model, names, written={}):
    """A module with these inputs that gives the tensors of the model's output, and a scalar over them as the last.
    Written are integers that the module makes itself, as constants that the exporter knows."""
    import torch

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.m = model

        def ends(self, out):
            leaves = [x for x in torch.utils._pytree.tree_leaves(out) if isinstance(x, torch.Tensor)]
            floats = [x.float() for x in leaves if x.is_floating_point()]
            if not floats:
                return tuple(leaves)
            seen = [torch.where(x.abs() < 1e4, x, 0.0) for x in floats]
            # of one sign: nothing cancels; by rows: no long sum
            return *leaves, sum((x * x / (1 + x * x)).mean(-1).mean() for x in seen)

    scope = dict(torch=torch)
    given = [f"{n}={n}" for n in names] + [f"{n}=torch.tensor({x.tolist()})" for n, x in written.items()]
    exec(f"def forward(self, {', '.join(names)}):\n    return self.ends(self.m({', '.join(given)}))", scope)
    return type("Whole", (Whole,), scope)().eval()


def build(zoo, model_type, cls):
    """The module and its inputs at two sizes, or an exception that says why not."""
    import generate
    import torch
    import transformers
    import tiny_configs
    kind = getattr(transformers, cls)
    config = tiny_configs.tiny(model_type)
    if not isinstance(config, kind.config_class):  # a part of it, as a composite's decoder
        parts = (getattr(config, part, None) for part in config.sub_configs_defaults)
        config = next((part for part in parts if isinstance(part, kind.config_class)), config)
    with contextlib.suppress(NotImplementedError, RuntimeError, TypeError):
        with torch.device("meta"):
            shapes = {n: tuple(p.shape) for n, p in kind(config).named_parameters()}
        count = {n: torch.Size(s).numel() for n, s in shapes.items()}
        if sum(count.values()) > 2e7:
            big = sorted(count, key=count.get)[-4:]
            raise ValueError(f"{sum(count.values()):,} parameters: {', '.join(f'{n} {shapes[n]}' for n in big)}")
    wrong = []
    for strong in (True, False):
        torch.manual_seed(0)
        model = kind(config).float().eval()
        if strong:
            zoo.strengthen(model)
        for make in tiny_configs.candidates(model, model_type):
            try:
                variants = [make(b, s) for b, s in ((2, 7), (3, 9))]
                if not variants[0]:
                    raise ValueError(f"none of {', '.join(tiny_configs.of_signature(model))} is known")
                module = whole(model, list(variants[0]))
                with torch.no_grad():
                    outputs = [module(**generate.copies(v)) for v in variants]
                if not outputs[0]:
                    raise ValueError("no tensor among the outputs")
                if strong and any(x.isnan().any() or x.is_floating_point() and x.abs().max() > 1e6
                                  for x in outputs[0][:-1] if x.numel()):
                    raise ValueError("outputs beyond bounds with strong weights")
                # more than the tolerance is rounding; much more is a choice that falls otherwise, or random
                if strong and 2e-5 < generate.distance(module, variants, map(generate.tensors, outputs)) < 1e-3:
                    raise ValueError("eager's rounding is beyond the tolerance with strong weights")
                return module, variants, model
            except Exception as e:
                wrong.append(f"{type(e).__name__} {str(e)[:160]}")
    raise ValueError("no inputs found: " + " | ".join(dict.fromkeys(wrong)))


def axes_that_vary(inputs, b, s):
    """AUTO for the batch, and for the lengths of texts."""
    import tiny_configs
    import torch
    auto = torch.export.Dim.AUTO
    out = {}
    for name, x in inputs.items():
        axes = {}
        if isinstance(x, torch.Tensor) and x.dim():
            if x.shape[0] % b == 0:
                axes[0] = auto
            if name in tiny_configs.LENGTHS and x.dim() > 1:
                axes[1] = auto
        out[name] = axes or None
    return out


def prepared(exporters, model, inputs):
    """With what transformers' exporter works out before it traces: of a model with a head, also what its base does."""
    import torch
    inputs = dict(inputs)
    with torch.no_grad():
        exporters.precompute_export_inputs(model, inputs)
        if model.base_model is not model and hasattr(model.base_model, "get_rope_index"):
            exporters.precompute_export_inputs(model.base_model, inputs)
    return inputs


def patches(way):
    """transformers' own changes for its exporter, where this is its way."""
    if "patched" not in way:
        return contextlib.nullcontext()
    from transformers.exporters import exporter_dynamo  # noqa: F401  registers them
    from transformers.exporters import utils as exporters
    return exporters.apply_patches("dynamo")


def export(zoo, generate, name, module, variants, model, folder):
    """How torch takes it, and its variants that the file's sizes allow; NAME.* in the folder."""
    import torch
    from transformers.exporters import utils as exporters
    wrong = []
    ways = ["dynamic", "static", "dynamic, patched", "static, patched"]
    sizes = [n for n in variants[0] if n.endswith("grid_thw")]  # that most encoders take for loops
    if sizes and len(sizes) < len(variants[0]):
        ways += ["dynamic, patched, written grid", "static, patched, written grid"]
    for way in ways:
        given = variants if way.startswith("dynamic") else variants[:1]
        try:
            if "patched" in way:
                given = [prepared(exporters, model, v) for v in given]
                written = {}
                if "written" in way:
                    given = given[:1]
                    written = {n: given[0].pop(n) for n in sizes}
                module = whole(model, list(given[0]), written)
            dyn = axes_that_vary(given[0], 2, 7) if way.startswith("dynamic") else None
            with within(90), patches(way):
                maker = zoo.Maker(name, lambda: (module, given, dyn), grad=True)
                generate.make(zoo, maker, str(folder), False)
                ep = torch.export.load(folder / f"{name}.pt2").module()
                fit = 1
                for v in given[1:]:
                    with contextlib.suppress(Exception), torch.no_grad():
                        ep(**generate.copies(v))
                        fit += 1
            m = json.loads((folder / f"{name}.json").read_text())
            m["variants"] = fit
            (folder / f"{name}.json").write_text(json.dumps(m))
            return f"{way}{'' if fit == len(given) else ', one size'}", m, "; ".join(wrong), module, given
        except Exception as e:
            wrong.append(f"{way}: {type(e).__name__} {str(e)[:300]}")
    raise ValueError("; ".join(wrong))


def command(program, *args, limit=120):
    """(exit code, or None when late, output, the end of what it says)"""
    p = subprocess.run([str(pathlib.Path(program)), *map(str, args)], capture_output=True, text=True,
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1)))
    late = p.returncode in (-signal.SIGXCPU, -signal.SIGKILL)
    return None if late else p.returncode, p.stdout, f"more than {limit} s" if late else p.stderr.strip()[-500:]


def prove(runner, folder, name, row):
    """'' where every rewriting is proven exactly and the certificate covers the whole."""
    source, made, claims = folder / f"{name}.pt2", folder / "rewritten" / f"{name}.pt2", folder / f"{name}.claims.json"
    code, out, said = command(runner.QKV, "rewrite", source, "-o", made, "--prove", "--certify", claims, "--json")
    if code != 0:
        return f"rewrite: {'late' if code is None else f'exit {code}'}: {said}"
    report = json.loads(out)
    row["fused"], row["left"] = report["attentions_fused"], report["attentions_left"]
    unproven = [f"{f['rule']} at {f['result']}: {f['not_proven']}" for f in report["firings"] if f.get("not_proven")]
    row["floats"] = sum(bool(f.get("why_floats")) for f in report["firings"])
    if unproven:
        return "not proven: " + "; ".join(unproven)[:500]
    if not report["certificate"]["whole"]:
        return f"not for all sizes: {str(report['certificate']['why'])[:400]}"
    code, out, said = command(pathlib.Path(runner.QKV).with_name("qkv-certify"), source, made, claims)
    return "" if code == 0 else f"qkv-certify: {code}: {(said or out)[-400:]}"


def beside(folder, part, name):
    """A folder for another file of the model, with its tensors."""
    other = folder / part
    other.mkdir(exist_ok=True)
    for f in folder.glob(f"{name}.v*.safetensors"):
        with contextlib.suppress(FileExistsError):
            os.link(f, other / f.name)
    return other


def lower_first(folder, name, module, variants, way):
    """A folder with outputs of eager whose topk takes the lower place of equal elements, as ONNX's does: which one
    PyTorch's takes is not said. None where this changes nothing."""
    import copy
    import generate
    import torch
    from safetensors.torch import load_file, save_file

    class Lower(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, f, types, args=(), kwargs=None):
            if f is not torch.ops.aten.topk.default:
                return f(*args, **(kwargs or {}))
            x, k, dim, largest, _ = *args, *(-1, True, True)[len(args) - 2:]
            return tuple(y.narrow(dim, 0, k) for y in torch.sort(x, dim=dim, descending=largest, stable=True))

    other, same = beside(folder, "lower", name), True
    for v, inputs in enumerate(variants):
        with torch.no_grad(), patches(way), Lower():
            made = generate.tensors(copy.deepcopy(module)(**generate.copies(inputs)))
        path = other / f"{name}.v{v}.out.safetensors"
        same = same and all(torch.equal(x, made[k]) for k, x in load_file(path).items())
        path.unlink()  # a link to the file of eager's own
        save_file(made, path)
    return None if same else other


def gradients(runner, saver, qkv, folder, name, module, variants, row):
    """'' where the joint model's gradients are autograd's."""
    import copy
    import torch
    module = copy.deepcopy(module)
    inputs = variants[0]
    torch.manual_seed(0)  # as the session of the joint graph is
    try:
        with patches(row["way"]):
            outputs = module(**inputs)
        if not outputs[-1].requires_grad or outputs[-1].dim():
            row["grad_note"] = "nothing to differentiate"
            return ""
        outputs[-1].backward()
    except Exception as e:
        row["grad_note"] = f"autograd: {type(e).__name__} {str(e)[:200]}"
        return ""
    joint = qkv.Model(folder / f"{name}.pt2", threads=1).joint(loss=f"output_{len(outputs) - 1}")
    from safetensors.torch import load_file
    results = joint.run_dlpack(load_file(folder / f"{name}.v0.in.safetensors"))
    got = {k: torch.from_dlpack(v) for k, v in results.items() if k.startswith("grad.")}
    want = {f"grad.{n}": p.grad for n, p in module.named_parameters(remove_duplicate=False) if p.grad is not None}
    peak = max((float(g.abs().max()) for g in want.values() if g.numel()), default=0.0)
    missing = [k for k, g in want.items() if k not in got and g.numel() and float(g.abs().max()) > 1e-6 * peak]
    if missing:
        return f"no gradient of {', '.join(missing[:4])}{' ...' if len(missing) > 4 else ''}"
    # a gradient far below the others is their rounding: each is held to its own peak or a thousandth of the largest
    floor = torch.tensor([peak * 1e-3])
    flat = lambda found: saver.arrays({k: torch.cat([found[k].detach().flatten().float(), floor]) for k in both})
    both = [k for k in want if k in got]
    wrong, row["grad_error"] = runner.differ(flat(got), flat(want), 1e-4)
    if wrong:  # may be rounding: are they as near to autograd's in float64 as autograd's in float32 are?
        with contextlib.suppress(Exception):  # a module that takes float32 alone
            module = copy.deepcopy(module).double()
            module.zero_grad()
            wide = lambda x: x.double() if isinstance(x, torch.Tensor) and x.dtype == torch.float32 else x
            torch.manual_seed(0)
            with patches(row["way"]):
                module(**torch.utils._pytree.tree_map(wide, inputs))[-1].backward()
            exact = {f"grad.{n}": p.grad for n, p in module.named_parameters(remove_duplicate=False)}
            row["grad_noise"] = runner.differ(flat(exact), flat(want), 1e9)[1]
            wrong = runner.differ(flat(got), flat(exact), 1e-4 + row["grad_noise"])[0]
    return wrong


def one(model_type, cls, out, only_build, send):
    """All steps of a model; send(row) after each."""
    import generate
    import qkv
    import run_models as runner
    import save_models as saver
    import zoo
    name = f"{model_type.replace('-', '_')}.{cls}"
    row = dict(name=name)
    folder = pathlib.Path(out) / "work" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    started = time.process_time()

    def step(what, f, limit=240):
        send({**row, "in": what})
        try:
            with within(limit):
                row[what] = f()
        except Exception as e:
            row[what] = f"{type(e).__name__}: {str(e)[-600:]}".replace("\n", " ")
        row["cpu"] = round(time.process_time() - started, 1)

    def eager():
        nonlocal module, variants, model
        module, variants, model = build(zoo, model_type, cls)
        return ""

    def exported():
        nonlocal m, module, variants
        row["way"], m, row["refused"], module, variants = export(zoo, generate, name, module, variants, model, folder)
        return ""

    def ran():
        for v in range(m["variants"]):
            wrong, err = runner.one(folder, name, v, m["tol"], str(folder))
            row["error"] = max(row.get("error", 0), err)
            if wrong:
                import torch
                with torch.no_grad(), patches(row["way"]):
                    results = generate.tensors(module(**generate.copies(variants[v])))
                    row["noise"] = generate.distance(module, variants[v:v + 1], [results])
                return f"v{v}: {wrong}"
        return ""

    def saved(where):
        return saver.one(where, name, m["tol"], m["variants"], str(where))[0]

    def onnx():
        import convert_models
        a = argparse.Namespace(profile="ort", opset=None, rewrite=False, check=False)
        wrong = convert_models.apart(folder, m, a, str(folder))[0]
        if wrong and (other := lower_first(folder, name, module, variants[:m["variants"]], row["way"])):
            os.link(folder / f"{name}.pt2", other / f"{name}.pt2")
            if not convert_models.apart(other, m, a, str(folder))[0]:
                row["ties"], wrong = wrong, ""
        return wrong

    def back():
        other = beside(folder / "lower" if row.get("ties") else folder, "back", name)
        if not (folder / f"{name}.onnx").exists():
            return "no ONNX"
        qkv.Model(folder / f"{name}.onnx", threads=1).save(other / f"{name}.pt2")
        for v in range(m["variants"]):
            wrong, _ = runner.one(other, name, v, m["tol"], str(other))
            if wrong:
                return f"v{v}: {wrong}"
        return saved(other)

    module = variants = model = m = None
    step("eager", eager)
    if not row["eager"] and not only_build:
        step("export", exported)
        if not row["export"]:
            beside(folder, "rewritten", name)
            step("run", ran)
            step("prove", lambda: prove(runner, folder, name, row))
            there = folder / "rewritten" / f"{name}.pt2"
            step("rewritten", lambda: saved(there.parent) if there.exists() else "no file")
            step("save", lambda: saved(folder))
            step("ort", onnx)
            step("back", back)
            step("grad", lambda: gradients(runner, saver, qkv, folder, name, module, variants, row))
    if any(row.get(s) for s in STEPS):
        kept = pathlib.Path(out) / "kept" / name
        shutil.rmtree(kept, ignore_errors=True)
        kept.parent.mkdir(exist_ok=True)
        folder.rename(kept)
    shutil.rmtree(folder, ignore_errors=True)
    send({**row, "in": None})


def child(pipe, model_type, cls, out, only_build, memory, limit):
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (memory << 30, memory << 30))
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    log = os.open(os.path.join(out, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        one(model_type, cls, out, only_build, pipe.send)
    except BaseException as e:
        pipe.send(dict(name=f"{model_type}.{cls}", died=f"{type(e).__name__}: {str(e)[:300]}"))
    os._exit(0)


def apart(model_type, cls, a):
    """The row of a model; its process is ended when it is late."""
    mine, its = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=child, args=(its, model_type, cls, str(a.out), a.build,
                                                                              a.memory, a.limit))
    process.start()
    its.close()
    row, end = dict(name=f"{model_type}.{cls}"), time.monotonic() + 10 * a.limit  # CPU seconds are limited within
    try:
        while mine.poll(max(0, end - time.monotonic())):
            row = mine.recv()
        row["died"] = f"more than {10 * a.limit} s by the clock"
    except EOFError:
        process.join(5)
        if row.get("in") or process.exitcode:
            row["died"] = f"exit {process.exitcode}"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    if row.get("died") and row.get("in") in STEPS:
        row[row["in"]] = row["died"]
    return row


def summary(rows):
    tried = [r for r in rows.values()]
    ready = [r for r in tried if r.get("eager") == ""]
    exported = [r for r in ready if r.get("export") == ""]
    print(f"tried {len(tried)}, built and run in eager {len(ready)}, exported {len(exported)}, "
          + ", ".join(f"{s} {sum(r.get(s) == '' for r in exported)}" for s in STEPS))
    for r in tried:
        for s in ["eager", "export", *STEPS]:
            if r.get(s):
                noise = r.get(dict(run="noise", grad="grad_noise").get(s))
                print(f"{r['name']} {s}: {r[s]}" + (f" (eager itself is {noise:.1e} from float64)" if noise else ""))
        if r.get("died") and r.get("in") not in STEPS:
            print(f"{r['name']} {r.get('in')}: {r['died']}")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", type=pathlib.Path, required=True)
    ap.add_argument("--only", action="append", metavar="PATTERN", help="of a type, or of TYPE.Class")
    ap.add_argument("--part", default="0/1", metavar="I/N")
    ap.add_argument("--limit", type=int, default=200, metavar="SECONDS", help="of CPU of a process")
    ap.add_argument("--memory", type=int, default=16, metavar="GIB", help="of address space of a process")
    ap.add_argument("--every-class", action="store_true", help="all classes of a type, not its largest alone")
    ap.add_argument("--again", action="store_true")
    ap.add_argument("--build", action="store_true")
    ap.add_argument("--list", action="store_true")
    ap.add_argument("--summary", action="store_true")
    a = ap.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    path = a.out / ("built.jsonl" if a.build else "results.jsonl")
    rows = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        row = json.loads(line)
        rows[row["name"]] = row
    if a.summary:
        return summary(rows)
    part, parts = map(int, a.part.split("/"))
    chosen = [(t, c) for k, (t, c) in enumerate(entries(a.every_class)) if k % parts == part]
    if a.only:
        chosen = [(t, c) for t, c in chosen if any(fnmatch.fnmatch(x, p) for p in a.only for x in (t, f"{t}.{c}"))]
    if a.list:
        print(*(f"{t}.{c}" for t, c in chosen), sep="\n")
        return
    import generate
    generate.load()
    import qkv  # noqa: F401  once, for all processes
    import onnxruntime  # noqa: F401
    for t, c in chosen:
        name = f"{t.replace('-', '_')}.{c}"
        if name in rows and not a.again:
            continue
        row = apart(t, c, a)
        row["name"] = name
        with open(path, "a") as f:
            f.write(json.dumps(row) + "\n")
        steps = ["eager"] if a.build else ["eager", "export", *STEPS]
        print(name, row.get("way", ""), f"{row.get('cpu', 0)} s",
              "; ".join(f"{s}: {row[s][:200]}" for s in steps if row.get(s)) or row.get("died") or "ok", flush=True)


if __name__ == "__main__":
    main()
