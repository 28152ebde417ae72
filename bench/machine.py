"""What the machine can do and what it is: peaks by multiply-add loops, its name and kind, what else it does, versions.

    with Peak() as peak:                    two small C programs, built once
        f32, bf16 = peak.measure()          GFLOP/s of one core now, about 60 ms; 0 where it cannot be told
        peak.top                            the most seen so far

bf16 is by AMX tiles where the machine has them, else by AVX-512-BF16. A virtual machine's peak moves with its
neighbours: measure it between the things that are compared with it and take the most seen.
"""
import os, platform, subprocess, sys, tempfile, time

import hold

LOOP = r"""
#include <stdio.h>
#include <time.h>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif
#if defined __AVX512F__
enum { BYTES = 64 };
#elif defined __AVX__
enum { BYTES = 32 };
#else
enum { BYTES = 16 };
#endif
enum { LANES = BYTES / 4, CHAINS = 12, ROUNDS = 400000 };
typedef float Vec __attribute__((vector_size(BYTES)));
static double now(void){struct timespec t;clock_gettime(CLOCK_MONOTONIC,&t);return t.tv_sec+t.tv_nsec*1e-9;}
int main(void){Vec a[CHAINS],x,y;for(int i=0;i<LANES;i++)x[i]=.5f,y[i]=1;for(int i=0;i<CHAINS;i++)a[i]=y;
 double f=1e9,b=1e9;float s=0;
 for(int r=0;r<12;r++){double t=now();for(int k=0;k<ROUNDS;k++)for(int i=0;i<CHAINS;i++)a[i]=a[i]*x+y;
  t=now()-t;if(t<f)f=t;}
 for(int i=0;i<CHAINS;i++)s+=a[i][0];
#ifdef __AVX512BF16__
 __m512 c[CHAINS];__m512bh u=(__m512bh)_mm512_set1_epi16(0x3f00);for(int i=0;i<CHAINS;i++)c[i]=_mm512_set1_ps(1);
 for(int r=0;r<12;r++){double t=now();for(int k=0;k<ROUNDS;k++)for(int i=0;i<CHAINS;i++)c[i]=_mm512_dpbf16_ps(c[i],u,u);
  t=now()-t;if(t<b)b=t;}
 for(int i=0;i<CHAINS;i++)s+=_mm512_reduce_add_ps(c[i]);
#endif
 double steps=(double)ROUNDS*CHAINS*2;printf("%g %g %g\n",steps*LANES/f/1e9,b<1e9?steps*2*LANES/b/1e9:0,s);}
"""

TILES = r"""
#include <immintrin.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static double now(void){struct timespec t;clock_gettime(CLOCK_MONOTONIC,&t);return t.tv_sec+t.tv_nsec*1e-9;}
struct{unsigned char palette,start,reserved[14];unsigned short bytes[16];unsigned char rows[16];}g={.palette=1};
int main(void){double b=1e9;if(syscall(SYS_arch_prctl,0x1023,18))return 1;
 for(int i=0;i<8;i++){g.bytes[i]=64;g.rows[i]=16;}
 _tile_loadconfig(&g);_tile_zero(0);_tile_zero(1);_tile_zero(2);_tile_zero(3);_tile_zero(4);_tile_zero(5);_tile_zero(6);_tile_zero(7);
 for(int r=0;r<12;r++){double t=now();for(int k=0;k<40000;k++){_tile_dpbf16ps(0,4,6);_tile_dpbf16ps(1,4,7);_tile_dpbf16ps(2,5,6);_tile_dpbf16ps(3,5,7);}
  t=now()-t;if(t<b)b=t;}
 printf("%g\n",4*4e4*16*16*32*2/b/1e9);}
"""


def level():
    """The ISA level that QKV_CPU asks for, or None."""
    return os.environ.get("QKV_CPU") or None


# The peak of a level below the machine's own.
PEAK_FLAGS = {"avx2": ["-mavx2", "-mfma"], "avxvnni": ["-mavx2", "-mfma"], "avx512": ["-mavx512f"],
              "avx512vnni": ["-mavx512f"]}


def held(folder):
    """What to add to a process's environment, so that its libraries find the level's instructions alone. OpenVINO's and
    ONNX Runtime's products by MLAS ask the CPU and have no setting: without this they run by AVX-512 beside AVX2."""
    return hold.environment(folder, level()) if level() else {}


