"""The comparison with nccl-tests itself, against programs that print what nccl-tests prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.benchmarks import against_nccl_tests
from tests.benchmarks.against_nccl_tests import Key, Sizes, both_modes, main

SAID = """#!/bin/sh
case "$*" in *-G*) size=4096 out=12.0 in=11.0;; *) size=67108864 out=400.0 in=410.0;; esac
echo "# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809"
echo "#       size         count      type   redop    root     time   algbw   busbw  #wrong  (and again, in place)"
echo "    $size      16777216     float     sum      -1   $out  167.77  167.77       0   $in  163.68  163.68       0"
echo "# Out of bounds values : 0 OK"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two programs; ours is 0.5 % slower out of place and 5 % in place, whatever the size."""
    for name in ("all_reduce_perf", "broadcast_perf"):
        (tmp_path / name).write_text(SAID)
        (tmp_path / name).chmod(0o755)

    def ours(names: Sequence[str], sizes: Sizes, gpus: int, *, mode: str) -> tuple[dict[Key, float], str]:
        assert gpus == 2
        size, out, within = (4096, 12.0, 11.0) if mode == "graph" else (67108864, 400.0, 410.0)
        times = {("out_of_place", size): 1.005 * out, ("in_place", size): 1.05 * within}
        return {(name, *key): value for name in names for key, value in times.items()}, "gpubalance"

    monkeypatch.setattr(against_nccl_tests, "ours", ours)
    return tmp_path


def test_large_messages_and_small_ones_are_held_against_their_own_limits(folder: Path) -> None:
    rows, versions, left_out = both_modes(folder, 2, turns=3)
    found = {(row["collective"], row["mode"], row["placement"]): row["within"] for row in rows}
    assert found == {
        (name, mode, placement): mode == "graph" or placement == "out_of_place"
        for name in ("all_reduce", "broadcast")
        for mode in ("eager", "graph")
        for placement in ("in_place", "out_of_place")
    }
    assert all(len(row["all_nccl_tests_us"]) == len(row["all_gpubalance_us"]) == 3 for row in rows)  # type: ignore[arg-type]
    assert versions == ["# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809", "gpubalance"]
    assert left_out is None


def test_without_time_there_is_one_turn_of_large_messages_and_the_rest_is_said(folder: Path) -> None:
    rows, _, left_out = both_modes(folder, 2, turns=3, within_s=0.001)
    assert {(row["mode"], len(row["all_gpubalance_us"])) for row in rows} == {("eager", 1)}  # type: ignore[arg-type]
    assert left_out is not None
    assert left_out.startswith("small messages from a graph: ")


def test_the_command_prints_a_table_and_saves_all_of_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "out.json"
    main([str(folder), "--turns", "1", "--out", str(out)])
    shown = capsys.readouterr().out
    assert "+5.00 % !" in shown
    assert "nccl-tests version 2.19.6" in shown
    saved = json.loads(out.read_text())
    assert (len(saved["rows"]), saved["left_out"]) == (8, None)
