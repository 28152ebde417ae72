#!/usr/bin/env python3
"""What the tests reach of the code that reads files: lines and branches of each file, by gcov.

    tools/coverage.py                  compiles, runs the tests that read files, prints the table
    tools/coverage.py --only WORD      runs those of the tests whose command holds WORD, and adds to the last run
    tools/coverage.py --no-run         the table of the last run
    tools/coverage.py --missing FILE   the lines of FILE that no test reached
    tools/coverage.py --write          the table into docs/TESTING.md

build-coverage is a copy of build (links to its files) in which the readers alone are compiled again, without
optimization and counted; then the tests that read files run there. Fails where a file has less than 95 % of its lines
and where a test fails; the end of what it printed is shown, all of it stands in build-coverage/logs.
A branch is one of the ways that the compiler makes of a condition, those to "out of memory" among them.
"""
import argparse, collections, concurrent.futures, json, os, pathlib, re, shutil, subprocess, sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = ROOT / "build-coverage"
LEAST = 95
# folders and files that take bytes from outside
READERS = re.compile(r"src/format/(?!write|proto\.h)|src/pt2/(read|check)/|src/onnx/(wire/(read|tensor)|read|check)/?"
                     r"|src/packed/read|src/expr/expr_text|src/rewrite/sexpr|src/ir/text|src/base/(file|number|json)"
                     r"|vision/(image|exif|json_bpe|json_bpe_read|bpe|merges|wordpiece|split|tokenizer)\."
                     r"|serve/(oip_read|multipart|openai|segment)\.|certify/replay\.")
COUNTED = r"libqkv(_vision)?_plain\.a\.p|libqkv_(graphs|serve)\.a\.p"  # their objects are in the tests and the command
UNIT = ["base", "bpe", "check", "expr", "file_faults", "format", "graph_text", "look", "onnx_format", "picture",
        "rules", "save", "serve", "wordpiece", "zip"]
# targets of tests/fuzz/meson.build, and how many inputs each
FUZZ = {"zip": 3000, "json": 5000, "safetensors": 3000, "npy": 5000, "expr": 5000, "rules": 1000, "wordpiece": 3000,
        "bpe": 3000, "tokenizer": 3000, "image": 5000, "pt2": 300, "packed": 3000, "onnx": 3000, "onnx_graph": 800,
        "check": 500, "serve": 5000, "certify": 2000}
AT_A_TIME = 4
PROGRAMS = ["cli/qkv", "libqkv.so.0.1.0", "libqkv_vision.so.0.1.0", "qkv-certify", "tests/oom/run_oom",
            "tests/models/run_small", "tests/models/run_pack", "tests/ops/run_ops", "tests/rules/run_rules",
            "tests/bad/test_bad", *(f"tests/unit/test_{t}" for t in UNIT), *(f"tests/fuzz/fuzz_{t}" for t in FUZZ)]
PYTEST = ["test_onnx_*.py", "test_files_refused.py", "test_check*.py",
          "test_bpe.py", "test_tokenizer.py", "test_segment*.py",
          "test_control.py", "test_exported.py", "test_own_ops.py", "test_serve.py", "test_serve_segment.py",
          "test_key_padding.py", "test_read_back.py", "test_locale.py", "test_certify.py", "test_qkv.py",
          "test_cache.py"]


def compile_readers():
    """Links every file of build, but for the readers' objects, which are compiled with counters."""
    shutil.rmtree(BUILD, ignore_errors=True)
    subprocess.run(["ninja", "-C", "build", *PROGRAMS], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    shutil.copytree(ROOT / "build", BUILD, copy_function=os.link, symlinks=True)
    commands = []
    for c in json.loads((BUILD / "compile_commands.json").read_text()):
        name = os.path.relpath(os.path.join(BUILD, c["file"]), ROOT)
        if READERS.match(name) and re.search(COUNTED, c["output"]):
            (BUILD / c["output"]).unlink()
            commands.append(re.sub(r" -O[0-9]", " -O0", c["command"]).replace("ccache ", "") + " --coverage")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda c: subprocess.run(c, shell=True, cwd=BUILD, check=True), commands))
    for program in PROGRAMS:
        link = subprocess.run(["ninja", "-C", "build", "-t", "commands", program], cwd=ROOT, check=True,
                              capture_output=True, text=True).stdout.splitlines()[-1]
        (BUILD / program).unlink()
        subprocess.run(link + " --coverage", shell=True, cwd=BUILD, check=True)


def run(command, env, seconds):
    """Whether the test passed; says so when it did not."""
    words = [os.path.relpath(c, ROOT) if os.path.isabs(c) else c for c in map(str, command)]
    log = BUILD / "logs" / (re.sub(r"\W+", "_", " ".join(words))[:120] + ".log")
    log.parent.mkdir(exist_ok=True)
    print("+", *words, flush=True)
    with log.open("w") as out:
        try:
            code = subprocess.run(words, cwd=ROOT, env=env, stdout=out, stderr=subprocess.STDOUT,
                                  timeout=seconds).returncode
        except subprocess.TimeoutExpired:  # what it reached is lost
            code = f"ended after {seconds} s"
    if code:
        last = log.read_text(errors="replace").splitlines()[-8:]
        print(f"  FAILED: {code}", *("    " + line for line in last), sep="\n", flush=True)
    return code == 0


