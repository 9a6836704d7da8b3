"""After each real run: what it said of this node, for `gpubalance verdict`.

Not kept is what says nothing of the node: faults played on purpose, simulated drivers, runs that a signal ended, and
CPU runs on a machine that has a GPU (a broken GPU node must never pass as a CPU node).
"""

from __future__ import annotations

import socket
from pathlib import Path

from gpubalance.checks.probing.verdict import ProbeJudgement
from gpubalance.checks.verdict import Judgement
from gpubalance.record.history import LastVerdict, end_of, save_last_verdict
from gpubalance.record.probe import Probe
from gpubalance.record.run import Run


def remember_run(home: Path, run: Run, judgement: Judgement, exit_code: int, saved: str | None) -> bool:
    """Keep the verdict of a bench. False when it says nothing of the node. Raises OSError."""
    off_gpu = run.plan.backend == "gloo" and bool(run.node.gpu_evidence)
    if run.injected or run.interrupted_by is not None or off_gpu:
        return False
    last = LastVerdict(
        kind="bench",
        hostname=socket.gethostname(),
        run_id=run.run_id,
        ended_at=end_of(run.started_at, run.duration_s),
        verdict=judgement.verdict.value,
        sentence=judgement.sentence,
        exit_code=int(exit_code),
        scope=_scope(run),
        record=_absolute(saved),
        gpubalance_version=run.gpubalance_version,
    )
    save_last_verdict(home, last)
    return True


def remember_probe(home: Path, probe: Probe, judgement: ProbeJudgement, exit_code: int, saved: str | None) -> bool:
    """Keep the verdict of a probe. False when it says nothing of the node. Raises OSError."""
    if probe.simulated is not None:
        return False
    chosen = [f"--{name}" for name in ("only", "skip") if name in probe.settings and probe.settings[name].value]
    last = LastVerdict(
        kind="probe",
        hostname=socket.gethostname(),
        run_id=probe.probe_id,
        ended_at=end_of(probe.started_at, probe.duration_s),
        verdict=judgement.verdict.value,
        sentence=judgement.sentence,
        exit_code=int(exit_code),
        scope=f"some checks were left out by {' and '.join(chosen)}" if chosen else None,
        record=_absolute(saved),
        gpubalance_version=probe.gpubalance_version,
    )
    save_last_verdict(home, last)
    return True


def _scope(run: Run) -> str | None:
    used, here = len(run.plan.devices), len(run.node.devices)
    return f"{used} of {here} GPUs" if run.plan.backend == "nccl" and used < here else None


def _absolute(path: str | None) -> str | None:
    return str(Path(path).absolute()) if path is not None else None
