"""Real records with parts deleted, replaced, doubled or cut: each is refused, or read, judged and reported."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubalance.checks.verdict import judge
from gpubalance.errors import UsageError
from gpubalance.record.file import load_record
from gpubalance.record.run import Run
from gpubalance.reports.document import document_text
from gpubalance.reports.formats import judged
from gpubalance.reports.probe_report import probe_lines
from gpubalance.reports.terminal import report_lines
from tests.reports.helpers import HOSTILE, KEPT, pair
from tests.support import ROOT

PROBES = ROOT / "examples/probes"
RUN = pair(100.0, 120.0)
TEXT = document_text(RUN, judge(RUN))

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 1.5, -0.0, 9e99, 2e-100, 2**53 + 1, 2**63, 2**64 - 1, 2**64, 1e308, 5e-324,
    "", "x", "0", "nan", "1.2.3", "0-99999", HOSTILE, "\ud800", "\x00", "GPU-1", [], {}, [[]], [0], [None], {"": 0},
    {"x": "y"}, "a" * 5000,
)  # fmt: skip
Choose = Callable[[Sequence[Any]], Any]


def place(document: Any, choose: Choose) -> tuple[Any, Any]:
    """A container in the document and a key in it; fields are as likely as the many values of columns together."""
    container, key = document, choose(sorted(document))
    while isinstance(container[key], dict | list) and container[key] and choose((True, True, True, False)):
        container = container[key]
        last = len(container) - 1
        key = choose(sorted(container) if isinstance(container, dict) else sorted({0, last // 2, last}))
    return container, key


def mutate(document: Any, choose: Choose) -> None:
    """Delete, replace, double, cut or graft one part."""
    container, key = place(document, choose)
    old, how = container[key], choose(("delete", "replace", "replace", "replace", "double", "cut", "graft"))
    if how == "delete":
        del container[key]
    elif how == "graft":
        other, place_there = place(document, choose) if document else (container, key)
        container[key] = copy.deepcopy(other[place_there]) if other else None
    elif how == "double" and isinstance(old, list):
        container[key] = old + copy.deepcopy(old)
    elif how == "cut" and isinstance(old, list | str):
        container[key] = old[: len(old) // 2]
    else:
        container[key] = copy.deepcopy(choose(VALUES))


def try_all(path: Path) -> str:
    """Read, judge, report and write a file: a refusal in words, or lines that a terminal may be given."""
    try:
        record = load_record(path)
        judgement: Any = judged(record)
    except UsageError as error:  # also a saved setting that no check has the name of
        return error.message
    lines = report_lines(record, judgement, "x") if isinstance(record, Run) else probe_lines(record, judgement, "x")
    assert all(line.text.isprintable() for line in lines)
    write: Any = document_text
    path.write_text(write(record, judgement), encoding="utf-8")
    assert load_record(path) == record
    return lines[0].text


SMALL = {
    "run": json.loads(TEXT),
    "probe": json.loads((PROBES / "h200x2-load.json").read_text()),
    "look": json.loads((PROBES / "h200x2-rival.json").read_text()),
    "sampled": json.loads(KEPT["h200x2-memory"].read_text()),
}


@pytest.mark.parametrize("name", SMALL)
@given(data=st.data())
@settings(max_examples=40)
def test_a_record_with_any_part_changed_is_refused_or_reported(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    document = copy.deepcopy(SMALL[name])

    def choose(options: Sequence[Any]) -> Any:
        return data.draw(st.sampled_from(options))

    for _ in range(data.draw(st.integers(1, 3))):
        if document:
            mutate(document, choose)
    path = tmp_path_factory.mktemp("hostile", numbered=True) / "run.json"
    path.write_text(json.dumps(document))
    assert try_all(path)


@given(position=st.integers(0, len(TEXT) - 1), bit=st.integers(0, 7))
def test_a_record_with_a_bit_flipped_is_refused_or_reported(
    tmp_path_factory: pytest.TempPathFactory, position: int, bit: int
) -> None:
    data = bytearray(TEXT.encode())
    data[position] ^= 1 << bit
    path = tmp_path_factory.getbasetemp() / "flipped.json"
    path.write_bytes(data)
    assert try_all(path)
