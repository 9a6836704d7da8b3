"""Facts of the kept runs stay what they were: `kept_facts.json` holds them since each was last meant to change.

New facts may stand beside the old ones; a rule that is meant to give other facts comes with a new file.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from gpubalance.checks.verdict import judge
from gpubalance.record.base import Record
from tests.reports.helpers import KEPT, kept

BEFORE = json.loads(Path(__file__).with_name("kept_facts.json").read_text())


def exact(value: Any) -> Any:
    """Facts as JSON, no digit lost."""
    if isinstance(value, Record):
        return exact(value.model_dump())
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: exact(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): exact(item) for key, item in value.items()}
    return [exact(item) for item in value] if isinstance(value, list | tuple) else value


def changes(before: Any, now: Any, where: str = "facts") -> list[str]:
    """Places that differ; what is new is no change. Numbers to the last digits that a sum's order may move."""
    if isinstance(before, dict):
        return [text for key, item in before.items() for text in changes(item, now.get(key), f"{where}.{key}")]
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        pairs = enumerate(zip(before, now, strict=True))
        return [text for place, (old, new) in pairs for text in changes(old, new, f"{where}[{place}]")]
    same = now == pytest.approx(before, rel=1e-12) if isinstance(before, float) else now == before
    return [] if same else [f"{where}: {before} was, {now} is"]


@pytest.mark.parametrize("name", KEPT)
def test_facts_are_what_they_were(name: str) -> None:
    assert changes(BEFORE[name], exact(judge(kept(name)).facts)) == []


def test_a_changed_fact_would_be_seen() -> None:
    facts = exact(judge(kept("h200x2-slow")).facts)
    facts["attempts"][0]["balance"]["score"] += 1e-9
    (change,) = changes(BEFORE["h200x2-slow"], facts)
    assert change.startswith("facts.attempts[0].balance.score: ")
