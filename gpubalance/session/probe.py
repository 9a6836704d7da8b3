"""`gpubalance probe`: what is here, is it healthy, what would hurt a training job. The whole story, top to bottom.

torch is asked in a child -> the sensor takes the snapshot -> an inspector for each GPU -> the host is read -> with
`--load` a child for each GPU works -> one record -> findings, verdict.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpubalance import __version__
from gpubalance.checks.probing.verdict import ProbeJudgement, choose, judge_probe, named
from gpubalance.errors import CannotMeasureError
from gpubalance.launch.launcher_env import Share
from gpubalance.launch.lock import MeasuringLock
from gpubalance.launch.signals import interruptible
from gpubalance.launch.sizing import choose_model
from gpubalance.launch.start import RANK_MODULE, child_environment
from gpubalance.node.host_details import read_host
from gpubalance.record.job import Job, Slot
from gpubalance.record.node import Device, Node
from gpubalance.record.probe import DeviceDetail, HostDetail, Load, Probe, TorchDetail
from gpubalance.sampling.client import SensorProcess
from gpubalance.sampling.collect import collect_samples
from gpubalance.sampling.inspection import inspect_devices
from gpubalance.sampling.torch_question import TorchQuestion
from gpubalance.session.assemble import recorded
from gpubalance.session.load_run import DEADLINE_S, left_alone, load_record, run_children
from gpubalance.session.workspace import workspace
from gpubalance.settings import ProbeSettings

LOOKS = 3
LOOK_PAUSE_S = 1.5
"""NVLinks train for some seconds after a boot or a reset: what may pass is looked at again before it is a fault."""

SAMPLE_INTERVAL_S = 0.1
LOAD_SEED = 2026


@dataclass(frozen=True)
class Probed:
    """The record of a look and what it means."""

    probe: Probe
    judgement: ProbeJudgement


@dataclass
class _Look:
    """What is known so far."""

    node: Node | None = None
    details: list[DeviceDetail] = field(default_factory=list)
    looks: int = 1
    load: Load | None = None
    nvml_failed: str | None = None


def probe(
    settings: ProbeSettings, *, module: str = RANK_MODULE, load_limit_s: float = DEADLINE_S, root: Path = Path("/")
) -> Probed:
    """Look at this node, or at the stand-in that `simulate` names.

    `module` is what a loaded GPU's child runs, `root` where the host's files are; both are for tests. Raises
    UsageError for a check or a profile that does not exist, BusyError when somebody else measures here.
    """
    choose(settings.only, settings.skip)
    named(settings.require)
    profile = _profile(settings.simulate)
    started, start_s = datetime.now(timezone.utc), time.monotonic()
    with interruptible(), workspace(Share("own")) as folder, _alone(settings):
        environment = child_environment(os.environ, ())
        with _torch(folder, environment, profile) as torch:
            look = _Look()
            host = HostDetail() if profile is not None else read_host(root, os.environ)
            _look(settings, folder, environment, look, profile, start_s, module, load_limit_s)
            answer = _simulated_torch(profile) if torch is None else torch.answer()
    record = Probe(
        gpubalance_version=__version__,
        probe_id=f"{started:%Y-%m-%dT%H-%M-%S}-{secrets.token_hex(3)}",
        started_at=started.isoformat(timespec="seconds"),
        duration_s=round(time.monotonic() - start_s, 2),
        settings=recorded(vars(settings), settings.origins),
        simulated=settings.simulate,
        looks=look.looks,
        node=look.node,
        details=look.details,
        host=host,
        torch=answer,
        load=look.load,
        nvml_failed=look.nvml_failed,
    )
    return Probed(record, judge_probe(record))


def _profile(name: str | None) -> dict[str, Any] | None:
    if name is None:
        return None
    from gpubalance.testing.profiles import load_profile

    return load_profile(name)


@contextlib.contextmanager
def _alone(settings: ProbeSettings) -> Iterator[None]:
    """Only a load disturbs others; looking does not."""
    lock = MeasuringLock()
    if settings.load:
        lock.acquire(force=settings.force)
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _torch(folder: Path, environment: Mapping[str, str], profile: object) -> Iterator[TorchQuestion | None]:
    question = None if profile is not None else TorchQuestion(folder, environment)
    try:
        yield question
    finally:
        if question is not None:
            question.end()


def _simulated(node: Node, profile: Mapping[str, Any] | None) -> Node:
    """A simulated driver comes with a simulated host, so that this machine's cores and container are not judged."""
    if profile is None:
        return node
    cores = list(range(512))
    host: dict[str, Any] = {"hostname": "simulated", "container": None, "cpu_model": None, "cpu_count": len(cores)}
    host |= {"cpu_effective": float(len(cores)), "cpu_cores": cores, "environment": {}, "processes": node.processes}
    return node.model_copy(update={**host, **profile.get("node", {})})


