# ruff: noqa: E501  (lines of a log are as long as they are)
"""Lines of NCCL's log, in the forms that its versions print, and garbage between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.readers.nccl_log import LONGEST_WARNING, MOST_WARNINGS, parse_nccl_log
from gpubalance.record.timings import AlgorithmChoice, NcclFacts, Transport

# The format strings of NCCL 2.28.9 (init.cc, transport/p2p.cc, transport/nvls.cc, enqueue.cc), filled in.
RANK_0 = """\
vm:629:629 [0] NCCL INFO NCCL version 2.28.9+cuda13.0
vm:629:641 [0] NCCL INFO NET/IB : No device found.
vm:629:641 [0] NCCL INFO Initialized NET plugin Socket
vm:629:641 [0] NCCL INFO Using network Socket
vm:629:641 [0] NCCL INFO [Rank 0] ncclCommInitRank comm 0x55d0 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x6b - Init START
vm:629:641 [0] NCCL INFO NVLS multicast support is not available on dev 0 (NVLS_NCHANNELS 0)
vm:629:641 [0] NCCL INFO 24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels, 32 p2p channels per peer
vm:629:641 [0] NCCL INFO Init timings - ncclCommInitRank: rank 0 nranks 2 total 0.52 (kernels 0.20, alloc 0.03, bootstrap 0.01, allgathers 0.00, topo 0.20, graphs 0.00, connections 0.05, rest 0.02)
vm:629:650 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
vm:629:650 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM
vm:629:650 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 1
vm:629:629 [0] NCCL INFO AllReduce: 8192 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}
vm:629:629 [0] NCCL INFO AllReduce: 1073741824 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}
vm:629:629 [0] NCCL INFO AllGather: 536870912 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}
vm:629:629 [0] NCCL INFO ReduceScatter: 536870912 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}
vm:629:629 [0] NCCL INFO Reduce: 1024 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}
"""
RANK_1 = """\
vm:630:651 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM
vm:630:651 [1] NCCL INFO Channel 01/0 : 1[1] -> 0[0] via P2P/CUMEM

