"""What is said of hangs, of the search for their cause, and of what peer-to-peer is worth."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.analysis.experiments import costs_of
from gpubalance.checks.finding import Finding, State
from gpubalance.checks.hang import CURES
from gpubalance.checks.verdict import Verdict, judge
from gpubalance.record.hang import Bisection, BisectTrial, HangReport, RankHang
from gpubalance.record.run import Run, RunError
from gpubalance.record.samples import Samples, XidEvent
from gpubalance.session.bisect_plan import MOST_SPECIFIC
from gpubalance.testing.runs import make_node, make_run
from tests.analysis.test_experiments import experiment


def finding(run: Run, name: str) -> Finding:
    return next(f for f in judge(run).findings if f.id == name)


def rank(number: int, **values: Any) -> RankHang:
    base: dict[str, Any] = {"pid": 100 + number, "phase": "ddp", "fence": 41, "collective": "all_reduce", "state": "S"}
    return RankHang(rank=number, **{**base, **values})


def report(*ranks: RankHang, **values: Any) -> HangReport:
    return HangReport(attempt=0, crew="ranks", t_s=20.0, deadline_s=8.0, gathered_in_s=0.2, ranks=list(ranks), **values)


def hung(hang: HangReport | None, *, kind: str = "stalled", ranks: int = 2, **values: Any) -> Run:
    error = RunError(
        kind=kind, where="work", message="did not enter all_reduce 42 of ddp", rank=1, phase="ddp", first_cause=True
    )
    return make_run(ranks=ranks, hang=hang, errors=[error], **values)


STOPPED = rank(1, state="T", stopped_by="SIGSTOP", named=True, fence=41)


def test_the_named_rank_comes_first_and_each_is_described() -> None:
    waits = rank(
        0, fence=42, python_at="all_reduce (distributed/c10d.py:7)", warnings=["NCCL WARN one", "NCCL WARN two"]
    )
    found = finding(hung(report(waits, STOPPED)), "complete")
    assert found.message == "rank 1 did not enter all_reduce 42 of ddp"
    assert found.evidence == (
        "rank 1: came to all_reduce 41 of ddp; its process is stopped (state T, by SIGSTOP)",
        "rank 0: came to all_reduce 42 of ddp; its process sleeps (state S), in all_reduce (distributed/c10d.py:7)",
        "rank 0: NCCL WARN one",
        "rank 0: NCCL WARN two",
    )
    assert found.next_step is not None
    assert found.next_step.startswith("find out who stopped it")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"state": "T"}, "its process is stopped (state T)"),
        ({"state": "t", "traced_by": 7}, "its process is held by a debugger (state t, pid 7)"),
        ({"state": "D", "waits_in": "uvm_lock"}, "its process sits in the kernel (state D, in uvm_lock)"),
        ({"state": "D"}, "its process sits in the kernel (state D)"),
        ({"state": "R", "waits_in": "x"}, "its process is running (state R)"),
        ({"state": "I"}, "its process is in a state of its own (state I)"),
        (
            {"state": None, "state_missing": "it ended with 1"},
            "the state of its process is not known (it ended with 1)",
        ),
    ],
)
def test_every_state_has_words(values: dict[str, Any], words: str) -> None:
    found = finding(hung(report(rank(1, named=True, **values))), "complete")
    assert found.evidence[0] == f"rank 1: came to all_reduce 41 of ddp; {words}"


def test_a_rank_that_entered_nothing_is_described_by_its_phase() -> None:
    found = finding(hung(report(rank(1, phase="after solo", fence=0, collective=None))), "complete")
    assert found.evidence[0].startswith("rank 1: came to after solo; ")


def test_the_process_that_sees_all_devices_is_described_by_the_last_that_it_said() -> None:
    last = '{"event": "link", "source": 0, "target": 3}'
    hang = report(rank(0, phase="links", fence=0, collective=None, named=True, last_line=last))
    found = finding(hung(hang.model_copy(update={"crew": "node"})), "complete")
    assert found.evidence == (
        "the process that sees all devices: came to links; its process sleeps (state S)",
        f"the last line of its log: {last}",
    )


def test_what_ras_the_recorder_and_the_driver_said() -> None:
    text = "Errors\n======\nINCOMPLETE\n  Missing data from 1 process\n\nDEAD\n1 job process is considered dead\n"
    more = {"flight_recorder": ["/tmp/dump_0"], "driver_silent": "nvmlDeviceGetPowerUsage on 1"}
    found = finding(hung(report(STOPPED, ras=text, **more)), "complete")
    assert found.evidence[1:] == (
        "NCCL RAS: INCOMPLETE",
        "NCCL RAS: DEAD",
        "flight recorder: /tmp/dump_0",
        "the driver did not answer meanwhile: nvmlDeviceGetPowerUsage on 1",
    )
    quiet = finding(hung(report(STOPPED, ras="Job summary\n")), "complete")
    assert quiet.evidence[1:] == ("NCCL RAS answered, and names nobody",)


def test_of_many_ranks_the_first_eight_are_shown() -> None:
    found = finding(hung(report(*(rank(number) for number in range(16))), ranks=16), "complete")
    assert len(found.evidence) == 9
    assert found.evidence[-1] == "and 8 more ranks"


def test_evidence_of_another_look_is_none_of_this_error() -> None:
    hang = report(STOPPED).model_copy(update={"attempt": 1})
    assert finding(hung(hang), "complete").evidence == ()


def trial(ranks: list[int], switch: str | None, outcome: str, message: str | None = None) -> BisectTrial:
    return BisectTrial.model_validate(
        {"ranks": ranks, "switch": switch, "outcome": outcome, "message": message, "seconds": 12.4}
    )


def searched(cures: list[str], *, as_is: str = "hangs", ranks: int = 2, **values: Any) -> Run:
    smallest = [0, 1]
    trials = [trial(smallest, None, as_is), *(trial(smallest, cure, "works") for cure in cures)]
    found = Bisection(trials=trials, repeated=True, smallest=smallest, cures=cures)
    return hung(report(rank(0), rank(1)), bisection=found, ranks=ranks, **values)


def test_a_hang_that_repeats_and_is_cured_fails_the_node_with_the_cause() -> None:
    run = searched(["NCCL_P2P_DISABLE=1"])
    cause = finding(run, "hang_cause")
    assert judge(run).verdict is Verdict.FAIL
    assert judge(run).sentence == cause.message
    assert cause.message.startswith(
        "all-reduce over GPUs 0 and 1 hangs, works with NCCL_P2P_DISABLE=1: peer-to-peer is broken between them"
    )
    assert cause.evidence == (
        "GPUs 0 and 1, as is: hangs, 12 s",
        "GPUs 0 and 1, NCCL_P2P_DISABLE=1: works, 12 s",
    )
    assert cause.subject is not None
    assert cause.subject.count("GPU-") == 2


@pytest.mark.parametrize(("as_is", "does"), [("hangs", "hangs"), ("fails", "fails"), ("wrong", "gives wrong sums")])
@pytest.mark.parametrize("cure", [*MOST_SPECIFIC, "GLOO_SOCKET_IFNAME=lo"])
def test_every_cure_has_a_meaning_and_a_step(as_is: str, does: str, cure: str) -> None:
    cause = finding(searched([cure], as_is=as_is), "hang_cause")
    assert cause.state is State.FAIL
    assert cause.message == f"all-reduce over GPUs 0 and 1 {does}, works with {cure}: {CURES[cure].meaning}"
    assert cause.next_step == CURES[cure].step


def test_the_interface_that_was_chosen_is_named() -> None:
    node = make_node(environment={"GLOO_SOCKET_IFNAME": "eth7"})
    run = searched(["GLOO_SOCKET_IFNAME=lo"], as_is="fails", on_cpu=True, node=node)
    assert finding(run, "hang_cause").message == (
        "all-reduce over ranks 0 and 1 fails, works with GLOO_SOCKET_IFNAME=lo: "
        "the interface that GLOO_SOCKET_IFNAME=eth7 names cannot be used"
    )


def test_xids_of_the_run_stand_beside_a_hang() -> None:
    samples = Samples(xids=[XidEvent(t_s=12.3, nvml_index=1, xid=79)])
    found = finding(hung(report(STOPPED), samples=samples), "complete")
    assert found.evidence[-1] == "Xid 79 on GPU 1, 12 s after the start"


def test_a_hang_that_nothing_cures_says_what_was_tried() -> None:
    run = searched([])
    trials = [*(run.bisection.trials if run.bisection else []), trial([0, 1], "NCCL_P2P_DISABLE=1", "hangs")]
    found = Bisection(trials=trials, repeated=True, smallest=[0, 1])
    cause = finding(hung(report(rank(0)), bisection=found), "hang_cause")
    assert cause.message == (
        "all-reduce over GPUs 0 and 1 hangs in fresh processes as well, and none of NCCL_P2P_DISABLE=1 cures it"
    )


def test_a_hang_that_does_not_repeat_was_the_ranks_own_and_leaves_no_verdict() -> None:
    found = Bisection(trials=[trial([0, 1], None, "works")], repeated=False)
    run = hung(report(rank(0), rank(1, named=True)), bisection=found)
    assert judge(run).verdict is Verdict.INCONCLUSIVE
    assert finding(run, "hang_cause").message == (
        "not repeated in fresh processes, where all-reduce works: the failure was rank 1's own"
    )


def test_a_search_that_came_to_no_end_says_so() -> None:
    ended = "the search ended after 300 s"
    found = Bisection(trials=[trial([0, 1], None, "unfinished")], repeated=None, left_out=ended)
    cause = finding(hung(report(rank(0)), bisection=found), "hang_cause")
    assert (cause.state, cause.evidence[-1]) == (State.INFO, ended)


def test_a_search_that_was_left_out_is_said_beside_the_hang() -> None:
    run = hung(report(STOPPED), bisection=Bisection(left_out="the process of rank 1 was stopped from outside"))
    assert finding(run, "complete").evidence[-1] == (
        "cause not searched for: the process of rank 1 was stopped from outside"
    )
    assert all(f.id != "hang_cause" for f in judge(run).findings)


def what_if(on: dict[int, float], off: dict[int, float], found: str | None = None) -> Run:
    return make_run(experiments=[experiment(on, off).model_copy(update={"found": found})])


def test_a_variable_that_was_left_on_and_costs_something_is_a_warning() -> None:
    found = finding(what_if({2**30: 328.0}, {2**30: 41.0}, "1"), "what_if_p2p")
    assert (found.state, found.message) == (State.WARN, "NCCL_P2P_DISABLE=1 is set here and costs a factor of 8.0")
    assert (found.observed, found.expected) == ("41.0 GB/s", "328.0 GB/s without it")


@pytest.mark.parametrize(
    ("on", "off", "found"), [(328.0, 41.0, None), (328.0, 41.0, "0"), (100.0, 99.0, "1"), (40.0, 80.0, "1")]
)
def test_what_costs_nothing_is_no_finding(on: float, off: float, found: str | None) -> None:
    assert all(f.id != "what_if_p2p" for f in judge(what_if({1: on}, {1: off}, found)).findings)


def test_peer_to_peer_that_does_not_work_is_a_warning_and_nothing_measured_is_unknown() -> None:
    whole = experiment({}, {1: 41.0})
    broken = [whole.arms[0].model_copy(update={"missing": "it hangs"}), whole.arms[1]]
    run = make_run(experiments=[whole.model_copy(update={"arms": broken})])
    found = finding(run, "what_if_p2p")
    assert found.state is State.WARN
    assert found.message == ("all_reduce with peer-to-peer does not end well (it hangs), works with NCCL_P2P_DISABLE=1")
    unknown = [whole.arms[1], whole.arms[0].model_copy(update={"missing": "it hangs"})]
    run = make_run(experiments=[whole.model_copy(update={"arms": unknown})])
    assert finding(run, "what_if_p2p").state is State.UNKNOWN


def test_wrong_sums_with_peer_to_peer_fail_and_give_no_cost() -> None:
    whole = experiment({1: 100.0}, {1: 41.0})
    row = whole.arms[0].rows[0].model_copy(update={"wrong_elements": 3})
    arms = [whole.arms[0].model_copy(update={"rows": [row]}), whole.arms[1]]
    run = make_run(experiments=[whole.model_copy(update={"arms": arms})])
    found = finding(run, "what_if_p2p")
    assert (found.state, found.message) == (
        State.FAIL,
        "all_reduce gives wrong elements: 3 with peer-to-peer, right with NCCL_P2P_DISABLE=1",
    )
    assert costs_of(run.experiments[0]) == []


@pytest.mark.parametrize(
    ("wrong", "found", "state"),
    [(0, None, State.FAIL), (0, "1", State.WARN), (1, None, State.WARN), (1, "1", State.FAIL), (1, "0", State.WARN)],
)
def test_wrong_sums_fail_where_jobs_get_them_and_warn_elsewhere(wrong: int, found: str | None, state: State) -> None:
    whole = experiment({1: 100.0}, {1: 41.0})
    row = whole.arms[wrong].rows[0].model_copy(update={"wrong_elements": 5})
    arms = [arm.model_copy(update={"rows": [row]}) if at == wrong else arm for at, arm in enumerate(whole.arms)]
    run = make_run(experiments=[whole.model_copy(update={"arms": arms, "found": found})])
    assert finding(run, "what_if_p2p").state is state
