"""Checks on the measurement itself: was it finished, was the host quiet, did the sensor see anything."""

from __future__ import annotations

from gpubalance.analysis.facts import Facts
from gpubalance.analysis.gather_evidence import pids_are_known
from gpubalance.checks.finding import Finding, State, counted, percent
from gpubalance.checks.hang import hang_evidence, hang_step
from gpubalance.checks.identity import labels_of, name_of, rank_label
from gpubalance.record.run import Run, RunError

BUSY_HOST = 0.30
"""Share of all cores in use before the start from which on CPU ranks cannot have a core to themselves."""

LATE_MS = 500.0


def check_complete(run: Run, facts: Facts) -> list[Finding]:
    """Errors: the first cause leads, the others are its consequences."""
    causes = [_cause(run, error) for error in run.errors if _leads(error)]
    if run.interrupted_by is not None:
        text = f"interrupted by signal {run.interrupted_by}: what was measured until then is kept"
        step = "run it again to its end"
        return [Finding("complete", State.UNKNOWN, text, next_step=step, required=True), *causes]
    return causes or [Finding("complete", State.PASS, "every phase was finished", required=True)]


def _leads(error: RunError) -> bool:
    """A process that cannot be killed is news of its own, whatever went wrong before."""
    return error.first_cause or error.kind == "stuck"


def _cause(run: Run, error: RunError) -> Finding:
    others = sum(1 for other in run.errors if not _leads(other) and other.attempt == error.attempt)
    devices = {rank.rank: rank.device for rank in run.ranks if rank.attempt == error.attempt}
    says_where = error.kind in ("stalled", "absent") and (error.phase or "") in error.message
    where = f" in phase {error.phase}" if error.phase and not says_where else ""
    who = f"rank {error.rank} " if error.rank is not None else ""
    if error.kind == "no_cuda":
        who, where = f"{len(run.plan.devices)} GPUs found, but ", ""
    verb = "failed: " if error.kind in ("exception", "out_of_memory") else ""
    evidence = hang_evidence(run, error) if error.first_cause else ()
    evidence += (f"{counted(others, 'other error')} followed from it",) if others and error.first_cause else ()
    return Finding(
        "complete",
        State.UNKNOWN,
        f"{who}{verb}{error.message}{where}",
        subject=rank_label(run, error.rank, devices[error.rank]) if error.rank in devices else None,
        evidence=evidence,
        next_step=hang_step(run, error) or _step(run, error),
        required=True,
    )


def _step(run: Run, error: RunError) -> str:
    if error.kind == "stalled" and run.plan.backend == "gloo":
        return "GLOO_SOCKET_IFNAME names the interface that gloo takes; smaller --sizes or --stall-timeout give it time"
    return _STEPS.get(error.kind, "the rank's last lines are in the saved record")


_STEPS = {
    "out_of_memory": "give a smaller --batch, or free the device",
    "no_cuda": "install a torch that fits the driver, or give --device cpu to see the method on the CPU",
    "killed": "see who killed it; a kernel log line 'Out of memory' means the host ran out",
    "stuck": "see `dmesg` for what it waits in; only a reboot is sure to free the device",
    "stalled": "NCCL_DEBUG=INFO and a second try show where; a P2P hang is often cured by NCCL_P2P_DISABLE=1",
}


def check_count(run: Run, facts: Facts) -> list[Finding]:
    """`--expect-gpus`: a node that lost a GPU fails however evenly the others train."""
    setting = run.settings.get("expect_gpus")
    expected = setting.value if setting else None
    if not isinstance(expected, int):
        return []
    found = len(run.node.devices)
    if found >= expected:
        return [Finding("count", State.PASS, f"{found} GPUs found, {expected} expected", required=True)]
    step = "see `nvidia-smi -L` and `dmesg | grep -i nvrm`: one may have fallen off the bus"
    return [Finding("count", State.FAIL, f"{expected} GPUs expected, {found} found", next_step=step, required=True)]


