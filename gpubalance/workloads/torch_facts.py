"""What torch says about itself: `python -m gpubalance.workloads.torch_facts PARENT_PID`, one JSON object on the last
line. Makes no CUDA context: torch counts devices through NVML, and versions are in the library.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from gpubalance.child import die_with_parent


def facts() -> dict[str, Any]:
    """Versions, architectures and devices. An import that fails is a fact as well."""
    begin = time.monotonic()
    try:
        import torch
    except Exception as error:  # noqa: BLE001  (a broken installation can raise anything; what it says is the fact)
        return {"error": f"import torch failed: {type(error).__name__}: {_first_line(error)}"}
    found: dict[str, Any] = {"version": str(torch.__version__), "cuda": torch.version.cuda}
    found["seconds"] = round(time.monotonic() - begin, 2)
    cudnn = torch.backends.cudnn.version()
    found["cudnn"] = None if cudnn is None else str(cudnn)
    if torch.version.cuda is not None:
        from gpubalance.workloads.crew import loaded_library

        found["arch_list"] = list(torch.cuda.get_arch_list())
        found["nccl"] = _nccl_version()
        found["nccl_library"] = loaded_library("libnccl")
    found["cuda_available"] = torch.cuda.is_available()
    found["device_count"] = torch.cuda.device_count()
    return found


def _nccl_version() -> str | None:
    """None in a build of torch without NCCL."""
    import torch

    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        return None
    return ".".join(str(part) for part in torch.cuda.nccl.version())


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else ""


def main() -> None:
    """Print the facts. What torch itself prints stands before them."""
    die_with_parent(int(sys.argv[1]))
    text = json.dumps(facts())
    sys.stdout.write(f"\n{text}\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