class Peak:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.loop = self._built("loop", LOOP, "-O3", "-funroll-all-loops", *PEAK_FLAGS.get(level(), ["-march=native"]))
        tiles = "amx_bf16" in cpuinfo()["flags"] and not level()
        self.tiles = tiles and self._built("tiles", TILES, "-O2", "-mamx-tile", "-mamx-bf16")
        self.seen, self.top = [], (0.0, 0.0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def _built(self, name, source, *flags):
        p = os.path.join(self.folder.name, name)
        open(p + ".c", "w").write(source)
        return p if not subprocess.run(["cc", *flags, p + ".c", "-o", p], capture_output=True).returncode else None

    @staticmethod
    def _numbers(program):
        r = program and subprocess.run([program], capture_output=True, text=True)
        return tuple(map(float, r.stdout.split())) if r and not r.returncode else ()

    def measure(self):
        f32, bf16 = (self._numbers(self.loop) + (0, 0))[:2]
        tiles = self._numbers(self.tiles)
        now = (f32, tiles[0] if tiles else max(f32, bf16))  # bf16 may be multiplied as floats
        self.seen.append(now)
        self.top = tuple(map(max, self.top, now))
        return now


class Others:
    """How many CPUs processes other than ours use, and how many the host takes from this virtual machine.

        others = Others([pid, ...])          ours: this process, its finished children, and these
        ...
        others.used()                        {"others": 0.02, "stolen": 0.0}, averages since then
    """

    def __init__(self, pids):
        self.pids, self.start = pids, time.monotonic()
        self.busy, self.stolen = self._all()
        self.own = self._own()

    @staticmethod
    def _all():
        user, nice, system, _, _, irq, soft, stolen = map(int, open("/proc/stat").readline().split()[1:9])
        return [ticks / os.sysconf("SC_CLK_TCK") for ticks in (user + nice + system + irq + soft, stolen)]

    def _own(self):
        ticks = 0
        for pid in self.pids:
            try:
                ticks += sum(map(int, open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[11:15]))
            except OSError:
                pass
        return sum(os.times()[:4]) + ticks / os.sysconf("SC_CLK_TCK")

    def used(self):
        (busy, stolen), seconds = self._all(), max(time.monotonic() - self.start, 1e-3)
        others = busy - self.busy - (self._own() - self.own)
        return {"others": max(0, round(others / seconds, 2)), "stolen": round((stolen - self.stolen) / seconds, 2)}


def serve(run):
    """A peer's process: reads counts from stdin, runs so often, prints the least time in ms."""
    run(), run()
    print("ready", flush=True)
    for line in sys.stdin:
        best = float("inf")
        for _ in range(int(line)):
            t = time.perf_counter()
            run()
            best = min(best, time.perf_counter() - t)
        print(best * 1e3, flush=True)


def cpuinfo():
    """Of the first CPU: {"model name": ..., "flags": [...]}."""
    lines = (line.split(":", 1) for line in open("/proc/cpuinfo").read().split("\n\n")[0].splitlines() if ":" in line)
    info = {k.strip(): v.strip() for k, v in lines}
    return {**info, "flags": info.get("flags", info.get("Features", "")).split()}


# (vendor, family): models from the first number up to the next, as their makers call them.
CORES = {("AuthenticAMD", 23): [(0x00, "zen"), (0x30, "zen2")],
         ("AuthenticAMD", 25): [(0x00, "zen3"), (0x10, "zen4"), (0x20, "zen3"), (0x60, "zen4")],
         ("AuthenticAMD", 26): [(0x00, "zen5")],
         ("GenuineIntel", 6): [(0x55, "skylake-sp"), (0x56, ""), (0x6a, "icelake-sp"), (0x6b, ""),
                               (0x8f, "sapphire-rapids"), (0x90, ""), (0xad, "granite-rapids"), (0xaf, ""),
                               (0xcf, "emerald-rapids"), (0xd0, "")]}


def kind():
    """The CPU's kind as the name of a file: zen4, sapphire-rapids, family and model of one that CORES lacks; whether it
    has AMX, which hosts may hide; and the level that QKV_CPU asks for."""
    info = cpuinfo()
    vendor, family, model = info.get("vendor_id", platform.machine()), info.get("cpu family"), info.get("model")
    known = [name for first, name in CORES.get((vendor, int(family or 0)), []) if first <= int(model or 0)]
    name = known[-1] if known and known[-1] else "-".join(filter(None, (vendor.lower(), family, model)))
    return "-".join(filter(None, (name, level() or ("amx" if "amx_bf16" in info["flags"] else None))))


SETS = {"avx2": "AVX2", "avx512f": "AVX-512", "avx512_vnni": "AVX512_VNNI", "avx512_bf16": "AVX512_BF16",
        "avx512_fp16": "AVX512_FP16", "amx_bf16": "AMX"}


def describe():
    """One sentence for a table's head: CPU, how many, instruction sets, compiler, versions."""
    info = cpuinfo()
    sets = [text for flag, text in SETS.items() if flag in info["flags"]]
    return (f"{info.get('model name', platform.machine())} ({kind()}), {os.cpu_count()} CPUs, "
            f"{', '.join(sets) or platform.machine()}; {', '.join(versions())}")


def version(qkv):
    """The program's own, and the commit that lies here."""
    said = subprocess.run([qkv, "--version"], capture_output=True, text=True).stdout.strip()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                            cwd=os.path.dirname(os.path.abspath(__file__))).stdout.strip()
    return " ".join(filter(None, (said, commit)))


def versions():
    from importlib import metadata
    out = []
    for p in ("torch", "transformers", "onnxruntime", "openvino", "nncf"):
        try:
            out.append(f"{p} {metadata.version(p)}")
        except metadata.PackageNotFoundError:
            pass
    return out
