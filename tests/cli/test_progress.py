"""Progress on stderr: plain lines for files, a live line for eyes, and never in the way of a measurement."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable

import pytest

from gpubalance.cli.progress import LABELS, StderrDisplay
from gpubalance.settings import WORKLOADS
from gpubalance.testing.runs import make_gpu, make_node, make_run


class Stderr:
    """A standard error of this kind, and what was written to it."""

    def __init__(self, encoding: str, terminal: bool) -> None:
        self.bytes = io.BytesIO()
        self.stream = io.TextIOWrapper(self.bytes, encoding=encoding, errors="strict")
        self.stream.isatty = lambda: terminal  # type: ignore[method-assign]

    @property
    def text(self) -> str:
        return self.bytes.getvalue().decode(self.stream.encoding)


Open = Callable[..., Stderr]


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch) -> Open:
    """Put such a standard error in place."""

    def put(encoding: str = "utf-8", *, terminal: bool = False) -> Stderr:
        fake = Stderr(encoding, terminal)
        monkeypatch.setattr(sys, "stderr", fake.stream)
        return fake

    return put


def show_all(display: StderrDisplay) -> None:
    """A run from beginning to end."""
    run = make_run([])
    display.plan(run.plan, run.node)
    display.phase("solo", 0)
    display.advance(1)
    display.phase("ddp", 0)
    for blocks in (1, 2, 24):
        display.advance(blocks)
    display.say("somebody seems slow")
    display.phase("ddp", 1)
    display.close()


def without_times(text: str) -> str:
    return re.sub(r"\[ *\d+\.\d s\]", "[t]", text)


def test_off_a_terminal_there_is_a_line_a_phase_and_no_escape_code(stderr: Open) -> None:
    shown = stderr()
    show_all(StderrDisplay())
    lines = without_times(shown.text).splitlines()
    assert lines[0].startswith("2 x NVIDIA H200 (18 NVLinks)   torch not found")
    assert lines[2:] == [
        "[t] each device alone",
        "[t] DDP, fenced and overlapped",
        "somebody seems slow",
        "[t] DDP, fenced and overlapped (again)",
    ]
    assert "\x1b" not in shown.text
    assert "\r" not in shown.text


def test_on_a_terminal_blocks_are_counted_on_the_line_of_their_phase(stderr: Open) -> None:
    shown = stderr(terminal=True)
    show_all(StderrDisplay())
    phase = "[t] DDP, fenced and overlapped"
    assert f"\n{phase}\r{phase}, 1 blocks\r{phase}, 2 blocks\r{phase}, 24 blocks\nsomebody seems slow\n" in (
        without_times(shown.text)
    )
    assert "\x1b" not in shown.text


def test_a_line_that_is_open_is_ended_once(stderr: Open) -> None:
    shown = stderr(terminal=True)
    display = StderrDisplay()
    display.phase("ddp", 0)
    display.close()
    display.close()
    assert without_times(shown.text) == "[t] DDP, fenced and overlapped\n"


def test_closing_where_nothing_is_open_writes_nothing(stderr: Open) -> None:
    shown = stderr(terminal=True)
    StderrDisplay().close()
    assert shown.text == ""


def test_every_line_is_out_at_once(stderr: Open) -> None:
    shown = stderr()
    StderrDisplay().say("looking at the node")
    assert shown.text == "looking at the node\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_encoding_will_do(stderr: Open, encoding: str) -> None:
    shown = stderr(encoding)
    StderrDisplay().say("NVIDIA 超 Über")
    assert shown.text.startswith("NVIDIA ")
    assert shown.text.endswith("ber\n")


def test_names_are_shown_and_never_obeyed(stderr: Open) -> None:
    shown = stderr()
    device = make_gpu(0).model_copy(update={"name": "\x1b[2J\rPASS\n"})
    plan = make_run([], ranks=1).plan.model_copy(update={"devices": [device]})
    display = StderrDisplay()
    display.plan(plan, make_node([device]))
    display.phase("\x1b[2J", 0)
    assert shown.text.startswith(r"1 x \x1b[2J PASS ")
    assert "\x1b" not in shown.text
    assert "\r" not in shown.text


class Gone(io.StringIO):
    """A stream whose reader has left."""

    def write(self, _: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


@pytest.mark.parametrize("stream", [Gone(), None], ids=["broken", "closed"])
def test_a_reader_that_left_does_not_end_the_measurement(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stream: Gone | None
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    show_all(StderrDisplay())
    assert capsys.readouterr().out == ""


def test_every_workload_has_words_for_it() -> None:
    assert set(LABELS) == {"join", "passes", "nccl_log", "touch", *WORKLOADS}


def test_a_phase_without_words_goes_by_its_name(stderr: Open) -> None:
    shown = stderr()
    StderrDisplay().phase("unheard", 0)
    assert without_times(shown.text) == "[t] unheard\n"
