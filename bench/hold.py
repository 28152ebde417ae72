"""Holds processes to the instructions of an older CPU: where their libraries ask the CPU itself (bench/hold.c).

    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([...], env=dict(os.environ, **hold.environment(folder, "avx2")))

A library's `cpuid`: where its two bytes stand in code, and the function around them, whose beginning is in the
library's own table for unwinding (.eh_frame_hdr), decodes to it. Code that the table lacks is decoded from 64 KiB
before.
"""
import bisect, importlib.util, mmap, os, pathlib, struct, subprocess

CPUID = b"\x0f\xa2"
PACKAGES = ["torch", "onnxruntime", "openvino", "numpy", "scipy"]
FAR = 1 << 16  # bytes, after which decoding that began amid an instruction is in step
LONGEST = 15  # bytes of an instruction
UNWIND, CODE = 0x6474e550, 4  # a segment's kind, a section's flag
HEADER = b"\x01\x1b\x03\x3b"  # version 1; offsets of 4 bytes, of which those of the table count from the header on


def functions(data, header):
    """Where functions begin, sorted; `header`: offset and address of .eh_frame_hdr."""
    offset, address = header
    if data[offset:offset + 4] != HEADER:
        return []
    count, = struct.unpack_from("<I", data, offset + 8)
    return [address + begin for begin, _ in struct.iter_unpack("<ii", data[offset + 12:offset + 12 + 8 * count])]


def sites(path):
    """Offsets of the file at which a cpuid stands."""
    import capstone
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.skipdata = True  # goes on after bytes that decode to nothing
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
        segments, sections = struct.unpack_from("<QQ", data, 32)
        size, count, each, number, _ = struct.unpack_from("<HHHHH", data, 54)
        parts = [struct.unpack_from("<IIQQ", data, segments + i * size) for i in range(count)]
        starts = next((functions(data, where) for kind, _, *where in parts if kind == UNWIND), [])
        for i in range(number):
            _, _, flags, address, offset, length = struct.unpack_from("<IIQQQQ", data, sections + i * each)
            at = data.find(CPUID, offset, offset + length) if flags & CODE else -1
            while at >= 0:
                here = at - offset + address
                i = bisect.bisect_right(starts, here)
                start = max(starts[i - 1] if i else address, here - FAR)
                code = data[start - address + offset:at + LONGEST]
                if any(a == here and name == "cpuid" for a, _, name, _ in decoder.disasm_lite(code, start)):
                    yield at
                at = data.find(CPUID, at + 1, offset + length)


def libraries():
    """Those of the packages that are installed here, and of what these bring along."""
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        place = spec.submodule_search_locations[0] if spec else ""
        for folder in [place, place + ".libs"] if spec else []:
            for p in sorted(pathlib.Path(folder).rglob("*.so*")):
                if p.is_file() and open(p, "rb").read(4) == b"\x7fELF":
                    yield os.path.realpath(p)


def environment(folder, level):
    """What to add to a process's environment. Builds the library and lists the sites in `folder`, which has to stay."""
    library, listed = os.path.join(folder, "hold.so"), os.path.join(folder, "sites")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hold.c")
    subprocess.run(["cc", "-O2", "-fPIC", "-shared", source, "-o", library], check=True)
    with open(listed, "w") as f:
        for path in sorted(set(libraries())):
            f.writelines(f"{at:x} {path}\n" for at in sites(path))
    return {"HOLD": level, "HOLD_SITES": listed, "LD_AUDIT": library}
