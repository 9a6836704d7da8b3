"""The report that people read."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from gpubalance.checks.verdict import Verdict, judge
from gpubalance.record.run import Run, RunError, Skipped
from gpubalance.record.samples import CounterReading, ProcessMemory, Samples
from gpubalance.record.timings import DeviceProbe
from gpubalance.testing.runs import make_attempt, make_run, steady
from tests.reports.helpers import (
    HOSTILE,
    KEPT,
    flowing,
    health,
    kept,
    lines_of,
    named,
    pair,
    parallel,
    row,
    sampled,
    sections,
    styled,
    with_own_memory,
    without_ddp,
)


def interrupted() -> Run:
    return make_run([make_attempt(steady([100.0, 100.0], blocks=3))], interrupted_by=15)


def unconfirmed() -> Run:
    return make_run([make_attempt(steady([100.0, 120.0]))])


def on_cpu() -> Run:
    return make_run([make_attempt(steady([100.0, 100.0]))], on_cpu=True)


def alone() -> Run:
    """One device that is as fast as its limits let expect."""
    probe = DeviceProbe(
        rank=0,
        device=0,
        gemm_tflops=700.0,
        memory_copy_gb_per_s=4000.0,
        host_to_device_gb_per_s=50.0,
        device_to_host_gb_per_s=50.0,
    )
    return pair(100.0, probes=[probe])


def crashed() -> Run:
    error = RunError(
        kind="killed", where="work", message="killed by SIGKILL", rank=1, phase="ddp", t_s=9.0, first_cause=True
    )
    return make_run([make_attempt(steady([100.0, 100.0], blocks=6))], errors=[error])


def nothing_at_all() -> Run:
    return make_run([])


def loud() -> Run:
    """Everything that can stand in a report, as wide as it comes: sixteen slow GPUs with all reasons set."""
    columns: dict[str, list[float | int | None]] = {
        "utilization_percent": [100, 100, 100],
        "gpm_sm_percent": [100.0, 100.0, 100.0],
        "power_w": [1400.0, 1400.0, 1400.0],
        "sm_clock_mhz": [1980, 1980, 1980],
        "temperature_c": [100, 100, 100],
        "event_reasons": [0x1FE, 0x1FE, 0x1FE],
    }
    run = pair(
        *[15000.0] * 15,
        20000.0,
        samples=sampled(dict.fromkeys(range(16), columns), health=health()),
        collectives=[row("graph", ranks=16, time_us=1234567.8), row(ranks=16, time_us=1234567.8, wrong_elements=3)],
        data_parallel=parallel(shards=[4096] * 8 + [0] * 8, peak_memory_bytes=[10**11] + [10**10] * 15),
    )
    return with_own_memory(run, *[120_000_000_000] * 16)


RUNS: dict[str, Callable[[], Run]] = {
    **{name: (lambda name=name: kept(name)) for name in KEPT},
    **{f"{count} healthy": (lambda count=count: pair(*[100.0] * count)) for count in (1, 2, 3, 8, 16)},
    **{f"{count} with a slow one": (lambda count=count: pair(*[100.0] * (count - 1), 120.0)) for count in (2, 3, 8)},
    "interrupted": interrupted,
    "unconfirmed": unconfirmed,
    "cpu": on_cpu,
    "crashed": crashed,
    "nothing": nothing_at_all,
    "without ddp": without_ddp,
    "loud": loud,
    "hostile": lambda: named(pair(100.0, 108.0), HOSTILE),
}
MADE = {name: make() for name, make in RUNS.items()}
EVERY = pytest.mark.parametrize("run", MADE.values(), ids=list(MADE))
WITH_TABLE = [name for name, run in MADE.items() if run.ddp]


@pytest.mark.parametrize(
    ("run", "word", "sentence"),
    [
        (pair(100.0, 100.0), "PASS", "node can train evenly: balance 100.0, nothing slower than its peers by 10 %"),
        # (100 + 20) / (108 + 20) = 93.75
        (pair(100.0, 108.0), "WARN", "rank 1 is 8 % slower than rank 0 and costs 6.2 % of the step rate"),
        # (100 + 20) / (120 + 20) = 85.7
        (pair(100.0, 120.0), "FAIL", "rank 1 is 20 % slower than rank 0 and costs 14.3 % of the step rate"),
        (
            unconfirmed(),
            "NO VERDICT",
            "not confirmed: rank 1 was 20 % slower than its peers, which could not be looked at again",
        ),
        (interrupted(), "NO VERDICT", "interrupted by signal 15: what was measured until then is kept"),
        (crashed(), "NO VERDICT", "rank 1 killed by SIGKILL in phase ddp"),
        (nothing_at_all(), "NO VERDICT", "no block of the ddp phase was finished"),
        (without_ddp(), "PASS", "nothing wrong was found in what was measured; evenness was not asked for"),
        (alone(), "PASS", "nothing wrong was found on this device; with one device there is nothing to balance"),
        (pair(100.0), "NO VERDICT", "nothing that could be judged was measured"),
    ],
    ids=lambda value: "" if isinstance(value, Run) else None,
)
def test_the_verdict_and_one_sentence_come_first_after_the_header(run: Run, word: str, sentence: str) -> None:
    header, verdict, *_ = sections(run)
    assert header[0].startswith("gpubalance ")
    assert flowing(verdict).startswith(f"{word} {sentence}")
    assert verdict[0].startswith(f"{word}  ")


@EVERY
def test_the_word_is_that_of_the_verdict_and_stands_once(run: Run) -> None:
    words = {Verdict.PASS: "PASS", Verdict.WARN: "WARN", Verdict.FAIL: "FAIL", Verdict.INCONCLUSIVE: "NO VERDICT"}
    first = [line for line in lines_of(run) if re.match(r"(PASS|WARN|FAIL|NO VERDICT)  ", line)]
    assert len(first) == 1
    assert first[0].startswith(words[judge(run).verdict])


@EVERY
def test_nothing_is_wider_than_80_columns_unless_it_is_one_word(run: Run) -> None:
    wide = [line for line in lines_of(run) if len(line) > 80]
    assert [line for line in wide if " " in line.strip().removeprefix("- ")] == []


@EVERY
def test_no_line_holds_anything_that_a_terminal_would_obey(run: Run) -> None:
    assert [line for line in lines_of(run) if not line.isprintable()] == []


@pytest.mark.parametrize("name", WITH_TABLE)
def test_every_device_is_shown_with_its_whole_names(name: str) -> None:
    run = MADE[name]
    text = flowing(lines_of(run))
    for device in run.plan.devices:
        wanted = [device.uuid, device.pci_bus_id] if device.kind == "cuda" else [f"CPU core {device.cpu_cores[0]}"]
        assert [name for name in wanted if name not in text] == []


@EVERY
def test_the_same_run_gives_the_same_lines(run: Run) -> None:
    assert lines_of(run) == lines_of(run)


@EVERY
def test_no_empty_line_stands_first_last_or_beside_another(run: Run) -> None:
    assert [part for part in sections(run) if not part] == []


def test_only_the_verdict_is_coloured_and_its_words_say_the_same() -> None:
    lines = styled(pair(100.0, 120.0))
    coloured = [line.text for line in lines if line.style]
    assert coloured == ["FAIL  rank 1 is 20 % slower than rank 0 and costs 14.3 % of the step rate"]


def test_findings_come_worst_first_and_what_passed_is_not_listed() -> None:
    samples = Samples(
        counters=[CounterReading(t_s=1.0, edge="ddp begin", device=0, values={}, missing={"counters": "timeout"})],
        processes=[
            ProcessMemory(device=0, pid=1000, rank=0, memory_used_bytes=1),
            ProcessMemory(device=1, pid=7, rank=None, memory_used_bytes=1),
        ],
        health=health(lateness_max_ms=900.0),
    )
    _, verdict, *_ = sections(pair(100.0, 120.0, samples=samples))
    text = flowing(verdict)
    order = [
        text.index("FAIL rank 1 is 20 % slower"),
        text.index("unknown: error counters were not read"),
        text.index("warn: pid 7 was on GPU 1"),
        text.index("info: the sensor was up to 900 ms late"),
    ]
    assert order == sorted(order)
    assert "every phase was finished" not in text
    assert "pass:" not in text


def test_a_finding_says_who_what_speaks_for_it_what_it_is_held_against_and_what_to_do() -> None:
    _, verdict, *_ = sections(pair(100.0, 120.0))
    text = flowing(verdict)
    uuid = "GPU-00000002-aaaa-bbbb-cccc-000000000001"
    who = text.index(f"rank 1 on cuda:1 nvml:1 {uuid} 0000:07:00.0")
    evidence = text.index("- seen again with ranks rotated: it follows the device")
    expected = text.index("expected: at most 1.05 x (fails above 1.10 x)")
    step = text.index("Next: look at the clocks, temperature and processes of that device; drain the node if it stays.")
    assert who < evidence < expected < step
    assert "- over 10 % in 24 of 24 blocks (19 needed)" in text
    assert "- cause not attributed" in text


def test_details_of_a_finding_are_indented_below_it() -> None:
    _, verdict, *_ = sections(pair(100.0, 120.0))
    assert len(verdict) > 5
    assert [line for line in verdict[1:] if not line.startswith("      ")] == []


def test_a_sentence_that_is_broken_goes_on_below_its_first_word() -> None:
    _, verdict, *_ = sections(unconfirmed())
    assert verdict[0].startswith("NO VERDICT  not confirmed")
    assert verdict[1] == " " * len("NO VERDICT  ") + "not be looked at again"


def test_the_message_of_the_verdict_is_not_said_twice() -> None:
    text = flowing(sections(crashed())[1])
    assert text.count("killed by SIGKILL") == 1


def test_scores_stand_with_their_factors_their_loss_and_their_interval() -> None:
    # T = 120 + 20, lost 20, of which all is steady: 100 x 120 / 140
    _, _, scores, *_ = sections(pair(100.0, 120.0))
    assert scores[0] == "balance 85.7   link not measured   persistent 85.7   transient 100.0"
    assert scores[1] == "lost 20.00 of 140.00 ms a step   95 % interval 85.7 to 85.7"
    assert flowing(scores[2:]) == (
        "time 85.7 fail, utilization 100.0 pass, memory not measured, communication not measured"
    )


def test_a_sub_score_carries_the_worst_state_of_its_own_checks() -> None:
    _, _, scores, *_ = sections(with_own_memory(pair(100.0, 108.0), 90_000_000_000, 30_000_000_000))
    # the emptiest holds a third of the fullest, which is 60 % full: that fails
    assert "time 93.8 warn" in flowing(scores)
    assert "memory 33.3 fail" in flowing(scores)


def test_a_negative_loss_is_shown_as_none() -> None:
    compute = steady([100.0, 100.0])
    compute[:, :, :8] = 50.0  # the mean step takes 80 ms, the median one 100
    run = make_run([make_attempt(compute)])
    first = judge(run).facts.first
    assert first is not None
    assert first.balance.lost_ms == pytest.approx(-20.0)
    assert "lost 0.00 of 100.00 ms a step" in flowing(lines_of(run))


def test_a_communication_bound_node_has_a_lower_bound_for_its_score() -> None:
    run = make_run([make_attempt(steady([100.0, 100.0]), transfer_ms=80.0)])
    assert "balance 100.0 or more (communication-bound)" in flowing(lines_of(run))
    assert "or more" not in flowing(sections(pair(100.0, 100.0))[2])


def test_what_was_not_measured_is_said() -> None:
    text = flowing(lines_of(pair(100.0, 100.0, solo=[]), saved=None))
    assert "link not measured" in text
    assert "communication not measured" in text
    assert "utilization not measured" in text
    assert "memory not measured" in text
    assert "utilization score (the solo phase did not run)" in text
    assert "memory score (no GPU memory was measured)" in text
    assert text.endswith("Not saved.")


def test_skipped_workloads_stand_with_their_reasons_and_unasked_ones_together() -> None:
    skipped = [
        Skipped(what="links", reason="not part of this version"),
        Skipped(what="solo", reason="not asked for"),
        Skipped(what="collectives", reason="not asked for"),
    ]
    text = flowing(lines_of(pair(100.0, 100.0, skipped=skipped, samples=Samples(health=health(xid_missing="refused")))))
    assert "links (not part of this version); solo, collectives (not asked for); Xid events (refused)" in text


def test_a_run_says_what_it_could_have_seen() -> None:
    # equal blocks have no spread, so that nothing is added to the margin of 5 %; 24 x 20 steps of 100 + 0.01 + 20 ms
    text = flowing(lines_of(pair(100.0, 100.0)))
    assert "Could have seen a slowdown of 5 % or more on one rank (24 blocks of 22 steps, 57.6 s)." in text


def test_one_device_has_no_peers_and_nothing_is_said_about_them() -> None:
    text = flowing(lines_of(pair(100.0)))
    assert "Could have seen" not in text
    assert "lost " not in text
    assert "balance 100.0" in text


def test_an_injected_run_says_that_it_is_one_and_asks_for_nothing() -> None:
    text = flowing(lines_of(pair(100.0, 120.0, injected=["compute:rank=1,percent=20"])))
    assert "Injected on purpose: compute:rank=1,percent=20. This run says nothing about the node." in text
    assert "Next: none: this fault was injected on purpose." in text


def test_an_interrupted_run_shows_what_was_measured() -> None:
    text = flowing(lines_of(interrupted()))
    assert "interrupted by signal 15" in text
    assert "3 blocks of 22 steps" in text


def test_without_ddp_there_is_no_score_and_no_table() -> None:
    text = flowing(lines_of(without_ddp()))
    assert "balance" not in text.replace("gpubalance", "")
    assert "rank compute" not in text
    assert "One device alone: 40960 samples/s." not in text
    assert "One device alone: 41 k samples/s." in text


def test_a_cpu_run_says_in_its_first_line_that_it_shows_the_method() -> None:
    first = lines_of(on_cpu())[0]
    assert "shows the method, not GPUs" in first
    assert "shows the method" not in lines_of(pair(100.0, 100.0))[0]


def test_three_ranks_of_which_one_lacks_a_column_leave_that_cell_open() -> None:
    full: dict[str, list[float | int | None]] = {"power_w": [600.0] * 3, "temperature_c": [50] * 3}
    part: dict[str, list[float | int | None]] = {"temperature_c": [51] * 3}
    table = sections(pair(100.0, 100.0, 100.0, samples=sampled({0: full, 1: part, 2: full})))[3]
    assert [line.split()[-2:] for line in table[2:5]] == [["600", "50"], ["-", "51"], ["600", "50"]]


def test_eight_ranks_have_a_row_and_a_name_each() -> None:
    table = sections(pair(*[100.0] * 8))[3]
    assert [line.split()[0] for line in table[2:10]] == [str(rank) for rank in range(8)]
    assert [line.split()[:2] for line in table if line.startswith("rank ")][1:] == [["rank", str(r)] for r in range(8)]


def test_where_the_run_was_saved_is_the_last_line() -> None:
    assert lines_of(pair(100.0, 100.0), saved="/tmp/run.json")[-1] == "Saved: /tmp/run.json"


def test_a_path_may_be_longer_than_a_line_and_is_not_cut() -> None:
    path = "/" + "x" * 100 + "/run.json"
    assert path in lines_of(pair(100.0, 100.0), saved=path)


def test_escape_sequences_in_error_messages_and_names_are_spelled_out() -> None:
    text = flowing(lines_of(named(pair(100.0, 108.0), HOSTILE)))
    assert r"E: NVIDIA \x1b[31mH200 FAIL \u202egnp\x9b2J\x07" in text
    assert text.count(r"\x1b[31m") >= 8


UNITS = {
    *("%", "ms", "s", "us", "MHz", "W", "C", "x", "k", "samples/s", "GB/s", "TFLOP/s", "GiB", "MiB", "GB", "bytes"),
    *("blocks", "steps", "ranks", "rank", "phase", "needed", "NVLinks", "other"),
}
NAMES = {
    *("gpubalance", "torch", "CUDA", "NCCL", "driver", "rank", "signal", "with", "batch", "=", "x"),
    *("balance", "persistent", "transient", "time", "utilization", "memory", "interval", "to", "CPU", "core"),
}
"""Words before a number that say what it is: a version, an index, a score from 0 to 100, an exit code."""
JOINS = {"to", "of", "from"}
"""Between two numbers of one unit."""


def bare_numbers(text: str) -> list[str]:
    """Numbers of a text that no unit follows and no name precedes."""
    words = [word.strip("(),;.:") for word in text.split()]
    found = []
    for place, word in enumerate(words):
        if not re.fullmatch(r"-?\d+(\.\d+)?", word):
            continue
        before, after = words[place - 1] if place else "", words[place + 1] if place + 1 < len(words) else ""
        if after in JOINS and place + 2 < len(words) and re.fullmatch(r"\d+(\.\d+)?", words[place + 2]):
            continue
        if after not in UNITS and before not in NAMES:
            found.append(f"{before} {word} {after}")
    return found


def test_a_number_without_a_unit_would_be_found() -> None:
    assert bare_numbers("clock 1462 of 1755 MHz, power 600") == ["power 600 "]
    assert bare_numbers("lost 3 of 12 ms") == []


@pytest.mark.parametrize("name", KEPT)
def test_every_number_in_a_sentence_has_a_unit_or_a_name(name: str) -> None:
    for part in sections(kept(name)):
        table = any(
            line.split()[:2] in (["rank", "compute"], ["collective", "ranks"], ["copies", "memory"]) for line in part
        )
        sentences = [line for line in part if not re.match(r"rank \d+ is cuda", line)] if not table else []
        assert bare_numbers(flowing(sentences)) == []
