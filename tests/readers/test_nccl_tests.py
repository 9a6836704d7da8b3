"""Tables of nccl-tests, of all versions, whatever launchers and NCCL put between their lines."""

from __future__ import annotations

import pytest

from gpubalance.errors import UsageError
from gpubalance.readers.lines import bare
from gpubalance.readers.nccl_tests import ALONE, read_nccl_tests
from gpubalance.readers.nccl_words import collective_of, version_of
from gpubalance.record.foreign import CollectiveTest, TheirRow
from tests.readers.helpers import OLD, OLD_GATHER, REAL


def read(data: bytes | str) -> tuple[CollectiveTest, ...]:
    return read_nccl_tests("log", data if isinstance(data, bytes) else data.encode()).tests


def only(data: bytes | str) -> CollectiveTest:
    (test,) = read(data)
    return test


def test_a_real_log_of_three_programs() -> None:
    reduce, scatter, ring = read(REAL)
    assert [test.collective for test in (reduce, scatter, ring)] == ["all_reduce", "reduce_scatter", "send_recv"]
    for test in (reduce, scatter, ring):
        assert (test.ranks, test.nodes, test.mode, test.complete, test.remarks) == (2, 1, "eager", True, ())
        assert (test.version, test.nccl_version, test.nccl_headers) == ("2.19.6", "2.28.9", "2.32.3")
        assert [(device.name, device.pci_bus_id) for device in test.devices] == [
            ("NVIDIA H200", "0000:00:06"),
            ("NVIDIA H200", "0000:00:07"),
        ]
    assert reduce.average_bus_bandwidth_gb_per_s == 96.8925
    assert reduce.rows[-2] == TheirRow(2147483648, "float32", "out_of_place", 6323.52, 339.60, 339.60, 0, "sum")
    assert reduce.rows[-1] == TheirRow(2147483648, "float32", "in_place", 6329.09, 339.30, 339.30, 0, "sum")
    assert scatter.rows[0] == TheirRow(8192, "float32", "out_of_place", 23.54, 0.35, 0.17, 0, "sum")
    assert {row.wrong_elements for row in ring.rows if row.placement == "in_place"} == {None}


def test_columns_are_found_by_the_header_of_an_old_version() -> None:
    test = only(OLD)
    assert (test.collective, test.ranks, test.version) == ("all_reduce", 4, None)  # only it has busbw above algbw
    assert test.rows[0] == TheirRow(8388608, "float32", "out_of_place", 100.0, 83.89, 125.83, None, "sum")
    assert test.rows[3] == TheirRow(16777216, "float32", "in_place", 161.0, 104.21, 156.31, None, "sum")
    assert len(test.rows) == 4
    gather = only(OLD_GATHER)
    assert (gather.collective, gather.ranks) == ("all_gather", 2)
    assert gather.rows[1] == TheirRow(1048576, "float16", "in_place", 50.0, 20.97, 10.49, None)


def test_a_program_that_nobody_names_is_not_guessed() -> None:
    assert only(OLD_GATHER.replace("+ ./build/all_gather_perf -b 1M -e 1M -g 2\n", "")).collective is None


def test_one_placement_per_iteration_columns_a_time_stamp_and_the_time_of_the_cpu() -> None:
    header = "#       size         count      type   redop    root"
    row = "        1024           256     float     sum      -1"
    both = f"{header}     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong   timestamp\n"
    stamped = only(f"x all_reduce_perf\n{both}{row}  1.00  1.02  1.02  0  2.00  0.51  0.51  0  2026-11-30 12:00:00\n")
    assert [r.time_us for r in stamped.rows] == [1.0, 2.0]
    single = only(f"#   in-place\n{header}  time  algbw  busbw  #wrong\n{row}  1.00  1.02  1.02  3\n")
    assert [(r.placement, r.wrong_elements) for r in single.rows] == [("in_place", 3)]
    extra = "time  algbw  busbw  #wrong  i_min  i_max  i_p99  i_cv%"
    numbers = "1.00  1.02  1.02  1e+06  0.9  1.2  1.1  3.00"
    jitter = only(f"{header}  {extra}  {extra}\n{row}  {numbers}  {numbers}\n")
    assert [(r.bus_bandwidth_gb_per_s, r.wrong_elements) for r in jitter.rows] == [(1.02, 10**6)] * 2
    cpu = only(f"{header}  cputime  algbw  busbw  #wrong\n{row}  1.00  1.02  1.02  0\n")
    assert cpu.rows[0].time_us is None


