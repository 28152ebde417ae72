"""Programs of Python that export, each in a process of its own, without five seconds of imports each.

    done = warm.run(["export.py", "x.pt2"], cwd=folder)
    done = warm.run(["-m", "qkv.recipes.sam3", "--help"])

As subprocess.run([sys.executable, ...], capture_output=True, text=True): done.returncode, done.stdout, done.stderr.

A server has imported torch and what torch.export imports when it is first asked, and has computed nothing: it forks.
qkv is imported by the programs themselves, from python/ of this checkout.
"""
import functools
import importlib
import json
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
import traceback
import types

PACKAGE = str(pathlib.Path(__file__).resolve().parents[2] / "python")
IMPORTED = ["torch", "torch.export._trace", "torch._functorch.aot_autograd", "torch.fx.experimental.validator",
            "torch.utils._sympy.numbers"]


@functools.cache
def server():
    return subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run(argv, cwd=None):
    task = {"argv": [str(a) for a in argv], "cwd": str(cwd or os.getcwd()), "env": dict(os.environ)}
    server().stdin.write(json.dumps(task) + "\n")
    server().stdin.flush()
    return types.SimpleNamespace(args=argv, **json.loads(server().stdout.readline()))


def program(task, out, err):
    """In the fork: the program, as python would run it; its exit code."""
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    os.chdir(task["cwd"])
    os.environ.clear()
    os.environ.update(task["env"])
    name, *rest = task["argv"]
    try:
        if name == "-m":
            sys.path[0], sys.argv = PACKAGE, rest
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0], sys.argv = os.path.dirname(os.path.abspath(name)), task["argv"]
            sys.path.insert(1, PACKAGE)
            runpy.run_path(name, run_name="__main__")
    except SystemExit as e:
        if isinstance(e.code, str):
            print(e.code, file=sys.stderr)
            return 1
        return e.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def serve():
    for name in IMPORTED:
        importlib.import_module(name)
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            child = os.fork()
            if child == 0:
                os.close(0)
                code = program(json.loads(line), out, err)
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            said = [(f.seek(0), f.read())[1] for f in (out, err)]
        print(json.dumps({"returncode": code, "stdout": said[0], "stderr": said[1]}), flush=True)


if __name__ == "__main__":
    serve()
