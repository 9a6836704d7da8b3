"""The page: whole, valid, the same each time, harmless, and nothing of a finding lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from xml.etree.ElementTree import Element

import html5lib
import numpy as np
import pytest

from gpubalance.checks.finding import Finding, State
from gpubalance.checks.probing.verdict import ProbeJudgement
from gpubalance.checks.verdict import Judgement, Verdict, judge
from gpubalance.record.file import load_record
from gpubalance.record.probe import DeviceLoad, Load, Probe
from gpubalance.record.run import Run, RunError
from gpubalance.record.samples import DeviceSamples, Samples
from gpubalance.record.timings import CollectiveRow, DeviceProbe
from gpubalance.reports.formats import FORMATS, judged, write
from gpubalance.reports.html import html_text
from gpubalance.testing.link_runs import make_links, with_links
from gpubalance.testing.runs import make_attempt, make_run, make_solo, steady
from tests.checks.probing.helpers import make_load, make_probe
from tests.reports.helpers import HOSTILE, kept, named, pair, row, with_own_memory
from tests.support import ROOT

KEPT = sorted((ROOT / "examples/runs").glob("*.json")) + sorted((ROOT / "examples/probes").glob("*.json"))
FULL = Finding(
    id="some_check",
    state=State.WARN,
    message="the message",
    subject="the subject",
    observed="the observed",
    expected="the expected",
    evidence=("first evidence", "second evidence"),
    next_step="the next step",
    required=True,
)


def page(record: Run | Probe) -> str:
    return html_text(record, judged(record))


@cache
def kept_page(path: Path) -> str:
    return page(load_record(path))


def tree(html: str) -> Element:
    return html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(html)


def text_of(element: Element) -> str:
    return " ".join("".join(element.itertext()).split())


def body_text(html: str) -> str:
    body = tree(html).find("body")
    assert body is not None
    return text_of(body)


def tables(html: str) -> dict[str, list[list[str]]]:
    found = {}
    for section in tree(html).iter("section"):
        title, table = section.find("h2"), section.find(".//table")
        if title is not None and table is not None:
            found[text_of(title)] = [[text_of(cell) for cell in row] for row in table.iter("tr")]
    return found


def eight_ranks() -> Run:
    """Eight H200s, 60 s of noisy samples at 10 Hz, collectives of 21 sizes, and links of which one is slow: the largest
    page that is promised to be small.
    """
    noise = np.random.default_rng(0)
    times = [100.0, 101.0, 99.5, 100.0, 100.4, 120.0, 100.0, 99.8]
    devices = [
        DeviceSamples(
            device=index,
            columns={"utilization_percent": [int(v) for v in noise.integers(0, 101, 600)], "power_w": [600.0] * 600},
        )
        for index in range(8)
    ]
    samples = Samples(t_s=[round(0.1 * tick, 3) for tick in range(600)], devices=devices)
    solo = [make_solo(rank, 90.0) for rank in range(8)]
    run = make_run([make_attempt(steady(times, noise=0.01))], solo=solo, samples=samples, collectives=rising())
    return with_links(with_own_memory(run, *[(20 + rank) * 10**9 for rank in range(8)]), make_links(8, {(5, 2): 0.5}))


def rising() -> list[CollectiveRow]:
    """Five curves of 21 sizes that all come to their best."""
    kinds = [*((name, "eager") for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")),
             ("all_reduce", "graph")]  # fmt: skip
    return [
        row(mode, collective=name, ranks=8, size_bytes=size, bus_bandwidth_gb_per_s=365 * size / (size + 2**25))
        for name, mode in kinds
        for size in (2**power for power in range(13, 34))
    ]


def busy_load() -> Load:
    """One GPU worked, the other was left alone."""
    speed = DeviceProbe(rank=0, device=0, gemm_tflops=650.46, memory_copy_gb_per_s=4237.4,
                        host_to_device_gb_per_s=51.16, device_to_host_gb_per_s=49.84)  # fmt: skip
    results = [
        DeviceLoad(device=0, stage="done", seconds=10.4, speed=speed),
        DeviceLoad(device=1, stage="start", seconds=0.0, skipped="somebody uses it"),
    ]
    return make_load(devices=[0, 1], results=results)


def everything(html: str) -> Iterator[tuple[str, str, str]]:
    """Element, attribute, value."""
    for element in tree(html).iter():
        if isinstance(element.tag, str):
            for name, value in element.attrib.items():
                yield element.tag, str(name), value


class TestPage:
    @pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.stem}")
    def test_every_kept_record_gives_a_valid_page_twice_the_same(self, path: Path) -> None:
        record = load_record(path)
        assert page(record) == kept_page(path)
        tree(kept_page(path))

    def test_it_is_what_the_table_of_formats_names(self) -> None:
        assert FORMATS["html"] == "gpubalance.reports.html:html_text"
        record = kept("h200x2-slow")
        assert write("html", record, judge(record)) == page(record)

    @pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.stem}")
    def test_no_script_and_nothing_from_the_network(self, path: Path) -> None:
        html = kept_page(path)
        tags = {str(element.tag).rpartition("}")[2] for element in tree(html).iter()}
        assert not tags & {"script", "link", "img", "iframe", "object", "embed", "image", "base", "form", "a", "audio"}
        for _, name, value in everything(html):
            assert not name.lower().startswith("on")
            if name.rpartition("}")[2].removeprefix("xlink:") in ("href", "src"):
                assert value.startswith("#")
        assert "@import" not in html
        assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", html))

    def test_the_page_itself_forbids_scripts_and_the_network(self) -> None:
        assert "default-src 'none'; style-src 'unsafe-inline'" in kept_page(KEPT[0])

    def test_light_dark_and_paper(self) -> None:
        html = kept_page(KEPT[0])
        assert "@media (prefers-color-scheme: dark)" in html
        assert "@media print" in html

    def test_ids_are_unique(self) -> None:
        for path in KEPT:
            ids = [value for _, name, value in everything(kept_page(path)) if name == "id"]
            assert len(ids) == len(set(ids))

    def test_eight_gpus_and_a_minute_of_samples_stay_small(self) -> None:
        html = page(eight_ranks())
        assert html.count("<svg") == 6
        assert len(html.encode()) < 300_000

    def test_the_pictures_that_people_want_first_come_first(self) -> None:
        html = page(eight_ranks())
        assert re.findall(r"<figcaption><b>(.*?)\.</b>", html) == [
            "Utilization over time", "Compute and wait", "Memory", "Bus bandwidth of collectives",
            "What the step is made of", "Link matrix",
        ]  # fmt: skip


class TestContent:
    @pytest.mark.parametrize(
        ("verdict", "word"),
        [
            (Verdict.PASS, "PASS"),
            (Verdict.WARN, "WARN"),
            (Verdict.FAIL, "FAIL"),
            (Verdict.INCONCLUSIVE, "NO VERDICT"),
        ],
    )
    def test_the_verdict_stands_first_in_words(self, verdict: Verdict, word: str) -> None:
        run = pair(100.0, 100.0)
        html = html_text(run, replace(judge(run), verdict=verdict, sentence="a sentence"))
        assert body_text(html).startswith(f"{word} a sentence")
        assert f"<title>{word}: gpubalance bench" in html

    @pytest.mark.parametrize("record", [pair(100.0, 100.0), make_probe()], ids=["run", "probe"])
    def test_no_field_of_a_finding_is_lost(self, record: Run | Probe) -> None:
        judgement: Judgement | ProbeJudgement = replace(judged(record), findings=(FULL,))  # type: ignore[type-var]
        shown = body_text(html_text(record, judgement))
        wanted = ("warn some_check required the message the subject observed: the observed; expected: the expected "
                  "first evidence second evidence Next: the next step.")  # fmt: skip
        assert wanted in shown

    @pytest.mark.parametrize("state", list(State))
    def test_every_finding_keeps_its_own_state(self, state: State) -> None:
        run = pair(100.0, 100.0)
        html = html_text(run, replace(judge(run), findings=(Finding("c", state, "m"),)))
        found = [item for item in tree(html).iter("li") if item.get("class")]
        assert [(item.get("class"), text_of(item)) for item in found] == [(state.value, f"{state.value} c m")]

    @pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.stem}")
    def test_all_findings_in_their_order(self, path: Path) -> None:
        record = load_record(path)
        items = [item for item in tree(kept_page(path)).iter("li") if item.get("class")]
        judgement = judged(record)
        assert [item.get("class") for item in items] == [finding.state.value for finding in judgement.findings]
        for item, finding in zip(items, judgement.findings, strict=True):
            assert " ".join(finding.message.split()) in text_of(item)

    def test_tables_of_a_run(self) -> None:
        found = tables(page(pair(100.0, 120.0)))
        assert found["Ranks"][0][:5] == ["rank", "compute ms", "wait ms", "blame ms", "speed x ref"]
        assert found["Ranks"][1][:5] == ["0", "100.00", "20.00", "0.00", "1.00"]
        assert found["Ranks"][2][:5] == ["1", "120.00", "0.00", "20.00", "0.83"]
        assert found["Ranks"][1][8] == "-"  # nobody measured memory
        assert found["Devices of the ranks"][2] == [
            "1", "1", "1", "1", "NVIDIA H200", "GPU-00000002-aaaa-bbbb-cccc-000000000001", "0000:07:00.0",
        ]  # fmt: skip
        assert found["Settings"] == [["setting", "value", "from"], ["seed", "2026", "default"]]
        assert ["torch", "2.11.0"] in found["Versions"]

    def test_scores_that_were_not_measured_are_no_numbers(self) -> None:
        scores = {row[0]: row[1:] for row in tables(page(pair(100.0, 100.0)))["Scores"]}
        assert scores["link"] == ["-", "-", "not measured"]
        assert scores["memory"] == ["-", "-", "no GPU memory was measured"]
        assert scores["time"][:2] == ["100.0", "pass"]

    def test_tables_of_a_real_run(self) -> None:
        found = tables(kept_page(ROOT / "examples/runs/h200x2-healthy.json"))
        assert len(found["Collectives"]) == 19
        assert found["Collectives"][1][:4] == ["all_reduce", "in place", "eager", "nccl"]
        assert ["out", "h200x2-healthy.json", "flag"] in found["Settings"]
        assert ["links", "not part of this version"] in found["Not measured"]

    def test_tables_of_a_probe(self) -> None:
        found = tables(page(make_probe(load=busy_load())))
        assert found["Devices"][1][:6] == ["0", "0", "140", "0.0", "0", "18/18"]
        assert found["Link matrix"] == [["to", "GPU 0", "GPU 1"], ["GPU 0", ".", "NVL"], ["GPU 1", "NVL", "."]]
        assert found["Under load"][1:] == [
            ["GPU 0", "650.5", "4237", "51.2", "49.8", "10.4", "done", ""],
            ["GPU 1", "-", "-", "-", "-", "0.0", "start", "somebody uses it"],
        ]

    def test_a_pair_that_cannot_read_each_other_is_marked_and_says_why(self) -> None:
        probe = make_probe()
        refused = {"read": "CHIPSET_NOT_SUPPORTED", "write": "OK", "nvlink": None, "atomics": "OK"}
        details = [
            detail.model_copy(
                update={"peers": [p.model_copy(update={"p2p": refused, "topology": "SYSTEM"}) for p in detail.peers]}
            )
            for detail in probe.details
        ]
        html = page(probe.model_copy(update={"details": details}))
        assert tables(html)["Link matrix"][1] == ["GPU 0", ".", "SYS!"]
        assert "GPU 0 to GPU 1: read CHIPSET_NOT_SUPPORTED" in body_text(html)
        assert 'class=" refused"' in html

    def test_a_probe_whose_driver_is_silent(self) -> None:
        probe = make_probe().model_copy(update={"node": None, "details": [], "nvml_failed": "hung in nvmlInit"})
        html = page(probe)
        assert ["driver", "hung in nvmlInit"] in tables(html)["Host"]
        assert "Devices" not in tables(html)
        assert "Link matrix: no two GPUs told how they are joined." in body_text(html)

    def test_a_run_that_was_played_says_so_before_anything_else(self) -> None:
        run = pair(100.0, 120.0, injected=["compute:rank=1,percent=20"])
        assert "Injected on purpose: compute:rank=1,percent=20." in body_text(page(run))
        probe = make_probe().model_copy(update={"simulated": "dead gpu"})
        assert "Simulated: dead gpu. This says nothing about this machine." in body_text(page(probe))

    def test_errors_keep_their_own_words_line_by_line(self) -> None:
        error = RunError(kind="exception", where="work", message="boom", rank=1, first_cause=True, detail="one\n  two")
        run = make_run([], errors=[error])
        html = page(run)
        assert tables(html)["Errors"][1] == ["exception", "work", "1", "-", "-", "yes", "boom"]
        pre = next(tree(html).iter("pre"))
        assert "".join(pre.itertext()) == "one\n  two\n"


class TestHostile:
    def hostile(self) -> list[Run | Probe]:
        run = named(kept("h200x2-healthy"), HOSTILE)
        detail = RunError(kind=HOSTILE, where="work", message=HOSTILE, rank=0, phase=HOSTILE, detail=HOSTILE)
        probe = make_probe()
        assert probe.node is not None
        devices = [device.model_copy(update={"name": HOSTILE, "uuid": HOSTILE}) for device in probe.node.devices]
        node = probe.node.model_copy(
            update={"devices": devices, "hostname": HOSTILE, "environment": {HOSTILE: HOSTILE}, "container": HOSTILE}
        )
        return [
            run.model_copy(update={"errors": [detail], "started_at": HOSTILE}),
            probe.model_copy(update={"node": node, "simulated": HOSTILE, "started_at": HOSTILE}),
        ]

    def test_text_from_outside_stays_text(self) -> None:
        for record in self.hostile():
            html = page(record)
            assert "<script" not in html
            assert "&lt;script&gt;&amp;amp;" in html
            assert next((e for e in tree(html).iter() if str(e.tag).endswith("script")), None) is None

    def test_nothing_that_turns_or_commands_is_left(self) -> None:
        for record in self.hostile():
            html = page(record)
            assert not [c for c in html if not c.isprintable() and c != "\n"]

    def test_bytes_that_are_no_text_can_be_written(self) -> None:
        html = page(named(pair(100.0, 100.0), "H\udcff200"))
        assert "H\\udcff200" in html
        html.encode()

    def test_findings_are_escaped_in_every_field(self) -> None:
        run = pair(100.0, 100.0)
        finding = Finding(HOSTILE, State.FAIL, HOSTILE, HOSTILE, HOSTILE, HOSTILE, (HOSTILE,), HOSTILE)
        html = html_text(run, replace(judge(run), findings=(finding,), sentence=HOSTILE))
        assert html.count("&lt;/text&gt;&lt;script&gt;&amp;amp;") == 8
        assert "<script" not in html
