"""NCCL's own files: which are read, in which order, and what is never recorded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpubalance.node.nccl_conf import read_nccl_conf, variables_of_files
from tests.node.planted import plant

PASSWD = f"other:x:{os.getuid() + 1}:1::/home/other:/bin/sh\n"


def test_the_users_file_comes_before_the_systems(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            "home/alice/.nccl.conf": "NCCL_DEBUG=INFO\n",
            "etc/nccl.conf": "NCCL_SOCKET_IFNAME=eth0\n",
            "etc/passwd": f"alice:x:{os.getuid()}:1::/home/alice:/bin/sh\n",
        },
    )
    found = read_nccl_conf(tmp_path, {"HOME": "/nowhere"})
    assert list(found.items()) == [
        ("~/.nccl.conf", {"NCCL_DEBUG": "INFO"}),
        ("/etc/nccl.conf", {"NCCL_SOCKET_IFNAME": "eth0"}),
    ]


def test_a_uid_without_a_name_is_looked_up_by_home(tmp_path: Path) -> None:
    plant(tmp_path, {"data/me/.nccl.conf": "NCCL_ALGO=Ring", "etc/passwd": PASSWD})
    assert read_nccl_conf(tmp_path, {"HOME": "/data/me"}) == {"~/.nccl.conf": {"NCCL_ALGO": "Ring"}}


def test_without_a_name_and_without_a_home_only_the_systems_file_is_read(tmp_path: Path) -> None:
    plant(tmp_path, {"etc/nccl.conf": "NCCL_ALGO=Ring"})
    assert read_nccl_conf(tmp_path, {}) == {"/etc/nccl.conf": {"NCCL_ALGO": "Ring"}}


def test_a_chosen_file_takes_the_place_of_the_users(tmp_path: Path) -> None:
    plant(tmp_path, {"opt/n.conf": "NCCL_PROTO=LL\n", "home/me/.nccl.conf": "NCCL_ALGO=Ring\n"})
    assert read_nccl_conf(tmp_path, {"NCCL_CONF_FILE": "/opt/n.conf", "HOME": "/home/me"}) == {
        "/opt/n.conf": {"NCCL_PROTO": "LL"}
    }


def test_what_nccl_takes_of_its_files_is_what_nobody_set_before(tmp_path: Path) -> None:
    mine, system = "NCCL_P2P_DISABLE=1\nNCCL_ALGO=Ring\n", "NCCL_ALGO=Tree\nNCCL_PROTO=LL\n"
    plant(tmp_path, {"opt/n.conf": mine, "etc/nccl.conf": system})
    found = variables_of_files(tmp_path, {"NCCL_CONF_FILE": "/opt/n.conf", "NCCL_PROTO": "Simple"})
    assert found == {"NCCL_P2P_DISABLE": "1", "NCCL_ALGO": "Ring"}
    assert variables_of_files(tmp_path / "nowhere", {}) == {}


@pytest.mark.parametrize(
    ("line", "variables"),
    [
        ("NCCL_ALGO=Ring", {"NCCL_ALGO": "Ring"}),
        ("NCCL_IB_HCA==mlx5_0", {"NCCL_IB_HCA": "=mlx5_0"}),
        ("NCCL_ALGO=", {"NCCL_ALGO": ""}),
        ("# NCCL_ALGO=Ring", {}),
        (" NCCL_ALGO=Ring", {}),
        ("NCCL_ALGO =Ring", {}),
        ("NCCL_ALGO", {}),
        ("LD_PRELOAD=/tmp/x.so", {}),
        ("NCCL_SOME_TOKEN=abc", {}),
        ("NCCL_API_KEY=abc", {}),
        ("NCCL_ALGO=Ring\nNCCL_ALGO=Tree", {"NCCL_ALGO": "Ring"}),
    ],
)
def test_lines_are_read_as_nccl_reads_them(tmp_path: Path, line: str, variables: dict[str, str]) -> None:
    plant(tmp_path, {"etc/nccl.conf": f"{line}\n"})
    assert read_nccl_conf(tmp_path, {}) == ({"/etc/nccl.conf": variables} if variables else {})


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read_nccl_conf(tmp_path, {"NCCL_CONF_FILE": "/pipe"}) == {}
