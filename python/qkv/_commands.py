"""The commands of `qkv`, which `python -m qkv` runs."""
from __future__ import annotations

import json
import subprocess
from typing import Dict

from ._lib import Error


def commands() -> Dict[str, str]:
    """The commands by name, and what each does; `python -m qkv NAME --help` says more.

        list(qkv.commands())                    # ["inspect", "graph", "check", ...]
        qkv.commands()["run"]                   # "Run a model and write its outputs"
    """
    import qkv_command  # it lies beside the package

    try:
        done = subprocess.run([qkv_command.program(), "help", "--json"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as e:
        raise Error(str(e), 3) from None
    return {c["name"]: c["summary"] for c in json.loads(done.stdout)["commands"]}
