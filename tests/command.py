"""`python -m tests.command ARGUMENTS`: our command line as tests start it, under their own lock and with their ranks.

With the lock's real name, tests that run twice on a machine, or beside a real measurement, would refuse or doubt each
other.
"""

from __future__ import annotations

import os
import sys

from gpubalance.launch import lock

LOCK_VARIABLE = "TESTS_OF_GPUBALANCE_LOCK"
RANKS_VARIABLE = "TESTS_OF_GPUBALANCE_RANKS"
"""The module that a rank runs; the real one where it is not set."""


def take_own_lock() -> None:
    """From here on this process asks for the lock whose name is inherited from the tests, or for one of its own."""
    lock._NAME = "\0" + os.environ.get(LOCK_VARIABLE, f"gpubalance-tests-{os.getpid()}")


def take_own_ranks() -> None:
    """From here on `bench` starts the ranks that the environment names."""
    module = os.environ.get(RANKS_VARIABLE)
    if module is not None:
        from functools import partial

        from gpubalance.cli import bench_run
        from gpubalance.session import bench

        bench_run.bench = partial(bench.bench, module=module)


if __name__ == "__main__":
    from gpubalance.cli.entry import main

    take_own_lock()
    take_own_ranks()
    sys.argv[0] = "gpubalance"
    main()
