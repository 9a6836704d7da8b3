"""Reads what nvbandwidth prints, plain or with -j. Matrices in GB/s only; latencies are left out.

NVIDIA/nvbandwidth, output.cpp, inline_common.h and json_output.cpp. Its JSON holds cells as text, and puts the three
matrices of a bidirectional test below each other in one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gpubalance.errors import UsageError
from gpubalance.readers.lines import bare_lines, text_of
from gpubalance.readers.numbers import is_number, measured
from gpubalance.record.foreign import CopyMatrix, Foreign, TheirDevice

UNIT = "(GB/s)"
MOST_CELLS = 1_000_000
UNFINISHED = ("Error", "Running")
"""States of a test that has no result, in the JSON (json_output.cpp)."""

_RUNNING = re.compile(r"Running (\w+)\.?$")
_DEVICE = re.compile(r"(?:Device )?(\d{1,6}): (.*?)\s*\(([0-9a-fA-F]{1,8}:[0-9a-fA-F]{1,2}:[0-9a-fA-F]{1,2})\)")
_TROUBLE = re.compile(r"ERROR|Error|\[ERROR|\[CUDA_ERROR|\[cuda|ASSERT in expression|NVML_ERROR|\[NVML")
"""How error_handling.h begins what it prints before the program ends."""
_ANSWER = re.compile(r"SUM |Waived|.*\blatency\b|Not Found")
_TITLE = re.compile(r"(?:memcpy|multinode|memory)\b.*\bbandwidth " + re.escape(UNIT))
_VERSION = re.compile(r"nvbandwidth Version: v?(\S+)")
_DRIVER = re.compile(r"Driver Version: (\d[\w.]*)$")

Cells = tuple[tuple[float | None, ...], ...]


def read_nvbandwidth(name: str, data: bytes) -> Foreign:
    """All matrices of the plain text. One that broke off is left out, and said.

    Raises UsageError when there is none, or for a number that nothing measures.
    """
    reader = _Reader(name)
    for _, line in bare_lines(text_of(name, data)):
        reader.take(line)
    reader.end()
    reader.finish()
    return _checked(
        name,
        Foreign(
            "nvbandwidth",
            copies=tuple(reader.copies),
            devices=tuple(reader.devices),
            version=reader.version,
            driver_version=reader.driver,
            complete=reader.complete,
            remarks=tuple(reader.remarks),
        ),
    )


def read_nvbandwidth_json(name: str, document: dict[str, Any]) -> Foreign:
    """All matrices of the JSON. Raises UsageError likewise."""
    root = document.get("nvbandwidth")
    if not isinstance(root, dict):
        raise UsageError(f"{name}: nvbandwidth has a form that it does not write")
    tests, listed = root.get("testcases") or [], root.get("GPU Device list") or []
    if not isinstance(tests, list) or not isinstance(listed, list):
        raise UsageError(f"{name}: testcases have a form that nvbandwidth does not write")
    devices = [match for entry in listed if (match := _DEVICE.match(str(entry))) is not None]
    remarks = [str(root[key])[:200] for key in ("error", "warning") if root.get(key)]
    failed = [test for test in tests if isinstance(test, dict) and test.get("status") in UNFINISHED]
    remarks += [f"{test.get('name')}: {test.get('error') or test['status']}"[:200] for test in failed]
    version = root.get("version")
    return _checked(
        name,
        Foreign(
            "nvbandwidth",
            copies=tuple(copy for test in tests if (copy := _copy(name, test)) is not None),
            devices=tuple(TheirDevice(match[2], match[3]) for match in devices),
            version=str(version).removeprefix("v") if version else None,
            driver_version=str(root["Driver Version"]) if root.get("Driver Version") else None,
            complete=not (failed or root.get("error")),
            remarks=tuple(remarks),
        ),
    )


def _checked(name: str, found: Foreign) -> Foreign:
    if not found.copies:
        told = f": it says {found.remarks[0]!r}" if found.remarks else ""
        raise UsageError(f"{name}: no result in the output of nvbandwidth{told}", "let it run to its end")
    return found


def _copy(name: str, test: Any) -> CopyMatrix | None:
    if not isinstance(test, dict):
        raise UsageError(f"{name}: testcases have a form that nvbandwidth does not write")
    key, description, matrix = (
        str(test.get("name")),
        str(test.get("bandwidth_description")),
        test.get("bandwidth_matrix"),
    )
    if matrix is None or UNIT not in description:
        return None
    where = f"{name}: {key}"
    if not isinstance(matrix, list) or not all(isinstance(row, list) and row for row in matrix):
        raise UsageError(f"{where} has a form that nvbandwidth does not write")
    widest = max(map(len, matrix), default=0)
    last = (
        matrix[-widest:] if len(matrix) > widest else matrix
    )  # of three matrices below each other the last is the total
    return CopyMatrix(key, description, _cells(where, last, key))


def _cells(where: str, rows: Sequence[Sequence[object]], test: str) -> Cells:
    """Numbers; from a device to itself nothing is copied, which older versions print as 0.00."""
    if not rows or sum(map(len, rows)) > MOST_CELLS or len({len(row) for row in rows}) != 1:
        raise UsageError(f"{where}: rows of different lengths, or too many")
    pairs = test.startswith("device_to_device")
    return tuple(
        tuple(
            None if cell == "N/A" or (pairs and row == column) else measured(cell, where)
            for column, cell in enumerate(cells)
        )
        for row, cells in enumerate(rows)
    )


class _Reader:
    """Line by line: a test, its title, a line of column numbers, rows, an empty line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.copies: list[CopyMatrix] = []
        self.devices: list[TheirDevice] = []
        self.remarks: list[str] = []
        self.version: str | None = None
        self.driver: str | None = None
        self.test = ""
        self.title: str | None = None
        self.width = 0
        self.rows: list[list[str]] = []
        self.complete = True
        self.unanswered = False
        """A test runs and nothing was said of it yet."""

    def take(self, line: str) -> None:
        """One line without its prefixes."""
        text = line.strip()
        if self.title is not None and self._row(text):
            return
        running = _RUNNING.match(text)
        if running is not None:
            self.finish()
            self.test, self.unanswered = running[1], True
        elif _TITLE.match(text) is not None:
            self.end()
            self.title, self.unanswered = text, False
        elif _TROUBLE.match(text) is not None:
            self.remarks.append(f"{self.test}: {text}"[:200])
            self.complete = self.unanswered = False
        elif _ANSWER.match(text) is not None:
            self.remarks += [f"{self.test}: {text}"[:200]] * text.startswith("Waived")
            self.unanswered = False
        else:
            self._about(text)

    def finish(self) -> None:
        """The text is over, or the next test begins: one that ran must have said something."""
        if self.unanswered:
            self.remarks.append(f"{self.test} has no result")
            self.complete = self.unanswered = False

    def _row(self, text: str) -> bool:
        words = text.split()
        if not words:
            if self.rows:
                self.end()
            return True
        if not all(map(is_number, words)):
            return False
        if not self.width:
            self.width = len(words)
        elif len(words) == self.width + 1:
            self.rows.append(words[1:])
            if len(self.rows) * self.width > MOST_CELLS:
                raise UsageError(f"{self.name}: {self.test} has more cells than any node")
        return True

    def end(self) -> None:
        """The matrix is over: complete when it has as many rows as its kind needs."""
        if self.title is not None:
            where = f"{self.name}: {self.test or self.title}"
            needed = self.width if self.test.startswith("device_to_device") else 1
            if self.rows and len(self.rows) >= needed:
                self.copies.append(CopyMatrix(self.test, self.title, _cells(where, self.rows, self.test)))
            else:
                self.remarks.append(f"{self.test or self.title} breaks off: left out")
                self.complete = False
        self.title, self.width, self.rows = None, 0, []

    def _about(self, text: str) -> None:
        version, driver, device = _VERSION.match(text), _DRIVER.match(text), _DEVICE.match(text)
        if version is not None:
            self.version = version[1]
        elif driver is not None:
            self.driver = driver[1]
        elif device is not None and text.startswith("Device "):
            self.devices.append(TheirDevice(device[2], device[3]))
