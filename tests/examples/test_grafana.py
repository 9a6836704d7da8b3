"""The dashboard and the alerts against what `report --to prometheus` writes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from gpubalance.record.file import load_record
from gpubalance.reports.formats import judged, write
from tests.examples.helpers import EXAMPLES, checked, tool, walk

FOLDER = EXAMPLES / "grafana"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
ALERTS: dict[str, Any] = yaml.safe_load((FOLDER / "alerts.yml").read_text())
RECORDS = ("runs/h200x2-healthy.json", "probes/h200x2-p2p-off.json")

OF_PROMETHEUS = {"instance", "job"}
SELECTOR = re.compile(r"(gpubalance_\w+)(?:\{([^}]*)\})?")


def samples(name: str) -> dict[str, list[dict[str, str]]]:
    """Metric -> the labels of each of its samples, in what is written for this record."""
    record = load_record(EXAMPLES / name)
    text = write("prometheus", record, judged(record))
    return {
        family.name: [sample.labels for sample in family.samples]
        for family in text_string_to_metric_families(text)
        if family.samples
    }


@pytest.fixture(scope="module")
def written() -> dict[str, set[str]]:
    """Metric -> the names of its labels."""
    names: dict[str, set[str]] = {}
    for record in RECORDS:
        for metric, labels in samples(record).items():
            names.setdefault(metric, set()).update(*labels)
    return names


def queries() -> list[str]:
    targets = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    variables = [variable["query"] for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query"]
    return targets + variables + [rule["expr"] for rule in ALERTS["groups"][0]["rules"]]


@pytest.mark.parametrize("query", queries())
def test_every_metric_and_label_that_is_asked_for_is_written(query: str, written: dict[str, set[str]]) -> None:
    selected = SELECTOR.findall(query)
    assert selected
    for metric, matchers in selected:
        assert metric in written
        assert set(re.findall(r"(\w+)=", matchers)) <= written[metric] | OF_PROMETHEUS


def test_every_label_in_a_legend_is_written(written: dict[str, set[str]]) -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            known = set.intersection(*(written[metric] for metric, _ in SELECTOR.findall(target["expr"])))
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= known | OF_PROMETHEUS, panel["title"]


def test_the_metrics_that_people_ask_for_first_are_all_shown() -> None:
    shown = {metric for query in queries() for metric, _ in SELECTOR.findall(query)}
    assert shown >= {
        "gpubalance_verdict",
        "gpubalance_balance_ratio",
        "gpubalance_rank_compute_seconds",
        "gpubalance_rank_wait_seconds",
        "gpubalance_collective_bus_bandwidth_bytes_per_second",
        "gpubalance_finding",
        "gpubalance_run_timestamp_seconds",
    }


def test_the_metrics_of_a_run_and_of_a_look_can_stand_side_by_side() -> None:
    """node_exporter refuses a sample that two files hold; systemd's units write one file for each."""
    run, look = (
        {(metric, frozenset(labels.items())) for metric, all_labels in samples(name).items() for labels in all_labels}
        for name in RECORDS
    )
    assert not run & look


def test_grafana_s_own_types_know_every_part_of_the_dashboard() -> None:
    """What they do not know they leave out, so all that comes back was understood."""
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard", reason="needs Python 3.11")
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder", reason="needs Python 3.11")
    again = json.loads(encoder.JSONEncoder().encode(models.Dashboard.from_json(DASHBOARD)))
    missing = [path for path in paths(DASHBOARD) if path not in paths(again)]
    assert missing == []


def paths(value: Any, at: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    """The way to each key that has a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = {at} if at and value is not None else set()
    return found.union(*(paths(part, (*at, key)) for key, part in inside))


def test_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        x, y, width, height = (panel["gridPos"][key] for key in "xywh")
        own = {(column, row) for column in range(x, x + width) for row in range(y, y + height)}
        assert x + width <= 24
        assert not cells & own, panel["title"]
        cells |= own
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_data_comes_from_the_source_that_the_reader_chose() -> None:
    sources = [part["datasource"] for part in walk(DASHBOARD) if isinstance(part, dict) and "datasource" in part]
    assert len(sources) >= 2 * len(DASHBOARD["panels"])
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)


@pytest.mark.skipif(tool("promtool") is None, reason="promtool is not installed")
def test_prometheus_reads_every_query(tmp_path: Any) -> None:
    promtool = tool("promtool") or ""
    checked([promtool, "check", "rules", FOLDER / "alerts.yml"])
    targets = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    rules = [{"record": f"q{index}", "expr": expr.replace("$instance", ".*")} for index, expr in enumerate(targets)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    checked([promtool, "check", "rules", tmp_path / "rules.yml"])
