"""N: NVLinks and their errors, the fabric behind them, and what GPUs may do in each other's memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpubalance.checks.finding import Finding, State, counted
from gpubalance.checks.probing import fabric, peers
from gpubalance.checks.probing.check import Check, Gpu, each_gpu, finding, gpus_of, is_absent, not_measured, setting
from gpubalance.checks.probing.loaded import counter_change, seconds_between_edges, was_loaded, why_no_change
from gpubalance.checks.probing.measured import labels_of, numbers_of, values_of
from gpubalance.record.gates import gates_of
from gpubalance.record.probe import Probe
from gpubalance.thresholds import plain

ERRORS = {
    "nvlink_replays": ("replay", "replays"),
    "nvlink_recoveries": ("recovery", "recoveries"),
    "nvlink_crc_errors": ("CRC error", "CRC errors"),
}
"""Counter -> what one and several are called."""
RESEAT = "reseat the GPU or its bridge, then replace the part that the errors follow"


@dataclass(frozen=True)
class Links:
    """How many of a GPU's NVLinks are up; `unread` would not say."""

    gpu: Gpu
    up: int
    unread: int
    total: int


def links_of(gpu: Gpu) -> Links | None:
    """Null where the GPU has no NVLink, or did not say how they are."""
    states = [link.active for link in gpu.detail.links]
    total = max(len(states), int(gpu.number("nvlink_count") or 0))
    return Links(gpu, states.count(True), total - states.count(True) - states.count(False), total) if states else None


def same_models(gpus: Iterable[Gpu]) -> list[list[Gpu]]:
    """GPUs of one model and MIG state. A power limit, which splits `groups_of`, takes no link away."""
    models: dict[tuple[str, bool | None], list[Gpu]] = defaultdict(list)
    for gpu in gpus:
        models[gpu.device.name, gpu.device.mig_enabled].append(gpu)
    return list(models.values())


def links_up(probe: Probe) -> list[Finding]:
    """N1: a link is down that a peer of the same model has up, or fewer are up than `--expect-nvlinks`.

    There is no table of models: some cards have links that go nowhere (12 of 18 on H100 NVL), so that the same number
    down on all only warns until the user says what is right.
    """
    gpus = gpus_of(probe)
    expected = setting(probe, "expect_nvlinks")
    found: list[Finding] = []
    for group in same_models(gpus):
        known = [links for gpu in group if (links := links_of(gpu)) is not None]
        if known:
            found += _judge_links(known, expected, probe.looks)
    return [*found, *_without_links(gpus, expected)]


def _judge_links(group: Sequence[Links], expected: int | None, looks: int) -> Iterator[Finding]:
    due = max(links.up for links in group) if expected is None else expected
    short = [links for links in group if links.up + links.unread < due]
    unclear = [links for links in group if links.unread and links not in short and (not expected or links.up < due)]
    even = [links for links in group if links not in short and links not in unclear]
    for links in short:
        yield _too_few(links, due, by_peers=expected is None, looks=looks)
    for links in unclear:
        text = f"{links.gpu.name}: {links.unread} of {links.total} NVLinks did not say whether they are up"
        yield finding(State.UNKNOWN, text, subject=links.gpu.label)
    if even and expected is None and due < even[0].total:
        yield _fewer_on_all(even, looks)
    elif even:
        text = f"{min(links.up for links in even)} of {even[0].total} NVLinks up on {counted(len(even), 'GPU')}"
        yield finding(State.PASS, text)


def _too_few(links: Links, due: int, *, by_peers: bool, looks: int) -> Finding:
    against = f"its peers {due}" if by_peers else f"{due} expected"
    return finding(
        State.FAIL,
        f"{links.gpu.name}: {links.up} of {links.total} NVLinks up, {against}",
        subject=links.gpu.label,
        observed=str(links.up),
        expected=str(due),
        evidence=(_down(links), f"looked {counted(looks, 'time')}"),
        next_step=RESEAT,
    )


def _down(links: Links) -> str:
    return f"down: link {', '.join(str(link.link) for link in links.gpu.detail.links if link.active is False)}"


