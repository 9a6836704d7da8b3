"""What the user asked for: each spelling, each mistake."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.errors import ExitCode, UsageError
from gpubalance.settings import (
    CPU_MARGIN,
    GPU_MARGIN,
    MODELS,
    WORKLOADS,
    BenchSettings,
    Margin,
    parse_collectives,
    parse_duration,
    parse_list,
    parse_margin,
)

# Durations, margins, lists


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("5m", 300), ("1h", 3600), ("1.5h", 5400), ("0.5s", 0.5), (" 60s ", 60), ("0", 0)],
)
def test_durations_are_read_as_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-5s", "5 m", "5d", "1h30m", "1e3", ".5s", "5.", "nan", "inf", "5M"])
def test_what_is_no_duration_is_named_and_a_right_one_shown(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration") as raised:
        parse_duration(text)
    assert repr(text) in raised.value.message
    assert raised.value.next_step == "for example: 90s, 5m, 1h"


@pytest.mark.parametrize(
    ("text", "margin"), [("5:10", Margin(0.05, 0.10)), ("2.5:7.5", Margin(0.025, 0.075)), ("25:50", Margin(0.25, 0.5))]
)
def test_margins_are_read_as_percent(text: str, margin: Margin) -> None:
    assert parse_margin(text) == margin


@pytest.mark.parametrize("text", ["", "5", "5:", ":10", "5:10:15", "five:ten", "5%:10%", "5,10"])
def test_what_is_no_margin_is_named_and_a_right_one_shown(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_margin(text)
    assert repr(text) in raised.value.message
    assert raised.value.next_step == "for example: --margin 5:10"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("10:5", "10 %:5 %"),
        ("5:5", "5 %:5 %"),
        ("0:10", "0 %:10 %"),
        ("-5:10", "-5 %:10 %"),
        ("2.5:2.4", "2.5 %:2.4 %"),
        ("5:nan", "5 %:nan %"),
        ("nan:10", "nan %:10 %"),
        ("5:inf", "5 %:inf %"),
    ],
)
def test_margins_must_rise_from_above_zero(text: str, shown: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_margin(text)
    assert f"margin {shown}:" in raised.value.message


def test_the_margins_of_the_cpu_are_wider() -> None:
    assert (Margin(0.05, 0.10), Margin(0.25, 0.50)) == (GPU_MARGIN, CPU_MARGIN)


@pytest.mark.parametrize(
    ("text", "entries"), [("a", ("a",)), ("a,b", ("a", "b")), (" a , b c ", ("a", "b c")), ("0,2", ("0", "2"))]
)
def test_lists_are_split_at_commas(text: str, entries: tuple[str, ...]) -> None:
    assert parse_list(text) == entries


@pytest.mark.parametrize("text", ["", " ", "a,", ",a", "a,,b", "a, ,b"])
def test_a_list_with_an_empty_entry_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="empty entry") as raised:
        parse_list(text)
    assert repr(text) in raised.value.message


# Settings of bench


def test_nothing_needs_to_be_asked_for() -> None:
    wanted = BenchSettings()
    assert (wanted.nproc, wanted.workloads, wanted.margin, wanted.inject) == (None, None, None, ())
    assert (wanted.device, wanted.model, wanted.launcher, wanted.fail_on) == ("auto", "mlp", "auto", "fail")


@pytest.mark.parametrize(
    "values",
    [
        {"nproc": 1, "batch": 1, "budget_s": 0.1, "stall_s": 0.1},
        {"device": "cpu", "model": "transformer", "launcher": "env", "fail_on": "never"},
        {"device": "cuda", "launcher": "none", "fail_on": "warn"},
        {"workloads": WORKLOADS},
        {"sample_interval_s": 0.05},
        {"min_score": 0.0},
    ],
)
def test_whatever_makes_sense_can_be_asked_for(values: dict[str, Any]) -> None:
    wanted = BenchSettings(**values)
    assert {name: getattr(wanted, name) for name in values} == values


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("nproc", 0, "nproc must be above 0 and finite, not 0"),
        ("nproc", -2, "nproc must be above 0 and finite, not -2"),
        ("batch", 0, "batch must be above 0 and finite, not 0"),
        ("budget_s", 0.0, "budget must be above 0 and finite, not 0"),
        ("budget_s", float("nan"), "budget must be above 0 and finite, not nan"),
        ("stall_s", 0.0, "stall timeout must be above 0 and finite, not 0"),
    ],
)
def test_amounts_must_be_above_zero(name: str, value: float, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        BenchSettings(**{name: value})
    assert raised.value.message == message


@pytest.mark.parametrize(
    ("values", "shown", "choices"),
    [
        ({"device": "tpu"}, "device 'tpu'", ("auto", "cuda", "cpu")),
        ({"model": "resnet"}, "model 'resnet'", MODELS),
        ({"launcher": "slurm"}, "launcher 'slurm'", ("auto", "env", "none")),
        ({"fail_on": "always"}, "fail-on 'always'", ("fail", "warn", "never")),
        ({"workloads": ("ddp", "link")}, "workload 'link'", WORKLOADS),
    ],
)
def test_an_unknown_word_is_named_and_the_known_ones_listed(
    values: dict[str, Any], shown: str, choices: tuple[str, ...]
) -> None:
    with pytest.raises(UsageError) as raised:
        BenchSettings(**values)
    assert shown in raised.value.message
    assert raised.value.next_step == f"choose from: {', '.join(choices)}"


@pytest.mark.parametrize("interval", [0.049, 0.0, -1.0, float("nan")])
def test_sampling_faster_than_20_hz_is_refused_with_the_reason(interval: float) -> None:
    with pytest.raises(UsageError) as raised:
        BenchSettings(sample_interval_s=interval)
    assert "0.05 s" in raised.value.message
    assert raised.value.next_step is not None


def test_a_wrong_request_is_exit_code_two() -> None:
    with pytest.raises(UsageError) as raised:
        BenchSettings(nproc=0)
    assert raised.value.exit_code == ExitCode.USAGE == 2


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("all_reduce", ("all_reduce",)),
        ("alltoall,sendrecv", ("all_to_all", "send_recv")),
        ("send_recv, sendrecv,BROADCAST", ("send_recv", "broadcast")),
    ],
)
def test_collectives_are_known_by_both_spellings(text: str, names: tuple[str, ...]) -> None:
    assert parse_collectives(text) == names


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"collectives": ("gather",)}, "collective 'gather' is not known"),
        ({"dtype": "float64"}, "dtype 'float64' is not known"),
        ({"sizes": (8,), "workloads": ("ddp",)}, "--sizes is about collectives, which --workload leaves out"),
        ({"jitter": True, "workloads": ("ddp",)}, "--jitter is about collectives, which --workload leaves out"),
        ({"dtype": "float16", "workloads": ("ddp",)}, "--dtype is about collectives, which --workload leaves out"),
    ],
)
def test_collectives_that_cannot_be_measured_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        BenchSettings(**values)
    assert refused.value.message == message
    assert refused.value.next_step