def test_an_empty_operation_leaves_a_column_out() -> None:
    header = "# size count type redop time algbw busbw error\n"
    (row,) = only(f"{header}1024 256 float 1.00 1.02 1.02 N/A\n").rows
    assert (row.time_us, row.bus_bandwidth_gb_per_s) == (1.0, 1.02)


PREFIXES = {
    "mpirun --tag-output": "[1,0]<stdout>:",
    "mpirun of Open MPI 5": "[prterun-node-1234@1,0]<stdout>: ",
    "mpirun --timestamp-output": "Mon Nov 30 12:00:00 2026[1,0]<stdout>:",
    "srun --label": "0: ",
    "srun --label of many": " 12: ",
    "kubectl logs --timestamps": "2026-11-30T12:00:00.123456789Z ",
    "kubectl logs --prefix": "[pod/nccl-launcher/nccl] ",
    "both": "2026-11-30T12:00:00+00:00 [1,0]<stdout>:",
    "pdsh": "node01: ",
    "colour": "\x1b[32m\x1b[0m",
    "Hydra -l": "[0] ",
    "Hydra -prepend-rank": "[0]",
    "docker compose": "nccl-1  | ",
    "pdsh of an address": "10.0.0.5: ",
    "PALS": "x1000c0s0b0n0 0: ",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES.keys())
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_prefixes_of_launchers_change_nothing(prefix: str, end: str) -> None:
    prefixed = end.join(prefix + line for line in REAL.decode().splitlines())
    assert read(prefixed) == read(REAL)


INFO = "node-1:1000:1021 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
WARN = "[2026-11-30 12:00:00] node-1:1000:1021 [0] transport/net.cc:1 (connect) NCCL WARN slow"


@pytest.mark.parametrize("message", [INFO, WARN, "0: " + INFO])
def test_messages_between_rows_and_in_the_middle_of_one_change_nothing(message: str) -> None:
    lines = REAL.decode().splitlines()
    between = "\n".join(part for line in lines for part in (line, message))
    assert read(between) == read(REAL)
    cut = REAL.decode().replace("sum      -1", f"sum      -1{message.removeprefix('0: ')}\n")
    assert read(cut) == read(REAL)


@pytest.mark.parametrize("host", ["3f2a1b4c5d6e", "8gpu-node-1", "10-0-0-5", "f0e1d2c3b4a5", "node"])
def test_a_message_behind_a_number_leaves_the_number_whatever_its_host_is_called(host: str) -> None:
    """Docker's names begin with a digit in ten of sixteen cases; `0` and `8gpu-node-1` are not `08` wrong elements."""
    message = f"{host}:1000:1021 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
    whole = REAL.decode().replace("on       node device", f"on {host} device")
    glued = "\n".join(f"{line}{message}" if line.endswith(" 0") else line for line in whole.splitlines())
    assert glued.count(message) > 10
    assert read(glued) == read(whole)
    assert {row.wrong_elements for test in read(glued) for row in test.rows} <= {0, None}


def test_where_no_host_is_listed_a_number_before_a_message_is_not_kept() -> None:
    """`08gpu-node-1` may be 0 or 08 elements."""
    header = "# size count type redop root time algbw busbw #wrong\n"
    row = "1024 256 float sum -1 1.00 1.02 1.02"
    message = "8gpu-node-1:1000:1021 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
    (kept,) = only(f"x all_reduce_perf\n{header}{row} 0{message}\n{row.replace('1024', '2048')} 0\n").rows
    assert (kept.size_bytes, kept.wrong_elements) == (2048, 0)