def _fewer_on_all(group: Sequence[Links], looks: int) -> Finding:
    up, total = group[0].up, group[0].total
    each = "on each of " if len(group) > 1 else "on "
    return finding(
        State.WARN,
        f"{up} of {total} NVLinks up {each}{counted(len(group), 'GPU')}",
        subject=labels_of(links.gpu for links in group),
        observed=str(up),
        evidence=(
            "no peer has more: a bridge, the shape of a VM, or one fault for all",
            f"looked {counted(looks, 'time')}",
        ),
        next_step=f"if {up} is right here, say so with --expect-nvlinks {up}",
    )


def _has_none(gpu: Gpu) -> bool:
    """Says that it has no NVLink; a GPU that hung says nothing. The count is newer than the links."""
    count = gpu.number("nvlink_count")
    said = gpu.detail.missing.get("nvlink_active", gpu.reason("nvlink_count"))
    none = count == 0 if count is not None else is_absent(gpu.reason("nvlink_count")) and is_absent(said)
    return none and not gpu.detail.links and gpu.detail.failed is None


def _without_links(gpus: Sequence[Gpu], expected: int | None) -> Iterator[Finding]:
    none = [gpu for gpu in gpus if _has_none(gpu)]
    for gpu in gpus:
        if gpu not in none and links_of(gpu) is None:
            reason = gpu.detail.failed or gpu.detail.missing.get("nvlink_active") or gpu.reason("nvlink_count")
            yield finding(State.UNKNOWN, f"NVLinks of {gpu.name} not measured: {reason}", subject=gpu.label)
    if none and expected:
        text = f"no NVLink on {numbers_of(none)}, {expected} expected"
        yield finding(State.FAIL, text, subject=labels_of(none), next_step="see whether it is the card you think it is")
    elif none:
        who = "any GPU here" if len(none) == len(gpus) else numbers_of(none)
        yield finding(State.SKIP, f"no NVLink on {who}")


def link_speed(probe: Probe) -> list[Finding]:
    """N2: every link as fast as those of peers of the same model (NVIDIA Health Validation).

    What one model has is no constant: NVML says 26.562 GB/s a link and direction on Hopper, 53.125 on Blackwell.
    """
    gpus = gpus_of(probe)
    linked = [gpu for gpu in gpus if not _has_none(gpu)]
    if gpus and not linked:
        return [finding(State.SKIP, "NVLink speed: no GPU here has an NVLink")]
    found: list[Finding] = []
    for group in same_models(linked):
        speeds = {index: speed for index, speed in values_of(group, "nvlink_speed_mb_per_s").items() if speed > 0}
        best = max(speeds.values(), default=0.0)
        slow = [_slow_links(gpu, speeds[gpu.index], best) for gpu in group if speeds.get(gpu.index, best) < best]
        found += slow or ([_even_speed(best, len(speeds))] if speeds else [])
    found += not_measured(linked, "nvlink_speed_mb_per_s", "NVLink speed")
    if linked and not found:  # NVML says 0 where no link is up
        found.append(finding(State.UNKNOWN, "NVLink speed not measured: no link is up"))
    return found


def _slow_links(gpu: Gpu, speed: float, best: float) -> Finding:
    return finding(
        State.FAIL,
        f"{gpu.name}: NVLinks at {speed / 1000:g} GB/s each, its peers {best / 1000:g}",
        subject=gpu.label,
        observed=f"{speed / 1000:g} GB/s a link and direction",
        expected=f"{best / 1000:g} GB/s",
        next_step=RESEAT,
    )


def _even_speed(speed: float, gpus: int) -> Finding:
    state = State.PASS if gpus > 1 else State.INFO
    return finding(state, f"NVLinks at {speed / 1000:g} GB/s each on {counted(gpus, 'GPU')}")


def link_errors(probe: Probe) -> list[Finding]:
    """N3: under load one new replay or recovery fails, and so do 100 CRC errors a second; fewer of those warn (DCGM).
    Totals since the driver was loaded say nothing about now: only told.
    """
    gpus = [gpu for gpu in gpus_of(probe) if not _has_none(gpu)]
    counting = [gpu for gpu in gpus if gpu.number("nvlink_replays") is not None]
    unread = not_measured(gpus, "nvlink_replays", "NVLink errors")
    loaded = [gpu for gpu in counting if was_loaded(probe, gpu.index)]
    return [*_totals(counting), *_new_errors(probe, loaded), *unread]


