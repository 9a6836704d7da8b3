"""Asks NCCL's RAS subsystem what it knows of a hang: plain text over a socket that one or all ranks listen on.

Asked is only who belongs to us: another job's ranks may listen on the same port of this machine.

https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Collection, Mapping, Sequence

PORT = 28028
LEG_S = 1
"""How long RAS itself waits for ranks that do not answer; its default of 5 s is more than we have."""

ATTEMPT_S = 1.4
"""Newer libraries let all ranks listen on one port, and the kernel chooses who answers: a stopped one never does."""

LONGEST = 30_000
Address = tuple[str, int]


def listening_addresses(pids: Collection[int], port: int) -> list[Address]:
    """Where our own ranks listen on this port. Processes that are gone or belong to others have none."""
    import psutil

    found: dict[Address, None] = {}
    for pid in pids:
        try:
            process = psutil.Process(pid)
            ask = getattr(process, "net_connections", None) or process.connections  # the old name until psutil 6
            connections = ask(kind="tcp")
        except psutil.Error:
            continue
        for connection in connections:
            if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
                found[_reachable(connection.laddr.ip), port] = None
    return list(found)


def _reachable(ip: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(ip, ip)  # noqa: S104  (compared, not bound)


def wanted_port(environment: Mapping[str, str]) -> int:
    """The port of NCCL_RAS_ADDR (host:port), or NCCL's own."""
    match = re.search(r":(\d{1,5})$", environment.get("NCCL_RAS_ADDR", ""))
    return int(match[1]) if match else PORT


def ask_ras(addresses: Sequence[Address], until_s: float) -> tuple[str | None, str | None]:
    """The answer to VERBOSE STATUS, or why there is none. Comes back before this monotonic time."""
    if not addresses:
        return None, "no rank listens for it"
    while time.monotonic() < until_s:
        for address in addresses:
            answer = _converse(address, min(until_s, time.monotonic() + ATTEMPT_S))
            if answer:
                return answer[:LONGEST], None
        time.sleep(0.01)
    return None, "it did not answer in time"


def _converse(address: Address, until_s: float) -> str:
    """What it says until it closes the connection or the time is over; "" when it does not answer."""
    text = b""
    try:
        with socket.create_connection(address, timeout=_left(until_s)) as connection:
            connection.sendall(b"timeout %d\nverbose status\n" % LEG_S)
            while len(text) < 4 * LONGEST:
                connection.settimeout(_left(until_s))
                piece = connection.recv(65536)
                if not piece:
                    break
                text += piece
    except OSError:  # refused, or no more time: what it has said until then counts
        pass
    return text.decode(errors="replace").removeprefix("OK\n").strip()


def _left(until_s: float) -> float:
    return max(0.01, until_s - time.monotonic())
