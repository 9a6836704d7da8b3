"""The whole look at a node, with a simulated driver and scripted children: real processes, no GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpubalance.checks.verdict import Verdict
from gpubalance.errors import BusyError, UsageError
from gpubalance.launch.lock import MeasuringLock
from gpubalance.record.probe import Probe
from gpubalance.sampling import client, inspection
from gpubalance.session import probe as story
from gpubalance.session.probe import Probed, probe
from gpubalance.settings import ProbeSettings
from gpubalance.testing.profiles import h200_node
from tests.support import SCRIPTED, eventually, write_script

HEALTHY_LOAD: list[list[Any]] = [
    ["phase", "load"],
    ["event", "matmul", {"max_error": 0.4}],
    ["event", "bits", {"digest": "ab", "repeats": 50, "differing": 0}],
    ["event", "stage", {"stage": "done"}],
    ["end"],
]


def look(folder: Path, values: dict[str, Any], **settings: Any) -> Probed:
    path = folder / "driver.json"
    path.write_text(json.dumps(values))
    return probe(ProbeSettings(simulate=str(path), **settings))


def finding(probed: Probed, check: str) -> Any:
    return next(found for found in probed.judgement.findings if found.id == check)


def test_a_healthy_simulated_node_passes_and_is_marked(tmp_path: Path) -> None:
    probed = look(tmp_path, h200_node())
    assert probed.judgement.verdict is Verdict.PASS
    assert probed.probe.simulated is not None
    assert [len(detail.links) for detail in probed.probe.details] == [18, 18]
    assert all(detail.failed is None for detail in probed.probe.details)
    assert Probe.model_validate(json.loads(probed.probe.model_dump_json())) == probed.probe


def test_a_driver_that_hangs_in_the_snapshot_is_named_with_call_and_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "CALL_LIMIT_S", 0.5)
    values = h200_node()
    values["faults"] = [{"call": "nvmlDeviceGetName", "device": 1, "delay_s": 600}]
    probed = look(tmp_path, values)
    assert probed.judgement.verdict is Verdict.INCONCLUSIVE
    assert probed.probe.node is None
    assert probed.probe.nvml_failed is not None
    assert "nvmlDeviceGetName on the GPU with NVML index 1" in probed.probe.nvml_failed
    assert any("nvmlDeviceGetName" in " ".join([f.message, *f.evidence]) for f in probed.judgement.findings)


def test_a_call_that_hangs_on_one_gpu_leaves_the_other_intact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = inspection.inspect_devices

    def impatient(*arguments: Any) -> Any:
        return short(*arguments, call_limit_s=0.5)

    monkeypatch.setattr(story, "inspect_devices", impatient)
    values = h200_node()
    values["faults"] = [{"call": "nvmlDeviceGetRemappedRows", "device": 1, "delay_s": 600}]
    probed = look(tmp_path, values)
    first, second = probed.probe.details
    assert first.failed is None
    assert second.failed is not None
    assert "nvmlDeviceGetRemappedRows" in second.failed
    assert probed.judgement.verdict is Verdict.INCONCLUSIVE
    assert finding(probed, "M2").state.value == "unknown"


def test_links_that_train_are_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "LOOK_PAUSE_S", 0.0)
    answers = []
    ask = inspection.inspect_devices

    def training(*arguments: Any) -> Any:
        details = ask(*arguments)
        if not answers:
            down = [link.model_copy(update={"active": False}) for link in details[0].links]
            details[0] = details[0].model_copy(update={"links": down})
        answers.append(details)
        return details

    monkeypatch.setattr(story, "inspect_devices", training)
    probed = look(tmp_path, h200_node())
    assert (probed.probe.looks, len(answers)) == (2, 2)
    assert finding(probed, "N1").state.value == "pass"


def test_links_that_stay_down_are_a_fault_after_the_last_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "LOOK_PAUSE_S", 0.0)
    values = h200_node()
    values["faults"] = [{"call": "nvmlDeviceGetNvLinkState", "device": 1, "value": 0}]
    probed = look(tmp_path, values)
    assert probed.probe.looks == story.LOOKS
    assert finding(probed, "N1").state.value == "fail"


def test_more_gpus_expected_than_found_fails(tmp_path: Path) -> None:
    probed = look(tmp_path, h200_node(), expect_gpus=3)
    assert probed.judgement.verdict is Verdict.FAIL
    assert finding(probed, "S2").state.value == "fail"


def test_only_and_skip_choose_and_require_is_strict(tmp_path: Path) -> None:
    values = h200_node()
    values["faults"] = [{"call": "nvmlDeviceGetRemappedRows", "error": 4}]
    chosen = look(tmp_path, values, only=("M",), skip=("M5", "m6"))
    assert {found.id for found in chosen.judgement.findings} == {f"M{number}" for number in (1, 2, 3, 4, 7, 8, 9)}
    strict = look(tmp_path, values, only=("M5",), require=("M5",))
    assert strict.judgement.verdict is Verdict.FAIL


@pytest.mark.parametrize("settings", [{"only": ("Z9",)}, {"skip": ("nonsense",)}, {"require": ("X9",)}])
def test_a_check_that_does_not_exist_is_wrong_use(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="there is no check"):
        probe(ProbeSettings(simulate="h200x2", **settings))


def test_a_profile_that_does_not_exist_is_wrong_use() -> None:
    with pytest.raises(UsageError):
        probe(ProbeSettings(simulate="h200x3"))


def test_a_load_does_not_run_beside_another_measurement() -> None:
    lock = MeasuringLock()
    lock.acquire(force=True)
    try:
        with pytest.raises(BusyError, match="another gpubalance"):
            probe(ProbeSettings(load=True))
    finally:
        lock.release()


def simulated_load(
    folder: Path, monkeypatch: pytest.MonkeyPatch, script: dict[str, Any], values: dict[str, Any], **settings: Any
) -> Probed:
    """`--load` with scripted children: the settings refuse to combine it with a simulated driver."""
    for name, value in write_script(folder, script).items():
        monkeypatch.setenv(name, value)
    wanted = ProbeSettings(load=True, **settings)
    monkeypatch.setattr(story, "_profile", lambda _name: values)
    return probe(wanted, module=SCRIPTED)


def test_a_load_asks_each_gpu_alone_and_reads_counters_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = client.SensorProcess.edge

    def ask_and_hear(sensor: client.SensorProcess, name: str) -> None:
        """A scripted load takes no time, and on a busy machine a look at the counters may not end within it."""
        ask(sensor, name)
        log = sensor._folder / "sensor.jsonl"
        eventually(lambda: log.read_text().count(f'"edge": "{name}"') == 2)

    monkeypatch.setattr(client.SensorProcess, "edge", ask_and_hear)
    probed = simulated_load(tmp_path, monkeypatch, {"*": HEALTHY_LOAD}, h200_node())
    load = probed.probe.load
    assert load is not None
    assert load.devices == [0, 1]
    assert [result.stage for result in load.results] == ["done", "done"]
    assert {(c.edge, c.device) for c in load.samples.counters} == {
        (edge, device) for edge in ("load begin", "load end") for device in (0, 1)
    }
    assert finding(probed, "Q1").state.value == "pass"
    assert finding(probed, "Q2").state.value == "pass"
    assert finding(probed, "Q4").state.value == "pass"


def test_a_busy_gpu_is_left_alone_and_there_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = h200_node()
    values["devices"][1]["ComputeRunningProcesses"] = [{"pid": 4194999, "usedGpuMemory": 2**30}]
    probed = simulated_load(tmp_path, monkeypatch, {"*": HEALTHY_LOAD}, values)
    assert probed.judgement.verdict is Verdict.INCONCLUSIVE
    assert probed.probe.load is not None
    assert probed.probe.load.devices == [0, 1]
    assert [result.skipped is None for result in probed.probe.load.results] == [True, False]
    assert "in use" in finding(probed, "Q1").message


def test_a_gpu_with_other_bits_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = [
        ["event", "bits", {"digest": "cd", "repeats": 50, "differing": 0}] if step[:2] == ["event", "bits"] else step
        for step in HEALTHY_LOAD
    ]
    probed = simulated_load(tmp_path, monkeypatch, {"1": other, "*": HEALTHY_LOAD}, h200_node(3))
    assert finding(probed, "Q2").message == "GPU 1 gives other bits than its peers"
    assert probed.judgement.verdict is Verdict.FAIL
