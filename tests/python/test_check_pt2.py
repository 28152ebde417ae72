"""qkv check on .pt2 files that one edit made wrong, and on containers that hold what they should not.
Python's standard library and NumPy alone."""
import io
import json
import pathlib
import pickle
import struct
import zipfile

import pytest
import qkv

SMALL = pathlib.Path(__file__).resolve().parent.parent / "models" / "small"
# what the tests below make (test_check.py holds the whole table against both files)
FINDINGS = set("Q117 Q198 Q199 Q206 Q207 Q208 Q301 Q302 Q308 Q309 Q310 Q311 Q901 Q902 Q903 Q904 Q905 Q906 Q907 Q908 "
               "Q909 Q910 Q911 Q913 Q914 Q915".split())
MADE = set()


def entries(name):
    with zipfile.ZipFile(SMALL / f"{name}.pt2") as z:
        return {i.filename: z.read(i) for i in z.infolist()}


def archive(files, method=zipfile.ZIP_STORED, attributes=None):
    b = io.BytesIO()
    with zipfile.ZipFile(b, "w", method) as z:
        for name, data in files.items() if isinstance(files, dict) else files:
            info = zipfile.ZipInfo(name)
            info.create_system, info.external_attr = 3, (attributes or {}).get(name, 0)
            z.writestr(info, data, method)
    return b.getvalue()


def check(data, tmp_path, **options):
    path = tmp_path / "m.pt2"
    path.write_bytes(data)
    report = qkv.check(path, **options)
    found = {f["id"] for f in report.findings}
    MADE.update(found)
    return report, found


def edited(tmp_path, change, base="mha_self", end="models/model.json", **options):
    files = entries(base)
    key = next(k for k in files if k.endswith(end))
    doc = json.loads(files[key])
    change(doc)
    files[key] = json.dumps(doc).encode()
    return check(archive(files), tmp_path, **options)[1]


def graph(d): return d["graph_module"]["graph"]
def nodes(d): return graph(d)["nodes"]
def first(d, part): return next(n for n in nodes(d) if part in n["target"])
def values(d): return graph(d)["tensor_values"]
def result(n): return n["outputs"][0]["as_tensor"]["name"]
def expr(text): return {"as_expr": {"expr_str": text, "hint": None}}
def some_config(d): return next(iter(d["config"].values()))


@pytest.mark.parametrize("name", sorted(p.stem for p in SMALL.glob("*.pt2")))
def test_good_files(name):
    report = qkv.check(SMALL / f"{name}.pt2", security=True, full=True)
    assert report, str(report)


EDITS = {
    "Q101": lambda d: first(d, "linear").update(target="os.system"),
    "Q102": lambda d: first(d, "linear").update(target="torch.ops.mine.op.default"),
    "Q103": lambda d: first(d, "linear")["inputs"].pop(0),
    "Q104": lambda d: first(d, "linear")["inputs"][0].update(name="surprise"),
    "Q105": lambda d: first(d, "transpose")["inputs"][1].update(arg={"as_string": "x"}),
    "Q106": lambda d: first(d, "linear")["inputs"].append(first(d, "linear")["inputs"][0]),
    "Q108": lambda d: first(d, "linear")["inputs"][0]["arg"]["as_tensor"].update(name="nowhere"),
    "Q109": lambda d: nodes(d).reverse(),
    "Q110": lambda d: nodes(d).append(json.loads(json.dumps(first(d, "linear")))),
    "Q111": lambda d: graph(d)["outputs"][0]["as_tensor"].update(name="nowhere"),
    "Q114": lambda d: first(d, "linear").pop("target"),
    "Q117": lambda d: d["graph_module"]["signature"]["input_specs"].pop(),
    "Q119": lambda d: values(d).update(ghost=values(d)["x"]),
    "Q199": lambda d: first(d, "linear").update(target="torch.ops.aten.no_such_op.default"),
    "Q201": lambda d: values(d)[result(first(d, "linear"))].update(dtype=5),
    "Q202": lambda d: values(d)[result(first(d, "linear"))]["sizes"].pop(),
    "Q203": lambda d: values(d)[result(first(d, "linear"))]["sizes"].__setitem__(-1, {"as_int": 99}),
    "Q204": lambda d: first(d, "transpose")["inputs"][1].update(arg={"as_int": 99}),
    "Q206": lambda d: values(d)["x"]["sizes"].__setitem__(0, expr("import os")),
    "Q207": lambda d: [r.update(min_val=9, max_val=3) for r in d["range_constraints"].values()],
    "Q208": lambda d: values(d)[result(first(d, "linear"))]["sizes"].__setitem__(0,
        expr("Add(%s, Integer(1))" % values(d)["x"]["sizes"][0]["as_expr"]["expr_str"])),
}


@pytest.mark.parametrize("finding", EDITS)
def test_edit(finding, tmp_path):
    assert finding in edited(tmp_path, EDITS[finding])


def test_all_findings_are_listed(tmp_path):
    def change(d):
        for n in nodes(d):
            if "linear" in n["target"]:
                n["inputs"].append(n["inputs"][0])
            if "transpose" in n["target"]:
                n["inputs"][1]["arg"] = {"as_int": 99}

    files = entries("mha_self")
    key = next(k for k in files if k.endswith("models/model.json"))
    doc = json.loads(files[key])
    change(doc)
    files[key] = json.dumps(doc).encode()
    report, found = check(archive(files), tmp_path)
    want = sum("linear" in n["target"] or "transpose" in n["target"] for n in nodes(doc))
    assert {"Q106", "Q204"} <= found and len(report.errors) >= want > 3, str(report)


