"""Lines of a log without what others put before, between and into them: launchers' tags, times, NCCL's own messages."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from gpubalance.errors import UsageError

LONGEST_LINE = 4096
"""Characters; no line of a table comes near, and longer ones are passed over."""

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PREFIXES = tuple(map(re.compile, (
    r"\s*\[[^\]\s]*\d+,\d+\]<std\w+>:? ?",  # mpirun --tag-output
    r"\s*\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?:?(?: |$)",  # kubectl
    r"\s*\w{3} \w{3} +\d+ \d\d:\d\d:\d\d \d{4}(?= |<|\[|$)",  # mpirun --timestamp-output
    r"<std\w+>:? ?",
    r" *\d+: ?(?=\D|\s|$)",  # srun --label
    r"(?:[A-Za-z][\w.-]*|\d{1,3}(?:\.\d{1,3}){3}): (?= *#| +\d)",  # pdsh, clush
    r"\s*\[\d+\] ?(?=[#\s]|$)",  # mpiexec -l of Hydra, -prepend-rank
    r"[A-Za-z][\w.-]* \d+: (?= *#| +\d)",  # PALS, aprun
    r"[\w.-]+ +\| ?",  # docker compose
    r"\[(?:pod|container)/[^\]\s]+\] ?",  # kubectl logs --prefix
)))  # fmt: skip
_STAMPED = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?\] "
_NCCL = re.compile(rf"(?:{_STAMPED})?[A-Za-z][\w.-]{{0,255}}:\d+:\d+ \[-?\d+\] .*")
_UNKNOWN_HOST = re.compile(r"\S*:\d+:\d+ \[-?\d+\] .*")
_ON_HOST = re.compile(r"#\s*Rank\s+\d+\s.*\sPid\s+\d+\s+on\s+(\S+)\s+device\s")
_NCCL_WORDS = ("NCCL INFO", "NCCL WARN", "NCCL TRACE")


def text_of(name: str, data: bytes) -> str:
    """The text of a log; bytes that are no text become marks. Raises UsageError for what is no text at all."""
    if data[:2] == b"\x1f\x8b":
        raise UsageError(f"{name} is compressed", "unpack it first: gunzip")
    if b"\0" in data:
        raise UsageError(f"{name} is no text: it holds NUL bytes")
    return data.decode("utf-8", "replace")


def bare_lines(text: str) -> Iterator[tuple[int, str]]:
    """Number and text of each line, prefixes and debug messages taken off. Empty lines are kept: they end tables."""
    hosts = frozenset(_ON_HOST.findall(text))
    for number, line in enumerate(re.split(r"\r\n|\n|\r", text), start=1):
        if len(line) <= LONGEST_LINE:
            yield number, bare(line, hosts)


def bare(line: str, hosts: Collection[str] = ()) -> str:
    """One line, likewise. A debug message may begin in the middle of a row, and leaves its beginning. Where the name of
    its host begins with a digit, `hosts` tell it from the number before it; where they do not, the number goes too.
    """
    if "\x1b" in line:
        line = _ESCAPE.sub("", line)
    again = True
    while again:
        again = False
        for prefix in _PREFIXES:
            match = prefix.match(line)
            if match is not None and match.end() > 0:
                line, again = line[match.end() :], True
    if any(words in line for words in _NCCL_WORDS):
        line = _without_message(line, hosts)
    return line.rstrip()


def _without_message(line: str, hosts: Collection[str]) -> str:
    for host in sorted(hosts, key=len, reverse=True):
        begun = re.search(rf"(?:{_STAMPED})?{re.escape(host)}:\d+:\d+ \[-?\d+\] ", line)
        if begun is not None:
            return line[: begun.start()]
    found, sure = _NCCL.search(line), hosts and not any(host[0].isdecimal() for host in hosts)
    if found is not None and line[: found.start()][-1:].isdecimal() and not sure:
        return _UNKNOWN_HOST.sub("", line)
    return _NCCL.sub("", line)