def test_what_older_versions_find_wrong_is_kept() -> None:
    assert only(OLD.replace("Out of bounds values : 0 OK", "Out of bounds values : 4 FAILED")).out_of_bounds == 4
    assert only(OLD).out_of_bounds == only(REAL.decode().split("\n\n")[0]).out_of_bounds == 0


CRASHED = """# nccl-tests version 2.19.6 nccl-headers=23203 nccl-library=22809
# Collective test starting: all_gather_perf
# nThread 1 nGpus 2 minBytes 8 maxBytes 4294967296 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1
#  Rank  0 Group  0 Pid   1000 on       node device  0 [0000:00:06] NVIDIA H200
node: Test NCCL failure common.cu:1279 'unhandled cuda error'
"""


@pytest.mark.parametrize("crashed", [CRASHED, CRASHED.partition("node:")[0]], ids=["with a message", "killed"])
@pytest.mark.parametrize("first", [True, False])
def test_a_program_that_failed_before_its_first_row_is_not_lost(crashed: str, first: bool) -> None:
    """What was killed without a word is known by being the last."""
    log = read_nccl_tests("log", (crashed + REAL.decode() if first else REAL.decode() + crashed).encode())
    assert log.tests == read(REAL)
    if "failure" in crashed:
        assert (log.complete, len(log.remarks)) == (False, 1)
        assert log.remarks[0].startswith("all_gather: node: Test NCCL failure")
    elif not first:
        assert not log.complete


def test_a_program_without_mpi_under_mpirun_is_that_many_tests_of_one_rank() -> None:
    one = OLD_GATHER.replace("nGpus 2", "nGpus 1")
    rank = next(line for line in one.splitlines() if "Rank  0" in line)
    test = only("\n".join(rank if "Rank  1" in line else line for line in one.splitlines()))
    assert test.ranks == 1
    assert ALONE in test.remarks


def test_the_program_that_is_named_last_before_its_table_counts() -> None:
    built = "Linking  /tmp/build/all_reduce.o > /tmp/build/all_reduce_perf\n+ ./build/alltoall_perf -b 32M\n"
    unnamed = OLD_GATHER.replace("+ ./build/all_gather_perf -b 1M -e 1M -g 2\n", "")
    assert only(built + unnamed).collective == "all_to_all"
    broken = unnamed.partition("# Out of bounds")[0] + "node: Test CUDA failure common.cu:11 x\n"
    both = read(f"+ ./alltoall_perf\n{broken}+ ./all_gather_perf\n{unnamed}")
    assert [(test.collective, test.complete) for test in both] == [("all_to_all", False), ("all_gather", True)]


@pytest.mark.parametrize("cut", range(60, 2400, 97))
def test_a_log_that_breaks_off_gives_the_rows_that_are_whole_and_says_so(cut: int) -> None:
    text = REAL.decode()
    whole = read(REAL)[0]
    begin = text.index("           8             2     float")
    end = begin + cut
    full_lines = text[begin:end].count("\n")
    if full_lines == 0:
        with pytest.raises(UsageError, match="no result in the log"):
            read(text[:end])
        return
    first = read(text[:end])[0]
    assert first.rows == whole.rows[: len(first.rows)]
    assert len(first.rows) >= 2 * min(full_lines, 6)
    assert first.complete == ("Avg bus bandwidth    : " in text[:end] and text[:end].rstrip()[-1] != ":")


def test_a_failure_in_the_log_is_told_with_the_rows_before_it() -> None:
    head, _, _ = REAL.decode().partition("   134217728")
    test = only(
        head + "node: Test NCCL failure common.cu:1012 'unhandled cuda error' \n .. node pid 1: Test failure x\n"
    )
    assert not test.complete
    assert test.remarks[0].startswith("node: Test NCCL failure common.cu:1012")
    assert len(test.rows) == 8


