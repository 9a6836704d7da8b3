"""From the lines of the links phase to one record. Pure; what was measured before the phase was cut short is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpubalance.record.job import Job
from gpubalance.record.links import DeviceCopies, HostPair, Links, PeerCopies
from gpubalance.record.rank_log import Event

_RATES = {"link_both": "both_ways_gb_per_s", "link_together": "together_gb_per_s"}


def collect_links(job: Job, lines: Sequence[Event]) -> Links | None:
    """What one process that sees all devices says of their links; None when it says nothing of them."""
    peers: dict[tuple[int, int], dict[str, Any]] = {}
    devices: dict[int, dict[str, Any]] = {}
    pairs: list[HostPair] = []
    end: Event | None = None
    for event in lines:
        name = event["event"]
        if name in ("link_check", "link_look", *_RATES):
            key = (_device(job, event["source"]), _device(job, event["target"]))
            _add(peers.setdefault(key, {"source": key[0], "target": key[1], "looks_gb_per_s": []}), event)
        elif name == "device_copies":
            device = _device(job, event["device"])
            devices.setdefault(device, {}).update({**_values(event), "device": device})
        elif name == "host_pair":
            both = {"first": _device(job, event["first"]), "second": _device(job, event["second"])}
            pairs.append(HostPair(**{**_values(event), **both}))
        elif name == "links_end":
            end = event
    if not peers and not devices and end is None:
        return None
    return Links(
        buffer_bytes=end["buffer_bytes"] if end else None,
        peers=[PeerCopies(**values) for values in peers.values()],
        devices=[DeviceCopies(**values) for values in devices.values()],
        host_pairs=pairs,
        missing=end["missing"] if end else {},
        complete=end is not None,
    )


def _device(job: Job, number: int) -> int:
    """The process counts its slots; the record counts the devices of the plan."""
    return job.slots[number].device


def _add(values: dict[str, Any], event: Event) -> None:
    if event["event"] == "link_look":
        values["looks_gb_per_s"].append(event["gb_per_s"])
        values["copy_bytes"] = event["copy_bytes"]
    elif event["event"] == "link_check":
        values.update({key: value for key, value in _values(event).items() if key not in ("source", "target")})
    else:
        values[_RATES[event["event"]]] = event["gb_per_s"]


def _values(event: Event) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key not in ("event", "t_s")}
