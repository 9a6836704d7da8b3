"""Files that nobody of us wrote: each is read as what it says, or refused in one sentence, and never hangs anything."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpubalance.checks.verdict import judge
from gpubalance.cli import entry
from gpubalance.errors import UsageError
from gpubalance.record import untrusted
from gpubalance.record.file import load_record
from gpubalance.reports.document import document_text
from gpubalance.testing.runs import make_attempt, make_run, make_solo, steady
from tests.reports.helpers import HOSTILE, KEPT, named, pair
from tests.support import ROOT, command_environment, run_cli

PROBES = {path.stem: path for path in sorted((ROOT / "examples/probes").glob("*.json"))}
RUN = make_run([make_attempt(steady([100.0, 100.0], blocks=2))], solo=[make_solo(0, 90.0), make_solo(1, 90.0)])
TEXT = document_text(RUN, judge(RUN))

Streams = pytest.CaptureFixture[str]


def refusal(path: Path) -> str:
    """Why the file is refused, without its name: one sentence."""
    with pytest.raises(UsageError) as raised:
        load_record(path)
    message = raised.value.message
    assert "\n" not in message
    assert len(message) < 300 + len(str(path))
    return message.removeprefix(f"{path} ")


CONTENTS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "is not JSON: "),
    "half of it": (TEXT.encode()[: len(TEXT) // 2], "is not JSON: "),
    "all but the end": (TEXT.encode().rstrip()[:-1], "is not JSON: "),
    "twice": (TEXT.encode() * 2, "is not JSON: "),
    "no JSON": (b"FAIL\n", "is not JSON: "),
    "a NUL": (b"\x00", "is not JSON: "),
    "a NUL within": (TEXT.replace("node", "no\x00de").encode(), "is not JSON: "),
    "zeros, as after a crash": (b"\x00" * 4096, "is not JSON: "),
    "UTF-16": (TEXT.encode("utf-16"), "is not JSON: "),
    "Latin-1": ('{"schema_version": 1, "run": "\u00fc"}'.encode("latin-1"), "is not JSON: "),
    "a mark of byte order": (b"\xef\xbb\xbf" + TEXT.encode(), "is not JSON: "),
    "deep lists": (b"[" * 200_000, "is not JSON: "),
    "deep objects": (b'{"a":' * 200_000, "is not JSON: "),
    "deep within": (TEXT.replace('"run":{', '"run":' + "[" * 200_000, 1).encode(), "is not JSON: "),
    "a long number": (
        b'{"schema_version": ' + b"9" * 10_000 + b"}", f"is not JSON: {'9' * 40}... is a number of 10000 characters",
    ),
    "a long fraction": (b'{"schema_version": 0.' + b"9" * 10_000 + b"}", "is not a gpubalance run: it has no"),
    "beyond 64 bits": (
        TEXT.replace('"attempt":0', '"attempt":18446744073709551616').encode(), "is damaged: 1.84467e+19 is no number",
    ),
    "below 64 bits": (
        TEXT.replace('"attempt":0', '"attempt":-9223372036854775809').encode(), "is damaged: -9.22337e+18 is no number",
    ),
    "a schema of 64 bits": (b'{"schema_version": 18446744073709551615}', "has schema 18446744073709551615, this"),
    "a huge number": (
        TEXT.replace('"duration_s":30.0', '"duration_s":1e101').encode(), "is damaged: 1e+101 is no number",
    ),
    "a tiny number": (
        TEXT.replace('"duration_s":30.0', '"duration_s":-5e-324').encode(), "is damaged: -4.94066e-324 is no number",
    ),
    "infinity": (TEXT.replace('"duration_s":30.0', '"duration_s":1e999').encode(), "is damaged: run.duration_s: Input"),
    "NaN": (TEXT.replace('"duration_s":30.0', '"duration_s":NaN').encode(), "is not JSON: NaN is no number"),
    "a key twice": (b'{"schema_version": 1, "schema_version": 1}', "is not JSON: key 'schema_version' stands twice"),
    "null": (b"null", "is not a gpubalance run"),
    "a list": (b"[]", "is not a gpubalance run"),
    "of somebody else": (b'{"version": 1, "results": []}', "is not a gpubalance run: it has no schema_version"),
    "a schema in words": (b'{"schema_version": "1"}', "is not a gpubalance run: it has no schema_version"),
    "a newer schema": (TEXT.replace('"schema_version":1', '"schema_version":2', 1).encode(), "has schema 2, this"),
    "two schemas": (TEXT.replace('"run":{"schema_version":1', '"run":{"schema_version":0').encode(),
                    "is damaged: it says schema 1 and 0"),
    "no run": (b'{"schema_version": 1}', "is damaged: run: Input should be"),
    "a run in words": (b'{"schema_version": 1, "run": "well"}', "is damaged: run: Input should be"),
    "a probe in words": (b'{"schema_version": 1, "probe": []}', "is damaged: probe: Input should be"),
    "a hostile key": (TEXT.replace('"run":{', '"run":{"\\u001b[31m\\nx":1,', 1).encode(), "is damaged: run."),
}  # fmt: skip


@pytest.mark.parametrize(("content", "words"), CONTENTS.values(), ids=CONTENTS.keys())
def test_content_that_is_no_record_is_refused_in_one_sentence(
    tmp_path: Path, capsys: Streams, content: bytes, words: str
) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        load_record(path)
    assert raised.value.message.startswith(f"{path} {words}")
    assert entry.run(["report", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"gpubalance: {path} {words}")
    assert all(line.isprintable() for line in err.splitlines())
    assert len(err.splitlines()) <= 2


@pytest.mark.parametrize(
    "command",
    [["report", "BAD"], ["report", "BAD", "--to", "json"], ["compare", "BAD", "GOOD"], ["compare", "GOOD", "BAD"]],
)
def test_every_command_that_reads_a_record_refuses_what_is_none(tmp_path: Path, command: list[str]) -> None:
    bad = tmp_path / "bad.json"
    bad.write_bytes(b"\x00" * 100)
    files = {"BAD": str(bad), "GOOD": str(KEPT["h200x2-healthy"])}
    assert entry.run([files.get(word, word) for word in command]) == 2


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted, "PIPE_LIMIT_S", 0.05)


@pytest.mark.usefixtures("_impatient")
def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert refusal(pipe) == "said nothing for 0.05 s"
    (tmp_path / "link").symlink_to(pipe)
    assert refusal(tmp_path / "link") == "said nothing for 0.05 s"


@pytest.mark.usefixtures("_impatient")
def test_a_pipe_whose_writer_says_nothing_is_not_waited_for(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    try:
        assert refusal(Path(f"/dev/fd/{reader}")) == "said nothing for 0.05 s"
        os.write(writer, TEXT.encode()[:100])
        assert refusal(Path(f"/dev/fd/{reader}")) == "said nothing for 0.05 s"
    finally:
        os.close(reader)
        os.close(writer)


def test_what_a_shell_puts_in_the_place_of_a_file_is_read() -> None:
    reader, writer = os.pipe()

    def feed() -> None:
        with os.fdopen(writer, "w") as pipe:
            pipe.write(TEXT)

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        assert load_record(Path(f"/dev/fd/{reader}")) == RUN
    finally:
        feeder.join()
        os.close(reader)


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("/dev/null", "is not JSON: "),
        (".", "cannot be read: Is a directory"),
        ("/proc/self/mem", "cannot be read: Input/output error"),
        ("a\0b", "cannot be read: its name holds a NUL"),
        ("x" * 300, "cannot be read: File name too long"),
        ("", "cannot be read: Is a directory"),
    ],
)
def test_places_that_hold_no_record(tmp_path: Path, place: str, words: str) -> None:
    path = tmp_path / place
    with pytest.raises(UsageError) as raised:
        load_record(path)
    assert raised.value.message.startswith(f"{path} {words}")


def test_a_device_without_end_is_left_after_the_limit() -> None:
    limit = 3 * 2**20
    with pytest.raises(UsageError, match=f"/dev/zero has more than {limit} bytes, no run is so large"):
        untrusted.read_bytes(Path("/dev/zero"), limit)


@pytest.mark.parametrize("size", [99, 100])
def test_as_many_bytes_as_the_limit_are_read(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * size)
    assert untrusted.read_bytes(path, 100) == b"x" * size


def test_one_byte_more_is_too_much(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 101)
    with pytest.raises(UsageError, match="has more than 100 bytes"):
        untrusted.read_bytes(path, 100)


@pytest.mark.parametrize("path", [KEPT["h200x2-slow"], PROBES["h200x2-load"]], ids=["run", "probe"])
def test_a_minus_is_standard_input(path: Path) -> None:
    piped = run_cli("report", "-", "--to", "json", input=path.read_text())
    assert piped.stdout == run_cli("report", str(path), "--to", "json").stdout
    assert piped.stderr == ""


def test_standard_input_without_a_record_is_called_by_its_name() -> None:
    done = run_cli("report", "-", input="")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gpubalance: standard input is not JSON: ")


def test_a_closed_standard_input_is_said_to_be_closed() -> None:
    code = (
        "import sys; from gpubalance.cli import entry; assert sys.stdin is None; sys.exit(entry.run(['report', '-']))"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" -c "$1" <&-', sys.executable, code],
        env=command_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 2
    assert done.stderr == "gpubalance: standard input is closed\n"


def document_of(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    return document


LOAD = document_of(PROBES["h200x2-load"])
Change = Callable[[Any], object]


@pytest.mark.parametrize(
    ("number", "strange"),
    [
        (2**64 - 1, False), (2**64, True), (-(2**63), False), (-(2**63) - 1, True), (True, False), (0, False),
        (9.9e99, False), (1.1e100, True), (-1.1e100, True), (1.1e-100, False), (9.9e-101, True), (0.0, False),
        (float("inf"), False),
    ],
)  # fmt: skip
def test_numbers_that_nothing_measures_are_found_wherever_they_stand(number: float, strange: bool) -> None:
    expected = number if strange else None
    assert untrusted.strange_number(number) == expected
    assert untrusted.strange_number({"a": [1, {"b": [2.5, number]}], "c": "1e999", "d": None}) == expected


RUN_PARTS: dict[str, tuple[Change, str]] = {
    "no blocks on one rank": (
        lambda r: r["ddp"][0]["ranks"][0].update(fenced=[]), "ddp.0: not as many blocks on every rank",
    ),
    "no steps in one block": (
        lambda r: r["ddp"][0]["ranks"][0]["fenced"][0].update(compute_ms=[], fence_ms=[], transfer_ms=[]),
        "ddp.0: not as many steps in every block",
    ),
    "no samples in a step": (
        lambda r: r["solo"][1].update(samples_per_step=0), "solo: samples_per_step is 0, it must be above 0",
    ),
    "no samples in a step of ddp": (
        lambda r: r["ddp"][0]["ranks"][1].update(samples_per_step=0),
        "ddp: samples_per_step is 0, it must be above 0",
    ),
    "a rank below 0": (lambda r: r["solo"][0].update(rank=-9), "solo names rank -9, the plan has 2"),
    "a rank of another run": (lambda r: r["ranks"][1].update(rank=2), "ranks names rank 2, the plan has 2"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "words"), RUN_PARTS.values(), ids=RUN_PARTS.keys())
def test_a_run_whose_parts_do_not_fit_is_damaged(tmp_path: Path, change: Change, words: str) -> None:
    document = json.loads(TEXT)
    change(document["run"])
    path = tmp_path / "run.json"
    path.write_text(json.dumps(document))
    assert refusal(path) == f"is damaged: {words}"


@pytest.mark.parametrize("where", ["run", "probe"])
def test_names_that_a_terminal_obeys_are_spelled_out_in_a_report(tmp_path: Path, capsys: Streams, where: str) -> None:
    path = tmp_path / "saved.json"
    if where == "run":
        run = named(pair(100.0, 108.0), HOSTILE)
        path.write_text(document_text(run, judge(run)))
    else:
        document = copy.deepcopy(LOAD)
        document["probe"]["node"].update(hostname=HOSTILE, container=HOSTILE, cpu_model=HOSTILE)
        document["probe"]["torch"].update(error=HOSTILE)
        for device in document["probe"]["node"]["devices"]:
            device.update(name=HOSTILE)
        path.write_text(json.dumps(document))
    entry.run(["report", str(path)])
    out, err = capsys.readouterr()
    assert r"\x1b[31mH200" in out
    assert all(line.isprintable() for line in out.splitlines())
    assert err == ""
