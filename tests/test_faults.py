"""Faults as people spell them: each kind, each mistake."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.errors import UsageError
from gpubalance.faults import FAULTS, GPU_FAULTS, MOST_HOGS, Fault, parse_fault
from gpubalance.settings import (
    BenchSettings,
)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("compute:rank=1,percent=20", Fault("compute", 1, percent=20)),
        ("sleep:rank=0,ms=2.5", Fault("sleep", 0, ms=2.5)),
        ("memory:rank=3,percent=95", Fault("memory", 3, percent=95)),
        ("data:rank=1,factor=1.5", Fault("data", 1, factor=1.5)),
        ("transient:rank=1,percent=100,every=10", Fault("transient", 1, percent=100, every=10)),
        ("transient:every=10,percent=100,rank=1", Fault("transient", 1, percent=100, every=10)),
        ("loader:rank=1,ms=5", Fault("loader", 1, ms=5)),
        ("copies:rank=0,mib=0.5", Fault("copies", 0, mib=0.5)),
        ("backward:rank=1,percent=20", Fault("backward", 1, percent=20)),
        ("context:rank=1,device=0", Fault("context", 1, device=0)),
        ("hog:rank=0,processes=64", Fault("hog", 0, processes=64)),
        ("rival:rank=1", Fault("rival", 1)),
    ],
)
def test_each_kind_of_fault_is_read(text: str, fault: Fault) -> None:
    assert parse_fault(text) == fault


EXAMPLES = {
    "compute": "compute:rank=1,percent=20",
    "sleep": "sleep:rank=1,ms=5",
    "memory": "memory:rank=0,percent=35",
    "data": "data:rank=1,factor=1.5",
    "transient": "transient:rank=1,percent=100,every=10",
    "loader": "loader:rank=1,ms=5",
    "copies": "copies:rank=1,mib=256",
    "backward": "backward:rank=1,percent=20",
    "context": "context:rank=1,device=0",
    "hog": "hog:rank=1,processes=2",
    "rival": "rival:rank=1",
}

MALFORMED = [
    "compute",
    "compute:",
    "compute:rank=1",
    "compute:percent=20",
    "compute:rank=1,percent=20,ms=5",
    "compute:rank=1,percent",
    "compute:rank=1,rank=2,percent=20",
    "compute:rank=1 percent=20",
    "compute:rank=one,percent=20",
    "compute:rank=1,percent=",
    "compute:rank=1,percent=20%",
    "compute:rank=1,percent=nan",
    "compute:rank=1,percent=inf",
    "compute:rank=1,percent=1e12",
    "compute:rank=1,percent=0",
    "compute:rank=1,percent=-20",
    "compute:rank=-1,percent=20",
    "compute:rank=1.5,percent=20",
    "sleep:rank=1,percent=20",
    "memory:rank=1,percent=96",
    "data:rank=1,factor=0",
    "transient:rank=1,percent=100",
    "transient:rank=1,percent=100,every=0",
    "transient:rank=1,percent=100,every=2.5",
    "loader:rank=1",
    "loader:rank=1,ms=0",
    "copies:rank=1,ms=5",
    "copies:rank=1,mib=-1",
    "backward:rank=1,percent=0",
    "context:rank=1",
    "context:rank=1,device=-1",
    "context:rank=1,device=0.5",
    "hog:rank=1,processes=0",
    "hog:rank=1,processes=1.5",
    "hog:rank=1,processes=65",
    "rival",
    "rival:rank=1,percent=20",
]


@pytest.mark.parametrize("text", MALFORMED)
def test_a_malformed_fault_is_named_and_a_right_one_shown(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_fault(text)
    assert repr(text) in raised.value.message
    assert raised.value.next_step is not None
    example = raised.value.next_step.removeprefix("for example: --inject ")
    assert parse_fault(example).kind == text.split(":", maxsplit=1)[0]


@pytest.mark.parametrize("text", ["", "quake:rank=1", "Compute:rank=1,percent=20", ":rank=1,percent=20"])
def test_an_unknown_kind_is_named_and_the_known_ones_listed(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_fault(text)
    assert repr(text.partition(":")[0]) in raised.value.message
    assert raised.value.next_step is not None
    assert all(kind in raised.value.next_step for kind in FAULTS)


@st.composite
def faults(draw: st.DrawFn) -> Fault:
    kind = draw(st.sampled_from(sorted(FAULTS)))
    value = st.floats(1e-6, 95 if kind == "memory" else 1e9)
    whole = {"every": st.integers(1, 10**9), "device": st.integers(0, 10**9), "processes": st.integers(1, MOST_HOGS)}
    values: dict[str, Any] = {name: draw(whole.get(name, value)) for name in FAULTS[kind]}
    return Fault(kind, draw(st.integers(0, 10**9)), **values)


@given(faults())
def test_a_fault_is_read_back_as_it_is_spelled(fault: Fault) -> None:
    assert parse_fault(fault.spelled()) == fault


@pytest.mark.parametrize("kind", FAULTS)
def test_one_kind_of_fault_is_played_once_on_a_rank_and_other_kinds_beside_it(kind: str) -> None:
    fault = parse_fault(EXAMPLES[kind])
    elsewhere = replace(fault, rank=fault.rank + 1)
    other = Fault("data" if kind != "data" else "sleep", fault.rank, factor=1.5, ms=1.0)
    assert BenchSettings(inject=(fault, elsewhere, other)).inject == (fault, elsewhere, other)
    with pytest.raises(UsageError) as raised:
        BenchSettings(inject=(fault, other, fault))
    spelled = fault.spelled()
    assert raised.value.message == f"--inject {spelled} and {spelled}: one kind of fault is played once on a rank"


def test_every_kind_has_an_example_of_its_own_and_those_for_gpus_are_kinds() -> None:
    assert {kind: parse_fault(text).kind for kind, text in EXAMPLES.items()} == {kind: kind for kind in FAULTS}
    assert set(GPU_FAULTS) < set(FAULTS)


def test_a_fault_is_spelled_as_people_write_it() -> None:
    assert Fault("transient", 1, percent=100.0, every=10).spelled() == "transient:rank=1,percent=100,every=10"
    assert Fault("data", 0, factor=1.5).spelled() == "data:rank=0,factor=1.5"


@given(st.text())
def test_any_text_is_a_fault_or_a_usage_error(text: str) -> None:
    for kind in ("", "compute:", "compute:rank=1,percent="):
        try:
            fault = parse_fault(kind + text)
        except UsageError:
            continue
        assert parse_fault(fault.spelled()) == fault
