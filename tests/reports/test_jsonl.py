"""JSON lines: each stands alone, nothing is lost, and the verdict is the last one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpubalance.record.probe import NvLink, Probe
from gpubalance.record.run import Run
from gpubalance.reports.document import plain
from gpubalance.reports.formats import judged
from gpubalance.reports.jsonl import jsonl_text
from tests.checks.probing.helpers import NOT_SUPPORTED, make_probe
from tests.checks.probing.test_kept_probes import KEPT as KEPT_PROBES
from tests.checks.probing.test_kept_probes import kept as kept_probe
from tests.reports.helpers import HOSTILE, KEPT, kept, named, pair, with_own_memory, without_ddp

RECORDS: dict[str, Run | Probe] = {
    **{name: kept(name) for name in KEPT},
    **{f"probe {name}": kept_probe(name) for name in KEPT_PROBES},
    "hostile": named(pair(100.0, 108.0), HOSTILE),
    "hostile probe": make_probe(devices=[{"name": HOSTILE}, {"name": "\ud800\u2028"}]),
    "no ddp": without_ddp(),
    "hung driver": make_probe(nvml_failed="nvmlInit did not return").model_copy(update={"node": None}),
}

Line = dict[str, Any]


def lines_of(record: Run | Probe) -> list[Line]:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    text = jsonl_text(record, judged(record))
    assert text.isascii()
    assert text.endswith("}\n")
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def of_kind(record: Run | Probe, kind: str) -> list[Line]:
    return [line for line in lines_of(record) if line["kind"] == kind]


@pytest.mark.parametrize("name", RECORDS)
def test_every_line_says_which_record_it_is_from_and_the_verdict_is_the_last(name: str) -> None:
    record = RECORDS[name]
    lines = lines_of(record)
    own = {"schema_version": 1, "started_at": record.started_at, "command": record.kind}
    own["run_id"] = record.probe_id if isinstance(record, Probe) else record.run_id
    assert all(line.items() >= own.items() for line in lines)
    kinds = [line["kind"] for line in lines]
    assert kinds == sorted(kinds, key=["finding", "device", "rank", "verdict"].index)
    assert kinds.count("verdict") == 1


@pytest.mark.parametrize("name", RECORDS)
def test_every_finding_has_its_line_with_all_it_says(name: str) -> None:
    record = RECORDS[name]
    judgement = judged(record)
    told = [{key: line[key] for key in plain(judgement.findings[0])} for line in of_kind(record, "finding")]
    assert told == [plain(finding) for finding in judgement.findings]
    (verdict,) = of_kind(record, "verdict")
    assert (verdict["verdict"], verdict["sentence"]) == (judgement.verdict.value, judgement.sentence)
    assert sum(verdict["findings"].values()) == len(judgement.findings)


@pytest.mark.parametrize("name", RECORDS)
def test_keys_are_in_order_and_the_bytes_are_the_same(name: str) -> None:
    record = RECORDS[name]
    text = jsonl_text(record, judged(record))
    assert text == jsonl_text(record, judged(record))
    assert text == "".join(f"{json.dumps(json.loads(line), sort_keys=True)}\n" for line in text.splitlines())


def test_ranks_of_a_straggler_by_hand() -> None:
    first, second = of_kind(with_own_memory(pair(100.0, 120.0), 4_000_000_000, 6_000_000_000), "rank")
    assert (first["rank"], first["compute_ms"], first["straggler"]) == (0, 100.0, "ok")
    assert (second["rank"], second["compute_ms"], second["straggler"]) == (1, 120.0, "fail")
    assert second["ratio_to_peers"] == pytest.approx(1.2)
    assert first["wait_ms"] == pytest.approx(20.0, abs=0.02)
    assert second["nvml_index"] == 1
    assert second["peak_reserved_bytes"] == 6_000_000_000
    (verdict,) = of_kind(pair(100.0, 120.0), "verdict")
    assert verdict["balance"] == pytest.approx(100 * 120 / 140, abs=1e-6)


def test_a_finding_names_its_devices_apart_from_the_sentence() -> None:
    slow = of_kind(pair(100.0, 120.0), "finding")[0]
    uuid = "GPU-00000002-aaaa-bbbb-cccc-000000000001"
    assert slow["devices"] == [{"uuid": uuid, "pci_bus_id": "0000:07:00.0", "nvml_index": 1, "cuda_ordinal": 1}]


def test_what_a_probe_read_of_a_gpu_and_what_it_could_not() -> None:
    device = of_kind(make_probe([{"recovery_action": NOT_SUPPORTED, "power_w": 80.5}]), "device")[0]
    assert (device["power_w"], device["recovery_action"]) == (80.5, None)
    assert device["missing"] == {"recovery_action": "NOT_SUPPORTED"}
    assert device["speed"] is None


def test_links_that_are_up_are_counted_and_never_zero_where_none_was_read() -> None:
    links = [NvLink(link=0, active=True), NvLink(link=1, active=False)]
    probe = make_probe([{"links": links}, {"links": []}, {"failed": "nvmlDeviceGetName hung"}])
    some, none, unread = of_kind(probe, "device")
    assert (some["nvlinks"], some["nvlinks_up"]) == (2, 1)
    assert (none["nvlinks"], none["nvlinks_up"]) == (None, None)
    assert (unread["nvlinks"], unread["nvlinks_up"]) == (None, None)
    assert unread["missing"]["power_w"] == "nvmlDeviceGetName hung"


def test_a_run_without_a_score_has_none_and_no_line_of_a_rank() -> None:
    (verdict,) = of_kind(without_ddp(), "verdict")
    assert (verdict["balance"], verdict["balance_low"]) == (None, None)
    assert of_kind(without_ddp(), "rank") == []


def test_an_interrupted_and_an_injected_run_say_so() -> None:
    (verdict,) = of_kind(pair(100.0, 100.0, interrupted_by=15, injected=["sleep:rank=1,ms=5"]), "verdict")
    assert verdict["interrupted_by"] == 15
    assert verdict["rehearsal"] == "injected on purpose: sleep:rank=1,ms=5"