def tests():
    """The commands, and the seconds that each may take."""
    small, models = ROOT / "tests/models/small", ROOT / "tests/cli/models"
    for test in UNIT:
        yield [BUILD / f"tests/unit/test_{test}"], 600
    yield [BUILD / "tests/models/run_small", small], 600
    yield ["sh", ROOT / "tests/models/scratch.sh", BUILD / "tests/models/run_pack", small], 600
    yield [BUILD / "tests/ops/run_ops", ROOT / "tests/ops"], 600
    yield [BUILD / "tests/rules/run_rules", ROOT / "tests/rules"], 600
    golden = [ROOT / "tests/ops" / f for f in ("view", "pointwise", "reduce", "index", "image", "linalg")]
    for target, inputs in FUZZ.items():
        yield [BUILD / f"tests/fuzz/fuzz_{target}", "--runs", inputs, small, models, *golden], 1200
    yield ["sh", ROOT / "tests/bad/run.sh", BUILD / "tests/bad/test_bad", small], 1200
    yield ["python3", ROOT / "tests/cli/run.py", BUILD / "cli/qkv"], 1200
    # A few at a time, which import torch once; those that end late are lost alone.
    files = sorted(f for p in PYTEST for f in (ROOT / "tests/python").glob(p))
    for k in range(0, len(files), AT_A_TIME):
        yield [".venv/bin/python", "-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider",
               *files[k:k + AT_A_TIME]], 2400
    yield ["sh", ROOT / "tests/oom/oom.sh", BUILD / "tests/oom/run_oom", small, models], 1200


def measure(only):
    """The tests that failed."""
    if not only:
        compile_readers()
    env = dict(os.environ, QKV=str(BUILD / "cli/qkv"), QKV_LIBRARY=str(BUILD / "libqkv.so.0.1.0"), LC_ALL="C.UTF-8",
               QKV_BUILD=str(BUILD), CMOCKA_MESSAGE_OUTPUT="TAP", QKV_COUNTED="1", QKV_TURN="0")
    return [command for command, seconds in tests()
            if (not only or only in " ".join(map(str, command))) and not run(command, env, seconds)]


def figures():
    """File -> (lines {number: times}, branches {(line, which): times}), of all objects that hold it."""
    lines = collections.defaultdict(collections.Counter)
    ways = collections.defaultdict(collections.Counter)
    for data in BUILD.rglob("*.gcda"):
        if not re.search(COUNTED, str(data)):
            continue
        out = subprocess.run(["gcov", "--json-format", "--stdout", "--branch-probabilities", data.name],
                             cwd=data.parent, capture_output=True, check=True).stdout
        for text in out.splitlines():
            for f in json.loads(text)["files"]:
                name = os.path.relpath(os.path.join(BUILD, f["file"]), ROOT)
                if not READERS.match(name) or not name.endswith(".c"):
                    continue
                for line in f["lines"]:
                    n = line["line_number"]
                    lines[name][n] += line["count"]
                    for k, branch in enumerate(line["branches"]):
                        ways[name][n, k] += branch["count"]
    return lines, ways


def share(counter):
    return 100 * sum(c > 0 for c in counter.values()) / max(1, len(counter))


def table(lines, ways):
    rows = ["| file | lines | reached, % | branches | taken, % |", "|---|---:|---:|---:|---:|"]
    for name in sorted(lines, key=lambda n: (share(lines[n]), n)):
        rows.append(f"| `{name}` | {len(lines[name])} | {share(lines[name]):.1f} | {len(ways[name])} | "
                    f"{share(ways[name]):.1f} |")
    both = [collections.Counter({(n, k): c for n in of for k, c in of[n].items()}) for of in (lines, ways)]
    rows.append(f"| together | {len(both[0])} | {share(both[0]):.1f} | {len(both[1])} | {share(both[1]):.1f} |")
    return rows


def write(rows):
    page = ROOT / "docs/TESTING.md"
    text = page.read_text()
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, capture_output=True,
                            text=True).stdout.strip()
    day = subprocess.run(["git", "log", "-1", "--format=%cs"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    begin, end = "<!-- tools/coverage.py writes from here -->", "<!-- tools/coverage.py: to here -->"
    head, rest = text.split(begin)
    page.write_text(f"{head}{begin}\n{day}, commit {commit}:\n\n" + "\n".join(rows) + "\n" + end + rest.split(end)[1])


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--no-run", action="store_true")
    p.add_argument("--only")
    p.add_argument("--missing")
    p.add_argument("--write", action="store_true")
    a = p.parse_args()
    os.nice(19)
    failed = measure(a.only) if a.only or not (a.no_run or a.missing) else []
    lines, ways = figures()
    if a.missing:
        source = (ROOT / a.missing).read_text().splitlines()
        for n in sorted(n for n, c in lines[a.missing].items() if not c):
            print(f"{n:5} {source[n - 1]}")
        return 0
    rows = table(lines, ways)
    print("\n".join(rows))
    if a.write:
        write(rows)
    low = [n for n in lines if share(lines[n]) < LEAST]
    print(f"{len(lines) - len(low)} files have {LEAST} % of their lines or more, {len(low)} have less")
    if failed:
        print(len(failed), "tests failed:", *(" ".join(map(str, c)) for c in failed), sep="\n  ")
    return bool(low or failed)


if __name__ == "__main__":
    sys.exit(main())
