"""Which copies of NCCL and of the NVML binding a program here would find."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path

from gpubalance.node.part import Part, names_in

_IN_PACKAGES = ("nvidia/nccl/lib", "torch/lib")
_IN_SYSTEM = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/lib",
    "usr/local/cuda/lib64",
)


def read_libraries(root: Path, environment: Mapping[str, str]) -> Part:
    """Every libnccl that can be loaded, and where the NVML binding comes from."""
    binding = PathFinder.find_spec("pynvml")
    values = {
        "nccl_libraries": nccl_libraries(root, environment),
        "binding_file": None if binding is None else binding.origin,
    }
    return values, {"binding_file": "not installed"} if binding is None else {}


def nccl_libraries(root: Path, environment: Mapping[str, str]) -> list[str]:
    """Files, each once whatever links point to it: of LD_LIBRARY_PATH, of Python's packages, of the system."""
    packages = [Path(entry) / folder for entry in sys.path if entry.startswith("/") for folder in _IN_PACKAGES]
    asked = [Path(entry) for entry in environment.get("LD_LIBRARY_PATH", "").split(":") if entry.startswith("/")]
    folders = [*asked, *packages, *(Path("/") / folder for folder in _IN_SYSTEM)]
    below = [root / folder.relative_to("/") for folder in folders]
    found = [folder / name for folder in below for name in names_in(folder) or [] if name.startswith("libnccl.so")]
    return list(dict.fromkeys(str(path.resolve()) for path in found))
