"""What all rules of a probe share: how a rule is declared, and what a value that is not there means.

Every rule gives at least one finding, so that a reader sees what was looked at. Not supported is neither a pass nor a
fail (skip); anything else that kept a value away is unknown; nothing that was not measured passes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gpubalance.checks.finding import Finding, State, counted
from gpubalance.checks.identity import device_label
from gpubalance.record.node import Device, Scalar
from gpubalance.record.probe import DeviceDetail, Probe

Rule = Callable[[Probe], list[Finding]]

NOT_THERE = ("NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "INVALID_ARGUMENT")
"""NVML's words for: this GPU, or this driver, has no such thing."""


@dataclass(frozen=True)
class Check:
    """One rule. `id` is stable; `source` says where its threshold comes from."""

    id: str
    title: str
    rule: Rule
    source: str
    required: bool = False
    """An unknown of a required check leaves no verdict."""

    def findings(self, probe: Probe) -> list[Finding]:
        """What the rule found, under this check's id."""
        found = self.rule(probe) or [self._nothing(probe)]
        return [replace(finding, id=self.id, required=self.required) for finding in found]

    def _nothing(self, probe: Probe) -> Finding:
        """A rule without a GPU to look at: none is here, or the driver that should tell of them is silent."""
        silent = driver_silence(probe)
        if silent is not None and (probe.load is not None or not self.id.startswith("Q")):
            return Finding(self.id, State.UNKNOWN, f"{self.title} not measured: {silent}")
        return Finding(self.id, State.SKIP, f"{self.title}: not applicable")


def driver_silence(probe: Probe) -> str | None:
    """Why the driver told nothing although there must be GPUs, or None."""
    if probe.node is None:
        return "the driver did not answer"
    return "NVML cannot be used" if probe.node.nvml_error and probe.node.gpu_evidence else None


@dataclass(frozen=True)
class Gpu:
    """One GPU of the node, with everything that is known of it."""

    index: int
    """NVML index."""
    device: Device
    detail: DeviceDetail

    @property
    def name(self) -> str:
        """How a sentence calls it; nvidia-smi counts the same way."""
        return f"GPU {self.index}"

    @property
    def label(self) -> str:
        """Every identity, for `subject`."""
        return device_label(self.device)

    def value(self, key: str) -> Scalar:
        """A reading at rest or a detail; null when there is none."""
        found = self.detail.values.get(key)
        return self.device.readings.get(key) if found is None else found

    def number(self, key: str) -> float | None:
        """The same where it is a number."""
        value = self.value(key)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def reason(self, key: str) -> str:
        """Why a value is null, in NVML's words or ours."""
        if self.detail.failed is not None and key not in self.device.readings:
            return self.detail.failed
        return self.detail.missing.get(key) or self.device.missing.get(key) or "not read"

    @property
    def group(self) -> tuple[Scalar, ...]:
        """GPUs of one group can be compared: same model, MIG state and power limit."""
        return self.device.name, self.device.mig_enabled, self.device.readings.get("power_limit_w")


def gpus_of(probe: Probe) -> list[Gpu]:
    """All GPUs that NVML lists."""
    if probe.node is None:
        return []
    details = {detail.nvml_index: detail for detail in probe.details}
    return [
        Gpu(index, device, details.get(index, DeviceDetail(nvml_index=index, failed="not asked")))
        for index, device in enumerate(probe.node.devices)
    ]


def groups_of(gpus: Iterable[Gpu]) -> list[list[Gpu]]:
    """GPUs that can be compared with one another."""
    groups: dict[tuple[Scalar, ...], list[Gpu]] = defaultdict(list)
    for gpu in gpus:
        groups[gpu.group].append(gpu)
    return list(groups.values())


def is_absent(reason: str) -> bool:
    """True when the reason means that the GPU or the driver has no such thing."""
    return reason.removeprefix("SKIPPED after ") in NOT_THERE


def finding(state: State, message: str, **more: object) -> Finding:
    """A finding without its id, which `Check.findings` puts in."""
    return Finding("", state, message, **more)  # type: ignore[arg-type]


def each_gpu(
    probe: Probe, key: str, what: str, judge: Callable[[Gpu, float], Iterable[Finding]], good: str
) -> list[Finding]:
    """Judge one number of each GPU.

    `what` names the number ("ECC errors"), `good` is the sentence when nothing was found; "on 8 GPUs" is added.
    """
    gpus = gpus_of(probe)
    found: list[Finding] = []
    measured = 0
    for gpu in gpus:
        value = gpu.number(key)
        if value is not None:
            measured += 1
            found += judge(gpu, value)
    found += not_measured(gpus, key, what)
    if measured and not any(f.state in (State.FAIL, State.WARN) for f in found):
        found.append(finding(State.PASS, f"{good} on {counted(measured, 'GPU')}"))
    return found


def not_measured(gpus: Sequence[Gpu], key: str, what: str) -> Iterator[Finding]:
    """One finding for each reason why the number is null, naming the GPUs."""
    reasons: dict[str, list[Gpu]] = defaultdict(list)
    for gpu in gpus:
        if gpu.value(key) is None:
            reasons[gpu.reason(key).removeprefix("SKIPPED after ")].append(gpu)
    for reason, without in reasons.items():
        who = "" if len(without) == len(gpus) else f" on GPU {', '.join(str(gpu.index) for gpu in without)}"
        if is_absent(reason):
            yield finding(State.SKIP, f"{what}{who}: not supported")
        else:
            yield finding(
                State.UNKNOWN,
                f"{what}{who} not measured: {reason}",
                subject="; ".join(gpu.label for gpu in without) if who else None,
                next_step="run as root or with more rights" if reason == "NO_PERMISSION" else None,
            )


def setting(probe: Probe, name: str) -> int | None:
    """A whole number that the user gave, such as --expect-gpus."""
    given = probe.settings.get(name)
    return given.value if given is not None and isinstance(given.value, int) else None
