"""The lines about collectives, against values worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.checks.verdict import judge
from gpubalance.record.run import Run
from gpubalance.record.timings import AlgorithmChoice, Jitter, NcclFacts, Transport
from gpubalance.reports.collective_lines import bandwidth_lines
from gpubalance.testing.runs import make_run
from tests.reports.helpers import row

EXPECTED = "Of the 371 GB/s expected (18 links x 20.6 GB/s, ring): all_reduce 88 % at 1 GiB."


def lines_of(run: Run) -> list[str]:
    return bandwidth_lines(run, judge(run).facts.bandwidth)


def bandwidth(*rows: Any, on_cpu: bool = False, **values: Any) -> list[str]:
    return lines_of(make_run([], collectives=list(rows), on_cpu=on_cpu, **values))


def test_collectives_stand_in_a_table_with_the_columns_of_nccl_tests() -> None:
    assert bandwidth(row(), row(collective="all_gather", size_bytes=8192, time_us=32.3, wrong_elements=4)) == [
        "collective  ranks   size    time   algbw   busbw  wrong",
        "                              us    GB/s    GB/s",
        "all_reduce      2  1 GiB  3300.0  325.37  325.37      0",
        "all_gather      2  8 KiB    32.3  325.37  325.37      4",
        "GB = 1e9 bytes, nccl-tests' definitions, float32 in place",
        EXPECTED,
    ]


def test_replays_of_a_graph_stand_beside_their_eager_row() -> None:
    lines = bandwidth(row(), row("graph", time_us=3200.0, bus_bandwidth_gb_per_s=335.54), row(size_bytes=2**20))
    assert lines == [
        "collective  ranks   size    time   algbw   busbw  wrong   graph   busbw",
        "                              us    GB/s    GB/s             us    GB/s",
        "all_reduce      2  1 GiB  3300.0  325.37  325.37      0  3200.0  335.54",
        "all_reduce      2  1 MiB  3300.0  325.37  325.37      0       -       -",
        "GB = 1e9 bytes, nccl-tests' definitions, float32 in place",
        EXPECTED,
    ]


def test_bandwidths_over_gloo_are_not_comparable_and_it_is_said() -> None:
    assert bandwidth(row(backend="gloo"), on_cpu=True)[-1] == "gloo: not comparable with NCCL"


def test_without_collectives_there_is_no_table() -> None:
    assert bandwidth() == []


@pytest.mark.parametrize(
    ("size", "shown"),
    [(2**30, "1 GiB"), (3 * 2**29, "1536 MiB"), (64 * 2**20, "64 MiB"), (8192, "8 KiB"), (1000, "1000 B"), (4, "4 B")],
)
def test_sizes_are_exact_in_the_largest_unit_that_divides_them(size: int, shown: str) -> None:
    assert f"  {shown}  " in bandwidth(row(size_bytes=size))[2]


@pytest.mark.parametrize(
    ("gb_per_s", "shown"),
    [(325.371, "325.37"), (0.1, "0.10"), (0.0999, "0.0999"), (0.00042, "0.0004"), (0.0, "0.0000")],
)
def test_small_bandwidths_keep_digits_that_say_something(gb_per_s: float, shown: str) -> None:
    assert bandwidth(row(algorithm_bandwidth_gb_per_s=gb_per_s))[2].split()[5] == shown


def test_many_sizes_stand_in_a_table_for_each_collective_with_the_words_of_nccl_tests() -> None:
    sizes = [row(size_bytes=2**power, time_us=20.0, bus_bandwidth_gb_per_s=0.5) for power in (13, 16, 20)]
    gather = [row(collective="all_gather", placement="out_of_place", size_bytes=64, ranks=8, wrong_elements=2)]
    assert bandwidth(*sizes, row(), *gather)[:10] == [
        "all_reduce in place, 2 ranks, type float, redop sum, root -1",
        "      size       count    time   algbw   busbw  #wrong",
        "       (B)  (elements)    (us)  (GB/s)  (GB/s)",
        "      8192        2048    20.0  325.37    0.50       0",
        "     65536       16384    20.0  325.37    0.50       0",
        "   1048576      262144    20.0  325.37    0.50       0",
        "1073741824   268435456  3300.0  325.37  325.37       0",
        "all_gather out of place, 8 ranks, type float, redop none, root -1",
        "size       count    time   algbw   busbw  #wrong",
        " (B)  (elements)    (us)  (GB/s)  (GB/s)",
    ]
    assert bandwidth(*sizes, row(), *gather)[10].split()[:2] == ["64", "2"]  # elements of one of eight parts


def test_types_and_roots_are_those_of_nccl_tests() -> None:
    rows = [row(collective="broadcast", dtype="float16", size_bytes=2**power) for power in (3, 4, 5, 6)]
    assert bandwidth(*rows)[0] == "broadcast in place, 2 ranks, type half, redop none, root 0"
    assert bandwidth(*rows)[3].split()[:2] == ["8", "4"]


def test_jitter_has_a_table_where_it_was_asked_for() -> None:
    jitter = Jitter(operations=20, p50_us=101.0, p99_us=140.0, max_us=150.0, cv=0.1)
    lines = bandwidth(row(jitter=jitter), row("graph"), row(collective="all_gather"))
    assert lines[5:8] == [
        "single operations     size    p50    p99  largest  spread",
        "                               us     us       us       %",
        "all_reduce in place  1 GiB  101.0  140.0    150.0    10.0",
    ]
    assert max(map(len, lines[:8])) <= 80
    assert lines[8].startswith(EXPECTED.rstrip("."))


def test_the_expected_value_stands_beside_what_was_reached() -> None:
    assert bandwidth(row())[-1] == EXPECTED
    both = bandwidth(row(), row(collective="all_gather", bus_bandwidth_gb_per_s=278.1))
    assert both[-1] == EXPECTED.replace("GiB.", "GiB, all_gather 75 % at 1 GiB.")
    assert "expected" not in " ".join(bandwidth(row(size_bytes=2**20)))


def test_gloo_stands_beside_nccl_in_one_line_and_not_in_the_table() -> None:
    lines = bandwidth(
        row(size_bytes=2**26, bus_bandwidth_gb_per_s=226.0),
        row(size_bytes=2**26, backend="gloo", bus_bandwidth_gb_per_s=1.8),
    )
    assert lines[-1] == "The same all_reduce of 64 MiB through gloo and host memory: 1.8 GB/s, 126 x less."
    assert len([line for line in lines if line.startswith("all_reduce")]) == 1


def test_what_nccls_log_said() -> None:
    facts = NcclFacts(
        nvls_available=False,
        transports=[Transport(sender=0, receiver=1, via="P2P/CUMEM", channels=24)],
        choices=[
            AlgorithmChoice(
                collective="all_reduce", size_bytes=2**30, algorithm="Ring", protocol="Simple", channels=24
            ),
            AlgorithmChoice(collective="all_reduce", size_bytes=8, algorithm="Tree", protocol="LL"),
        ],
        warnings=["Call to ibv_open_device failed"],
    )
    assert bandwidth(row(), nccl=facts)[-2:] == [
        "NCCL's log: data goes by P2P/CUMEM; NVLS not available; all_reduce of 1 GiB uses Ring on 24 channels.",
        "NCCL warned: Call to ibv_open_device failed",
    ]
    assert bandwidth(row(), nccl=NcclFacts())[-1] == EXPECTED


def test_the_clock_of_the_host_is_named() -> None:
    assert "in place, host's clock and 20 iterations as nccl-tests" in " ".join(bandwidth(row(clock="host")))
