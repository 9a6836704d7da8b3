"""What `gpubalance probe` prints: a verdict that stands alone in 80 columns, findings worst first, then the picture of
the node: devices, how they are joined, host. Pure.
"""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from gpubalance.checks.finding import Finding, State, counted
from gpubalance.checks.probing.check import Gpu, gpus_of
from gpubalance.checks.probing.verdict import ProbeJudgement
from gpubalance.record.probe import Probe
from gpubalance.record.untrusted import STDIN
from gpubalance.reports.common_tables import speed_cells
from gpubalance.reports.fold import WIDTH, Line, paragraph, put_together
from gpubalance.reports.printable import printable
from gpubalance.reports.probe_tables import links_up, way_of
from gpubalance.reports.rank_table import aligned
from gpubalance.reports.terminal import WORDS

SHOWN = (State.FAIL, State.UNKNOWN, State.WARN)
MANY = 3
COUNTED = (
    (State.PASS, "pass"),
    (State.INFO, "info"),
    (State.WARN, "warn"),
    (State.FAIL, "fail"),
    (State.SKIP, "not applicable"),
    (State.UNKNOWN, "not measured"),
)


def probe_lines(
    probe: Probe, judgement: ProbeJudgement, saved: str | None, width: int = WIDTH, *, verbose: bool = False
) -> list[Line]:
    """The whole report."""
    sections = [
        [verdict_line(judgement, max(width, WIDTH))],
        [*_findings(judgement, verbose=verbose), _counts(judgement)],
        _devices(probe),
        _matrix(probe),
        [Line(text) for text in _loads(probe)],
        [paragraph(text) for text in (*_said_aloud(judgement), *_node(probe, saved))],
    ]
    return put_together(sections, width)


def verdict_line(judgement: ProbeJudgement, width: int = WIDTH) -> Line:
    """At most so many characters; what does not fit is cut at a word, and stands whole below."""
    word = WORDS[judgement.verdict]
    room = width - len(word) - 2
    sentence = printable(judgement.sentence)
    if len(sentence) > room:
        sentence = textwrap.shorten(sentence, room, placeholder=" ...")
    return paragraph(f"{word}  {sentence}", " " * (len(word) + 2), judgement.verdict.value)


def _findings(judgement: ProbeJudgement, *, verbose: bool) -> Iterator[Line]:
    silent = {} if verbose else _silent(judgement.findings)
    said: set[str] = set()
    for found in judgement.findings:
        whom = _silent_one(found)
        if whom in silent:
            if whom not in said:
                said.add(whom)
                yield _told_nothing(whom, silent[whom])
        elif verbose or found.state in SHOWN:
            yield from _finding(found)


def _told_nothing(subject: str, unknown: list[Finding]) -> Line:
    ids = list(dict.fromkeys(each.id for each in unknown))
    text = f"{len(ids)} checks not measured, {subject} ({', '.join(ids)}); --verbose shows each"
    return paragraph(f"{'...':3} {State.UNKNOWN.value:7} {text}", " " * 12)


def _silent_one(found: Finding) -> str:
    """Whom an unknown is about: the GPU, or whatever the reason names; nobody for what is known."""
    if found.state is not State.UNKNOWN:
        return ""
    return found.subject or found.message.partition(" not measured: ")[2] or found.message


