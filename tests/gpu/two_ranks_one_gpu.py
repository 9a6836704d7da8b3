"""A rank for tests on a machine with one GPU: NCCL refuses two ranks on one device of one host, so each says that it is
on a host of its own, and their traffic goes over sockets.
"""

from __future__ import annotations

import os

os.environ["NCCL_HOSTID"] = f"host{os.environ['RANK']}"
os.environ["NCCL_SOCKET_IFNAME"] = "lo"

from gpubalance.workloads.rank_main import main

if __name__ == "__main__":
    main()
