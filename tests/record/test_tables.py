"""Tables for notebooks and spreadsheets, against values written down by hand."""

from __future__ import annotations

import io

import pandas as pd
import pytest

from gpubalance.record.run import Phase, Run
from gpubalance.record.samples import DeviceSamples, Samples
from gpubalance.record.tables import phase_at, samples_table, steps_table
from gpubalance.testing.runs import make_attempt, make_run
from tests.support import not_none

UUIDS = [f"GPU-{index + 1:08x}-aaaa-bbbb-cccc-{index:012d}" for index in range(2)]
PHASES = [
    Phase(name="ddp", attempt=0, begin_s=5.0, end_s=15.0),
    Phase(name="ddp fenced", attempt=0, begin_s=6.0, end_s=12.0),
    Phase(name="collectives", attempt=0, begin_s=20.0, end_s=None),
]


def sampled() -> Run:
    samples = Samples(
        t_s=[1.0, 7.5],
        devices=[
            DeviceSamples(device=0, columns={"power_w": [80.5, 690.0], "sm_clock_mhz": [345, 1980]}),
            DeviceSamples(device=1, columns={"power_w": [81.5, None]}, missing={"sm_clock_mhz": "NOT_SUPPORTED"}),
        ],
    )
    return make_run([], samples=samples, phases=PHASES)


def test_samples_are_a_row_a_tick_and_device() -> None:
    table = samples_table(sampled())
    assert list(table.columns) == ["t_s", "device", "uuid", "phase", "power_w", "sm_clock_mhz"]
    assert table["t_s"].tolist() == [1.0, 7.5, 1.0, 7.5]
    assert table["device"].tolist() == [0, 0, 1, 1]
    assert table["uuid"].tolist() == [UUIDS[0], UUIDS[0], UUIDS[1], UUIDS[1]]
    assert table["phase"].isna().tolist() == [True, False, True, False]
    assert table["phase"].tolist()[1] == "ddp fenced"
    assert table["power_w"].tolist()[:3] == [80.5, 690.0, 81.5]


def test_what_was_not_measured_is_missing_and_never_zero() -> None:
    table = samples_table(sampled())
    assert table["power_w"].isna().tolist() == [False, False, False, True]
    assert table["sm_clock_mhz"].isna().tolist() == [False, False, True, True]


def test_samples_as_csv_have_empty_cells_where_nothing_was_measured() -> None:
    text = samples_table(sampled()).to_csv(index=False)
    assert text.splitlines()[-1] == f"7.5,1,{UUIDS[1]},ddp fenced,,"
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(text)), not_none(samples_table(sampled())), check_dtype=False)


def test_steps_are_a_row_a_fenced_step_and_rank() -> None:
    attempt = make_attempt(
        [[[10.0, 11.0], [12.0, 13.0]], [[20.0, 21.0], [22.0, 23.0]]], transfer_ms=2.0, devices=[1, 0]
    )
    table = steps_table(make_run([attempt]))
    assert table["compute_ms"].tolist() == [10.0, 11.0, 12.0, 13.0, 20.0, 21.0, 22.0, 23.0]
    assert table["attempt"].tolist() == [0] * 8
    assert table["rank"].tolist() == [0] * 4 + [1] * 4
    assert table["device"].tolist() == [1] * 4 + [0] * 4
    assert table["block"].tolist() == [0, 0, 1, 1] * 2
    assert table["step"].tolist() == [0, 1] * 4
    # rank 0 waits for rank 1, 10 ms in each step, and both wait the floor of 0.01 ms
    assert table["fence_ms"].tolist() == pytest.approx([10.01] * 4 + [0.01] * 4)
    assert table["transfer_ms"].tolist() == [2.0] * 8


def test_steps_of_a_confirming_attempt_are_told_apart() -> None:
    attempts = [make_attempt([[[10.0]], [[20.0]]], attempt=number) for number in (0, 1)]
    assert steps_table(make_run(attempts))["attempt"].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        (samples_table, ["t_s", "device", "uuid", "phase"]),
        (steps_table, ["attempt", "rank", "device", "block", "step", "compute_ms", "fence_ms", "transfer_ms"]),
    ],
)
def test_a_run_without_any_gives_an_empty_table_with_its_columns(table: object, columns: list[str]) -> None:
    assert callable(table)
    empty = table(make_run([]))
    assert list(empty.columns) == columns
    assert len(empty) == 0


def test_a_sensor_that_never_ticked_gives_an_empty_table() -> None:
    samples = Samples(t_s=[], devices=[DeviceSamples(device=0, columns={}), DeviceSamples(device=1, columns={})])
    assert len(samples_table(make_run([], samples=samples))) == 0


@pytest.mark.parametrize(
    ("t_s", "name"),
    [(4.9, None), (5.0, "ddp"), (5.9, "ddp"), (6.0, "ddp fenced"), (12.1, "ddp"), (15.1, None), (21.0, "collectives")],
)
def test_a_moment_belongs_to_the_phase_that_began_last_and_still_runs(t_s: float, name: str | None) -> None:
    assert phase_at(make_run([], phases=PHASES), t_s) == name
