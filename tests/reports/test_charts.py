"""Pictures: what is drawn, what is said where nothing can be drawn, and that an SVG is safe inside a page."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.analysis.balance import Balance
from gpubalance.analysis.bandwidth import NOTHING
from gpubalance.analysis.memory import DeviceMemory, Memory
from gpubalance.checks.verdict import judge
from gpubalance.record.file import load_record
from gpubalance.record.run import Phase, Run, Skipped
from gpubalance.record.samples import DeviceSamples, Samples
from gpubalance.reports.canvas import INK, svg_of
from gpubalance.reports.chart import MOST_ROWS, Chart, column_name
from gpubalance.reports.chart_bandwidth import bandwidth_chart
from gpubalance.reports.chart_bars import memory_chart, step_chart, time_chart
from gpubalance.reports.chart_utilization import MOST_POINTS, thinned, utilization_chart
from gpubalance.reports.charts import probe_charts, run_charts
from gpubalance.testing.runs import make_attempt, make_gpu, make_run, steady
from tests.checks.probing.helpers import make_probe
from tests.reports.helpers import HOSTILE, health, kept, named, pair, row, without_ddp
from tests.support import ROOT

NAMES = ["GPU 0", "GPU 1"]
TITLES = [
    "Utilization over time",
    "Compute and wait",
    "Memory",
    "Bus bandwidth of collectives",
    "What the step is made of",
    "Link matrix",
]


def charts_of(run: Run) -> dict[str, Chart]:
    return {chart.title: chart for chart in run_charts(run, judge(run).facts)}


def texts(chart: Chart) -> list[str]:
    assert chart.svg is not None
    return [element.text or "" for element in ET.fromstring(chart.svg).iter("{http://www.w3.org/2000/svg}text")]


def two(first: list[float | None], second: list[float | None] | None, **values: object) -> Samples:
    devices = [DeviceSamples(device=0, columns={"utilization_percent": first})]
    if second is not None:
        devices.append(DeviceSamples(device=1, columns={"utilization_percent": second}))
    return Samples(t_s=[float(t) for t in range(len(first))], devices=devices, **values)


class TestOrder:
    def test_a_run_that_measured_everything_has_all_pictures_in_their_order(self) -> None:
        charts = charts_of(kept("h200x2-healthy"))
        assert list(charts) == TITLES
        assert [title for title, chart in charts.items() if chart.svg is None] == ["Link matrix"]

    def test_what_was_not_measured_has_a_reason_in_the_place_of_its_picture(self) -> None:
        run = make_run([], skipped=[Skipped(what="ddp", reason="one device"), Skipped(what="collectives", reason="no")])
        missing = {title: chart.missing for title, chart in charts_of(run).items()}
        assert missing == {
            "Utilization over time": "GPU 0 not measured: no sample; GPU 1 not measured: no sample",
            "Compute and wait": "one device (ddp)",
            "Memory": "no GPU memory was measured",
            "Bus bandwidth of collectives": "no (collectives)",
            "What the step is made of": "one device (ddp)",
            "Link matrix": "links gave no result",
        }

    def test_a_phase_that_left_nothing_behind_and_no_reason_is_said_too(self) -> None:
        assert charts_of(without_ddp())["Compute and wait"].missing == "ddp gave no result"

    def test_a_run_on_the_cpu_shows_the_processes(self) -> None:
        samples = Samples(t_s=[1.0, 2.0], devices=[DeviceSamples(device=0, columns={"cpu_percent": [90.0, 250.0]})])
        chart = charts_of(make_run([make_attempt(steady([1, 1]))], on_cpu=True, samples=samples))[
            "CPU of each rank's process over time"
        ]
        assert "CPU slot 0" in texts(chart)
        assert "250" in texts(chart)
        assert chart.notes == ("CPU slot 1 not measured: no sample",)

    def test_a_probe_without_load_says_what_would_draw_it(self) -> None:
        utilization, *others = probe_charts(make_probe())
        assert utilization.missing == "nothing was put to work; gpubalance probe --load does"
        assert others == []

    def test_a_probe_under_load_is_drawn_by_nvml_index(self) -> None:
        probe = load_record(ROOT / "examples/probes/h200x2-load.json")
        chart = probe_charts(probe)[0]
        assert {"GPU 0", "GPU 1", "load"} <= set(texts(chart))
        assert "useful" not in " ".join(texts(chart)).lower()


class TestUtilization:
    def test_nvml_and_useful_are_two_things_with_two_names(self) -> None:
        chart = utilization_chart(two([90, 91], [10, 11]), [], NAMES, [0.723, None])
        shown = texts(chart)
        assert {"NVML utilization, %", "useful utilization, %", "useful 72 %", "GPU 0", "GPU 1"} <= set(shown)
        assert len([text for text in shown if text.startswith("useful ") and text.endswith("%")]) == 2  # and the legend

    def test_without_a_useful_level_there_is_no_word_of_it(self) -> None:
        chart = utilization_chart(two([90, 91], [10, 11]), [], NAMES, [None, None])
        assert "useful" not in " ".join(texts(chart))
        assert "Useful" not in chart.shows

    @pytest.mark.parametrize(
        ("samples", "reason"),
        [
            (two([1, 2], None), "GPU 1 not measured: no sample"),
            (two([1, 2], [None, None]), "GPU 1 not measured: no sample"),
            (two([1, 2], None, health=health(hung_in="power of GPU 1")), "GPU 1 not measured: power of GPU 1"),
            (two([1, 2], None, health=health(died_with="exit 9")), "GPU 1 not measured: exit 9"),
        ],
    )
    def test_a_device_without_values_is_named_and_not_drawn_at_zero(self, samples: Samples, reason: str) -> None:
        chart = utilization_chart(samples, [], NAMES, [None, None])
        assert chart.notes == (reason,)
        assert "GPU 1" not in texts(chart)

    def test_not_supported_is_said_in_the_words_of_the_driver(self) -> None:
        device = DeviceSamples(device=1, columns={}, missing={"utilization_percent": "NOT_SUPPORTED"})
        samples = Samples(t_s=[1.0], devices=[DeviceSamples(device=0, columns={"utilization_percent": [5]}), device])
        assert utilization_chart(samples, [], NAMES, [None, None]).notes == ("GPU 1 not measured: NOT_SUPPORTED",)

    def test_workloads_are_shaded_and_their_parts_and_foreign_names_are_not(self) -> None:
        phases = [
            Phase(name="solo", attempt=0, begin_s=0, end_s=1),
            Phase(name="ddp", attempt=0, begin_s=1, end_s=2),
            Phase(name="ddp fenced", attempt=0, begin_s=1, end_s=2),
            Phase(name="ddp", attempt=1, begin_s=2, end_s=3),
            Phase(name="collectives", attempt=0, begin_s=3, end_s=None),
            Phase(name=HOSTILE, attempt=0, begin_s=3, end_s=4),
        ]
        shown = texts(utilization_chart(two([1, 2, 3], None), phases, NAMES[:1], [None]))
        assert {"solo", "ddp", "ddp 2"} <= set(shown)
        assert "ddp fenced" not in shown
        assert "collectives" not in shown
        assert not any("FAIL" in text for text in shown)

    def test_more_devices_than_fit_are_said(self) -> None:
        count = MOST_ROWS + 1
        devices = [DeviceSamples(device=i, columns={"utilization_percent": [50]}) for i in range(count)]
        names = [f"GPU {i}" for i in range(count)]
        chart = utilization_chart(Samples(t_s=[1.0], devices=devices), [], names, [None] * count)
        assert chart.notes == ("32 of 33 devices, the first ones",)
        assert "GPU 31" in texts(chart)
        assert "GPU 32" not in texts(chart)

    @given(st.lists(st.one_of(st.none(), st.floats(0, 100)), max_size=3000))
    def test_thinning_keeps_the_extremes_the_order_and_the_limit(self, values: list[float | None]) -> None:
        times, thin = thinned([float(i) for i in range(len(values))], values)
        known = [value for value in values if value is not None]
        left = [value for value in thin if not math.isnan(value)]
        assert len(thin) <= MOST_POINTS
        assert times == sorted(times)
        assert len(set(times)) == len(times)
        if known:
            assert (min(left), max(left)) == (min(known), max(known))
        assert all(math.isnan(value) or values[int(at)] == value for at, value in zip(times, thin, strict=True))

    def test_a_long_gap_stays_a_gap(self) -> None:
        _, thin = thinned([float(i) for i in range(3000)], [1.0] * 1000 + [None] * 1000 + [1.0] * 1000)
        assert sum(1 for value in thin if math.isnan(value)) == 100  # 1000 nulls in stretches of 10


class TestBars:
    def test_compute_and_wait_of_each_rank(self) -> None:
        first = judge(pair(100.0, 120.0)).facts.first
        assert first is not None
        shown = texts(time_chart(first))
        assert {"rank 0", "rank 1", "compute", "wait", "ms a step"} <= set(shown)
        assert "100.00 + 20.00" in shown
        assert "120.00 + 0.00" in shown

    def test_of_many_ranks_those_that_wait_least_are_drawn(self) -> None:
        times = [100.0] * 39 + [130.0]
        first = judge(make_run([make_attempt(steady(times, blocks=2, steps=2))])).facts.first
        assert first is not None
        chart = time_chart(first)
        assert "rank 39" in texts(chart)
        assert chart.notes == ("32 of 40 ranks, those that wait least",)

    def test_the_step_grows_from_the_reference_over_blame_and_exposed_communication(self) -> None:
        first = judge(pair(100.0, 120.0)).facts.first
        assert first is not None
        shown = texts(step_chart(first.balance))
        names = ["reference (ref)", "rank 0", "rank 1", "slowest (M)", "exposed (X)", "step (T)"]
        assert [text for text in shown if text in names] == names
        assert {"100.00", "+0.00", "+20.00", "120.00", "140.00"} <= set(shown)  # 20 ms of transfer are exposed

    def test_exposed_communication_that_was_not_measured_is_no_zero(self) -> None:
        attempt = make_attempt(steady([100.0, 100.0]))
        ranks = [rank.model_copy(update={"overlapped_step_ms": []}) for rank in attempt.ranks]
        first = judge(make_run([attempt.model_copy(update={"ranks": ranks})])).facts.first
        assert first is not None
        chart = step_chart(first.balance)
        assert "exposed (X)" not in texts(chart)
        assert chart.notes == ("communication that is not hidden (X) was not measured",)

    def test_blame_of_many_ranks_still_adds_up(self) -> None:
        balance = Balance(
            score=50, low=50, high=50, persistent=50, transient=100, common_mode=100, lost_ms=40.0, step_ms=80.0,
            slowest_ms=80.0, reference_ms=40.0, exposed_ms=0.0, transfer_ms=0.0, communication_bound=False,
            blame_ms=(1.0,) * 40, pop_load_balance=1.0, pop_serialization=1.0,
        )  # fmt: skip
        shown = texts(step_chart(balance))
        assert "9 other ranks" in shown  # 31 by name
        assert "+9.00" in shown

    def test_memory_by_who_holds_it(self) -> None:
        device = DeviceMemory(0, 100 * 10**9, 6 * 10**9, 0, 10**9, 500_000_000, 2_500_000_000)
        shown = texts(memory_chart(Memory(100.0, 0.0, 0.06, 0, (device,)), NAMES))
        assert {"own process", "other ranks", "foreign processes", "reserved by the driver", "unexplained"} <= set(
            shown
        )
        assert "10.0 of 100.0 GB (10 %)" in shown

    def test_a_part_that_the_driver_did_not_tell_is_named(self) -> None:
        device = DeviceMemory(1, 100 * 10**9, None, None, None, 10**9, 4 * 10**9)
        chart = memory_chart(Memory(None, None, None, None, (device,)), NAMES)
        assert chart.notes == ("GPU 1, not measured: own process, other ranks, foreign processes",)
        assert "own process" not in texts(chart)

    def test_memory_of_which_nothing_is_known_is_not_drawn(self) -> None:
        device = DeviceMemory(0, 100, None, None, None, None, None)
        chart = memory_chart(Memory(None, None, None, None, (device,)), NAMES)
        assert chart.svg is None
        assert chart.missing == "the driver did not say who holds memory"


class TestBandwidth:
    def test_sizes_and_kinds(self) -> None:
        rows = [row(), row("graph"), row(size_bytes=2**13, bus_bandwidth_gb_per_s=0.2)]
        chart = bandwidth_chart(rows, NOTHING, "")
        assert {"8 KiB", "1 GiB", "all_reduce", "all_reduce, graph", "busbw, GB/s"} <= set(texts(chart))
        assert chart.notes == ("nothing is expected of gloo",)

    def test_what_is_expected_is_a_line_and_a_note_that_says_why(self) -> None:
        chart = charts_of(pair(100.0, 100.0, collectives=[row()]))["Bus bandwidth of collectives"]
        assert "expected of Ring, 371" in texts(chart)
        assert chart.notes == ("expected 371 GB/s because 18 links x 20.6 GB/s, ring",)

    def test_where_nothing_is_expected_the_reason_stands_below(self) -> None:
        devices = [make_gpu(index, compute_capability_major=12, nvlinks_active=4) for index in range(2)]
        run = pair(100.0, 100.0, collectives=[row()])
        other = run.model_copy(update={"plan": run.plan.model_copy(update={"devices": devices})})
        chart = charts_of(other)["Bus bandwidth of collectives"]
        assert not [text for text in texts(chart) if text.startswith("expected")]
        assert chart.notes == ("nothing is expected: NCCL's rate for links of these GPUs is not known",)

    def test_many_sizes_do_not_write_over_one_another(self) -> None:
        shown = texts(bandwidth_chart([row(size_bytes=2**power) for power in range(3, 33)], NOTHING, ""))
        assert len([text for text in shown if text.endswith("B")]) == 10


class TestCanvas:
    def test_an_svg_can_stand_in_a_page_of_any_colour(self) -> None:
        for chart in charts_of(kept("h200x2-healthy")).values():
            if chart.svg is not None:
                assert chart.svg.startswith("<svg ")
                assert "currentColor" in chart.svg
                assert INK not in chart.svg
                assert not re.search(r"#fff|white|#000000", chart.svg)

    def test_nothing_is_loaded_and_nothing_tells_when_it_was_drawn(self) -> None:
        for chart in charts_of(kept("h200x2-healthy")).values():
            svg = chart.svg or ""
            links = re.findall(r"(?:href|src)=\"([^\"]*)\"|url\(([^)]*)\)", svg)
            assert all((a or b).startswith("#") for a, b in links)
            assert "metadata" not in svg
            assert "date" not in svg

    def test_ids_of_two_drawings_differ(self) -> None:
        svgs = [chart.svg for chart in charts_of(kept("h200x2-healthy")).values() if chart.svg]
        ids = [found for svg in svgs for found in re.findall(r' id="([^"]*)"', svg)]
        assert len(set(ids)) == len(ids) > 0

    def test_every_id_that_is_pointed_to_is_there(self) -> None:
        for chart in charts_of(kept("h200x2-healthy")).values():
            ids = set(re.findall(r' id="([^"]*)"', chart.svg or ""))
            assert set(re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', chart.svg or "")) <= {
                *((found, "") for found in ids),
                *(("", found) for found in ids),
            }

    def test_settings_of_the_users_matplotlib_change_nothing(self) -> None:
        import matplotlib as mpl

        before = charts_of(kept("h200x2-slow"))
        with mpl.rc_context({"font.size": 40.0, "axes.facecolor": "red", "svg.fonttype": "path"}):
            assert charts_of(kept("h200x2-slow")) == before

    def test_settings_are_left_as_they_were(self) -> None:
        import matplotlib as mpl

        with mpl.rc_context({"font.size": 40.0}):
            svg_of("x", 100, lambda figure: None)
            assert mpl.rcParams["font.size"] == 40.0

    def test_names_from_outside_never_reach_a_drawing(self) -> None:
        for chart in charts_of(named(kept("h200x2-healthy"), HOSTILE)).values():
            assert "gnp" not in (chart.svg or "")

    def test_a_device_is_called_as_nvidia_smi_does(self) -> None:
        assert column_name(make_gpu(3), 0) == "GPU 3"
        assert column_name(make_gpu(3).model_copy(update={"nvml_index": None}), 0) == "cuda:3"
