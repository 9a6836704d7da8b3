"""Saved selftests are untrusted: what does not fit together is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubalance.checks.selftest.rows import KINDS
from gpubalance.checks.selftest.verdict import judge_selftest
from gpubalance.errors import UsageError
from gpubalance.record.file import load_any
from gpubalance.record.selftest import Selftest
from gpubalance.record.selftest_consistency import ROWS, selftest_contradiction
from gpubalance.reports.document import document_text
from gpubalance.reports.selftest_report import selftest_lines, selftest_markdown
from tests.record.test_mutated_records import mutate
from tests.reports.selftest_helpers import all_right

RECORD = all_right()
TEXT = document_text(RECORD, judge_selftest(RECORD))


def test_a_good_one_fits_and_is_read_back(tmp_path: Path) -> None:
    assert selftest_contradiction(RECORD) is None
    path = tmp_path / "selftest.json"
    path.write_text(TEXT)
    assert load_any(path) == RECORD


def test_rows_of_records_are_those_that_are_played() -> None:
    assert set(KINDS) == ROWS


def changed(change: Callable[[dict[str, Any]], object]) -> Selftest:
    document = json.loads(TEXT)["selftest"]
    change(document)
    return Selftest.model_validate(document)


def put(value: Any, *path: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    return change


WRONG = {
    "no devices": (put([], "plan", "devices"), "plan.devices is empty"),
    "numbers that are not counted": (put(5, "played", 1, "number"), "not numbered from 0"),
    "a pass that was not played": (put(3, "passes", 2, "number"), "not some of those that were played"),
    "a pass twice": (put(0, "passes", 1, "number"), "not some of those that were played"),
    "a row that there is not": (put("heat", "played", 1, "row"), "no row is called 'heat'"),
    "a size that is none": (put("compute_x", "played", 1, "row"), "no row is called"),
    "a size of another row": (put("sleep_20", "played", 1, "row"), "no row is called"),
    "a rank that there is not": (put([2], "played", 1, "ranks"), "names a rank that the plan does not have"),
    "a rank below 0": (put([-1], "played", 1, "ranks"), "names a rank that the plan does not have"),
    "a fault on nobody": (put([], "played", 1, "ranks"), "its ranks do not fit its row"),
    "a healthy pass with a rank": (put([0], "played", 0, "ranks"), "its ranks do not fit its row"),
    "a rank twice": (put([1, 1], "played", 1, "ranks"), "its ranks do not fit its row"),
    "a pass that contradicts itself": (put(7, "passes", 1, "ddp", "ranks", 1, "device"), "passes.1: ddp names device"),
    "margins upside down": (
        put({"value": [0.1, 0.05], "origin": "flag"}, "settings", "margin"),
        "passes.0: settings.margin",
    ),
}


@pytest.mark.parametrize(("change", "text"), WRONG.values(), ids=WRONG.keys())
def test_what_does_not_fit_is_told(change: Callable[[dict[str, Any]], object], text: str) -> None:
    assert text in (selftest_contradiction(changed(change)) or "")


def test_fewer_ranks_than_devices_are_told() -> None:
    def change(document: dict[str, Any]) -> None:
        del document["passes"][0]["ddp"]["ranks"][1]

    assert selftest_contradiction(changed(change)) == "passes.0: 1 ranks on 2 devices"


def test_a_later_schema_and_another_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    document = json.loads(TEXT)
    path.write_text(json.dumps({**document, "schema_version": 2}))
    with pytest.raises(UsageError, match="reads up to 1"):
        load_any(path)
    document["selftest"]["kind"] = "bench"
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match="is damaged"):
        load_any(path)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_mutated_records_are_refused_or_reported(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    def choose(options: Any) -> Any:
        return options[data.draw(st.integers(0, len(options) - 1))]

    document = json.loads(TEXT)
    mutate(document["selftest"], choose)
    path = tmp_path_factory.mktemp("mutated") / "x.json"
    path.write_text(json.dumps(document))
    try:
        record = load_any(path)
    except UsageError:
        return
    assert isinstance(record, Selftest)
    judgement = judge_selftest(record)
    assert all(line.text.isprintable() for line in selftest_lines(record, judgement, "x"))
    selftest_markdown(record, judgement)
    path.write_text(document_text(record, judgement), encoding="utf-8")
    assert load_any(path) == record