NOTHING = {
    "only a header": OLD.split("     8388608")[0],
    "it never started": "all_reduce_perf: error while loading shared libraries: libnccl.so.2\n",
    "failed at once": OLD.split("#                   ")[0] + "node: Test NCCL failure all_reduce.cu:1 'unhandled' \n",
}


@pytest.mark.parametrize("text", NOTHING.values(), ids=NOTHING.keys())
def test_no_row_is_no_result_and_never_0(text: str) -> None:
    with pytest.raises(UsageError, match="log: no result in the log of nccl-tests") as caught:
        read(text)
    assert ("Test NCCL failure" in caught.value.message) == ("Test NCCL failure" in text)


def test_runs_one_after_the_other_are_tables_of_their_own() -> None:
    assert read(REAL + REAL) == read(REAL) * 2
    four, two = read(OLD + OLD.replace("Rank  2", "Rmnk").replace("Rank  3", "Rmnk").replace("nGpus 4", "nGpus 2"))
    assert (four.ranks, two.ranks) == (4, 2)
    assert (four.nodes, two.nodes) == (1, 1)


def test_groups_are_communicators_of_their_own_and_hosts_are_counted() -> None:
    text = (
        REAL.decode()
        .replace("Rank  1 Group  0", "Rank  1 Group  1")
        .replace("on       node device  1", "on b device  1")
    )
    first = read(text)[0]
    assert (first.ranks, first.nodes) == (1, 2)


def test_graphs_grouping_and_waiting_are_told() -> None:
    text = REAL.decode().replace("graph: 0", "graph: 20").replace("agg iters: 1", "agg iters: 4")
    text = text.replace(
        "#\n# Using", "# Blocking Enabled: wait and barrier after each inner iteration (-m) \n#\n# Using"
    )
    first = read(text)[0]
    assert first.mode == "graph"
    assert [remark.split(",")[0] for remark in first.remarks] == [
        "it groups 4 operations (-m)",
        "it waits after each operation (-z)",
    ]


@pytest.mark.parametrize("number", ["nan", "inf", "-1.00", "1e999", "-0.5", "NaN"])
@pytest.mark.parametrize("column", ["339.60", "6323.52"])
def test_a_number_that_nothing_measures_is_wrong_use_with_its_line(number: str, column: str) -> None:
    with pytest.raises(UsageError, match=r"log: line \d+: .* is no number that anything measures"):
        read(REAL.decode().replace(column, number))


def test_another_unit_is_refused_and_not_taken_for_gb_per_s() -> None:
    with pytest.raises(UsageError, match=r"a column in \(Gb/s\) is not known"):
        read(REAL.decode().replace("(GB/s)", "(Gb/s)"))


def test_more_rows_than_any_log_has_are_refused() -> None:
    header, row = "# size count type redop time algbw busbw error\n", "8 2 float sum 1.0 1.0 1.0 N/A\n"
    with pytest.raises(UsageError, match="more than 100000 rows"):
        read(header + 100_001 * row)


@pytest.mark.parametrize(
    ("code", "version"), [(22809, "2.28.9"), (23203, "2.32.3"), (20903, "2.9.3"), (2804, "2.8.4"), (0, None)]
)
def test_version_codes(code: int, version: str | None) -> None:
    assert version_of(code) == version


@pytest.mark.parametrize(
    ("text", "name"),
    [("./build/all_reduce_perf", "all_reduce"), ("/opt/sendrecv_perf_mpi -g 1", "send_recv"),
     ("alltoall_perf", "all_to_all"), ("reduce_perf", "reduce"), ("all_reduce", None), ("my_perf", None)],
)  # fmt: skip
def test_programs_by_their_names(text: str, name: str | None) -> None:
    assert collective_of(text) == name


@pytest.mark.parametrize(
    "line", ["   8    2   float  sum", "# Avg bus bandwidth    : 96.8925", "Device 0: NVIDIA H200"]
)
def test_lines_without_a_prefix_stay_as_they_are(line: str) -> None:
    assert bare(line) == line
