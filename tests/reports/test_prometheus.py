"""Prometheus' text format: values by hand, labels that join, and promtool's own opinion where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gpubalance.checks.finding import Finding, State
from gpubalance.checks.probing.verdict import ProbeJudgement
from gpubalance.checks.verdict import Verdict
from gpubalance.record.probe import DeviceLoad, Load, Probe
from gpubalance.record.run import Run
from gpubalance.record.timings import DeviceProbe
from gpubalance.reports.formats import judged
from gpubalance.reports.prometheus import METRICS, prometheus_text
from gpubalance.testing.link_runs import link_run
from gpubalance.testing.runs import make_run
from tests.checks.probing.helpers import make_probe
from tests.checks.probing.test_kept_probes import KEPT as KEPT_PROBES
from tests.checks.probing.test_kept_probes import kept as kept_probe
from tests.reports.helpers import HOSTILE, KEPT, kept, named, pair, row, without_ddp

GPU_1 = {"gpu": "1", "uuid": "GPU-00000002-aaaa-bbbb-cccc-000000000001", "pci_bus_id": "00000000:07:00.0"}
NODE = {"gpu": "", "uuid": "", "pci_bus_id": ""}
SPEED = DeviceProbe(
    rank=0,
    device=0,
    gemm_tflops=650.0,
    memory_copy_gb_per_s=4200.0,
    host_to_device_gb_per_s=50.0,
    device_to_host_gb_per_s=49.5,
)
RECORDS: dict[str, Run | Probe] = {
    **{name: kept(name) for name in KEPT},
    **{f"probe {name}": kept_probe(name) for name in KEPT_PROBES},
    "hostile": named(pair(100.0, 108.0), HOSTILE),
    "hostile probe": make_probe(devices=[{"name": HOSTILE}, {"name": '\ud800"\\\n'}]),
    "collectives": pair(100.0, 100.0, collectives=[row(), row("graph")]),
    "links": link_run(4, {(0, 1): 0.8}),
    "on the CPU": make_run(pair(100.0, 100.0).ddp, on_cpu=True),
    "no ddp": without_ddp(),
    "no driver": make_probe(node={"nvml_error": "DRIVER_NOT_LOADED"}),
    "hung driver": make_probe(nvml_failed="nvmlInit did not return").model_copy(update={"node": None}),
}

Samples = list[tuple[dict[str, str], float]]


def parsed(text: str) -> dict[str, Samples]:
    """Name without the prefix -> labels without the kind, and value."""
    families = list(text_string_to_metric_families(text))
    assert {family.type for family in families} == {"gauge"}
    return {
        family.name.removeprefix("gpubalance_"): [
            ({label: value for label, value in sample.labels.items() if label != "kind"}, sample.value)
            for sample in family.samples
        ]
        for family in families
    }


def metrics_of(record: Run | Probe) -> dict[str, Samples]:
    return parsed(prometheus_text(record, judged(record)))


def by(label: str, samples: Samples) -> dict[str, float]:
    found = {labels[label]: value for labels, value in samples}
    assert len(found) == len(samples)
    return found


def test_a_straggler_by_hand() -> None:
    found = metrics_of(pair(100.0, 120.0))
    # Compute of 100 and 120 ms, transfer of 20: the step takes 140 ms, of which 20 are lost, and 120/140 is left.
    assert found["balance_ratio"] == [({}, pytest.approx(120 / 140))]
    assert found["step_seconds"] == [({}, pytest.approx(0.140))]
    assert found["step_lost_seconds"] == [({}, pytest.approx(0.020))]
    assert by("rank", found["rank_compute_seconds"]) == {"0": pytest.approx(0.100), "1": pytest.approx(0.120)}
    assert by("rank", found["rank_wait_seconds"]) == {"0": pytest.approx(0.020), "1": pytest.approx(0.0, abs=1e-4)}
    assert by("verdict", found["verdict"]) == {"pass": 0, "warn": 0, "fail": 1, "inconclusive": 0}
    assert by("state", found["findings"])["fail"] == 1
    assert found["run_timestamp_seconds"] == [({}, 1767225600)]  # 2026-01-01T00:00:00 UTC
    assert found["run_duration_seconds"] == [({}, 30)]
    assert ({"id": "straggler", "state": "fail", **GPU_1}, 1) in found["finding"]


@pytest.mark.parametrize("name", RECORDS)
def test_exactly_one_verdict_is_one(name: str) -> None:
    record = RECORDS[name]
    verdicts = by("verdict", metrics_of(record)["verdict"])
    assert set(verdicts) == {verdict.value for verdict in Verdict}
    assert [verdict for verdict, value in verdicts.items() if value] == [judged(record).verdict.value]


@pytest.mark.parametrize("name", RECORDS)
def test_every_finding_and_every_state_is_counted(name: str) -> None:
    record = RECORDS[name]
    found, judgement = metrics_of(record), judged(record)
    assert sum(by("state", found["findings"]).values()) == len(judgement.findings)
    said = {(labels["id"], labels["state"]) for labels, _ in found["finding"]}
    assert said == {(finding.id, finding.state.value) for finding in judgement.findings}


@pytest.mark.parametrize("name", RECORDS)
def test_help_and_type_of_all_metrics_stand_in_every_file_and_the_bytes_are_the_same(name: str) -> None:
    record = RECORDS[name]
    text = prometheus_text(record, judged(record))
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert [line.split()[2] for line in heads if " TYPE " in line] == [f"gpubalance_{m.name}" for m in METRICS]
    assert heads == [
        line for m in METRICS for line in (f"# HELP gpubalance_{m.name} {m.help}", f"# TYPE gpubalance_{m.name} gauge")
    ]
    assert text == prometheus_text(record, judged(record))
    assert all(character.isprintable() or character == "\n" for character in text)


@pytest.mark.parametrize("name", RECORDS)
def test_every_sample_says_its_kind_so_that_a_run_and_a_probe_can_stand_side_by_side(name: str) -> None:
    record = RECORDS[name]
    samples = [
        sample
        for family in text_string_to_metric_families(prometheus_text(record, judged(record)))
        for sample in family.samples
    ]
    assert {sample.labels["kind"] for sample in samples} == {record.kind}


NOT_MEASURED = {
    "no ddp": {"balance_ratio", "step_seconds", "step_lost_seconds", "rank_compute_seconds", "rank_wait_seconds",
               "rank_blame_seconds", "rank_useful_ratio", "collective_bus_bandwidth_bytes_per_second"},
    "no driver": {"gpus", "balance_ratio", "device_memory_copy_bytes_per_second"},
    "hung driver": {"gpus", "device_info", "balance_ratio"},
    "probe h200x2-healthy": {"balance_ratio", "device_memory_copy_bytes_per_second"},
}  # fmt: skip


@pytest.mark.parametrize(("name", "absent"), NOT_MEASURED.items(), ids=NOT_MEASURED.keys())
def test_what_was_not_measured_has_no_sample(name: str, absent: set[str]) -> None:
    found = metrics_of(RECORDS[name])
    assert {metric for metric in absent if found[metric]} == set()
    assert found["verdict"]


def test_bandwidth_is_in_bytes_a_second_by_collective_and_size() -> None:
    (sample,) = metrics_of(pair(100.0, 100.0, collectives=[row()]))["collective_bus_bandwidth_bytes_per_second"]
    labels = {"collective": "all_reduce", "size_bytes": "1073741824", "mode": "eager", "backend": "nccl",
              "placement": "in_place",
              "dtype": "float32", "ranks": "2"}  # fmt: skip
    assert sample == (labels, pytest.approx(325.37e9))


def test_measures_of_a_device_alone_in_base_units_from_a_run_and_from_a_loaded_probe() -> None:
    run = pair(100.0, 100.0, probes=[SPEED.model_copy(update={"rank": 1, "device": 1})])
    load = Load(devices=[1], results=[DeviceLoad(device=0, stage="done", seconds=3.0, speed=SPEED)])
    for record in (run, make_probe(load=load)):
        found = metrics_of(record)
        assert found["device_matrix_product_flops_per_second"] == [(GPU_1, pytest.approx(650e12))]
        assert found["device_memory_copy_bytes_per_second"] == [(GPU_1, pytest.approx(4200e9))]
        assert found["device_from_host_bytes_per_second"] == [(GPU_1, pytest.approx(50e9))]
        assert found["device_to_host_bytes_per_second"] == [(GPU_1, pytest.approx(49.5e9))]


BUS_IDS = {
    "0000:5e:00.0": "00000000:5E:00.0",
    "10000:01:00.0": "00010000:01:00.0",
    "00000000:5E:00.0": "00000000:5E:00.0",
    None: "",
}


@pytest.mark.parametrize(("bus_id", "label"), BUS_IDS.items())
def test_a_bus_id_is_spelled_as_dcgm_spells_it(bus_id: str | None, label: str) -> None:
    (sample,) = metrics_of(make_probe(devices=[{"pci_bus_id": bus_id}], count=1))["device_info"]
    assert sample[0]["pci_bus_id"] == label


def finding_labels(subject: str | None) -> list[dict[str, str]]:
    probe = make_probe()
    judgement = ProbeJudgement(Verdict.FAIL, "s", (Finding("M2", State.FAIL, "m", subject),), {})
    found = parsed(prometheus_text(probe, judgement))["finding"]
    return [{key: labels[key] for key in NODE} for labels, value in found if value == 1]


def test_a_finding_carries_the_devices_it_names() -> None:
    first, second = "GPU-00000001-aaaa-bbbb-cccc-000000000000", GPU_1["uuid"]
    gpu_0 = {"gpu": "0", "uuid": first, "pci_bus_id": "00000000:06:00.0"}
    assert finding_labels(f"cuda:1 nvml:1 {second} 0000:07:00.0") == [GPU_1]
    assert finding_labels(f"nvml:0 {first}; nvml:1 {second}") == [gpu_0, GPU_1]
    assert finding_labels("0000:07:00.0") == [GPU_1]
    assert finding_labels(None) == [NODE]
    assert finding_labels(f"MIG-{second}/1/0 and {second}0") == [NODE]


STARTS = {
    "2030-01-01T00:00:00Z": 1893456000,
    "2030-01-01T00:00:00+00:00": 1893456000,
    "2030-01-01T01:00:00+01:00": 1893456000,
    "2030-01-01T00:00:00": 1893456000,
    "yesterday": None,
}


@pytest.mark.parametrize(("started_at", "seconds"), STARTS.items())
def test_the_timestamp_is_that_of_the_record(started_at: str, seconds: int | None) -> None:
    found = metrics_of(make_probe(started_at=started_at))["run_timestamp_seconds"]
    assert found == ([] if seconds is None else [({}, seconds)])


REHEARSALS: dict[str, tuple[Run | Probe, float]] = {
    "a run": (pair(100.0, 100.0), 0),
    "an injected fault": (pair(100.0, 100.0, injected=["sleep:rank=1,ms=5"]), 1),
    "a probe": (make_probe(), 0),
    "a simulated driver": (make_probe(simulated="h200x2"), 1),
}


@pytest.mark.parametrize(("record", "value"), REHEARSALS.values(), ids=REHEARSALS.keys())
def test_a_record_that_says_nothing_about_the_node_says_so(record: Run | Probe, value: float) -> None:
    assert metrics_of(record)["rehearsal"] == [({}, value)]


@given(st.text())
def test_any_name_reads_back_as_it_may_be_printed(name: str) -> None:
    (sample,) = metrics_of(make_probe(devices=[{"name": name}], count=1))["device_info"]
    assert sample[0]["model"].isprintable()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize("name", RECORDS)
def test_promtool_finds_nothing_to_say(name: str) -> None:
    record = RECORDS[name]
    values: dict[str, Any] = {"input": prometheus_text(record, judged(record)), "capture_output": True, "text": True}
    done = subprocess.run(["promtool", "check", "metrics"], check=False, **values)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