def check_identity(run: Run, facts: Facts) -> list[Finding]:
    """Every rank must sit on the device that it was planned for, or every row of the report names the wrong card."""
    return [
        Finding(
            "identity",
            State.UNKNOWN,
            f"rank {info.rank} ran on {info.device_uuid}, planned was {run.plan.devices[info.device].uuid}",
            next_step="please report it with the saved record",
            required=True,
        )
        for info in run.ranks
        if None not in (info.device_uuid, run.plan.devices[info.device].uuid)
        and info.device_uuid != run.plan.devices[info.device].uuid
    ]


def check_host(run: Run, facts: Facts) -> list[Finding]:
    """A host that is busy with other things, as far as it bears on the verdict."""
    findings = []
    busy = run.node.cpu_busy_before
    if busy is not None and busy > BUSY_HOST and run.plan.backend == "gloo":
        findings.append(
            Finding(
                "host_busy",
                State.UNKNOWN,
                f"the host was {percent(busy)} busy before the run; CPU ranks share its cores",
                next_step="stop what else runs here and measure again",
                required=True,
            )
        )
    first = facts.first
    if first is not None and run.ddp[0].warm_up is not None and not run.ddp[0].warm_up.settled:
        findings.append(Finding("warm_up", State.INFO, "the warm-up ended by its time limit before steps were steady"))
    return findings


def check_sensor(run: Run, facts: Facts) -> list[Finding]:
    """The sensor's own health. Without it step times still decide; only the columns beside them are missing."""
    health = run.samples.health
    if health is None:
        return [Finding("sensor", State.INFO, "no sensor data")]
    if health.hung_in is not None:
        return [
            Finding(
                "sensor",
                State.WARN,
                f"the driver stopped answering during the run: {health.hung_in} did not return",
                next_step="see `dmesg | grep -i nvrm` for Xid messages",
            )
        ]
    if run.interrupted_by and f"{health.died_with},".startswith(f"exit code -{run.interrupted_by},"):
        return []  # a signal to all processes of a job step (scancel) is no fault of the sensor
    if health.died_with is not None:
        text = f"the sensor ended early: {health.died_with}"
        return [Finding("sensor", State.WARN, text, next_step="please report it")]
    if health.lateness_max_ms is not None and health.lateness_max_ms > LATE_MS:
        text = f"the sensor was up to {health.lateness_max_ms:.0f} ms late: the host is short of CPU"
        return [Finding("sensor", State.INFO, text)]
    return []


def check_counters(run: Run, facts: Facts) -> list[Finding]:
    """Error counters that could not be read are not errors that did not happen."""
    failed = [c for c in run.samples.counters if "counters" in c.missing]
    if not failed:
        return []
    read = {c.edge for c in run.samples.counters if c.values}
    edges = sorted({c.edge for c in failed} - read)
    text = f"error counters were not read at {counted(len(edges), 'phase edge')}: {failed[0].missing['counters']}"
    return (
        [Finding("counters", State.UNKNOWN, text, next_step="nvidia-smi -q shows ECC and NVLink errors")]
        if edges
        else []
    )


def check_foreign(run: Run, facts: Facts) -> list[Finding]:
    """Processes of others on the measured devices while we measured.

    Where none of our own ranks is in the list, NVML gives the pids of another namespace (the host's, inside a
    container), and nobody can be told from us.
    """
    if not pids_are_known(run):
        text = "the driver numbers processes as the host does: those of others on these GPUs cannot be told from ours"
        return [Finding("foreign_process", State.INFO, text)] if run.samples.processes else []
    foreign = [process for process in run.samples.processes if process.rank is None]
    return [
        Finding(
            "foreign_process",
            State.WARN,
            f"pid {process.pid} was on {name_of(run, process.device)} during the run; numbers are about both",
            subject=labels_of(run, process.device),
            next_step="stop it and measure again",
        )
        for process in foreign
    ]
