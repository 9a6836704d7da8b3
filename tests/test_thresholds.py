"""Thresholds by name: the table, how they are spelled, and what every mistake is answered with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.checks.probing.verdict import CHECKS
from gpubalance.errors import UsageError
from gpubalance.settings import BenchSettings, ProbeSettings, SelftestSettings
from gpubalance.thresholds import BY_NAME, THRESHOLDS, Gates, names_for, parse_thresholds, plain, spelled

DEFAULTS = {threshold.name: threshold.default for threshold in THRESHOLDS}
CPU_DEFAULTS = {threshold.name: threshold.default_on(on_cpu=True) for threshold in THRESHOLDS}


def refusal(*texts: str, command: str | None = None) -> tuple[str, str | None]:
    with pytest.raises(UsageError) as raised:
        parse_thresholds(texts, command)
    assert raised.value.message.isprintable()
    return raised.value.message, raised.value.next_step


def test_every_name_stands_once_for_a_command_and_a_check_that_exists() -> None:
    assert len(BY_NAME) == len(THRESHOLDS)
    ids = {check.id for check in CHECKS} | {"transient", "memory_skew", "level", "device_speed", "busbw", "jitter"}
    ids |= {"link", "link_limit", "host_link", "slowdown", "low_clock", "leaked_context"}
    for threshold in THRESHOLDS:
        assert set(threshold.check.split(", ")) <= ids
        assert set(threshold.commands) <= {"bench", "probe", "selftest"}
        assert threshold.name.endswith(("_warn", "_fail"))
    assert set(names_for("bench")) | set(names_for("probe")) == set(BY_NAME)


def test_gates_are_shares_bytes_or_the_number_itself() -> None:
    gates = Gates({"limit_warn": 70.0, "shm_warn": 512.0, "clock_warn": 20.0})
    assert (gates["limit_warn"], gates["shm_warn"], gates["clock_warn"]) == (0.7, 512 * 2**20, 20.0)
    assert (gates["limit_fail"], gates["hidden_memory_warn"], gates["clock_fail"]) == (0.5, 256 * 2**20, 75)


def test_the_cpu_has_gates_of_its_own_until_somebody_asks_for_others() -> None:
    assert Gates().pair("transient") == (0.03, 0.10)
    assert Gates(on_cpu=True).pair("transient") == (0.25, 0.50)
    assert Gates({"transient_warn": 30.0}, on_cpu=True).pair("transient") == (0.30, 0.50)


@pytest.mark.parametrize("defaults", [DEFAULTS, CPU_DEFAULTS], ids=["gpu", "cpu"])
def test_all_defaults_may_be_spelled(defaults: dict[str, float]) -> None:
    assert parse_thresholds(spelled(defaults)) == defaults


@given(st.dictionaries(st.sampled_from(sorted(BY_NAME)), st.floats(min_value=1e-6, max_value=100)))
def test_what_is_in_range_reads_back(asked: dict[str, float]) -> None:
    assert parse_thresholds(spelled(asked), alone=False) == asked


@pytest.mark.parametrize(
    ("text", "value"), [("limit_warn=70", 70.0), (" limit-warn = 70.5 ", 70.5), ("limit_warn=7e1", 70.0)]
)
def test_names_may_be_spelled_like_flags(text: str, value: float) -> None:
    assert parse_thresholds([text]) == {"limit_warn": value}


WRONG = {
    "limit_warn": ("threshold 'limit_warn' is not NAME=VALUE", "for example: --threshold limit_warn=70"),
    "=5": ("threshold '=5' is not NAME=VALUE", "for example: --threshold limit_warn=70"),
    "limit_wran=70": ("threshold 'limit_wran' is not known here", "did you mean limit_warn?"),
    "margin_warn=5": ("threshold 'margin_warn' is not known here", "the margin of bench is set by --margin 5:10"),
    "open_files_warn=9": ("threshold 'open_files_warn' is not known here", "it belongs to probe"),
    "limit_warn=much": (
        "threshold limit_warn: 'much' is not a number", "for example: --threshold limit_warn=70",
    ),
    "limit_warn=nan": ("threshold limit_warn must be above 0 and at most 100 %, not nan", "its default is 65"),
    "limit_warn=inf": ("threshold limit_warn must be above 0 and at most 100 %, not inf", "its default is 65"),
    "limit_warn=0": ("threshold limit_warn must be above 0 and at most 100 %, not 0", "its default is 65"),
    "limit_warn=100.1": ("threshold limit_warn must be above 0 and at most 100 %, not 100.1", "its default is 65"),
    "limit_warn=50": (
        "thresholds: limit_warn (50) must be above limit_fail (50)", "set both, NAME_warn and NAME_fail",
    ),
    "memory_skew_fail=20": (
        "thresholds: memory_skew_warn (20) must be below memory_skew_fail (20)", "set both, NAME_warn and NAME_fail",
    ),
    "transient_fail=15": (
        "thresholds: transient_warn (25) must be below transient_fail (15) on the CPU",
        "set both, NAME_warn and NAME_fail",
    ),
    "transient_warn=15": (
        "thresholds: transient_warn (15) must be below transient_fail (10) on GPUs",
        "set both, NAME_warn and NAME_fail",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "answer"), WRONG.items(), ids=WRONG.keys())
def test_a_mistake_is_named_and_what_to_do_about_it(text: str, answer: tuple[str, str]) -> None:
    assert refusal(text, command="bench") == answer
    with pytest.raises(UsageError):
        BenchSettings(thresholds=(text,))


@pytest.mark.parametrize(("text", "allowed"), [("sram_uncorrected_fail=0", True), ("sram_uncorrected_fail=-1", False),
                                               ("temperature_margin_fail=0", True), ("hardware_slowdown_warn=0", True),
                                               ("hardware_slowdown_warn=101", False), ("clock_fail=1e9", True),
                                               ("clock_fail=1.1e9", False)])  # fmt: skip
def test_the_ends_of_the_range(text: str, allowed: bool) -> None:
    if allowed:
        assert ProbeSettings(thresholds=(text,)).thresholds == (text,)
    else:
        assert "must be" in refusal(text)[0]


def test_a_selftest_takes_what_is_judged_in_a_pass_and_refuses_the_rest() -> None:
    assert set(names_for("selftest")) < set(names_for("bench"))
    assert SelftestSettings(thresholds=("leaked_context_warn=10",)).thresholds == ("leaked_context_warn=10",)
    assert refusal("busbw_warn=20", command="selftest")[1] == "it belongs to bench"


def test_both_gates_may_be_moved_past_the_defaults_together() -> None:
    assert parse_thresholds(["transient_fail=60", "transient_warn=55"]) == {"transient_fail": 60, "transient_warn": 55}


def test_a_name_is_given_once() -> None:
    assert refusal("clock_warn=20", "clock-warn=20")[0] == "threshold clock_warn is given twice"


def test_a_probe_refuses_what_only_bench_has() -> None:
    assert refusal("level_warn=20", command="probe")[1] == "it belongs to bench"
    with pytest.raises(UsageError):
        ProbeSettings(thresholds=("level_warn=20",))


@pytest.mark.parametrize(("value", "text"), [(10.0, "10"), (0.5, "0.5"), (20_000_000.0, "20000000"), (0, "0")])
def test_numbers_in_sentences_are_plain(value: float, text: str) -> None:
    assert plain(value) == text
