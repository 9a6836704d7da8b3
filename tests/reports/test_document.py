"""The JSON document: strict, complete, and the same bytes for the same run."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.checks.verdict import Verdict, judge
from gpubalance.record.file import load_run, save_text
from gpubalance.record.run import Run
from gpubalance.reports.document import document_text, plain
from gpubalance.testing.link_runs import link_run
from gpubalance.testing.runs import make_attempt, make_run, steady
from tests.reports.helpers import HOSTILE, KEPT, kept, named, pair, without_ddp

RUNS: dict[str, Run] = {
    **{name: kept(name) for name in KEPT},
    "healthy": pair(100.0, 100.0),
    "slow": pair(100.0, 120.0),
    "alone": pair(100.0),
    "eight": pair(*[100.0] * 7, 120.0),
    "one block": make_run([make_attempt(steady([100.0, 100.0], blocks=1))]),
    "cpu": make_run([make_attempt(steady([100.0, 100.0]))], on_cpu=True),
    "without ddp": without_ddp(),
    "links": link_run(4, {(0, 1): 0.8}),
    "nothing": make_run([]),
    "hostile": named(pair(100.0, 108.0), HOSTILE),
}
EVERY = pytest.mark.parametrize("run", RUNS.values(), ids=list(RUNS))


def document(run: Run) -> str:
    return document_text(run, judge(run))


def strict(text: str) -> Any:
    """Read JSON as a strict reader does: no NaN, no infinity, no key twice."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"), object_pairs_hook=unique)


@EVERY
def test_a_document_is_one_line_of_strict_json_in_utf_8(run: Run) -> None:
    text = document(run)
    assert text.endswith("}\n")
    assert text.count("\n") == 1
    assert set(strict(text.encode("utf-8").decode("utf-8"))) == {"schema_version", "judgement", "run"}


@EVERY
def test_a_document_read_back_is_the_same_run_and_the_same_bytes(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    save_text(path, document(run))
    again = load_run(path)
    assert again == run
    assert document(again).encode() == path.read_bytes()


@EVERY
def test_the_judgement_says_what_was_judged(run: Run) -> None:
    judgement = judge(run)
    found = strict(document_text(run, judgement))["judgement"]
    assert found["verdict"] == judgement.verdict.value
    assert found["sentence"] == judgement.sentence
    assert [finding["id"] for finding in found["findings"]] == [finding.id for finding in judgement.findings]
    assert found["rules_version"] == judgement.rules_version


def test_numbers_of_the_run_are_kept_to_the_last_digit() -> None:
    run = make_run([make_attempt([[[100.1234567890123] * 20] * 24, [[1 / 3] * 20] * 24])])
    found = strict(document(run))["run"]["ddp"][0]["ranks"]
    assert found[0]["fenced"][0]["compute_ms"][0] == 100.1234567890123
    assert found[1]["fenced"][0]["compute_ms"][0] == 1 / 3


def test_what_was_not_measured_is_null_and_not_left_out() -> None:
    run = pair(100.0, 100.0)
    found = strict(document(run))
    assert found["run"]["data_parallel"] is None
    assert found["run"]["samples"]["health"] is None
    assert found["judgement"]["facts"]["scaling"]["data_parallel_speedup"] is None


def test_a_kept_run_is_judged_today_as_it_was() -> None:
    verdicts = {name: judge(kept(name)).verdict for name in KEPT}
    saved = {name: strict(path.read_text())["judgement"]["verdict"] for name, path in KEPT.items()}
    assert {name: verdict.value for name, verdict in verdicts.items()} == saved
    assert set(saved.values()) == {"pass", "warn", "fail"}


def test_bytes_that_are_no_text_come_through_a_file_as_they_were(tmp_path: Path) -> None:
    run = named(pair(100.0, 100.0), "caf\udce9")  # how Python holds the byte E9 of a variable
    path = tmp_path / "run.json"
    save_text(path, document(run))
    assert r"caf\udce9" in path.read_text(encoding="utf-8")
    assert load_run(path) == run


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Pair:
    left: float
    right: tuple[int, ...]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, None),
        (math.inf, None),
        (-math.inf, None),
        (0.12345678, 0.123457),
        (7, 7),
        (True, True),
        ("text", "text"),
        (None, None),
        (Verdict.INCONCLUSIVE, "inconclusive"),
        (Colour.RED, "red"),
        (Pair(0.5, (1, 2)), {"left": 0.5, "right": [1, 2]}),
        ({4: 1.0}, {"4": 1.0}),
        ((1, [2.0, math.nan]), [1, [2.0, None]]),
    ],
)
def test_facts_become_plain_values_of_json(value: Any, expected: Any) -> None:
    assert plain(value) == expected
    assert type(plain(value)) is type(expected)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
        max_leaves=20,
    )
)
def test_any_fact_can_be_written_as_strict_json(value: Any) -> None:
    strict(json.dumps(plain(value), allow_nan=False))
