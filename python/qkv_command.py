"""The command `qkv` of an installed package (and `python -m qkv`): starts the program that lies beside the library. It
stands outside the package so that NumPy is not imported first."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PLACES = (os.path.join(HERE, "qkv", "bin", "qkv"),  # a wheel's
          os.path.join(os.path.dirname(HERE), "build", "qkv"))  # a checkout's


def main():
    program = next((p for p in PLACES if os.path.exists(p)), None)
    if not program:
        places = " nor in ".join(map(os.path.dirname, PLACES))
        sys.exit(f"qkv: error: the command is not in {places}; `make` builds it, and a wheel holds it")
    os.execv(program, ["qkv", *sys.argv[1:]])
