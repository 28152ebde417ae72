#!/usr/bin/env python3
"""Makes hostile .pt2 files out of good small ones: one edit each, named by what must happen to it.

    edits.py SMALL_FOLDER OUT_FOLDER      writes OUT_FOLDER/reject_*.pt2, accept_*.pt2, any_*.pt2;
                                          Python's standard library only

reject: loading, or running with random inputs, must say what is wrong. accept: must load and run. any: must not crash.
"""
import copy
import io
import json
import pathlib
import struct
import sys
import zipfile
import zlib

SMALL, OUT = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])


def entries(name):
    with zipfile.ZipFile(SMALL / f"{name}.pt2") as z:
        return {i.filename: z.read(i) for i in z.infolist()}


def archive(files, method=zipfile.ZIP_STORED):
    b = io.BytesIO()
    with zipfile.ZipFile(b, "w", method) as z:
        for name, data in (files.items() if isinstance(files, dict) else files):
            z.writestr(zipfile.ZipInfo(name), data, method)
    return b.getvalue()


def write(kind, what, data):
    (OUT / f"{kind}_{what}.pt2").write_bytes(data)


def at(files, end):
    return next(k for k in files if k.endswith(end))


def edit(kind, what, change, base="sdpa_gqa", end="models/model.json"):
    """change(parsed json) in place, or returns text to put instead."""
    files = entries(base)
    key = at(files, end)
    doc = json.loads(files[key])
    text = change(doc)
    files[key] = text if isinstance(text, bytes) else text.encode() if isinstance(text,
        str) else json.dumps(doc).encode()
    write(kind, what, archive(files))


def graph(doc): return doc["graph_module"]["graph"]
def nodes(doc): return graph(doc)["nodes"]
def put(d, k, v): d[k] = v


def first(doc, part):
    return next(n for n in nodes(doc) if part in n["target"])


def size_of(doc, expr):
    """Gives the first axis of the first user input another expression."""
    name = next(i["as_tensor"]["name"] for i in graph(doc)["inputs"]
                if not i["as_tensor"]["name"].startswith(("p_", "b_", "c_")))
    graph(doc)["tensor_values"][name]["sizes"][0] = expr


def expr(text): return {"as_expr": {"expr_str": text, "hint": None}}


