"""Which tool wrote a file, by what is in it and never by its name."""

from __future__ import annotations

import re
from typing import Any

from gpubalance.errors import UsageError
from gpubalance.readers.lines import text_of
from gpubalance.readers.nccl_tests import read_nccl_tests
from gpubalance.readers.nccl_tests_json import read_nccl_tests_json
from gpubalance.readers.nvbandwidth import read_nvbandwidth, read_nvbandwidth_json
from gpubalance.record.foreign import Foreign
from gpubalance.record.untrusted import json_object

_OBJECT = re.compile(rb"^[ \t]*\{", re.MULTILINE)
_NVBANDWIDTH = re.compile(
    r"nvbandwidth Version:|^\s*memcpy .*\bbandwidth \(GB/s\)|Running \w+_(?:ce|sm)\.", re.MULTILINE
)
_NCCL_TESTS = re.compile(
    r"# *nccl-tests version |# *nThreads?\b|#\s*size\s+count\s+type\b|\w_perf\b|# Avg bus bandwidth"
)


def read_foreign(name: str, data: bytes) -> Foreign | None:
    """What another tool measured; None for a file that may be a record of ours.

    Raises UsageError when the file is a result of neither, or holds none.
    """
    document = _document(name, data)
    if document is not None:
        return _from_json(name, document)
    if _is_json(data):
        return None
    text = text_of(name, data)
    if not text.strip():
        raise UsageError(f"{name} is empty")
    if _NVBANDWIDTH.search(text) is not None:
        return read_nvbandwidth(name, data)
    if _NCCL_TESTS.search(text) is not None:
        return read_nccl_tests(name, data)
    raise UsageError(f"{name} is neither a gpubalance run nor a log of nccl-tests or nvbandwidth")


def _is_json(data: bytes) -> bool:
    return data.lstrip()[:1] in (b"{", b"[")


def _document(name: str, data: bytes) -> dict[str, Any] | None:
    """The JSON object of one of these tools, with any text before and behind it."""
    if not (b'"nvbandwidth"' in data or (b'"results"' in data and b'"nccl_version"' in data)):
        return None
    begin, end = _OBJECT.search(data), data.rfind(b"}")
    if begin is None or b'"schema_version"' in data[begin.start() : begin.start() + 200]:
        return None
    if end < begin.start():
        raise UsageError(f"{name} is cut short: its JSON does not end", "let the test run to its end")
    return json_object(name, data[begin.start() : end + 1])


def _from_json(name: str, document: dict[str, Any]) -> Foreign | None:
    if "nvbandwidth" in document:
        return read_nvbandwidth_json(name, document)
    if "results" in document and "nccl_version" in document:
        return read_nccl_tests_json(name, document)
    return None
