"""The command `qkv` of an installed package (and `python -m qkv`): starts the program that lies beside the library. It
stands outside the package so that NumPy is not imported first."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PLACES = (os.path.join(HERE, "qkv", "bin", "qkv"),  # a wheel's
          os.path.join(os.path.dirname(HERE), "build", "qkv"))  # a checkout's


def program():
    """Its path. Where it is nowhere: FileNotFoundError with a sentence."""
    for path in PLACES:
        if os.path.exists(path):
            return path
    places = " nor in ".join(map(os.path.dirname, PLACES))
    raise FileNotFoundError(f"the command is not in {places}; `make` builds it, and a wheel holds it")


def main():
    try:
        os.execv(program(), ["qkv", *sys.argv[1:]])
    except FileNotFoundError as e:
        sys.exit(f"qkv: error: {e}")