def _simulated_torch(profile: Mapping[str, Any] | None) -> TorchDetail:
    """What the profile says of torch; one that says nothing has a torch that fits."""
    said = (profile or {}).get("torch")
    if said is not None:
        return TorchDetail.model_validate(said)
    return TorchDetail(version="simulated", cuda="12.0", arch_list=["compute_50"], cuda_available=True)


def _look(
    settings: ProbeSettings,
    folder: Path,
    environment: Mapping[str, str],
    look: _Look,
    profile: dict[str, Any] | None,
    start_s: float,
    module: str,
    load_limit_s: float,
) -> None:
    stand_in = None
    if profile is not None:
        stand_in = folder / "profile.json"
        stand_in.write_text(json.dumps(profile))
    sensor = SensorProcess(folder, SAMPLE_INTERVAL_S, environment, stand_in)
    try:
        try:
            look.node = _simulated(sensor.node(), profile)
        except CannotMeasureError as error:
            look.nvml_failed = error.message
            return
        _inspect(folder, look, look.node, environment, stand_in)
        if settings.load:
            look.load = _load(settings, folder, look.node, sensor, module, load_limit_s, start_s)
    finally:
        sensor.stop()


def _inspect(folder: Path, look: _Look, node: Node, environment: Mapping[str, str], stand_in: Path | None) -> None:
    """Ask all GPUs; what may pass by itself is looked at again."""
    count = len(node.devices)
    for number in range(1, LOOKS + 1):
        look.looks = number
        look.details = inspect_devices(folder, count, environment, stand_in)
        if not any(_may_pass(detail) for detail in look.details) or number == LOOKS:
            return
        time.sleep(LOOK_PAUSE_S)


def _may_pass(detail: DeviceDetail) -> bool:
    """Links that train, and a fabric that comes up."""
    training = any(link.active is False for link in detail.links)
    return training or detail.values.get("fabric_state") in ("NOT_STARTED", "IN_PROGRESS")


def _load(
    settings: ProbeSettings,
    folder: Path,
    node: Node,
    sensor: SensorProcess,
    module: str,
    limit_s: float,
    start_s: float,
) -> Load:
    reasons = {index: left_alone(device, node, force=settings.force) for index, device in enumerate(node.devices)}
    chosen = [index for index, reason in reasons.items() if reason is None]
    skipped = {index: reason for index, reason in reasons.items() if reason is not None}
    if not chosen:
        return load_record(
            [], [], skipped, collect_samples([], start_s=start_s, interval_s=0.1, rank_of_pid={}), start_s
        )
    uuids = [str(node.devices[index].uuid) for index in chosen]
    environment = child_environment(os.environ, uuids)
    sensor.begin(chosen, range(len(chosen)))
    sensor.edge("load begin")
    children = run_children(
        _load_job(folder, [node.devices[index] for index in chosen], limit_s), environment, module, limit_s
    )
    sensor.edge("load end")
    events = sensor.stop()
    pids = {event["pid"]: child.rank for child in children for event in child.state.events if event["event"] == "hello"}
    samples = collect_samples(
        events, start_s=start_s, interval_s=SAMPLE_INTERVAL_S, rank_of_pid=pids, hung_in=sensor.hung_in,
        died_with=sensor.died_with, last_words=sensor.last_words,
    )  # fmt: skip
    return load_record(children, chosen, skipped, samples, start_s)


def _load_job(folder: Path, devices: list[Device], limit_s: float) -> Job:
    """One rank a GPU, each a world of its own."""
    return Job(
        attempt=0,
        crew="load",
        device="cuda",
        backend="nccl",
        slots=tuple(Slot(rank, rank, device.uuid, ()) for rank, device in enumerate(devices)),
        phases=("load",),
        model=choose_model("mlp", devices)[0].model_dump(),
        global_batch=1,
        per_rank_batch=1,
        faults=(),
        budget_s=None,
        group_timeout_s=limit_s,
        log_folder=str(folder),
        seed=LOAD_SEED,
    )
