"""A rank that hardly warms up before a pass: `python -m tests.workloads.short_warm_up`, started as a rank.

Where others use the cores, a rank is never steady and the warm-up takes all the time that it may.
"""

from __future__ import annotations

from gpubalance.workloads import passes, rank_main


def shorten() -> None:
    """From here on a pass of this process warms up for 0.3 s at most."""
    passes.WARM_UP_S = (0.0, 0.3)


if __name__ == "__main__":
    shorten()
    rank_main.main()
