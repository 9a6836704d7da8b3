"""What people read after a look at a node."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.checks.finding import Finding, State
from gpubalance.checks.probing.verdict import CHECKS, ProbeJudgement, judge_probe
from gpubalance.checks.verdict import Verdict
from gpubalance.record.probe import DeviceLoad, Load, Probe
from gpubalance.record.timings import DeviceProbe
from gpubalance.reports.probe_report import probe_lines, verdict_line
from tests.checks.probing.helpers import make_probe


def text(probe: Probe, *, verbose: bool = False, saved: str | None = None) -> list[str]:
    return [line.text for line in probe_lines(probe, judge_probe(probe), saved, verbose=verbose)]


def judged(verdict: Verdict, message: str, *findings: Finding) -> ProbeJudgement:
    return ProbeJudgement(verdict, message, findings, {})


def test_the_verdict_comes_first_and_worst_findings_follow() -> None:
    probe = make_probe(gpus=[{"ecc_uncorrected": 2}, {"rows_remap_pending": 1}])
    lines = text(probe)
    assert lines[0] == "FAIL  GPU 0 had 2 uncorrected ECC errors since the driver was loaded"
    heads = [line.split()[1] for line in lines if line[:2] in ("M2", "M5")]
    assert heads == ["fail", "warn"]


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("length", [10, 68, 69, 74, 75, 300])
def test_the_verdict_line_never_exceeds_eighty_columns(verdict: Verdict, length: int) -> None:
    sentence = " ".join(["word"] * 80)[:length].rstrip()
    line = verdict_line(judged(verdict, sentence))
    assert len(line.text) <= 80
    whole = line.text.endswith(sentence)
    assert whole == (len(sentence) + len(line.text.split("word")[0]) <= 80)
    assert whole or line.text.endswith(" ...")


def test_only_bad_news_is_listed_unless_everything_is_asked_for() -> None:
    probe = make_probe()
    short, full = text(probe), text(probe, verbose=True)
    assert not [line for line in short if line.startswith("M2 ")]
    shown = {line.split()[0] for line in full if line[:1] in "SMXPNTUACQ" and line[1:2].isdigit()}
    assert shown == {check.id for check in CHECKS}


def test_every_check_is_counted_once_under_its_worst_state() -> None:
    probe = make_probe(gpus=[{"ecc_uncorrected": 2}, {}])
    (line,) = [line for line in text(probe) if line.startswith(f"{len(CHECKS)} checks: ")]
    numbers = [int(word) for word in line.replace(",", "").split()[2:] if word.isdigit()]
    assert sum(numbers) == len(CHECKS)
    assert "1 fail" in line


def test_a_gpu_that_says_nothing_is_one_line() -> None:
    probe = make_probe(gpus=[{}, {"failed": "nvmlDeviceGetVbiosVersion did not return within 5 s"}])
    lines = text(probe)
    (said,) = [line for line in lines if line.startswith("... unknown")]
    assert "cuda:1 nvml:1" in said
    assert len([line for line in text(probe, verbose=True) if line[4:11] == "unknown"]) > 10


def test_links_and_peers_are_shown_as_they_are() -> None:
    links = [{"link": number, "active": number < 14, "version": 4} for number in range(18)]
    blocked = {
        "nvml_index": 0,
        "topology": "SYSTEM",
        "p2p": {"read": "CHIPSET_NOT_SUPPORTED", "nvlink": "NOT_SUPPORTED"},
    }
    lines = text(make_probe(gpus=[{}, {"links": links, "peers": [blocked]}]))
    row = next(line for line in lines if line.split()[:2] == ["1", "1"])
    assert "14/18" in row.split()
    matrix = lines[lines.index(next(line for line in lines if line.startswith("to GPU"))) :]
    assert matrix[1].split() == ["GPU", "0", ".", "NVL"]
    assert matrix[2].split() == ["GPU", "1", "SYS!", "."]


def test_what_a_load_measured_is_a_table() -> None:
    speed = DeviceProbe(
        rank=0, device=0, gemm_tflops=700.04, memory_copy_gb_per_s=4200.4,
        host_to_device_gb_per_s=55.31, device_to_host_gb_per_s=55.34,
    )  # fmt: skip
    done = DeviceLoad(device=0, stage="done", seconds=8.04, speed=speed)
    left = DeviceLoad(device=1, stage="start", seconds=0.0, skipped="is in use by pid 5")
    lines = text(make_probe(load=Load(devices=[0, 1], results=[done, left])))
    assert ["GPU", "0", "700.0", "4200", "55.3", "55.3", "8.0"] in [line.split() for line in lines]
    assert ["GPU", "1", "-", "-", "-", "-", "0.0"] in [line.split() for line in lines]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"simulated": "h200x8"}, "Simulated: h200x8. This says nothing about this machine."),
        ({"torch": {"error": "import torch failed: OSError: libcudart"}}, "torch: import torch failed: OSError"),
        ({"torch": {"seconds": 3.25}}, "of which a child imported torch for 3.2 s"),
        ({"node": {"container": "docker"}}, "docker"),
    ],
)
def test_what_else_is_said(values: dict[str, Any], words: str) -> None:
    assert words in " ".join(text(make_probe(**values)))


def test_limits_that_nothing_cross_checks_are_said_without_being_asked_for() -> None:
    assert "NVIDIA Z900: no published peaks known, limits are derived" in text(
        make_probe(devices=[{"name": "NVIDIA Z900"}])
    )


def test_a_saved_record_is_named() -> None:
    assert text(make_probe(), saved="look.json")[-1] == "Saved: look.json"


def test_a_driver_that_did_not_answer_leaves_what_is_known_without_it() -> None:
    lines = text(make_probe(node=None, nvml_failed="nvmlInit did not return", details=[], count=0))
    assert lines[0].startswith("NO VERDICT  ")
    assert "torch 2.11.0+cu130" in " ".join(lines)


def test_terminals_are_never_given_what_they_obey() -> None:
    hostile = make_probe(devices=[{"name": "NVIDIA \x1b[31mH200\r\nPASS"}], node={"hostname": "\x1b]0;x\x07"})
    assert all(line.isprintable() for line in text(hostile, verbose=True))


@pytest.mark.parametrize("gpus", [1, 2, 8, 16])
def test_nothing_is_wider_than_eighty_columns_unless_a_word_is(gpus: int) -> None:
    probe = make_probe(count=gpus)
    for line in text(probe, verbose=True):
        assert len(line) <= 80 or gpus == 16


def test_findings_show_what_was_seen_and_what_was_expected_together() -> None:
    found = Finding(
        "T9", State.WARN, "warm", observed="91 C", expected="below 90 C", evidence=("fan 0",), next_step="cool"
    )
    lines = [line.text for line in probe_lines(make_probe(), judged(Verdict.WARN, "warm", found), None)]
    place = lines.index("T9  warn    warm")
    assert [line.strip() for line in lines[place + 1 : place + 4]] == [
        "91 C, expected below 90 C",
        "fan 0",
        "Next: cool.",
    ]
