"""Asking NCCL's RAS: against sockets that answer as it does, that never answer, and that are not there."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gpubalance.launch import ras
from gpubalance.launch.ras import ask_ras, listening_addresses, wanted_port

STATUS = "NCCL version 2.28.9\n\nErrors\n======\n\nINCOMPLETE\n  Missing communicator data from 1 process\n"


@contextmanager
def listening(
    family: socket.AddressFamily, host: str, answer: str | None
) -> Iterator[tuple[tuple[str, int], list[bytes]]]:
    """One that takes connections and answers; None: it takes none, as a stopped process does."""
    heard: list[bytes] = []
    with socket.socket(family, socket.SOCK_STREAM) as server:
        server.bind((host, 0))
        server.listen()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                while b"verbose status\n" not in b"".join(heard):
                    heard.append(connection.recv(4096))
                connection.sendall(f"OK\n{answer}".encode())

        thread = threading.Thread(target=serve, daemon=True)
        if answer is not None:
            thread.start()
        yield server.getsockname()[:2], heard
        if answer is not None:
            thread.join(20)


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_whole_answer_is_kept_of_either_family(family: socket.AddressFamily, host: str) -> None:
    with listening(family, host, STATUS) as (address, heard):
        assert address in listening_addresses([os.getpid()], address[1])
        assert ask_ras([address], time.monotonic() + 20) == (STATUS.strip(), None)
    assert b"".join(heard) == b"timeout 1\nverbose status\n"


def test_one_that_is_stopped_is_asked_no_longer_than_there_is_time() -> None:
    with listening(socket.AF_INET, "127.0.0.1", None) as (address, _):
        assert ask_ras([address], time.monotonic() + 0.2) == (None, "it did not answer in time")


def test_of_several_that_listen_whoever_is_alive_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "ATTEMPT_S", 0.1)
    with (
        listening(socket.AF_INET, "127.0.0.1", None) as (stopped, _),
        listening(socket.AF_INET, "127.0.0.1", STATUS) as (alive, _heard),
    ):
        assert ask_ras([stopped, alive], time.monotonic() + 20)[0] == STATUS.strip()


def test_only_our_own_ranks_are_asked() -> None:
    """Somebody listens on the port, but it is no process of ours."""
    with listening(socket.AF_INET, "127.0.0.1", None) as (address, _):
        assert listening_addresses([], address[1]) == []
        assert listening_addresses([os.getpid()], address[1] ^ 1) == []
    assert ask_ras([], time.monotonic() + 20) == (None, "no rank listens for it")


@pytest.mark.parametrize(
    ("value", "port"),
    [(None, 28028), ("localhost:12345", 12345), ("[::1]:12345", 12345), ("127.0.0.1:1", 1), ("nonsense", 28028)],
)
def test_the_port_is_ncclss_own_unless_the_user_chose_another(value: str | None, port: int) -> None:
    assert wanted_port({} if value is None else {"NCCL_RAS_ADDR": value}) == port
