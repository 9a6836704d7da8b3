"""Prometheus' text format, for node_exporter's textfile collector: gauges in base units, one sample for each thing that
was measured. What is null has no sample; it is never 0.

Devices carry the labels of dcgm-exporter (gpu, UUID here as uuid, pci_bus_id in its spelling), so that both join. Every
sample says its kind, bench or probe, so that a node may keep one file of each. HELP and TYPE of all metrics always
stand there, whatever the record holds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from gpubalance.analysis.facts import AttemptFacts
from gpubalance.checks.verdict import Judgement, Verdict
from gpubalance.record.node import Device
from gpubalance.record.probe import Probe
from gpubalance.record.run import Run
from gpubalance.record.timings import DeviceProbe
from gpubalance.reports.printable import printable
from gpubalance.reports.record_parts import (
    AnyJudgement,
    Record,
    balance_of,
    count_states,
    devices_named,
    devices_of,
    rehearsal,
    speeds_of,
    versions_of,
)

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

Labels = tuple[str, ...]
Sample = tuple[Labels, float | None]
Samples = Callable[[Record, AnyJudgement], Iterator[Sample]]

DEVICE = ("gpu", "uuid", "pci_bus_id")
RANK = ("rank", *DEVICE)
VERSIONS = ("gpubalance", "driver", "torch", "cuda", "nccl")


@dataclass(frozen=True)
class Metric:
    """One gauge: its name without the prefix, what it says, its labels, and where its samples come from."""

    name: str
    help: str
    labels: Labels
    samples: Samples


def prometheus_text(record: Record, judgement: AnyJudgement) -> str:
    """All metrics of a record."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    for metric in METRICS:
        _register(registry, metric, record, judgement)
    return generate_latest(registry).decode()


def _register(registry: CollectorRegistry, metric: Metric, record: Record, judgement: AnyJudgement) -> None:
    from prometheus_client import Gauge

    gauge = Gauge(f"gpubalance_{metric.name}", metric.help, ("kind", *metric.labels), registry=registry)
    for labels, value in metric.samples(record, judgement):
        if value is not None:
            gauge.labels(record.kind, *map(printable, labels)).set(value)


def device_labels(device: Device) -> Labels:
    """NVML index, UUID and bus id; DCGM spells a bus id with eight digits of domain and capitals. Empty: unknown."""
    index = "" if device.nvml_index is None else str(device.nvml_index)
    domain, _, rest = (device.pci_bus_id or "").partition(":")
    return index, device.uuid or "", f"{domain:0>8}:{rest}".upper() if rest else ""


def _verdict(_record: Record, judgement: AnyJudgement) -> Iterator[Sample]:
    for verdict in Verdict:
        yield (verdict.value,), float(judgement.verdict is verdict)


def _info(record: Record, _judgement: AnyJudgement) -> Iterator[Sample]:
    known = versions_of(record)
    yield tuple(known.get(name, "") for name in VERSIONS), 1.0


def _devices(record: Record, _judgement: AnyJudgement) -> Iterator[Sample]:
    for device in devices_of(record):
        yield (*device_labels(device), device.name), 1.0


def _timestamp(record: Record, _judgement: AnyJudgement) -> Iterator[Sample]:
    yield (), _epoch_s(record.started_at)


