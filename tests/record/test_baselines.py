"""The store of baselines: what makes two runs one baseline, and that nothing damaged is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpubalance.errors import CannotMeasureError, UsageError
from gpubalance.record.baselines import (
    all_baselines,
    checked_name,
    forget_baseline,
    key_of,
    load_baseline,
    save_baseline,
    saved_names,
)
from tests.analysis.compare_helpers import SPEC, collective, devices, fact, saved, setup
from tests.reports.helpers import HOSTILE

KEY = key_of(setup())

SHARED: dict[str, tuple[dict[str, Any], bool]] = {
    "the same": ({}, True),
    "devices in another order": ({"devices": devices("GPU-b", "GPU-a")}, True),
    "workloads in another order": ({"workloads": ["ddp", "solo"]}, True),
    "another driver": ({"versions": {"driver": "590"}}, True),
    "other variables": ({"environment": {"NCCL_ALGO": "Ring"}}, True),
    "another device": ({"devices": devices("GPU-a", "GPU-c")}, False),
    "fewer devices": ({"devices": devices("GPU-a")}, False),
    "other workloads": ({"workloads": ["ddp"]}, False),
    "another model": ({"model": SPEC.model_copy(update={"dtype": "float32"})}, False),
    "another batch": ({"global_batch": 1}, False),
}


@pytest.mark.parametrize(("values", "same"), SHARED.values(), ids=SHARED.keys())
def test_what_the_key_is_made_of(values: dict[str, Any], same: bool) -> None:
    assert (key_of(setup(**values)) == KEY) is same


@pytest.mark.parametrize(
    ("values", "same"), [({}, True), ({"cpu_model": "Z"}, False), ({"devices": devices("a")}, False)]
)
def test_without_a_gpu_it_is_the_cpu_and_the_number_of_ranks(values: dict[str, Any], same: bool) -> None:
    one = setup(backend="gloo", devices=devices(None, None))
    other = setup(**{"backend": "gloo", "devices": devices(None, None), **values})
    assert (key_of(one) == key_of(other)) is same


def test_runs_come_back_oldest_first_and_the_same_run_once(tmp_path: Path) -> None:
    runs = [saved(fact("step", 1.0), run_id=str(day), started_at=f"2026-01-0{day}") for day in (3, 1, 2, 3)]
    for run in runs:
        save_baseline(tmp_path, "default", run)
    assert [run.run_id for run in load_baseline(tmp_path, KEY, "default").runs] == ["1", "2", "3"]
    assert all_baselines(tmp_path) == [load_baseline(tmp_path, KEY, "default")]


def test_all_of_a_fact_comes_back(tmp_path: Path) -> None:
    run = saved(
        fact("step", 1.5, 1.0, 2.0), fact("busbw", 3.0, collective=collective()), fact("gemm", 4.0, device=1),
        devices=devices("GPU-a", None), environment={"NCCL_X": HOSTILE, "NCCL_Y": "\udcff"},
    )  # fmt: skip
    save_baseline(tmp_path, "default", run)
    assert load_baseline(tmp_path, key_of(run.setup), "default").runs == (run,)


def test_names_keep_baselines_apart(tmp_path: Path) -> None:
    for name in ("default", "before-update"):
        save_baseline(tmp_path, name, saved(run_id=name))
    assert saved_names(tmp_path) == [(KEY, "before-update"), (KEY, "default")]
    forget_baseline(tmp_path, KEY, "default")
    assert saved_names(tmp_path) == [(KEY, "before-update")]
    assert load_baseline(tmp_path, KEY, "default").runs == ()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "-x", " ", "a\n", "\x1b", 65 * "a"])
def test_a_name_is_a_name(name: str) -> None:
    with pytest.raises(UsageError):
        checked_name(name)


@pytest.mark.parametrize("run_id", ["../../../x", "a/b", "", HOSTILE, "\udcff", 1000 * "r"])
def test_a_hostile_run_id_stays_in_the_folder(tmp_path: Path, run_id: str) -> None:
    path = save_baseline(tmp_path, "default", saved(run_id=run_id))
    assert path.parent == tmp_path / "baselines" / KEY / "default"
    assert [run.run_id for run in load_baseline(tmp_path, KEY, "default").runs] == [run_id]


def document(**values: Any) -> dict[str, Any]:
    return {**saved(fact("compute", 1.0, device=1)).model_dump(mode="json"), **values}


DAMAGE: dict[str, Any] = {
    "cut": b"{",
    "not UTF-8": b"\xff",
    "a list": [],
    "a newer form": document(schema_version=2),
    "unknown key": document(more=1),
    "no number": b'{"schema_version":1,"facts":[{"metric":"step","value":NaN}]}',
    "no such device": document(facts=[{"metric": "gemm", "value": 1.0, "device": 2}]),
    "a device below zero": document(facts=[{"metric": "gemm", "value": 1.0, "device": -1}]),
    "no time at all": document(facts=[{"metric": "compute", "value": 0.0, "device": 1}]),
    "unknown metric": document(facts=[{"metric": "luck", "value": 1.0}]),
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE.keys())
def test_what_is_damaged_is_refused_by_name(tmp_path: Path, content: Any) -> None:
    path = save_baseline(tmp_path, "default", saved())
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with pytest.raises(UsageError, match=path.name) as caught:
        load_baseline(tmp_path, KEY, "default")
    assert caught.value.next_step
    assert saved_names(tmp_path) == [(KEY, "default")]  # so that it can be forgotten


def test_what_cannot_be_written_read_or_deleted_is_said(tmp_path: Path) -> None:
    (tmp_path / "baselines").write_text("in the way")
    with pytest.raises(CannotMeasureError, match="could not be saved"):
        save_baseline(tmp_path, "default", saved())
    with pytest.raises(CannotMeasureError, match="could not be deleted"):
        forget_baseline(tmp_path, KEY, "default")
    folder = tmp_path / "other/baselines" / KEY / "default/x.json"
    folder.mkdir(parents=True)
    with pytest.raises(UsageError, match="cannot be read"):
        load_baseline(tmp_path / "other", KEY, "default")


def test_an_unfinished_file_of_another_writer_is_no_run(tmp_path: Path) -> None:
    path = save_baseline(tmp_path, "default", saved())
    (path.parent / ".gpubalance-xyz").write_text("{")
    assert len(load_baseline(tmp_path, KEY, "default").runs) == 1
