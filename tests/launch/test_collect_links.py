"""Lines of the links phase as a record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpubalance.launch.collect_links import collect_links
from gpubalance.record.job import Job, Slot
from gpubalance.record.links import DeviceCopies, HostPair, PeerCopies
from tests.support import make_job


def job(folder: Path, *devices: int) -> Job:
    made = make_job(folder, len(devices), crew="node")
    return Job(**{**made.__dict__, "slots": tuple(Slot(device, i, None, ()) for i, device in enumerate(devices))})


def line(event: str, **values: Any) -> dict[str, Any]:
    return {"event": event, "t_s": 1.0, **values}


PAIR = {"source": 0, "target": 1}
CHECK = {
    "peer_access": True,
    "checked_bytes": 8,
    "wrong_bytes": 0,
    "checked_on_host_bytes": 4,
    "wrong_on_host_bytes": 0,
}
LINES = [
    line("doing", what="x"),
    line("link_check", **PAIR, **CHECK),
    line("link_look", **PAIR, copy_bytes=8, gb_per_s=300.0),
    line("link_look", **PAIR, copy_bytes=8, gb_per_s=301.0),
    line("link_both", **PAIR, gb_per_s=299.0),
    line("link_together", **PAIR, gb_per_s=298.0),
    line("device_copies", device=1, memory_copy_gb_per_s=4000.0),
    line("device_copies", device=1, numa_node=0, not_bound=None),
    line("device_copies", device=1, to_device_gb_per_s=50.0),
    line("host_pair", first=0, second=1, first_gb_per_s=25.0, second_gb_per_s=26.0),
    line("links_end", buffer_bytes=8, missing={"together": "why"}),
]


def test_lines_of_one_pair_and_one_device_become_one_entry_each(tmp_path: Path) -> None:
    links = collect_links(job(tmp_path, 0, 1), LINES)
    assert links is not None
    assert links.peers == [
        PeerCopies(
            **PAIR, **CHECK, copy_bytes=8, looks_gb_per_s=[300.0, 301.0], both_ways_gb_per_s=299.0,
            together_gb_per_s=298.0,
        )
    ]  # fmt: skip
    assert links.devices == [DeviceCopies(device=1, memory_copy_gb_per_s=4000.0, numa_node=0, to_device_gb_per_s=50.0)]
    assert links.host_pairs == [HostPair(first=0, second=1, first_gb_per_s=25.0, second_gb_per_s=26.0)]
    assert (links.buffer_bytes, links.missing, links.complete) == (8, {"together": "why"}, True)


def test_the_record_counts_devices_of_the_plan_not_those_of_the_process(tmp_path: Path) -> None:
    links = collect_links(job(tmp_path, 5, 2), LINES)
    assert links is not None
    assert (links.peers[0].source, links.peers[0].target) == (5, 2)
    assert links.devices[0].device == 2
    assert (links.host_pairs[0].first, links.host_pairs[0].second) == (5, 2)


def test_what_was_measured_before_the_phase_was_cut_short_is_kept(tmp_path: Path) -> None:
    links = collect_links(job(tmp_path, 0, 1), LINES[:2])
    assert links is not None
    assert links.peers == [PeerCopies(**PAIR, **CHECK)]
    assert (links.complete, links.buffer_bytes) == (False, None)


def test_a_crew_without_the_phase_has_no_links(tmp_path: Path) -> None:
    assert collect_links(job(tmp_path, 0, 1), [line("phase_begin", phase="ddp"), line("doing", what="x")]) is None