def _totals(gpus: Sequence[Gpu]) -> Iterator[Finding]:
    seen = [(gpu, text) for gpu in gpus if (text := _told({key: gpu.number(key) for key in ERRORS}))]
    for gpu, text in seen:
        note = "a total since the driver was loaded, not a change: --load measures one"
        yield finding(State.INFO, f"{gpu.name} has counted {text} so far", subject=gpu.label, evidence=(note,))
    if gpus and not seen:
        yield finding(State.PASS, f"no NVLink error counted so far on {counted(len(gpus), 'GPU')}")


def _told(numbers: Mapping[str, float | None]) -> str:
    """2 NVLink replays, 1 NVLink recovery; nothing where all are zero."""
    known = [(ERRORS[key], int(number)) for key, number in numbers.items() if number]
    return ", ".join(f"{number} NVLink {one if number == 1 else several}" for (one, several), number in known)


def _new_errors(probe: Probe, gpus: Sequence[Gpu]) -> Iterator[Finding]:
    clean, gates = 0, gates_of(probe).pair("nvlink_crc")
    for gpu in gpus:
        changes = {key: counter_change(probe, gpu.index, key) for key in ERRORS if gpu.number(key) is not None}
        unread = [key for key, change in changes.items() if change is None]
        if unread:
            reason = why_no_change(probe, gpu.index, unread[0])
            yield finding(State.UNKNOWN, f"new NVLink errors of {gpu.name} not measured: {reason}", subject=gpu.label)
            continue
        grown = _grown(gpu, changes, seconds_between_edges(probe, gpu.index) or 0.0, gates)
        clean += grown is None
        yield from () if grown is None else (grown,)
    if clean:
        yield finding(State.PASS, f"no new NVLink error under load on {counted(clean, 'GPU')}")


def _grown(gpu: Gpu, changes: Mapping[str, float | None], seconds: float, gates: tuple[float, float]) -> Finding | None:
    """None: not more than may be. Gates are CRC errors a second; a replay or a recovery is always too many."""
    crc, (warn, fail) = changes.get("nvlink_crc_errors") or 0, gates
    broken = bool(changes.get("nvlink_replays") or changes.get("nvlink_recoveries"))
    if not broken and not crc > warn * seconds:
        return None
    return finding(
        State.FAIL if broken or crc >= fail * seconds > 0 else State.WARN,
        f"{gpu.name}: {_told(changes)} under load",
        subject=gpu.label,
        observed=f"in {seconds:g} s",
        expected=f"no replay, no recovery, at most {plain(warn)} CRC errors a second (fails from {plain(fail)})",
        next_step=RESEAT,
    )


def recovery_failed(probe: Probe) -> list[Finding]:
    """N4: a link that could not be recovered is gone until a reset (DCGM: above 0; Blackwell counts it)."""

    def judge(gpu: Gpu, failures: float) -> Iterator[Finding]:
        if failures > 0:
            yield finding(
                State.FAIL,
                f"{gpu.name} failed to recover an NVLink since the driver was loaded",
                subject=gpu.label,
                observed=f"{failures:.0f}",
                expected="0",
                next_step="reset the GPU; replace it if a link fails again",
            )

    return each_gpu(probe, "nvlink_recovery_failed", "failed NVLink recoveries", judge, "no NVLink recovery failed")


CHECKS = (
    Check(
        "N1", "NVLinks that are up", links_up, "as many as peers of the same model, or --expect-nvlinks", required=True
    ),
    Check("N2", "speed of NVLinks", link_speed, "as fast as peers of the same model (NVIDIA Health Validation)"),
    Check("N3", "errors of NVLinks", link_errors, "DCGM: under load a replay, a recovery, or 100 CRC errors a second"),
    Check("N4", "recoveries of NVLinks", recovery_failed, "DCGM: above 0"),
    *fabric.CHECKS,
    *peers.CHECKS,
)
