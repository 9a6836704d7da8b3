"""The units, as systemd itself reads them."""

from __future__ import annotations

import configparser
import subprocess
from pathlib import Path

import pytest

from tests.examples.helpers import EXAMPLES, tool

FOLDER = EXAMPLES / "systemd"
UNITS = sorted(FOLDER.glob("gpubalance-*"))
COMMAND = "/opt/gpubalance/bin/gpubalance"


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((FOLDER / name).read_text())
    return parser


@pytest.mark.skipif(tool("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    for path in UNITS:
        (tmp_path / path.name).write_text(path.read_text().replace(COMMAND, "/bin/true"))
    units = [str(path) for path in sorted(tmp_path.iterdir())]
    command = [tool("systemd-analyze") or "", "verify", *units]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # A key that it does not know is a warning to systemd, and lost; other units of the machine are not ours.
    assert [line for line in done.stderr.splitlines() if "gpubalance" in line] == []
    assert done.returncode == 0, done.stderr


def test_the_timer_starts_a_service_that_is_here() -> None:
    timers = [path for path in UNITS if path.suffix == ".timer"]
    assert [path.with_suffix(".service").exists() for path in timers] == [True]
    assert unit(timers[0].name)["Timer"]["OnUnitActiveSec"] == "1h"


@pytest.mark.parametrize("kind", ["probe", "bench"])
def test_each_service_may_write_where_its_metrics_go_and_keeps_its_state(kind: str) -> None:
    service = unit(f"gpubalance-{kind}.service")["Service"]
    command, asked, flag, report = service["ExecStart"].split()
    metrics = Path(report.removeprefix("prometheus="))
    assert (command, asked, flag) == (COMMAND, kind, "--report")
    assert (str(metrics.parent), metrics.name) == (service["ReadWritePaths"], f"gpubalance-{kind}.prom")
    assert service["Environment"] == "XDG_STATE_HOME=/var/lib"
    assert service["StateDirectory"] == "gpubalance"
    assert service["SuccessExitStatus"] == "1"


def test_nothing_is_hidden_that_a_look_must_see() -> None:
    hiding = {"PrivateDevices", "ProtectKernelLogs", "ProtectProc", "ProcSubset", "PrivateUsers", "DynamicUser", "User"}
    for path in UNITS:
        parser = unit(path.name)
        assert not hiding & {key for section in parser.sections() for key in parser[section]}
