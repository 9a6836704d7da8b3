"""X2's table: what each kind of line about links and buses means."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpubalance.checks.finding import Finding, State, counted
from gpubalance.checks.probing.check import finding
from gpubalance.record.probe import KernelEvent

Name = Callable[[str], tuple[str, str | None]]
"""Bus id -> what a sentence calls the device, and its full identity where NVML lists it."""

_WIDTHS = re.compile(r"limited by .*? x(\d+) link .*?\(capable of .*? x(\d+) link")


@dataclass(frozen=True)
class Meaning:
    """What events of one kind mean."""

    state: State
    words: str
    next_step: str | None = None


_FATAL_SXID = Meaning(
    State.FAIL, "fatal SXid {xid}", "restart the fabric manager or reboot; call the vendor after that"
)
_SXID = Meaning(State.WARN, "SXid {xid}", "look it up in the Fabric Manager User Guide and watch whether it recurs")
_FALLEN = Meaning(State.FAIL, "fell off the bus", "check power and seating, reboot, and replace it if it recurs")
_FATAL_AER = Meaning(State.FAIL, "fatal PCIe error", "reseat the card or its riser, and drain the node if it recurs")
_AER = Meaning(State.WARN, "uncorrected PCIe error", "reseat the card or its riser and watch whether it recurs")
_CORRECTED = Meaning(State.INFO, "PCIe errors, all corrected")
_NARROW = Meaning(State.WARN, "came up on x{width} of x{capable} lanes", "reseat the card, then check slot and riser")
_SLOW = Meaning(State.INFO, "link was slower at boot than it can be")


def bus_findings(events: Iterable[KernelEvent], name: Name) -> list[Finding]:
    """One finding for each device and meaning, with the newest line as evidence; Xids are not looked at."""
    groups: dict[tuple[str, Meaning, str], list[KernelEvent]] = defaultdict(list)
    for event in events:
        meaning = _meaning(event)
        if meaning is not None:
            groups[event.bus_id or "", meaning, _words(meaning, event)].append(event)
    return [_finding(meaning, words, *_named(name, bus_id, alike), alike)
            for (bus_id, meaning, words), alike in groups.items()]  # fmt: skip


def _meaning(event: KernelEvent) -> Meaning | None:
    if event.kind == "sxid":
        return _FATAL_SXID if event.fatal else _SXID
    if event.kind == "aer":
        return _FATAL_AER if event.fatal else _AER if "Uncorrect" in event.text else _CORRECTED
    if event.kind == "downtrained":
        return _NARROW if _is_narrow(event) else _SLOW
    return _FALLEN if event.kind == "fallen_off" else None


def _is_narrow(event: KernelEvent) -> bool:
    widths = _WIDTHS.search(event.text)
    return widths is not None and int(widths[1]) < int(widths[2])


def _words(meaning: Meaning, event: KernelEvent) -> str:
    widths = _WIDTHS.search(event.text)
    width, capable = (widths[1], widths[2]) if widths else ("", "")
    return meaning.words.format(xid=event.xid, width=width, capable=capable)


def _named(name: Name, bus_id: str, events: Sequence[KernelEvent]) -> tuple[str, str]:
    """A bus id that no GPU has is an NVSwitch's or a bridge's."""
    called, label = name(bus_id)
    if label is not None or events[0].kind in ("fallen_off", "downtrained"):
        return called, label or bus_id
    return f"{'NVSwitch' if events[0].kind == 'sxid' else 'PCIe device'} {bus_id}", bus_id


def _finding(meaning: Meaning, words: str, called: str, subject: str, events: Sequence[KernelEvent]) -> Finding:
    return finding(
        meaning.state,
        f"{called}: {words}",
        subject=subject,
        observed=f"{counted(len(events), 'line')} since boot",
        expected="none",
        evidence=(events[-1].text,),
        next_step=meaning.next_step,
    )