# ------------------------------------------------------------------ JSON text
good = entries("sdpa_gqa")[at(entries("sdpa_gqa"), "models/model.json")].decode()
for what, text in {"empty": "", "array": "[]", "null": "null", "truncated": good[: len(good) // 2],
                   "trailing": good + "x", "deep_array": "[" * 100000, "deep_object": '{"a":' * 100000,
                   "bare_nan": '{"a": NaN}', "duplicate_key": good.replace('"graph":', '"graph": {}, "graph":', 1),
                   "bad_utf8": good.encode().replace(b"aten", b"\xff\xfe", 1), "lone_surrogate": good.replace("aten",
                       "\\ud800", 1), "huge_number": good.replace('"as_int": 1', '"as_int": 1' + "0" * 400, 1),
                   "nul": good.encode().replace(b"aten", b"at\0n", 1),
                   "comment": "/* */" + good}.items():
    edit("reject", "json_" + what, lambda d: text)
edit("any", "json_bom", lambda d: "\ufeff" + good)
edit("reject", "json_wrong_types", lambda d: put(d, "graph_module", 3))
for key in ("graph", "signature"):
    edit("reject", f"no_{key}", lambda d: d["graph_module"].pop(key))
for key in ("inputs", "outputs"):
    edit("any", f"graph_without_{key}", lambda d: graph(d).pop(key))    # the signature says the same
for key in ("nodes", "tensor_values"):
    edit("reject", f"graph_without_{key}", lambda d: graph(d).pop(key))
edit("reject", "schema_major_9", lambda d: put(d["schema_version"], "major", 9))
edit("any", "schema_minor_99", lambda d: put(d["schema_version"], "minor", 99))

# ------------------------------------------------------------------ weights
W = dict(base="mha_self", end="data/weights/model_weights_config.json")
meta = lambda d: next(iter(d["config"].values()))["tensor_meta"]
ints = lambda *v: [{"as_int": x} for x in v]
edit("reject", "weight_shape_overflow", lambda d: meta(d).update(sizes=ints(4194305, 4194305, 211106198978564),
                                                                 strides=ints(1, 1, 1)), **W)
edit("reject", "weight_too_large", lambda d: meta(d).update(sizes=ints(1 << 20, 16)), **W)
edit("reject", "weight_negative_size", lambda d: meta(d).update(sizes=ints(-1, 16)), **W)
edit("reject", "weight_offset_outside", lambda d: meta(d).update(storage_offset={"as_int": 1 << 40}), **W)
edit("reject", "weight_offset_negative", lambda d: meta(d).update(storage_offset={"as_int": -1}), **W)
edit("reject", "weight_stride_outside", lambda d: meta(d).update(strides=ints(1 << 30, 1)), **W)
edit("reject", "weight_stride_negative", lambda d: meta(d).update(strides=ints(-16, 1)), **W)
edit("reject", "weight_rank_100", lambda d: meta(d).update(sizes=ints(*[1] * 100), strides=ints(*[1] * 100)), **W)
edit("reject", "weight_dtype_99", lambda d: meta(d).update(dtype=99), **W)
edit("reject", "weight_other_dtype", lambda d: meta(d).update(dtype=5), **W)
edit("reject", "weight_pickled", lambda d: next(iter(d["config"].values())).update(use_pickle=True), **W)
edit("reject", "weight_path_missing", lambda d: next(iter(d["config"].values())).update(path_name="weight_999"), **W)
edit("reject", "weight_path_outside",
     lambda d: next(iter(d["config"].values())).update(path_name="../../../etc/passwd"), **W)
edit("reject", "weight_not_listed", lambda d: d["config"].clear(), **W)

# ------------------------------------------------------------------ graph
M = dict(base="mha_self")
edit("reject", "undefined_value", lambda d: put(first(d, "linear")["inputs"][0]["arg"]["as_tensor"], "name",
                                                "nowhere"), **M)
edit("reject", "later_value", lambda d: nodes(d).reverse(), **M)
edit("reject", "own_output", lambda d: put(first(d, "linear")["inputs"][0]["arg"]["as_tensor"], "name",
                                           first(d, "linear")["outputs"][0]["as_tensor"]["name"]), **M)
edit("any", "two_producers", lambda d: nodes(d).append(copy.deepcopy(first(d, "linear"))), **M)
edit("any", "output_missing", lambda d: put(graph(d)["outputs"][0]["as_tensor"], "name", "nowhere"), **M)
edit("reject", "output_missing_both", lambda d: [put(o["as_tensor"], "name", "nowhere")
                                                 for o in (graph(d)["outputs"][0],
                                                           d["graph_module"]["signature"]["output_specs"][0]["user_output"]["arg"])], **M)
edit("reject", "argument_missing", lambda d: first(d, "linear")["inputs"].clear(), **M)
edit("reject", "argument_unknown", lambda d: put(first(d, "linear")["inputs"][0], "name", "surprise"), **M)
edit("reject", "argument_string_for_int", lambda d: put(first(d, "transpose")["inputs"][1], "arg",
                                                        {"as_string": "x"}), **M)
edit("reject", "argument_int_for_tensor", lambda d: put(first(d, "linear")["inputs"][0], "arg", {"as_int": 3}), **M)
edit("reject", "argument_two_tags", lambda d: put(first(d, "transpose")["inputs"][1], "arg",
                                                  {"as_int": 1, "as_bool": True}), **M)
edit("reject", "dim_99", lambda d: put(first(d, "transpose")["inputs"][1], "arg", {"as_int": 99}), **M)
edit("reject", "dim_min", lambda d: put(first(d, "transpose")["inputs"][1], "arg", {"as_int": -(1 << 63)}), **M)
edit("reject", "unflatten_overflow", lambda d: put(first(d, "unflatten")["inputs"][2], "arg",
                                                   {"as_ints": [1 << 62, 1 << 62]}), **M)
edit("reject", "unflatten_negative", lambda d: put(first(d, "unflatten")["inputs"][2], "arg", {"as_ints": [-3, -16]}),
     **M)
edit("reject", "view_huge", lambda d: put(first(d, "view")["inputs"][1], "arg", {"as_ints": [(1 << 63) - 1]}), **M)
edit("reject", "permute_twice", lambda d: put(first(d, "permute")["inputs"][1], "arg", {"as_ints": [0, 0, 1, 3]}), **M)
extra = lambda d, part, name, value: first(d, part)["inputs"].append({"name": name, "arg": value, "kind": 2})
edit("reject", "word_unknown", lambda d: extra(d, "gelu", "approximate", {"as_string": "tahn"}),
     base="encoder_prenorm_gelu")
edit("reject", "dtype_2_32", lambda d: put(graph(d)["tensor_values"]["x"], "dtype", (1 << 32) + 7), **M)
edit("reject", "op_unknown", lambda d: put(first(d, "linear"), "target", "torch.ops.aten.no_such_op.default"), **M)
edit("reject", "op_name_1mb", lambda d: put(first(d, "linear"), "target", "torch.ops.aten." + "a" * (1 << 20)), **M)
edit("reject", "op_from_elsewhere", lambda d: put(first(d, "linear"), "target", "os.system"), **M)
edit("reject", "input_specs_missing", lambda d: d["graph_module"]["signature"]["input_specs"].pop(), **M)
edit("any", "input_twice", lambda d: graph(d)["inputs"].append(copy.deepcopy(graph(d)["inputs"][-1])), **M)
edit("accept", "20k_unused_values",
     lambda d: graph(d)["tensor_values"].update({f"unused_{i}": copy.deepcopy(graph(d)["tensor_values"]["x"])
                                                 for i in range(20000)}), **M)
edit("accept", "unknown_fields", lambda d: d.update(surprise=[1, {"deep": None}]), **M)
edit("any", "metadata_gone", lambda d: [n.update(metadata={}) for n in nodes(d)], **M)

# ------------------------------------------------------------------ symbols
edit("any", "symbol_unknown", lambda d: size_of(d, expr("Symbol('zz')")))
edit("reject", "symbol_odd_name", lambda d: size_of(d, expr("Symbol('s0 + 1')")))
edit("reject", "symbol_keyword", lambda d: size_of(d, expr("Symbol('not')")))
# 8**12 nodes if shared parts were walked
edit("any", "size_shared_powers", lambda d: size_of(d, expr("Max(" * 12 + "s0" + ", s1)**8" * 12)))
edit("any", "size_division_by_zero", lambda d: size_of(d, expr("FloorDiv(Symbol('s0'), Integer(0))")))
edit("any", "size_power", lambda d: size_of(d, expr("Pow(Integer(2), Integer(1000000000))")))
edit("reject", "size_1mb", lambda d: size_of(d, expr("Add(" + "Integer(1), " * 90000 + "Integer(1))" + " + (" * 1000)))
edit("reject", "size_deep", lambda d: size_of(d, expr("(" * 100000 + "1" + ")" * 100000)))
edit("reject", "size_garbage", lambda d: size_of(d, expr("__import__('os').system('true')")))
edit("reject", "size_negative", lambda d: size_of(d, {"as_int": -5}))
edit("reject", "size_string", lambda d: size_of(d, {"as_string": "5"}))
edit("reject", "range_empty", lambda d: [r.update(min_val=9, max_val=3) for r in d["range_constraints"].values()])
edit("any", "range_negative",
     lambda d: [r.update(min_val=-(1 << 62), max_val=None) for r in d["range_constraints"].values()])
edit("any", "range_huge",
     lambda d: [r.update(min_val=1 << 40, max_val=1 << 41) for r in d["range_constraints"].values()])
edit("reject", "input_rank_100", lambda d: graph(d)["tensor_values"]["q"].update(sizes=ints(*[2] * 100),
    strides=ints(*[1] * 100)))
edit("any", "guard_garbage", lambda d: d.update(guards_code=["L['q'].size()[0] ==", "import os", "(" * 5000]))

# ------------------------------------------------------------------ archive
files = entries("sdpa_gqa")
root = next(iter(files)).split("/")[0]
write("accept", "zip_plain", archive(files))
write("accept", "zip_deflated", archive(files, zipfile.ZIP_DEFLATED))
write("accept", "zip_other_root", archive({k.replace(root, "any name", 1): v for k, v in files.items()}))
long = {k.replace(root, "r" * 400, 1): v for k, v in files.items()}
write("accept", "zip_name_beside_root", archive([("z", b"")] + list(long.items())))
write("accept", "zip_prefix_comment", archive(files)[:-2] + struct.pack("<H", 5) + b"hello")
for end in ("models/model.json", "archive_format", "model_weights_config.json"):
    write("reject", "zip_without_" + end.rsplit("/", 1)[-1].split(".")[0],
          archive({k: v for k, v in files.items() if not k.endswith(end)}))
m = entries("mha_self")
write("reject", "zip_without_weight", archive({k: v for k, v in m.items() if not k.endswith("weight_0")}))
write("reject", "zip_short_weight",
      archive({k: v[: len(v) // 2] if k.endswith("weight_0") else v for k, v in m.items()}))
write("reject", "zip_empty_weight", archive({k: b"" if k.endswith("weight_0") else v for k, v in m.items()}))
write("reject", "zip_wrong_format",
      archive({k: b"tar" if k.endswith("archive_format") else v for k, v in files.items()}))
write("reject", "zip_big_endian", archive({k: b"big" if k.endswith("byteorder") else v for k, v in files.items()}))
import warnings
warnings.simplefilter("ignore")
write("reject", "zip_same_name_twice", archive(list(files.items()) + [(at(files, "models/model.json"), b"{}")]))
plain = archive(files)
end = plain.rindex(b"PK\5\6")
directory = struct.unpack("<I", plain[end + 16:end + 20])[0] # not that of the archive in the archive
key = at(files, "models/model.json").encode()
entry = plain.rindex(b"PK\1\2", 0, plain.rindex(key))


def patched(offset, data, of=plain):
    return of[:offset] + data + of[offset + len(data):]


write("reject", "zip_method_99", patched(entry + 10, struct.pack("<H", 99)))
write("reject", "zip_encrypted", patched(entry + 8, struct.pack("<H", 1)))
write("reject", "zip_crc", patched(entry + 16, struct.pack("<I", zlib.crc32(b"else"))))
write("reject", "zip_offset_outside", patched(entry + 42, struct.pack("<I", 0x7fffffff)))
write("reject", "zip_size_outside", patched(entry + 20, struct.pack("<II", 0x7fffffff, 0x7fffffff)))
write("reject", "zip_overlap", patched(entry + 42, plain[directory + 42:directory + 46]))
write("reject", "zip_count", patched(end + 8, struct.pack("<HH", 60000, 60000)))
write("reject", "zip_directory_outside", patched(end + 16, struct.pack("<I", len(plain) + 100)))
FAR = (1 << 64) - 1


def zip64(count=struct.unpack("<H", plain[end + 10:end + 12])[0], size=end - directory, offset=directory, record=end):
    """The archive with an end in 64 bits."""
    return (plain[:end] + struct.pack("<IQHHIIQQQQ", 0x06064b50, 44, 45, 45, 0, 0, count, count, size, offset) +
            struct.pack("<IIQI", 0x07064b50, 0, record, 1) +
            struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, 0xffff, 0xffff, 0xffffffff, 0xffffffff, 0))


def wide(sizes, length=24):
    """The archive with the graph's packed size, size and offset in 64 bits, or what `sizes` says."""
    name, more = struct.unpack("<HH", plain[entry + 28:entry + 32])
    packed, unpacked = struct.unpack("<II", plain[entry + 20:entry + 28])
    values = [unpacked, packed, struct.unpack("<I", plain[entry + 42:entry + 46])[0]]
    extra = struct.pack("<HHQQQ", 1, length, *(v if s is None else s for v, s in zip(values, sizes)))
    head = (plain[entry:entry + 20] + b"\xff" * 8 + plain[entry + 28:entry + 30] + struct.pack("<H", len(extra)) +
            plain[entry + 32:entry + 42] + b"\xff" * 4)
    made = plain[:entry] + head + plain[entry + 46:entry + 46 + name] + extra + plain[entry + 46 + name + more:end]
    return made + plain[end:end + 12] + struct.pack("<I", len(made) - directory) + plain[end + 16:]


write("accept", "zip64", zip64())
for what, change in {"offset_2_63": {"offset": 1 << 63}, "offset_minus_1": {"offset": FAR},
                     "size_wraps": {"size": (1 << 64) - directory}, "count": {"count": FAR},
                     "count_0": {"count": 0}, "count_2_32": {"count": 1 << 32}, "record_far": {"record": FAR},
                     "record_wraps": {"record": (1 << 64) - 56}, "record_0": {"record": 0}}.items():
    write("reject", "zip64_" + what, zip64(**change))
write("accept", "zip64_entry", wide((None, None, None)))
for what, sizes in {"size_2_63": (1 << 63, None, None), "packed_minus_1": (None, FAR, None),
                    "both_wrap": (FAR - 15, FAR - 15, None), "offset_wraps": (None, None, FAR - 29),
                    "offset_at_end": (None, None, len(plain) - 10)}.items():
    write("reject", "zip64_entry_" + what, wide(sizes))
for length in (0, 1, 16, 60000):
    write("reject", f"zip64_entry_{length}_bytes", wide((None, None, None), length))
write("reject", "not_a_zip", b"this is not an archive" * 100)
write("reject", "nothing", b"")
bomb = dict(files)
bomb[at(files, "models/model.json")] = b" " * (200 << 20)
write("reject", "deflate_bomb", archive(bomb, zipfile.ZIP_DEFLATED))