def _epoch_s(text: str) -> float | None:
    """Seconds since 1970 of a time in UTC, with or without its zone; None when it is no time."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))  # Python 3.10 does not read Z
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def _rehearsal(record: Record, _judgement: AnyJudgement) -> Iterator[Sample]:
    yield (), float(rehearsal(record) is not None)


def _states(_record: Record, judgement: AnyJudgement) -> Iterator[Sample]:
    for state, count in count_states(judgement).items():
        yield (state.value,), float(count)


def _findings(record: Record, judgement: AnyJudgement) -> Iterator[Sample]:
    """A finding about several devices is one sample for each; about the node, one with empty labels."""
    for finding in judgement.findings:
        named = [device_labels(device) for device in devices_named(record, finding)] or [("", "", "")]
        for labels in named:
            yield (finding.id, finding.state.value, *labels), 1.0


def _score(scale: float, *fields: tuple[str, str]) -> Samples:
    """Fields of the balance, scaled; each with its label, which is empty where there is only one."""

    def samples(_record: Record, judgement: AnyJudgement) -> Iterator[Sample]:
        balance = balance_of(judgement)
        for label, field in fields if balance is not None else ():
            value: float | None = getattr(balance, field)
            yield ((label,) if label else ()), None if value is None else value * scale

    return samples


def _by_rank(values: Callable[[Judgement, AttemptFacts], Mapping[int, float | None]]) -> Samples:
    """A number of each rank in the attempt that is judged."""

    def samples(record: Record, judgement: AnyJudgement) -> Iterator[Sample]:
        first = judgement.facts.first if isinstance(judgement, Judgement) else None
        if first is None or not isinstance(judgement, Judgement):
            return
        devices = devices_of(record)
        for rank, value in values(judgement, first).items():
            yield (str(rank), *device_labels(devices[first.device_of_rank[rank]])), value

    return samples


def _compute(_judgement: Judgement, first: AttemptFacts) -> Mapping[int, float | None]:
    return {rank: value / 1000 for rank, value in enumerate(first.compute_ms)}


def _wait(_judgement: Judgement, first: AttemptFacts) -> Mapping[int, float | None]:
    return {rank: value / 1000 for rank, value in enumerate(first.wait_ms)}


def _blame(_judgement: Judgement, first: AttemptFacts) -> Mapping[int, float | None]:
    return {rank: value / 1000 for rank, value in enumerate(first.balance.blame_ms)}


def _useful(judgement: Judgement, first: AttemptFacts) -> Mapping[int, float | None]:
    useful = judgement.facts.utilization.useful
    return {rank: value for rank, value in enumerate(useful) if rank < len(first.device_of_rank)}


def _bus_bandwidth(record: Record, _judgement: AnyJudgement) -> Iterator[Sample]:
    for row in record.collectives if isinstance(record, Run) else ():
        labels = (row.collective, str(row.size_bytes), row.mode, row.placement, row.backend, row.dtype, str(row.ranks))
        yield labels, row.bus_bandwidth_gb_per_s * 1e9


LINK = ("source_gpu", "source_uuid", "target_gpu", "target_uuid")


def _peers(field: str) -> Samples:
    """Copies from one device to another; `looks` stands for the median of the looks."""

    def samples(record: Record, _judgement: AnyJudgement) -> Iterator[Sample]:
        links = record.links if isinstance(record, Run) else None
        for peer in links.peers if links is not None else ():
            ends = [device_labels(devices_of(record)[device])[:2] for device in (peer.source, peer.target)]
            looks = statistics.median(peer.looks_gb_per_s) if peer.looks_gb_per_s else None
            value = looks if field == "looks" else getattr(peer, field)
            yield (*ends[0], *ends[1]), value if value is None or field == "wrong_bytes" else value * 1e9

    return samples


def _host_copies(field: str) -> Samples:
    def samples(record: Record, _judgement: AnyJudgement) -> Iterator[Sample]:
        links = record.links if isinstance(record, Run) else None
        for copies in links.devices if links is not None else ():
            for together in ("", "together_"):
                value = getattr(copies, f"{together}{field}")
                labels = device_labels(devices_of(record)[copies.device])
                yield (*labels, "yes" if together else "no"), None if value is None else value * 1e9

    return samples


def _communication(_record: Record, judgement: AnyJudgement) -> Iterator[Sample]:
    links = judgement.facts.links if isinstance(judgement, Judgement) else None
    yield (), None if links is None or links.score is None else links.score / 100


def _expected_bandwidth(_record: Record, judgement: AnyJudgement) -> Iterator[Sample]:
    largest = judgement.facts.bandwidth.largest if isinstance(judgement, Judgement) else ()
    for each in largest:
        if each.expected is not None:
            yield (each.collective, str(each.size_bytes), each.expected.algorithm), each.expected.gb_per_s * 1e9


def _speed(value: Callable[[DeviceProbe], float]) -> Samples:
    def samples(record: Record, _judgement: AnyJudgement) -> Iterator[Sample]:
        for device, speed in speeds_of(record):
            yield device_labels(device), value(speed)

    return samples


def _duration(record: Record, _judgement: AnyJudgement) -> Iterator[Sample]:
    yield (), record.duration_s


def _gpus(record: Record, _judgement: AnyJudgement) -> Iterator[Sample]:
    """A probe whose driver is silent saw no number at all, which is not 0."""
    blind = isinstance(record, Probe) and (record.node is None or record.node.nvml_error is not None)
    yield (), None if blind else float(sum(device.kind == "cuda" for device in devices_of(record)))


METRICS = (
    Metric("verdict", "1 for the verdict of the record, 0 for the three others.", ("verdict",), _verdict),
    Metric("rehearsal", "1 when a fault was injected or a driver simulated: nothing is said of the node.",
           (), _rehearsal),
    Metric("run_timestamp_seconds", "When the run or probe began, in seconds since 1970.", (), _timestamp),
    Metric("run_duration_seconds", "How long the run or probe took.", (), _duration),
    Metric("info", "Versions that took part; empty is not known.", VERSIONS, _info),
    Metric("gpus", "GPUs that took part in the run, or that the probe saw.", (), _gpus),
    Metric("device_info", "A device that took part in the run, or that the probe saw.", (*DEVICE, "model"), _devices),
    Metric("findings", "Findings in each state.", ("state",), _states),
    Metric("finding", "A finding, its state, and the device that it is about, if any.", ("id", "state", *DEVICE),
           _findings),
    Metric("balance_ratio", "Share of the step rate that the node would have if every rank were like the reference.",
           (), _score(0.01, ("", "score"))),
    Metric("balance_bound_ratio", "95 % interval of the balance.", ("bound",),
           _score(0.01, ("low", "low"), ("high", "high"))),
    Metric("balance_factor_ratio", "Factors of the balance; transient may be above 1.", ("factor",),
           _score(0.01, ("link", "link"), ("persistent", "persistent"), ("transient", "transient"))),
    Metric("step_seconds", "Time of a training step, gradients exchanged.", (), _score(1e-3, ("", "step_ms"))),
    Metric("step_lost_seconds", "Time that imbalance costs in a step; noise may make it negative.",
           (), _score(1e-3, ("", "lost_ms"))),
    Metric("rank_compute_seconds", "Median time of a rank's own work in a step.", RANK, _by_rank(_compute)),
    Metric("rank_wait_seconds", "Mean time that a rank waits for the slowest one in a step.", RANK, _by_rank(_wait)),
    Metric("rank_blame_seconds", "What of the lost time in a step is owed to the rank.", RANK, _by_rank(_blame)),
    Metric("rank_useful_ratio", "Share of a step in which the device of the rank computes.", RANK, _by_rank(_useful)),
    Metric("collective_bus_bandwidth_bytes_per_second", "Bus bandwidth of a collective, as nccl-tests defines it.",
           ("collective", "size_bytes", "mode", "placement", "backend", "dtype", "ranks"), _bus_bandwidth),
    Metric("collective_expected_bytes_per_second", "What the links let expect of a collective's largest message.",
           ("collective", "size_bytes", "algorithm"), _expected_bandwidth),
    Metric("communication_ratio", "Slowest link between devices over the median of its class.", (), _communication),
    Metric("link_bytes_per_second", "Copy from one device to another, nothing else running.", LINK, _peers("looks")),
    Metric("link_both_ways_bytes_per_second", "The same, while the opposite direction copies as well.", LINK,
           _peers("both_ways_gb_per_s")),
    Metric("link_together_bytes_per_second", "The same, while all other devices copy in pairs.", LINK,
           _peers("together_gb_per_s")),
    Metric("link_wrong_bytes", "Bytes of a copied pattern that came out wrong.", LINK, _peers("wrong_bytes")),
    Metric("host_link_to_device_bytes_per_second", "Copy from pinned host memory, alone or with all devices together.",
           (*DEVICE, "together"), _host_copies("to_device_gb_per_s")),
    Metric("host_link_from_device_bytes_per_second", "Copy to pinned host memory, alone or with all devices together.",
           (*DEVICE, "together"), _host_copies("from_device_gb_per_s")),
    Metric("device_matrix_product_flops_per_second", "Dense matrix product of a device alone.", DEVICE,
           _speed(lambda speed: speed.gemm_tflops * 1e12)),
    Metric("device_memory_copy_bytes_per_second", "Copy within the memory of a device, reads plus writes.", DEVICE,
           _speed(lambda speed: speed.memory_copy_gb_per_s * 1e9)),
    Metric("device_from_host_bytes_per_second", "Copy from pinned host memory to a device.", DEVICE,
           _speed(lambda speed: speed.host_to_device_gb_per_s * 1e9)),
    Metric("device_to_host_bytes_per_second", "Copy from a device to pinned host memory.", DEVICE,
           _speed(lambda speed: speed.device_to_host_gb_per_s * 1e9)),
)  # fmt: skip
