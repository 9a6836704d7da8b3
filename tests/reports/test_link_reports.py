"""Links in every format: the matrix, its picture, its metrics."""

from __future__ import annotations

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpubalance.checks.verdict import judge
from gpubalance.record.run import Run
from gpubalance.reports.charts import run_charts
from gpubalance.reports.html import html_text
from gpubalance.reports.junit import junit_text
from gpubalance.reports.markdown import markdown_text
from gpubalance.reports.prometheus import prometheus_text
from gpubalance.testing.link_runs import link_run, make_links, with_links
from gpubalance.testing.runs import make_attempt, make_run, steady
from tests.reports.helpers import lines_of, sections


def matrix(run: Run) -> list[str]:
    """The section about links."""
    return next(lines for lines in sections(run) if lines[0].startswith(("GB/s to", "copies")))


def test_the_matrix_of_two() -> None:
    assert matrix(link_run(2, {(1, 0): 0.9})) == [
        "GB/s to      0      1",
        "GPU 0        .  395.0",
        "GPU 1    355.5      .",
        "one copy at a time, from row to column, over 18 NVLinks = 450 GB/s, of which",
        "copies reach 0.83 to 0.91",
        "both ways at once 351.9 to 391.1 GB/s each way",
        "copies  memory  from host  together  to host  together",
        "          GB/s       GB/s      GB/s     GB/s      GB/s",
        "GPU 0     4250       55.3      55.3     55.3      55.3",
        "GPU 1     4250       55.3      55.3     55.3      55.3",
        "memory: read plus written; host memory is pinned; together: all devices at once",
    ]


def test_one_device_has_no_matrix_and_no_together() -> None:
    assert matrix(link_run(1))[2] == "GPU 0     4250       55.3         -     55.3         -"


@pytest.mark.parametrize("count", [1, 2, 3, 8, 16])
def test_no_line_is_wider_than_80(count: int) -> None:
    run = link_run(count, {(0, 1): 0.9} if count > 1 else {}, noise=0.004)
    assert all(len(line) <= 80 for line in lines_of(run) if "GPU-" not in line)
    if count == 16:
        assert [line for line in matrix(run) if line.startswith("GB/s to")][1].split()[2:] == list(
            map(str, range(8, 16))
        )


def test_what_was_checked_and_never_timed_has_a_dash() -> None:
    links = make_links(3)
    peers = [links.peers[0].model_copy(update={"looks_gb_per_s": []}), *links.peers[1:]]
    run = with_links(make_run([], ranks=3), links.model_copy(update={"peers": peers}))
    assert matrix(run)[1] == "GPU 0        .      -  395.0"


def test_scores_of_links_are_real_once_they_were_measured() -> None:
    attempt = make_attempt(steady([100.0] * 4), overlapped_ms=110.0)
    text = "\n".join(lines_of(with_links(make_run([attempt]), make_links(4, {(0, 1): 0.8}))))
    assert re.search(r"balance 96\.\d   link 96\.\d   persistent 100\.0", text)
    assert "communication 80.0 fail" in text.replace("\n", " ")
    plain = "\n".join(lines_of(make_run([attempt])))
    assert "link not measured" in plain
    assert "communication not measured" in plain.replace("\n", " ")


def test_the_picture_has_every_number_in_its_cell() -> None:
    run = link_run(4, {(2, 3): 0.8})
    chart = run_charts(run, judge(run).facts)[-1]
    assert chart.svg is not None
    numbers = re.findall(r">(\d+\.\d)</text>", chart.svg)
    assert sorted(numbers) == sorted(["395.0"] * 11 + ["316.0"])
    assert chart == run_charts(run, judge(run).facts)[-1]


def test_too_many_devices_for_a_picture_are_said() -> None:
    run = link_run(18)
    chart = run_charts(run, judge(run).facts)[-1]
    assert chart.notes == ("16 of 18 devices, the first ones",)


def test_one_device_has_a_reason_in_place_of_the_picture() -> None:
    run = link_run(1, missing={"peers": "one device has no peer"})
    assert run_charts(run, judge(run).facts)[-1].missing == "one device has no peer"


def test_tables_of_html_and_markdown_hold_the_matrix() -> None:
    run = link_run(3, {(0, 1): 0.9})
    assert "Copies between devices" in html_text(run, judge(run))
    text = markdown_text(run, judge(run))
    assert "| GPU 0 | . | 355.5 | 395.0 |" in text
    assert "| GPU 0 | GPU 1 | yes | 0 | 355.5 | 4 | 351.9 | - |" in text


def test_metrics_are_in_bytes_and_name_both_ends() -> None:
    run = link_run(2, {(0, 1): 0.9})
    families = {f.name: f.samples for f in text_string_to_metric_families(prometheus_text(run, judge(run)))}
    rates = {(s.labels["source_gpu"], s.labels["target_gpu"]): s.value
             for s in families["gpubalance_link_bytes_per_second"]}  # fmt: skip
    assert rates == {("0", "1"): pytest.approx(355.5e9), ("1", "0"): pytest.approx(395e9)}
    assert {s.value for s in families["gpubalance_link_wrong_bytes"]} == {0.0}
    assert families["gpubalance_link_together_bytes_per_second"] == []
    host = families["gpubalance_host_link_to_device_bytes_per_second"]
    assert {(s.labels["gpu"], s.labels["together"]) for s in host} == {
        ("0", "no"),
        ("0", "yes"),
        ("1", "no"),
        ("1", "yes"),
    }
    assert families["gpubalance_communication_ratio"][0].value == pytest.approx(0.9)


def test_junit_has_a_suite_of_links() -> None:
    run = link_run(2, {(0, 1): 0.5})
    text = junit_text(run, judge(run))
    assert 'name="links"' in text
    assert "moves 50 % less than the other way" in text
