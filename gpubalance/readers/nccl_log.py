"""NCCL's own log: which way data goes between two ranks, and which algorithm and protocol a message gets. Pure.

The log is meant for people and changes between versions, so that every line is optional: what no line says is null, and
a line that is not understood is passed over. The forms are those of NCCL 2.18 to 2.30 (src/debug.cc, init.cc,
enqueue.cc, transport/):

    host:pid:tid [dev] NCCL INFO text
    [time] host:pid:tid [dev] file:line (function) NCCL WARN text
    Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM               also with [send] or [receive], and without /0
    AllReduce: 1048576 Bytes -> Algo Ring proto Simple channel{Lo..Hi}={0..31}
    1048576 Bytes -> Algo 1 proto 2 time 12.3               before 2.23: numbers, and no name

https://github.com/NVIDIA/nccl
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from gpubalance.record.collectives import SPLIT, CollectiveName
from gpubalance.record.timings import AlgorithmChoice, NcclFacts, Transport

LONGEST_LINE = 2000
"""NCCL cuts its own lines at 1024 characters."""
MOST_WARNINGS = 20
LONGEST_WARNING = 300

ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
"""In the order of NCCL's own numbers (NCCL_ALGO_*, NCCL_PROTO_*)."""

_NAMES: dict[str, CollectiveName] = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
}
TUNED = frozenset(_NAMES.values())
"""Collectives with an algorithm to choose; sends and receives have none."""

_MESSAGE = re.compile(r"NCCL (?P<level>INFO|WARN) (?P<text>.*)")
_CHANNEL = re.compile(
    r"Channel \d{1,4}(?:/\d{1,4})? : (\d{1,6})\[[0-9a-f]{1,16}\] -> (\d{1,6})\[[0-9a-f]{1,16}\] "
    r"(?:\[(?P<way>send|receive)\] )?via (?P<via>\S.*)"
)
_CHOICE = re.compile(
    r"(?:(?P<name>[A-Za-z]{1,40}): )?(?P<bytes>\d{1,18}) Bytes -> "
    r"Algo (?P<algorithm>\w{1,40}) proto (?P<protocol>\w{1,20})"
    r"(?: channel\{Lo\.\.Hi\}=\{(?P<low>\d{1,4})\.\.(?P<high>\d{1,4})\})?"
)
_CHANNELS = re.compile(
    r"(?P<coll>\d{1,5}) coll channels,(?: \d{1,5} collnet channels,)? "
    r"(?P<nvls>\d{1,5}) nvls channels, (?P<p2p>\d{1,5}) p2p"
)
_VERSION = re.compile(r"NCCL version (\d{1,4}(?:\.\d{1,4}){1,3})")
_NETWORK = re.compile(r"(?:NCCL INFO )Using network (\S.{0,60})")
_NVLS = re.compile(r"NVLS multicast support is (not )?available")


def parse_nccl_log(texts: Iterable[str], ranks: int, asked: Sequence[tuple[str, int]] = ()) -> NcclFacts | None:
    """What the logs of all ranks of one communicator say together; None when there is no line of NCCL in them.

    `asked` are collectives and their bytes in the order in which they ran: what tells lines without a name apart.
    """
    lines = [line[:LONGEST_LINE] for text in texts for line in text.splitlines() if "NCCL" in line[:LONGEST_LINE]]
    if not any(_MESSAGE.search(line) for line in lines):
        return None
    counts = _last(_CHANNELS, lines)
    nvls = _last(_NVLS, lines)
    version, network = _last(_VERSION, lines), _last(_NETWORK, lines)
    return NcclFacts(
        version=version[1] if version else None,
        network=network[1].strip() if network else None,
        nvls_available=None if nvls is None else nvls[1] is None,
        nvls_channels=int(counts["nvls"]) if counts else None,
        collective_channels=int(counts["coll"]) if counts else None,
        p2p_channels=int(counts["p2p"]) if counts else None,
        rings_connected=True if any("Connected all rings" in line for line in lines) else None,
        transports=_transports(lines, ranks),
        choices=_choices(lines, ranks, asked),
        warnings=_warnings(lines),
    )


def _last(pattern: re.Pattern[str], lines: Sequence[str]) -> re.Match[str] | None:
    return next((match for line in reversed(lines) if (match := pattern.search(line))), None)


def _transports(lines: Sequence[str], ranks: int) -> list[Transport]:
    """Every ordered pair and way that some channel takes. Both ends of a way through the network log it: one counts."""
    counts: Counter[tuple[int, int, str]] = Counter()
    for line in lines:
        match = _CHANNEL.search(line)
        if match is None or match["way"] == "receive":
            continue
        sender, receiver = int(match[1]), int(match[2])
        if sender < ranks and receiver < ranks:
            counts[sender, receiver, match["via"].strip()[:60]] += 1
    return [
        Transport(sender=sender, receiver=receiver, via=via, channels=number)
        for (sender, receiver, via), number in sorted(counts.items())
    ]


def _choices(lines: Sequence[str], ranks: int, asked: Sequence[tuple[str, int]]) -> list[AlgorithmChoice]:
    """The last word for each collective and size, in the order of their first lines."""
    found = [match for line in lines if (match := _CHOICE.search(line))]
    tuned = [(name, size) for name, size in asked if name in TUNED]
    nameless = all(match["name"] is None for match in found) and len(found) == len(tuned)
    chosen: dict[tuple[str, int], AlgorithmChoice] = {}
    for place, match in enumerate(found):
        what = tuned[place] if nameless else _named(match, ranks)
        if what is not None:
            chosen[what] = _choice(what, match)
    return list(chosen.values())


def _named(match: re.Match[str], ranks: int) -> tuple[str, int] | None:
    """Since it spells algorithms (2.24), NCCL counts what one rank gives (all_gather) or gets (reduce_scatter), and
    nccl-tests counts n times that.
    """
    name = _NAMES.get(match["name"] or "")
    one_part = name in SPLIT and not match["algorithm"].isdecimal()
    return None if name is None else (name, int(match["bytes"]) * (ranks if one_part else 1))


def _choice(what: tuple[str, int], match: re.Match[str]) -> AlgorithmChoice:
    low, high = match["low"], match["high"]
    return AlgorithmChoice.model_validate({
        "collective": what[0],
        "size_bytes": what[1],
        "algorithm": _word(match["algorithm"], ALGORITHMS),
        "protocol": _word(match["protocol"], PROTOCOLS),
        "channels": int(high) - int(low) + 1 if high is not None and int(high) >= int(low) else None,
    })  # fmt: skip


def _word(text: str, words: Sequence[str]) -> str:
    """One spelling for all versions: NVLS_TREE, NVLSTree and 5 are the same; what is not known stays as it is."""
    if text.isdecimal() and text.isascii():
        return words[int(text)] if int(text) < len(words) else text
    spelled = text.replace("_", "").lower()
    return next((word for word in words if word.lower() == spelled), text)


def _warnings(lines: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(_said(lines)))[:MOST_WARNINGS]


def _said(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        match = _MESSAGE.search(line)
        if match is not None and match["level"] == "WARN":
            yield match["text"].strip()[:LONGEST_WARNING]
