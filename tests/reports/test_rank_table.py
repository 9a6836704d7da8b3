"""A row a rank, each cell against a value worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.checks.verdict import judge
from gpubalance.record.node import Device
from gpubalance.record.run import Run
from gpubalance.record.samples import Column
from gpubalance.reports.rank_table import CPU_HEADINGS, HEADINGS, aligned, legend, rank_lines
from gpubalance.testing.runs import make_attempt, make_run, make_solo, steady
from tests.reports.helpers import pair, sampled, with_own_memory


def table(run: Run) -> list[str]:
    return rank_lines(run, judge(run).facts)


def cells(run: Run, rank: int) -> dict[str, str]:
    """Heading -> cell of one rank; cells hold no spaces."""
    lines = table(run)
    row = next(line for line in lines[2:] if line.split()[0] == str(rank))
    return dict(zip(lines[0].split(), row.split(), strict=True))


def reasons_of(run: Run) -> list[str]:
    """What stands below the names."""
    return [line for line in table(run) if line.startswith("GPU ")]


def columns(**values: float | None) -> dict[str, Column]:
    return {name: [value] * 3 for name, value in values.items()}


def test_times_are_medians_waits_and_blame_in_ms() -> None:
    run = pair(100.0, 120.0)
    fast, slow = cells(run, 0), cells(run, 1)
    assert (fast["compute"], fast["wait"], fast["blame"], fast["speed"]) == ("100.00", "20.00", "0.00", "1.00")
    assert (slow["compute"], slow["wait"], slow["blame"], slow["speed"]) == ("120.00", "0.00", "20.00", "0.83")


def test_useful_time_is_the_replayed_step_over_the_real_one() -> None:
    # 90 ms of device time in steps of 120 + 20 ms
    assert cells(pair(100.0, 120.0), 0)["useful"] == "64"


def test_the_sensors_columns_are_means_in_the_units_of_the_headings() -> None:
    shown = columns(utilization_percent=99, gpm_sm_percent=70.4, power_w=688.6, sm_clock_mhz=1815, temperature_c=58)
    run = with_own_memory(pair(100.0, 100.0, samples=sampled({0: shown, 1: shown})), 4_300_000_000, 4_250_000_000)
    first = cells(run, 0)
    wanted = {"SM": "70", "NVML": "99", "power": "689", "clock": "1815", "temp": "58", "memory": "4.3"}
    assert {name: first[name] for name in wanted} == wanted


def test_samples_outside_the_overlapped_steps_do_not_count() -> None:
    run = pair(100.0, 100.0, samples=sampled({0: columns(power_w=600.0), 1: columns(power_w=600.0)}))
    late = run.samples.model_copy(update={"t_s": [12.5, 13.5, 99.0]})
    late.devices[0].columns["power_w"][2] = 100.0
    assert cells(run.model_copy(update={"samples": late}), 0)["power"] == "600"


def test_a_reading_that_is_missing_is_a_dash_and_never_zero() -> None:
    run = pair(100.0, 100.0, solo=[])
    assert [cells(run, 0)[name] for name in ("useful", "SM", "NVML", "memory", "clock", "power", "temp")] == ["-"] * 7


def test_a_reading_of_zero_is_zero() -> None:
    run = pair(100.0, 100.0, samples=sampled({0: columns(utilization_percent=0), 1: columns(utilization_percent=0)}))
    assert cells(run, 0)["NVML"] == "0"


def test_speed_is_work_per_unit_so_that_more_data_is_no_slowness() -> None:
    run = make_run([make_attempt(steady([100.0, 150.0]), units=[1.0, 1.5])])
    assert [cells(run, rank)["speed"] for rank in (0, 1)] == ["1.00", "1.00"]


def test_speed_is_held_against_the_reference_rank_and_not_against_a_freakishly_fast_one() -> None:
    # of eight ranks the second fastest is the reference
    run = make_run([make_attempt(steady([50.0, *[100.0] * 6, 125.0]))])
    assert [cells(run, rank)["speed"] for rank in (0, 1, 7)] == ["2.00", "1.00", "0.80"]


def test_times_above_a_second_keep_the_table_in_its_width() -> None:
    run = pair(9000.0, 12000.0)
    assert cells(run, 1)["compute"] == "12000"
    assert cells(run, 0)["wait"] == "3000"
    assert cells(pair(999.0, 999.0), 0)["compute"] == "999.00"


def test_on_the_cpu_cores_and_resident_memory_stand_in_place_of_the_gpus_columns() -> None:
    shown = columns(cpu_percent=97.0, resident_bytes=512_000_000)
    run = make_run([make_attempt(steady([20.0, 20.0]))], on_cpu=True, samples=sampled({0: shown, 1: {}}))
    assert cells(run, 0)["cores"] == "0.97"
    assert cells(run, 0)["memory"] == "0.51"
    assert [cells(run, 1)[name] for name in ("cores", "memory")] == ["-", "-"]


def test_every_column_has_a_unit_or_needs_none() -> None:
    for names, units in (HEADINGS, CPU_HEADINGS):
        bare = {name for name, unit in zip(names, units, strict=True) if not unit}
        assert bare == {"rank", "speed"}


def test_each_rank_is_named_with_everything_its_device_is_called() -> None:
    names = [line for line in table(pair(100.0, 100.0)) if line.startswith("rank 1 is")]
    assert names == ["rank 1 is cuda:1 nvml:1 GPU-00000002-aaaa-bbbb-cccc-000000000001 0000:07:00.0"]


def test_a_rank_is_named_by_the_device_that_it_worked_on() -> None:
    run = make_run([make_attempt(steady([100.0, 100.0]), devices=[1, 0])])
    assert "rank 0 is cuda:1 nvml:1" in "\n".join(table(run))


CAP, NORMAL = "software power cap", "of the time (normal at full load)"


@pytest.mark.parametrize(
    ("bits", "lines"),
    [
        ([0, 0, 0], []),
        ([1, 1, 1], []),
        ([4, 4, 4], [f"GPU 0: {CAP} 100 % {NORMAL}"]),
        ([0x40, 0, 0], ["GPU 0: hardware thermal slowdown 33 % of the time"]),
        (
            [0x24, 0x20, 0x20],
            [f"GPU 0: {CAP} 33 % {NORMAL}, software thermal slowdown 100 % of the time"],
        ),
        ([0x4000, 0x4000, 0], ["GPU 0: unknown 0x4000 67 % of the time"]),
        ([5, 5, 5], [f"GPU 0: {CAP} 100 % {NORMAL}"]),
    ],
)
def test_reasons_for_the_clock_are_said_and_the_normal_one_is_called_normal(bits: list[int], lines: list[str]) -> None:
    quiet: dict[str, Any] = {"event_reasons": [0, 0, 0]}
    run = pair(100.0, 100.0, samples=sampled({0: {"event_reasons": list(bits)}, 1: quiet}))
    assert reasons_of(run) == lines


def test_a_device_is_called_by_its_short_name_where_reasons_are_said() -> None:
    run = pair(100.0, 100.0, samples=sampled({0: {"event_reasons": [8, 8, 8]}}))
    devices: list[Device] = [
        device.model_copy(update={"nvml_index": 5 + place}) for place, device in enumerate(run.plan.devices)
    ]
    moved = run.model_copy(update={"plan": run.plan.model_copy(update={"devices": devices})})
    assert reasons_of(moved) == ["GPU 5: hardware slowdown 100 % of the time"]


def test_without_ddp_there_is_no_table() -> None:
    assert table(make_run([], solo=[make_solo(0, 90.0)])) == []


def test_columns_are_as_wide_as_their_widest_cell_and_numbers_stand_to_the_right() -> None:
    assert aligned([["a", "long"], ["100", "1"]]) == ["  a  long", "100     1"]


@pytest.mark.parametrize(("on_cpu", "more"), [(False, "; useful: device time over the real step"), (True, "")])
def test_what_the_columns_are_stands_below_them(on_cpu: bool, more: str) -> None:
    run = make_run([make_attempt(steady([100.0, 100.0]))], on_cpu=on_cpu)
    (line,) = [line for line in table(run) if line.startswith("compute: a rank's own work, median; wait: ")]
    assert line == legend(on_cpu=on_cpu)
    assert ("; useful" in line) is bool(more)
    assert more in line
