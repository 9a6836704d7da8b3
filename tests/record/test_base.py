"""What every record promises: no unknown key, no number that is none, no change."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from gpubalance.record import node, run, samples, timings
from gpubalance.record.base import Record
from gpubalance.record.run import Setting, Skipped
from gpubalance.record.samples import DeviceSamples
from gpubalance.record.timings import FencedBlock, SoloResult

RECORDS = [
    thing
    for module in (node, run, samples, timings)
    for thing in vars(module).values()
    if isinstance(thing, type)
    and issubclass(thing, Record)
    and thing is not Record
    and thing.__module__ == module.__name__
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_an_unknown_key_is_an_error(record: type[Record]) -> None:
    with pytest.raises(ValidationError) as raised:
        record.model_validate({"no_such_key": 1})
    assert ("no_such_key",) in [error["loc"] for error in raised.value.errors() if error["type"] == "extra_forbidden"]


def test_a_record_cannot_be_changed() -> None:
    skipped = Skipped(what="links", reason="not part of this version")
    with pytest.raises(ValidationError, match="frozen"):
        skipped.reason = "another"  # type: ignore[misc]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_refused_at_any_depth(number: float) -> None:
    solo = {"rank": 0, "device": 0, "samples_per_step": 1, "output_digest": "d"}
    with pytest.raises(ValidationError):
        SoloResult.model_validate({**solo, "eager_step_ms": number})
    with pytest.raises(ValidationError):
        FencedBlock(begin_s=0.0, compute_ms=[1.0, number], fence_ms=[], transfer_ms=[])
    with pytest.raises(ValidationError):
        DeviceSamples(device=0, columns={"power_w": [1.0, None, number]})
    with pytest.raises(ValidationError):
        Setting(value=number, origin="flag")
    with pytest.raises(ValidationError):
        Setting(value=[1.0, number], origin="flag")


def test_whole_numbers_stay_whole_and_fractions_stay_fractions() -> None:
    columns = DeviceSamples(device=0, columns={"mixed": [1, 2.0, None]}).columns["mixed"]
    assert [type(value) for value in columns] == [int, float, type(None)]
    assert Setting(value=True, origin="flag").value is True
    assert Setting(value="1", origin="flag").value == "1"