[2026-11-30 09:42:10] vm:630:651 [1] misc/shmutils.cc:87 (ncclShmOpen) NCCL WARN Error: failed to extend /dev/shm/nccl-x to 9637892 bytes
"""


def facts_of(*texts: str, ranks: int = 2, asked: list[tuple[str, int]] | None = None) -> NcclFacts:
    facts = parse_nccl_log(texts, ranks, asked or [])
    assert facts is not None
    return facts


def test_two_gpus_whose_ranks_both_wrote_a_log() -> None:
    facts = facts_of(RANK_0, RANK_1)
    assert (facts.version, facts.network, facts.rings_connected) == ("2.28.9", "Socket", True)
    assert (facts.nvls_available, facts.nvls_channels) == (False, 0)
    assert (facts.collective_channels, facts.p2p_channels) == (24, 32)
    assert facts.transports == [
        Transport(sender=0, receiver=1, via="P2P/CUMEM", channels=2),
        Transport(sender=1, receiver=0, via="P2P/CUMEM", channels=2),
    ]
    assert facts.warnings == ["Error: failed to extend /dev/shm/nccl-x to 9637892 bytes"]


def test_choices_count_bytes_as_nccl_tests_does() -> None:
    assert [(c.collective, c.size_bytes, c.algorithm, c.protocol, c.channels) for c in facts_of(RANK_0).choices] == [
        ("all_reduce", 8192, "Ring", "LL", 1),
        ("all_reduce", 2**30, "Ring", "Simple", 24),
        ("all_gather", 2**30, "Ring", "Simple", 24),  # NCCL logs what one of two ranks gives
        ("reduce_scatter", 2**30, "Ring", "Simple", 24),
        ("reduce", 1024, "Ring", "LL", 4),
    ]


def choice(text: str, ranks: int = 8, asked: list[tuple[str, int]] | None = None) -> AlgorithmChoice:
    (found,) = facts_of(f"h:1:1 [0] NCCL INFO {text}", ranks=ranks, asked=asked).choices
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # 2.24 and later spell the algorithm and count one part; 2.23 has a name and numbers, and counts all parts
        ("AllReduce: 8 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}", ("all_reduce", 8, "NVLS", "Simple", 16)),
        ("AllGather: 16 Bytes -> Algo NVLS_TREE proto LL128 channel{Lo..Hi}={2..2}", ("all_gather", 128, "NVLSTree", "LL128", 1)),
        ("AllGather: 128 Bytes -> Algo 1 proto 0 time 9.5", ("all_gather", 128, "Ring", "LL", None)),
        ("Broadcast: 4 Bytes -> Algo 0 proto 2 time 1.0", ("broadcast", 4, "Tree", "Simple", None)),
        ("AllReduce: 4 Bytes -> Algo 9 proto NEW channel{Lo..Hi}={3..1}", ("all_reduce", 4, "9", "NEW", None)),
        ("AllReduce: 4 Bytes -> Algo COLLNET_DIRECT proto Simple", ("all_reduce", 4, "CollNetDirect", "Simple", None)),
    ],
)  # fmt: skip
def test_every_spelling_of_an_algorithm(text: str, expected: tuple[object, ...]) -> None:
    found = choice(text)
    assert (found.collective, found.size_bytes, found.algorithm, found.protocol, found.channels) == expected


def test_lines_without_a_name_are_told_apart_by_the_order_of_the_operations() -> None:
    log = "\n".join(f"h:1:1 [0] NCCL INFO {n} Bytes -> Algo {a} proto 2 time 9.5" for n, a in ((8, 0), (64, 4)))
    asked = [("all_reduce", 8), ("send_recv", 8), ("all_to_all", 64), ("all_gather", 64)]  # two have no such line
    found = facts_of(log, ranks=4, asked=asked).choices
    assert [(c.collective, c.size_bytes, c.algorithm) for c in found] == [
        ("all_reduce", 8, "Tree"), ("all_gather", 64, "NVLS")
    ]  # fmt: skip
    assert facts_of(log, ranks=4, asked=asked[:2]).choices == []  # more lines than operations: nobody knows which


@pytest.mark.parametrize(
    ("text", "sender", "receiver", "via"),
    [
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer/read", 0, 1, "P2P/direct pointer/read"),
        ("Channel 07/1 : 1[1] -> 0[0] via P2P/IPC", 1, 0, "P2P/IPC"),
        ("Channel 00 : 1[ca000] -> 0[c7000] via SHM/direct/direct", 1, 0, "SHM/direct/direct"),
        ("Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0(1)/GDRDMA/Shared", 0, 1, "NET/IB/0(1)/GDRDMA/Shared"),
        ("Channel 02/0 : 0[0] -> 1[1] via P2P/indirect/2[2]", 0, 1, "P2P/indirect/2[2]"),
    ],
)
def test_every_way(text: str, sender: int, receiver: int, via: str) -> None:
    both = f"node-1:1:2 [0] NCCL INFO {text}\nnode-1:1:2 [0] NCCL INFO {text.replace('[send]', '[receive]')}"
    (way,) = facts_of(both if "[send]" in text else both.splitlines()[0]).transports
    assert (way.sender, way.receiver, way.via, way.channels) == (sender, receiver, via, 1)


def test_prefixes_of_launchers_and_time_stamps_do_not_matter() -> None:
    prefixed = "\n".join(f"[1,0]<stdout>:  | 2026-11-30T09:42:10Z {line}" for line in RANK_0.splitlines())
    assert facts_of(prefixed) == facts_of(RANK_0)


def test_what_no_line_says_is_null() -> None:
    facts = facts_of("h:1:1 [0] NCCL INFO Bootstrap : Using lo:127.0.0.1<0>")
    assert facts == NcclFacts()


def test_nvls_that_is_there() -> None:
    facts = facts_of("h:1:1 [3] NCCL INFO NVLS multicast support is available on dev 3 (NVLS_NCHANNELS 16)\n"
                     "h:1:1 [3] NCCL INFO 24 coll channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer")  # fmt: skip
    assert (facts.nvls_available, facts.nvls_channels) == (True, 16)


def test_a_text_without_a_line_of_nccl_is_no_log() -> None:
    assert parse_nccl_log([], 2) is None
    assert parse_nccl_log(["", "NCCL is a library\nChannel 00/0 : 0[0] -> 1[1] via P2P/IPC"], 2) is None


def test_a_rank_that_the_group_does_not_have_is_no_way() -> None:
    assert facts_of("h:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 7[7] via P2P/IPC").transports == []


def test_a_flood_of_warnings_is_cut() -> None:
    facts = facts_of("\n".join(f"h:1:1 [0] a.cc:1 NCCL WARN {n} {'x' * 900}" for n in range(500)))
    assert len(facts.warnings) == MOST_WARNINGS
    assert max(len(warning) for warning in facts.warnings) == LONGEST_WARNING


@given(st.text(max_size=300), st.integers(1, 64))
def test_any_text_is_read(text: str, ranks: int) -> None:
    facts = parse_nccl_log([text, f"h:1:1 [0] NCCL INFO {text}"], ranks)
    assert facts is not None
    assert NcclFacts.model_validate_json(facts.model_dump_json()) == facts


@given(st.data())
def test_a_log_that_was_cut_and_mixed_says_nothing_that_it_did_not_say(data: st.DataObject) -> None:
    lines = [*RANK_0.splitlines(), *RANK_1.splitlines()]
    mixed = data.draw(st.permutations(lines))
    cut = "\n".join(line[: data.draw(st.integers(0, len(line)))] for line in mixed)
    facts = parse_nccl_log([cut], 2)
    if facts is None:
        return
    whole = facts_of(RANK_0, RANK_1)
    assert {(way.sender, way.receiver) for way in facts.transports} <= {(0, 1), (1, 0)}
    assert {choice.collective for choice in facts.choices} <= {choice.collective for choice in whole.choices}
    assert facts.nvls_available in (None, False)