def _silent(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Subjects of which so much is unknown that one line says it better, as of a GPU that is lost."""
    unknown: dict[str, list[Finding]] = defaultdict(list)
    for found in findings:
        if found.state is State.UNKNOWN:
            unknown[_silent_one(found)].append(found)
    return {subject: those for subject, those in unknown.items() if len(those) > MANY}


def _finding(found: Finding) -> Iterator[Line]:
    """Id, state and sentence; below it who, what speaks for it, what it is held against, what to do."""
    head = f"{found.id:3} {found.state.value:7} "
    indent = " " * len(head)
    yield paragraph(f"{head}{found.message}", indent)
    seen = ", expected ".join(part for part in (found.observed, found.expected) if part)
    parts = [found.subject, seen, *found.evidence, f"Next: {found.next_step}." if found.next_step else None]
    for part in filter(None, parts):
        yield paragraph(f"{indent}{part}", f"{indent}  ")


def _counts(judgement: ProbeJudgement) -> Line:
    """By check, each under its worst state."""
    order = [State.FAIL, State.UNKNOWN, State.WARN, State.INFO, State.PASS, State.SKIP]
    worst: dict[str, State] = {}
    for found in judgement.findings:
        before = worst.get(found.id, State.SKIP)
        worst[found.id] = min(before, found.state, key=order.index)
    counts = Counter(worst.values())
    text = ", ".join(f"{counts[state]} {name}" for state, name in COUNTED if counts[state])
    return paragraph(f"{counted(len(worst), 'check')}: {text}")


def _devices(probe: Probe) -> list[Line]:
    gpus = gpus_of(probe)
    if not gpus:
        return []
    rows: list[tuple[str, ...]] = [
        ("nvml", "cuda", "memory", "used", "util", "links", "PCIe", "clock", "power", "temp"),
        ("", "", "GiB", "GiB", "%", "up", "", "MHz", "W", "C"),
    ]
    rows += [_device(gpu) for gpu in gpus]
    names = [paragraph(_identity(gpu), " " * 7) for gpu in gpus]
    return [*map(Line, aligned(rows)), *names]


def _identity(gpu: Gpu) -> str:
    device = gpu.device
    return " ".join(filter(None, (f"{gpu.name}:", device.name, device.uuid, device.pci_bus_id)))


def _device(gpu: Gpu) -> tuple[str, ...]:
    ordinal = gpu.device.cuda_ordinal
    return (
        str(gpu.index),
        "-" if ordinal is None else str(ordinal),
        _gib(gpu.device.memory_total_bytes),
        _gib(gpu.number("memory_used_bytes"), 1),
        _number(gpu.number("utilization_percent")),
        links_up(gpu),
        _pcie(gpu),
        _number(gpu.number("sm_clock_mhz")),
        _number(gpu.number("power_w")),
        _number(gpu.number("temperature_c")),
    )


def _pcie(gpu: Gpu) -> str:
    generation, width = gpu.number("pcie_generation"), gpu.number("pcie_width")
    return "-" if generation is None or width is None else f"{generation:.0f} x{width:.0f}"


def _gib(size: float | None, digits: int = 0) -> str:
    return "-" if size is None else f"{size / 2**30:.{digits}f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _matrix(probe: Probe) -> list[Line]:
    """Who reaches whom: NVLink where there is peer access over it, else the way on the board."""
    gpus = gpus_of(probe)
    if len(gpus) < 2 or not any(gpu.detail.peers for gpu in gpus):
        return []
    rows: list[tuple[str, ...]] = [("to GPU", *(str(gpu.index) for gpu in gpus))]
    for gpu in gpus:
        peers = {peer.nvml_index: peer for peer in gpu.detail.peers}
        rows.append((gpu.name, *("." if o.index == gpu.index else way_of(peers.get(o.index)) for o in gpus)))
    legend = "NVL: peer access over NVLink; else nvidia-smi's words, ! where peers cannot read"
    return [*map(Line, aligned(rows)), paragraph(legend)]


def _loads(probe: Probe) -> list[str]:
    if probe.load is None or not any(result.speed for result in probe.load.results):
        return []
    rows: list[tuple[str, ...]] = [
        ("under load", "product", "memory", "to GPU", "from GPU", "seconds"),
        ("", "TFLOP/s", *["GB/s"] * 3, ""),
    ]
    rows += [
        (f"GPU {probe.load.devices[result.device]}", *speed_cells(result.speed), f"{result.seconds:.1f}")
        for result in probe.load.results
    ]
    return aligned(rows)


def _said_aloud(judgement: ProbeJudgement) -> list[str]:
    """That limits of a model rest on the driver's own words alone is never left to `--verbose`."""
    return [found.message for found in judgement.findings if found.id == "Q5" and found.state is State.INFO]


def _node(probe: Probe, saved: str | None) -> Iterator[str]:
    """Driver, torch, host, and what was asked for."""
    node, torch, host = probe.node, probe.torch, probe.host
    if node is not None and node.driver_version:
        yield f"driver {node.driver_version}, CUDA {node.cuda_driver_version} at most, NVML {node.nvml_version}"
    yield (
        f"torch: {torch.error}"
        if torch.error
        else " ".join(
            f"{name} {value}"
            for name, value in (("torch", torch.version), ("CUDA", torch.cuda or "none"), ("NCCL", torch.nccl))
            if value
        )
    )
    if node is not None:
        where = [
            node.hostname,
            node.container or ("WSL" if host.wsl else "virtual machine" if host.virtual_machine else ""),
        ]
        yield ", ".join(filter(None, where)) + f": {node.cpu_model or 'unknown CPU'}, {_cpus(probe)}"
        memory = None if node.memory_total_bytes is None else f"memory {node.memory_total_bytes / 2**30:.0f} GiB"
        shm = None if host.shm_total_bytes is None else f"/dev/shm {host.shm_total_bytes / 2**30:.1f} GiB"  # noqa: S108  (its size is what is said)
        yield ", ".join(filter(None, (memory, shm)))
        if node.visibility is not None and len(node.visibility.visible) < len(node.devices):
            hidden = f"{len(node.visibility.visible)} of {len(node.devices)} GPUs visible"
            yield f"CUDA_VISIBLE_DEVICES={node.visibility.asked}: {hidden}"
    if probe.simulated is not None:
        yield f"Simulated: {probe.simulated}. This says nothing about this machine."
    took = f"Looked for {probe.duration_s:.1f} s"
    if torch.seconds is not None:
        took += f", of which a child imported torch for {torch.seconds:.1f} s"
    yield f"{took}." if probe.load is not None else f"{took}; --load puts each GPU to work."
    if saved not in (None, str(STDIN)):
        yield f"Saved: {saved}"


def _cpus(probe: Probe) -> str:
    assert probe.node is not None
    count, usable = probe.node.cpu_count, probe.node.cpu_effective
    nodes = len(probe.host.numa_nodes)
    numa = f", {nodes} NUMA nodes" if nodes > 1 else ""
    return f"{usable:g} of {count} CPUs usable{numa}"


def joined(lines: Iterable[Line]) -> str:
    """The report as text."""
    return "".join(f"{line.text}\n" for line in lines)
