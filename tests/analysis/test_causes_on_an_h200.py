"""Causes told from what an H200 showed of each fault, its only rank laid beside its own healthy run."""

from __future__ import annotations

import pytest

from gpubalance.analysis.facts import compute_facts
from gpubalance.testing.evidence import Traces, run_with

HEALTHY = Traces(
    {"update": 0.632, "input": 0.017, "copy": 0.001, "forward": 2.920, "backward": 5.914},
    device_ms=9.223, blocked_ms=0.1, involuntary_per_s=0.0, queued_ms=0.0,
)  # fmt: skip
SEEN: dict[str, tuple[str, Traces]] = {
    "sleep 2 ms": ("host", Traces(
        {"update": 0.631, "input": 0.012, "copy": 0.001, "forward": 5.130, "backward": 5.773},
        device_ms=9.229, blocked_ms=2.3, involuntary_per_s=0.0, queued_ms=0.0)),
    "loader 2 ms": ("input_pipeline", Traces(
        {"update": 0.697, "input": 2.134, "copy": 0.021, "forward": 3.051, "backward": 5.793},
        device_ms=9.213, blocked_ms=2.3, involuntary_per_s=0.0, queued_ms=0.0)),
    "copies 128 MiB": ("pcie", Traces(
        {"update": 0.631, "input": 0.014, "copy": 2.425, "forward": 2.870, "backward": 5.773},
        device_ms=9.259, blocked_ms=0.1, involuntary_per_s=0.0, queued_ms=0.0)),
    "backward 20 %": ("device_work", Traces(
        {"update": 0.632, "input": 0.017, "copy": 0.001, "forward": 2.945, "backward": 7.797},
        device_ms=11.301, blocked_ms=0.1, involuntary_per_s=0.0, queued_ms=0.0)),
    "compute 20 %": ("device_work", Traces(
        {"update": 0.632, "input": 0.019, "copy": 0.001, "forward": 4.795, "backward": 5.975},
        device_ms=11.301, blocked_ms=0.1, involuntary_per_s=0.0, queued_ms=0.0)),
    "hog, 8 processes": ("cpu_contention", Traces(  # time in line of the main thread alone
        {"update": 0.723, "input": 0.014, "copy": 0.001, "forward": 2.860, "backward": 30.123},
        device_ms=9.662, blocked_ms=28.0, involuntary_per_s=9.0, queued_ms=16.4)),
    "rival": ("foreign_process", Traces(
        {"update": 0.636, "input": 0.018, "copy": 0.001, "forward": 7.228, "backward": 13.709},
        device_ms=21.243, blocked_ms=0.1, involuntary_per_s=2.0, queued_ms=0.0, stranger_pids=(1202,))),
}  # fmt: skip


@pytest.mark.parametrize("probed", [True, False], ids=["probed", "ddp alone"])
@pytest.mark.parametrize(("cause", "slow"), SEEN.values(), ids=list(SEEN))
def test_what_an_h200_showed_of_a_fault_names_it(cause: str, slow: Traces, probed: bool) -> None:
    run = run_with([HEALTHY, slow])
    run = run if probed else run.model_copy(update={"probes": []})
    first = compute_facts(run, 0.05, 0.10).first
    assert first is not None
    (found,) = first.attributions
    assert (found.rank, found.cause) == (1, cause), found.parts
    assert found.coverage is not None
    assert found.coverage > 0.9
