"""Assertions on a GPU node: one run of gpubalance, several tests. Copy it, and change what you expect."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

LEAST_BALANCE = 95.0
GPUS = 2


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The record and the verdict of one `gpubalance bench`. Exit codes 0, 1 and 3 come with a document."""
    done = subprocess.run(["gpubalance", "bench", "--json"], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1, 3), done.stderr
    loaded: dict[str, Any] = json.loads(done.stdout)
    return loaded


def test_the_node_can_train_evenly(document: dict[str, Any]) -> None:
    """No verdict (inconclusive) is no pass."""
    judgement = document["judgement"]
    assert judgement["verdict"] in ("pass", "warn"), judgement["sentence"]


def test_every_gpu_took_part(document: dict[str, Any]) -> None:
    """Hidden and lost GPUs are missing here."""
    devices = document["run"]["plan"]["devices"]
    assert [device["kind"] for device in devices] == ["cuda"] * GPUS


def test_little_throughput_is_lost(document: dict[str, Any]) -> None:
    """100 minus the balance is the share of the step rate that is lost."""
    attempts = document["judgement"]["facts"]["attempts"]
    assert attempts, "evenness was not measured"
    assert attempts[0]["balance"]["score"] >= LEAST_BALANCE


def test_all_reduce_moves_the_right_data(document: dict[str, Any]) -> None:
    """Null would mean that it was not compared, and fails."""
    rows = [row for row in document["run"]["collectives"] if row["collective"] == "all_reduce"]
    assert rows, "all_reduce was not measured"
    assert {row["wrong_elements"] for row in rows} == {0}
