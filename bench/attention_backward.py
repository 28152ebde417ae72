"""The gradient of attention beside PyTorch's CPU kernel for it, the two in turn in one process:
least times of each, rows of bench/RESULTS.md.

    make && .venv/bin/python bench/attention_backward.py [--dtype bf16] [--threads 1] [--seconds 2] [SHAPE ...]
                                                    SHAPE: B_H_N_D such as 1_12_512_64, with a c at the end causal

Both get PyTorch's output and logsumexp. 5 products of N x N x D, half of them for causal ones; the share is of the
rung's multiply-add loop on registers (src/kernel/peak.h), of f32 where it has none of bf16. `differs`: the largest
relative distance of dq, dk and dv from PyTorch's. QKV_CPU chooses the rung.
"""
import argparse, ctypes as C, os, subprocess, tempfile, time

import torch

KERNEL = r"""
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include "kernel/kernel.h"
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (double)t.tv_sec + (double)t.tv_nsec * 1e-9; }
static void strides(int64_t *s, int64_t H, int64_t N, int64_t D) { s[0] = H * N * D, s[1] = N * D, s[2] = D; }
const char *rung(void) { return cpu_level_name(cpu_level()); }
double peak(int bf16)
{
    const PeakKernels *k = &kernels()->peak;
    double best = 0;
    float sink;
    for (int i = 0; i < 10; i++) {
        double t = now(), n = (bf16 && k->bf16 ? k->bf16 : k->f32)(20000, &sink);
        if (n / (now() - t) > best) best = n / (now() - t);
    }
    return best / 1e9;
}
double backward(int bf16, int64_t B, int64_t H, int64_t N, int64_t D, int causal, void **x, int threads) /* seconds; q, k, v, out, lse, dout, dq, dk, dv */
{
    SdpaBackward g = {.f = {.t = bf16 ? DT_BF16 : DT_F32, .B = B, .H = H, .Hkv = H, .N = N, .M = N, .D = D, .E = D, .q = x[0], .k = x[1], .v = x[2], .out = x[3], .lse = x[4],
                            .scale = 1 / sqrt((double)D), .lower = -SDPA_ANY, .upper = causal ? 0 : SDPA_ANY}, .dout = x[5], .dq = x[6], .dk = x[7], .dv = x[8]};
    int64_t *all[] = {g.f.qs, g.f.ks, g.f.vs, g.f.os, g.dos, g.dqs, g.dks, g.dvs};
    for (int i = 0; i < 8; i++) strides(all[i], H, N, D);
    g.f.ls[0] = H * N, g.f.ls[1] = N, g.f.ls[2] = 1;
    const SdpaKernels *k = &kernels()->sdpa;
    void *room = aligned_alloc(64, (k->backward_workspace(&g, threads) + 127) / 64 * 64);
    double t = now();
    k->backward(&g, room, threads);
    t = now() - t;
    free(room);
    return t;
}
"""


def built(folder):
    source, made = os.path.join(folder, "k.c"), os.path.join(folder, "k.so")
    open(source, "w").write(KERNEL)
    libraries = "-lz -lminizip -lm".split()
    subprocess.run(["cc", "-O2", "-std=gnu17", "-fPIC", "-shared", "-fopenmp", "-Isrc", source, "-Wl,--start-group",
                    "build/libqkv_plain.a", *libraries, "-Wl,--end-group", "-o", made], check=True)
    lib = C.CDLL(made)
    lib.peak.restype = lib.backward.restype = C.c_double
    lib.rung.restype = C.c_char_p
    return lib


def measure(lib, dtype, shape, threads, seconds):
    causal, (B, H, N, D) = shape.endswith("c"), map(int, shape.rstrip("c").split("_"))
    q, k, v, dout = (torch.randn(B, H, N, D).to(dtype) for _ in range(4))
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
    lse = lse.float().contiguous()
    out, grads = out.contiguous(), [torch.empty_like(q) for _ in range(3)]
    pointers = (C.c_void_p * 9)(*[t.data_ptr() for t in (q, k, v, out, lse, dout, *grads)])
    narrow, ours, theirs, peak, end, rounds = int(dtype == torch.bfloat16), 1e9, 1e9, 0, time.time() + seconds, 0
    while rounds < 3 or time.time() < end:
        ours = min(ours, lib.backward(narrow, *(C.c_int64(n) for n in (B, H, N, D)), int(causal), pointers, threads))
        start = time.perf_counter()
        want = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(dout, q, k, v, out, lse, 0.0, causal)
        theirs = min(theirs, time.perf_counter() - start)
        peak, rounds = max(peak, lib.peak(narrow)), rounds + 1
    far = max(((a.double() - b.double()).norm() / b.double().norm()).item() for a, b in zip(grads, want))
    speed = 10 * B * H * N * N * D * (0.5 if causal else 1) / ours / 1e9
    print(f"| {'bf16' if narrow else 'f32'} | {shape} | {threads} | {ours * 1e3:.1f} | {theirs * 1e3:.1f} | "
          f"{theirs / ours:.2f} | {speed:.0f} | {100 * speed / peak / threads:.0f} % | {far:.0e} |", flush=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("shapes", nargs="*", default=["1_12_512_64", "1_12_512_64c", "1_12_1024_64", "1_12_1024_64c"])
    p.add_argument("--dtype", choices=["f32", "bf16"], default="bf16")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--seconds", type=float, default=2)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    with tempfile.TemporaryDirectory() as folder:
        kernel = built(folder)
        print(f"rung {kernel.rung().decode()}\n\n| dtype | B_H_N_D | threads | ours ms | PyTorch ms | ratio | GFLOP/s "
              "| of peak | differs |\n|---|---|---|---|---|---|---|---|---|")
        for shape in a.shapes:
            measure(kernel, torch.bfloat16 if a.dtype == "bf16" else torch.float32, shape, a.threads, a.seconds)
