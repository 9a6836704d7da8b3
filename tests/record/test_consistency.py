"""Runs whose values are of the right types and still cannot be true."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpubalance.checks.verdict import judge
from gpubalance.errors import UsageError
from gpubalance.record.consistency import contradiction
from gpubalance.record.file import load_run
from gpubalance.record.run import Run
from gpubalance.record.timings import BUSY, STAGES
from gpubalance.testing.runs import make_attempt, make_run, make_solo, steady
from tests.support import ROOT

KEPT = sorted((ROOT / "examples/runs").glob("*.json"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_run_of_real_hardware_fits_together(path: Path) -> None:
    assert contradiction(Run.model_validate(json.loads(path.read_text())["run"])) is None


@pytest.mark.parametrize(
    "run",
    [
        make_run([]),
        make_run([make_attempt(steady([100.0]))]),
        make_run([make_attempt(steady([100.0] * 8)), make_attempt(steady([100.0] * 8), attempt=1)]),
        make_run([make_attempt(steady([20.0, 20.0], blocks=1))], on_cpu=True),
        make_run([], solo=[make_solo(0, None), make_solo(1, 90.0)]),
    ],
    ids=["nothing", "one", "eight", "one block", "solo"],
)
def test_a_run_with_parts_missing_fits_together(run: Run) -> None:
    assert contradiction(run) is None


Document = dict[str, Any]


def ranks(document: Document) -> list[Any]:
    found: list[Any] = document["ddp"][0]["ranks"]
    return found


def staged(document: Document) -> dict[str, Any]:
    """Rank 1's steps of a run that tells stages and host use of its two blocks."""
    use = {"wall_s": 1.0, "cpu_s": 0.5, "voluntary_switches": 3, "involuntary_switches": 0}
    for rank in ranks(document):
        blocks = len(rank["fenced"])
        rank["stages_ms"] = {stage: [1.0] * blocks for stage in STAGES}
        rank["means_ms"] = {name: [1.0] * blocks for name in (*STAGES, BUSY)}
        rank["busy_ms"] = [1.0] * blocks
        rank["host"] = [dict(use) for _ in range(blocks)]
    steps: dict[str, Any] = ranks(document)[1]
    return steps


def test_a_run_with_stages_and_host_use_fits_together() -> None:
    document = json.loads(make_run([make_attempt(steady([100.0] * 2))]).model_dump_json())
    staged(document)
    ranks(document)[0].update(device_step_ms=90.0, collector_ms=101.0, device_step_missing=None)
    assert contradiction(Run.model_validate(document)) is None


def hang(*ranks: int) -> Document:
    """Evidence about these ranks."""
    base = {"pid": 1, "phase": "ddp", "fence": 1, "collective": "all_reduce"}
    times = {"t_s": 1.0, "deadline_s": 1.0, "gathered_in_s": 0.1}
    return {"attempt": 0, "crew": "ranks", **times, "ranks": [{**base, "rank": rank} for rank in ranks]}


def bisection(ranks: list[int], smallest: list[int] | None) -> Document:
    """One trial of these ranks, and what came out."""
    trial = {"ranks": ranks, "switch": None, "outcome": "hangs", "seconds": 1.0}
    return {"trials": [trial], "repeated": True, "smallest": smallest}


def experiment(sides: int, **row: float) -> Document:
    """So many sides with one row each."""
    whole = {"size_bytes": 1, "time_us": 1.0, "bus_bandwidth_gb_per_s": 1.0, "wrong_elements": 0, **row}
    arms = [{"value": "0", "rows": [whole]}] * sides
    return {"name": "p2p", "variable": "NCCL_P2P_DISABLE", "found": None, "ranks": 2, "arms": arms}