def test_the_list_ends(tmp_path):
    assert "Q198" in edited(tmp_path, lambda d: first(d, "linear")["inputs"].extend({"name": f"no_{i}",
        "arg": {"as_int": 1}} for i in range(10050)))


def test_weights(tmp_path):
    weights = dict(end="data/weights/model_weights_config.json")
    assert "Q301" in edited(tmp_path,
                            lambda d: some_config(d)["tensor_meta"].update(storage_offset={"as_int": 1 << 40}),
                            **weights)
    assert {"Q302", "Q309"} <= edited(tmp_path, lambda d: some_config(d).update(path_name="weight_999"), **weights)
    assert "Q310" in edited(tmp_path, lambda d: some_config(d)["tensor_meta"].update(dtype=99), **weights)
    assert "Q307" in edited(tmp_path, lambda d: d["config"].update(spare=some_config(d)), **weights)
    report = qkv.check(SMALL / "resnet_small.pt2")
    MADE.update(f["id"] for f in report.findings)
    assert any(f["id"] == "Q311" and "num_batches_tracked" in f["place"] for f in report.notes)
    files = entries("mha_self")
    data = archive(files)
    at = data.index(next(v for k, v in files.items() if k.endswith("weight_0")))
    damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]
    assert not check(damaged, tmp_path)[1] & {"Q308"} and "Q308" in check(damaged, tmp_path, full=True)[1]
    key = next(k for k in files if k.endswith("weight_0"))
    files[key] = struct.pack("<f", float("nan")) * (len(files[key]) // 4)
    assert "Q304" in check(archive(files), tmp_path)[1]


def add(tmp_path, name, data, **options):
    files = entries("mha_self")
    root = next(iter(files)).split("/")[0]
    return check(archive({**files, f"{root}/{name}": data}), tmp_path, security=True, **options)[1]


class Evil:
    def __reduce__(self):
        return (eval, ("1",))


class Odd:
    def __reduce__(self):
        return (json.loads, ("1",))


@pytest.mark.parametrize("protocol", range(6))
def test_pickles(protocol, tmp_path):
    assert "Q902" in add(tmp_path, "extra/a.pkl", pickle.dumps([1, "x", Evil()], protocol))
    found = add(tmp_path, "extra/a.pkl", pickle.dumps({"a": Odd()}, protocol))
    assert "Q915" in found and "Q902" not in found
    assert not add(tmp_path, "extra/a.pkl", pickle.dumps({"a": [1, 2.5, None, True, b"x", "y" * 300, 1 << 70]},
                                                         protocol)) & {"Q902", "Q915", "Q199"}


def test_pickles_elsewhere(tmp_path):
    inner = archive({"archive/data.pkl": pickle.dumps(Evil())})
    assert "Q902" in add(tmp_path, "data/sample_inputs/other.pt", inner)
    assert "Q902" in add(tmp_path, "data/weights/weight_77", pickle.dumps(Evil()))
    assert "Q902" in add(tmp_path, "data/weights/custom_obj_0", pickle.dumps(Evil(), 0))
    os_system = b"cos\nsystem\n(S'true'\ntR."
    assert "Q902" in add(tmp_path, "extra/b.pkl", os_system)
    assert "Q199" in add(tmp_path, "extra/b.pkl", b"\x80\x04\xff\xff")


def test_code(tmp_path):
    assert "Q903" in add(tmp_path, "data/aotinductor/model/wrapper.so", b"\x7fELF" + bytes(100))
    assert "Q903" in add(tmp_path, "extra/readme", b"\x7fELF" + bytes(100))
    assert "Q914" in add(tmp_path, "extra/inner.zip", b"PK\3\4" + bytes(40))


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "C:/x", "a\\b", "a\nb"])
def test_names(name, tmp_path):
    files = entries("mha_self")
    assert "Q904" in check(archive({**files, name: b""}), tmp_path, security=True)[1]


def test_container(tmp_path):
    import warnings

    warnings.simplefilter("ignore")
    files = entries("sdpa_gqa")
    key = next(k for k in files if k.endswith("models/model.json"))
    plain = archive(files)
    directory = plain.index(b"PK\1\2")
    entry = plain.rindex(b"PK\1\2", 0, plain.rindex(key.encode()))

    def patched(at, data):
        return check(plain[:at] + data + plain[at + len(data):], tmp_path, security=True)[1]

    assert "Q905" in check(archive([*files.items(), (key, b"{}")]), tmp_path, security=True)[1]
    assert "Q905" in check(archive([*files.items(), (key.upper(), b"{}")]), tmp_path, security=True)[1]
    assert "Q906" in patched(entry + 42, plain[directory + 42:directory + 46])
    assert "Q908" in patched(entry + 8, struct.pack("<H", 1))
    assert "Q910" in patched(entry + 46, b"X")
    assert "Q913" in patched(entry + 10, struct.pack("<H", 99))
    assert "Q907" in check(archive({**files, "bomb": b" " * (64 << 20)}, zipfile.ZIP_DEFLATED), tmp_path,
                           security=True)[1]
    assert "Q909" in check(archive({**files, "link": b"/etc"}, attributes={"link": 0o120777 << 16}), tmp_path,
                           security=True)[1]
    assert "Q911" in check(b"#!/bin/sh\n" + plain, tmp_path, security=True)[1]
    assert "Q100" in check(plain[:-30], tmp_path, security=True)[1]
    assert not check(plain, tmp_path, security=True)[1] - {"Q901"}


def test_findings_are_made():
    if len(MADE) < 20:
        pytest.skip("the tests that make findings were not run")
    assert FINDINGS <= MADE, sorted(FINDINGS - MADE)
