"""X: Xids and bus errors of the kernel's log."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.checks.finding import State
from gpubalance.checks.probing.kernel_log import APPLICATION, FATAL
from gpubalance.record.probe import KernelEvent, Probe
from tests.checks.probing.helpers import make_probe, only, states, worst

GPU_1 = "0000:07:00.0"
"""Bus id of the second GPU of `make_probe`."""


def xid(number: int, bus_id: str = "0000:07:00") -> KernelEvent:
    return KernelEvent(kind="xid", text=f"NVRM: Xid (PCI:{bus_id}): {number}, words", xid=number, bus_id=bus_id)


def log(*events: KernelEvent, missing: str | None = None, **values: Any) -> Probe:
    reasons = {"kernel_log": missing} if missing else {}
    return make_probe(host={"kernel_log": list(events), "missing": reasons}, **values)


@pytest.mark.parametrize("number", [48, 62, 64, 74, 79, 95, 119, 120, 140])
def test_an_xid_of_sick_hardware_fails(number: int) -> None:
    (finding,) = only("X1", log(xid(number)))
    assert (finding.state, finding.required) == (State.FAIL, False)
    assert finding.message.startswith(f"GPU 1: Xid {number} (")
    assert len(finding.message) <= 68
    assert finding.subject == f"cuda:1 nvml:1 GPU-00000002-aaaa-bbbb-cccc-000000000001 {GPU_1}"
    assert finding.next_step


@pytest.mark.parametrize("number", [63, 92, 94, 14, 8, 145, 999])
def test_any_other_xid_warns(number: int) -> None:
    (finding,) = only("X1", log(xid(number)))
    assert finding.state is State.WARN
    assert finding.next_step


@pytest.mark.parametrize("number", [13, 31, 43, 45])
def test_an_xid_that_programs_cause_is_told_only(number: int) -> None:
    (finding,) = only("X1", log(xid(number)))
    assert (finding.state, finding.next_step) == (State.INFO, None)


@given(st.integers(0, 2000))
def test_every_xid_has_one_state(number: int) -> None:
    (finding,) = only("X1", log(xid(number)))
    expected = State.FAIL if number in FATAL else State.INFO if number in APPLICATION else State.WARN
    assert finding.state is expected


def test_events_are_counted_by_gpu_and_number() -> None:
    found = only("X1", log(xid(31), xid(31), xid(79), xid(31, "0000:06:00"), xid(31)))
    assert [(f.message, f.observed) for f in found] == [
        ("GPU 1: Xid 31 (a program's bad memory access) since boot", "3 events"),
        ("GPU 1: Xid 79 (fell off the bus) since boot", "1 event"),
        ("GPU 0: Xid 31 (a program's bad memory access) since boot", "1 event"),
    ]


def test_a_gpu_that_nvml_lost_is_called_by_its_bus_id() -> None:
    (finding,) = only("X1", log(xid(79, "0000:5e:00")))
    assert (finding.state, finding.message) == (State.FAIL, "GPU at 0000:5e:00: Xid 79 (fell off the bus) since boot")
    assert finding.subject == "0000:5e:00"


@pytest.mark.parametrize(("bus_id", "state"), [("0000:5e:00", State.WARN), ("0000:07:00", State.FAIL)])
def test_a_neighbours_gpu_fails_no_container(bus_id: str, state: State) -> None:
    assert [f.state for f in only("X1", log(xid(79, bus_id), node={"container": "docker"}))] == [state]


def test_another_function_of_the_same_device_is_not_the_gpu() -> None:
    (finding,) = only("X1", log(xid(48, "0000:07:00.1")))
    assert finding.message.startswith("GPU at 0000:07:00.1")


def test_a_quiet_log_passes() -> None:
    assert [f.message for f in only("X1", log())] == ["no Xid in the kernel log since boot"]
    assert states(only("X1", log())) == ["pass"]


def test_a_pass_says_when_the_log_does_not_reach_back_to_the_boot() -> None:
    (finding,) = only("X1", log(missing="older lines were overwritten"))
    assert finding.message == "no Xid in what is left of the kernel log"
    assert finding.evidence == ("older lines were overwritten",)


@pytest.mark.parametrize("check", ["X1", "X2"])
@pytest.mark.parametrize("reason", ["NO_PERMISSION", "ENOENT", "empty"])
def test_a_log_that_cannot_be_read_is_unknown_and_not_required(check: str, reason: str) -> None:
    (finding,) = only(check, make_probe(host={"kernel_log": None, "missing": {"kernel_log": reason}}))
    assert (finding.state, finding.required) == (State.UNKNOWN, False)
    assert reason in finding.message
    assert finding.next_step


@pytest.mark.parametrize("check", ["X1", "X2"])
def test_simulated_gpus_have_no_log(check: str) -> None:
    assert states(only(check, log(xid(79), simulated="h200x8"))) == ["skip"]


@pytest.mark.parametrize("check", ["X1", "X2"])
def test_a_log_speaks_for_itself_where_nvml_is_silent(check: str) -> None:
    fallen = KernelEvent(kind="fallen_off", text="NVRM: GPU 0000:07:00.0: fallen off the bus", bus_id=GPU_1)
    found = only(check, log(xid(79), fallen, node=None) if check == "X1" else log(fallen, count=0))
    assert worst(found).state is State.FAIL


# X2


def event(kind: str, text: str, bus_id: str, fatal: bool | None = None, number: int | None = None) -> KernelEvent:
    return KernelEvent.model_validate({"kind": kind, "text": text, "bus_id": bus_id, "fatal": fatal, "xid": number})


def link(width: int, capable: int, speed: str = "8.0", top: str = "16.0") -> KernelEvent:
    text = (
        f"pci {GPU_1}: 63.008 Gb/s available PCIe bandwidth, limited by {speed} GT/s PCIe x{width} link at "
        f"0000:06:01.0 (capable of 252.048 Gb/s with {top} GT/s PCIe x{capable} link)"
    )
    return event("downtrained", text, GPU_1)


@pytest.mark.parametrize(
    ("seen", "state", "message"),
    [
        (event("sxid", "SXid", "0000:c1:00.0", True, 20034), State.FAIL,
         "NVSwitch 0000:c1:00.0: fatal SXid 20034"),
        (event("sxid", "SXid", "0000:c1:00.0", False, 12028), State.WARN, "NVSwitch 0000:c1:00.0: SXid 12028"),
        (event("fallen_off", "NVRM", GPU_1), State.FAIL, "GPU 1: fell off the bus"),
        (event("fallen_off", "NVRM", "0000:5e:00"), State.FAIL, "GPU at 0000:5e:00: fell off the bus"),
        (event("aer", "severity=Uncorrected (Fatal)", GPU_1, True), State.FAIL, "GPU 1: fatal PCIe error"),
        (event("aer", "severity=Uncorrected (Non-Fatal)", GPU_1, False), State.WARN,
         "GPU 1: uncorrected PCIe error"),
        (event("aer", "severity=Uncorrectable (Non-Fatal)", GPU_1, False), State.WARN,
         "GPU 1: uncorrected PCIe error"),
        (event("aer", "severity=Corrected", GPU_1, False), State.INFO, "GPU 1: PCIe errors, all corrected"),
        (event("aer", "severity=Correctable", "0000:5d:00.0", False), State.INFO,
         "PCIe device 0000:5d:00.0: PCIe errors, all corrected"),
        (link(8, 16), State.WARN, "GPU 1: came up on x8 of x16 lanes"),
        (link(16, 16, "2.5"), State.INFO, "GPU 1: link was slower at boot than it can be"),
    ],
)  # fmt: skip
def test_what_each_line_about_the_bus_means(seen: KernelEvent, state: State, message: str) -> None:
    (finding,) = only("X2", log(seen))
    assert (finding.state, finding.message, finding.observed) == (state, message, "1 line since boot")
    assert finding.evidence == (seen.text,)
    assert bool(finding.next_step) == (state is not State.INFO)


def test_alike_lines_are_counted_and_others_kept_apart() -> None:
    corrected = event("aer", "severity=Corrected", GPU_1, False)
    fatal = event("aer", "severity=Uncorrected (Fatal)", GPU_1, True)
    found = only("X2", log(corrected, corrected, fatal, corrected))
    assert [(f.state, f.observed) for f in found] == [
        (State.INFO, "3 lines since boot"),
        (State.FAIL, "1 line since boot"),
    ]


def test_xids_are_no_bus_errors() -> None:
    assert states(only("X2", log(xid(79)))) == ["pass"]
    assert states(only("X1", log(event("fallen_off", "NVRM", GPU_1)))) == ["pass"]