BROKEN: list[tuple[str, Callable[[Document], Any], str]] = [
    ("hang", lambda d: d.update(hang=hang(0, 7)), "hang names rank 7, the plan has 2"),
    ("trial", lambda d: d.update(bisection=bisection([0, 9], None)), "bisection: ranks [0, 9] are none of the 2"),
    ("nobody", lambda d: d.update(bisection=bisection([], None)), "bisection: ranks [] are none of the 2"),
    ("smallest", lambda d: d.update(bisection=bisection([0], [0, -1])), "bisection: ranks [0, -1] are none of the 2"),
    (
        "untried",
        lambda d: d.update(bisection=bisection([0, 1], [1])),
        "bisection: the smallest failing set was not tried",
    ),
    ("one side", lambda d: d.update(experiments=[experiment(1)]), "experiment p2p has 1 sides, not 2"),
    *(
        (
            name,
            lambda d, name=name: d.update(experiments=[experiment(2, **{name: 0})]),
            "experiment p2p: size, time and",
        )
        for name in ("size_bytes", "time_us", "bus_bandwidth_gb_per_s")
    ),
    ("no devices", lambda d: d["plan"].update(devices=[]), "plan.devices is empty"),
    ("rank", lambda d: d["ranks"][0].update(device=2), "ranks names device 2, the plan has 2"),
    ("below 0", lambda d: d["ranks"][0].update(device=-1), "ranks names device -1, the plan has 2"),
    ("solo", lambda d: d["solo"][1].update(device=9), "solo names device 9, the plan has 2"),
    ("probe", lambda d: d["probes"][1].update(device=9), "probes names device 9, the plan has 2"),
    ("memory", lambda d: d["memory"][1].update(device=9), "memory names device 9, the plan has 2"),
    ("ddp", lambda d: ranks(d)[1].update(device=9), "ddp names device 9, the plan has 2"),
    (
        "samples",
        lambda d: d["samples"]["devices"][1].update(device=9),
        "samples.devices names device 9, the plan has 2",
    ),
    (
        "process",
        lambda d: d["samples"]["processes"][0].update(device=9),
        "samples.processes names device 9, the plan has 2",
    ),
    (
        "counters",
        lambda d: d["samples"]["counters"][0].update(device=9),
        "samples.counters names device 9, the plan has 2",
    ),
    ("no ranks", lambda d: d["ddp"][0].update(ranks=[]), "ddp.0.ranks are not numbered from 0"),
    ("rank twice", lambda d: ranks(d)[1].update(rank=0), "ddp.0.ranks are not numbered from 0"),
    ("a block less", lambda d: ranks(d)[1]["fenced"].pop(), "ddp.0: not as many blocks on every rank"),
    ("no blocks", lambda d: [r["fenced"].clear() for r in ranks(d)], "ddp.0: not as many blocks on every rank"),
    ("a step less", lambda d: ranks(d)[0]["fenced"][3]["fence_ms"].pop(), "ddp.0: not as many steps in every block"),
    (
        "no steps",
        lambda d: [b.update(compute_ms=[], fence_ms=[], transfer_ms=[]) for r in ranks(d) for b in r["fenced"]],
        "ddp.0: not as many steps in every block",
    ),
    (
        "a tick more",
        lambda d: d["samples"]["t_s"].append(99.0),
        "samples: column utilization_percent of device 0 has 501 values for 502 ticks",
    ),
    ("no compute", lambda d: ranks(d)[0]["fenced"][0]["compute_ms"].__setitem__(0, 0.0), "ddp: compute_ms is 0"),
    ("overlapped", lambda d: ranks(d)[0].update(overlapped_step_ms=[-1.5]), "ddp: overlapped_step_ms is -1.5"),
    ("units", lambda d: ranks(d)[0].update(units_per_step=0.0), "ddp: units_per_step is 0"),
    ("a block without its CPU time", lambda d: staged(d).update(busy_ms=[1.0]), "ddp.0.ranks.1: busy_ms has not one "),
    (
        "CPU time below 0",
        lambda d: staged(d).update(busy_ms=[1.0, -1.0]),
        "ddp.0.ranks.1: busy_ms has not one value a ",
    ),
    ("no stage", lambda d: staged(d)["stages_ms"].pop("copy"), "ddp.0.ranks.1: stages_ms has not the stages update, "),
    (
        "another stage",
        lambda d: staged(d)["stages_ms"].update({"<b>": [1.0]}),
        "ddp.0.ranks.1: stages_ms has not the stages update, ",
    ),
    (
        "a stage less",
        lambda d: staged(d)["stages_ms"]["input"].pop(),
        "ddp.0.ranks.1: stages_ms has not one value a block",
    ),
    (
        "stage below 0",
        lambda d: staged(d)["stages_ms"]["input"].__setitem__(0, -1.0),
        "ddp.0.ranks.1: stages_ms holds a time below 0",
    ),
    ("no mean", lambda d: staged(d)["means_ms"].pop(BUSY), "ddp.0.ranks.1: means_ms has not the stages update, "),
    (
        "a mean less",
        lambda d: staged(d)["means_ms"]["copy"].pop(),
        "ddp.0.ranks.1: means_ms has not one value a block",
    ),
    (
        "mean below 0",
        lambda d: staged(d)["means_ms"][BUSY].__setitem__(0, -1.0),
        "ddp.0.ranks.1: means_ms holds a time below 0",
    ),
    ("a host use less", lambda d: staged(d)["host"].pop(), "ddp.0.ranks.1: host has not one entry a block"),
    (
        "host use below 0",
        lambda d: staged(d)["host"][0].update(voluntary_switches=-1),
        "ddp.0.ranks.1: host holds a number below 0",
    ),
    ("no wall time", lambda d: staged(d)["host"][0].update(wall_s=0.0), "ddp: host wall_s is 0"),
    ("no device step", lambda d: ranks(d)[0].update(device_step_ms=0.0), "ddp: device_step_ms is 0"),
    ("no collector", lambda d: ranks(d)[0].update(collector_ms=0.0), "ddp: collector_ms is 0"),
    ("launch", lambda d: d["probes"][0].update(launch_us=0.0), "probes: launch_us is 0"),
    ("eager", lambda d: d["solo"][0].update(eager_step_ms=0.0), "solo: eager_step_ms is 0"),
    ("graph", lambda d: d["solo"][0].update(graph_step_ms=0.0), "solo: graph_step_ms is 0"),
    ("product", lambda d: d["probes"][0].update(gemm_tflops=0.0), "probes: gemm_tflops is 0"),
    ("batch", lambda d: d["plan"].update(per_rank_batch=0), "plan.per_rank_batch is 0"),
    (
        "parallel",
        lambda d: d.update(
            data_parallel={
                "global_batch": 2,
                "shards": [1, 1],
                "step_ms": 0.0,
                "one_device_step_ms": 1.0,
                "peak_memory_bytes": [1, 1],
            }
        ),
        "data_parallel: step_ms is 0",
    ),
    (
        "nobody in parallel",
        lambda d: d.update(
            data_parallel={
                "global_batch": 2,
                "shards": [],
                "step_ms": 1.0,
                "one_device_step_ms": 1.0,
                "peak_memory_bytes": [],
            }
        ),
        "data_parallel: number of devices is 0",
    ),
    (
        "margin of words",
        lambda d: d["settings"].update(margin={"value": ["a", "b"], "origin": "flag"}),
        "settings.margin",
    ),
    ("margin of one", lambda d: d["settings"].update(margin={"value": [0.1], "origin": "flag"}), "settings.margin"),
    (
        "margin turned",
        lambda d: d["settings"].update(margin={"value": [0.1, 0.05], "origin": "flag"}),
        "settings.margin",
    ),
    (
        "a threshold of no check",
        lambda d: d["settings"].update(thresholds={"value": ["x=1"], "origin": "flag"}),
        "settings.thresholds: threshold 'x' is not known here",
    ),
    (
        "thresholds turned",
        lambda d: d["settings"].update(thresholds={"value": ["limit_warn=40"], "origin": "flag"}),
        "settings.thresholds: thresholds: limit_warn (40) must be above limit_fail (50)",
    ),
    ("margin of a word", lambda d: d["settings"].update(margin={"value": "5:10", "origin": "flag"}), "settings.margin"),
]


@pytest.mark.parametrize(("change", "words"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_a_file_that_contradicts_itself_is_damaged_and_the_place_is_named(
    tmp_path: Path, change: Callable[[Document], Any], words: str
) -> None:
    document = json.loads((ROOT / "examples/runs/h200x2-slow.json").read_text())
    change(document["run"])
    path = tmp_path / "run.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError) as raised:
        load_run(path)
    assert f"{path} is damaged: {words}" in raised.value.message


def test_margins_that_were_asked_for_fit() -> None:
    document = json.loads((ROOT / "examples/runs/h200x2-slow.json").read_text())["run"]
    document["settings"]["margin"] = {"value": [0.3, 0.5], "origin": "flag"}
    run = Run.model_validate(document)
    assert contradiction(run) is None
    assert judge(run).facts.margin_fail == 0.5
