"""A sentence calls a device by its short name; every format still says which one it is."""

from __future__ import annotations

import pytest

from gpubalance.checks.identity import device_label
from gpubalance.record.run import Run
from gpubalance.reports.github import github_text
from gpubalance.reports.junit import junit_text
from gpubalance.reports.record_parts import devices_named
from tests.checks.helpers import look, one
from tests.checks.test_devices import counted, multiplying, slowed

OF_DEVICE_1 = {
    "nvlink_crc_errors": counted("nvlink_crc_errors", 0, 1),
    "ecc_uncorrected": counted("ecc_uncorrected", 0, 1),
    "slowdown": slowed(0x8),
    "low_clock": multiplying(1000, 0),
}


@pytest.mark.parametrize(("check", "run"), OF_DEVICE_1.items())
def test_a_finding_of_a_single_device_is_its_own_in_every_format(check: str, run: Run) -> None:
    finding = one(run, check)
    device = run.plan.devices[1]
    assert "GPU 1" in finding.message
    assert (device.uuid or "") not in finding.message
    assert finding.subject == device_label(device)
    assert devices_named(run, finding) == [device]
    judgement = look(run)
    assert f"{check}: {device_label(device)}" in junit_text(run, judgement)
    assert device_label(device) in github_text(run, judgement)
